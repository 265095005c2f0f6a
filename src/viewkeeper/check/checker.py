"""The checker: which predicates hold of a history, and so which level each paper gives it.

Cheap questions come first. Convergence is one recomputation. Claims, where states have them, are a
proof that needs no search if they are right; if they are wrong that is reported, and a search
decides as if there were none. What a predicate implies is not asked again: complete is ordered,
ordered is legal, and what is not legal is neither.

A campaign asks `check_history(history, at_least=level)`, which decides only what that level is made
of and stops at the first no; what was not decided is left unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby

from viewkeeper.check.claims import ClaimFault, Claims, prove_steps, read_claims
from viewkeeper.check.history.recorded_history import RecordedHistory
from viewkeeper.check.levels import LIMIT, CheckAnswer, Ladder, Predicate, all_of, predicates_of
from viewkeeper.check.recomputation import Recomputation
from viewkeeper.check.serial_schedules import Point, Schedule
from viewkeeper.check.vector_search import Search, find_chain, find_legal, find_steps
from viewkeeper.errors import HistoryError
from viewkeeper.maintain.algorithm_protocol import Level


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the decisions rest on, for explanations."""

    views: Recomputation
    schedule: Schedule
    numbers: tuple[int, ...]
    """The value of every state."""
    unmatched: tuple[int, ...]
    """States for which no vector was found; all vectors were tried if legal is a no."""
    order: Search | None
    """The search for a chain, over the states with equal neighbours merged."""
    steps: Search | None
    """The search for a path in single units, over the same."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the checker found."""

    history: RecordedHistory
    answers: dict[Predicate, CheckAnswer]
    claim_faults: tuple[ClaimFault, ...]
    chain: tuple[Point, ...] | None
    """If the history is ordered: the vector that each state stands for."""
    evidence: Evidence = field(repr=False)

    def has_level(self, level: Level) -> CheckAnswer:
        """Whether the history has at least a level of the Strobe paper."""
        return all_of(self.answers[need] for need in predicates_of(level))

    @property
    def level(self) -> Level:
        """The highest level that is proven."""
        return max(level for level in Level if self.has_level(level) is CheckAnswer.YES)

    @property
    def possible_level(self) -> Level:
        """The highest level that is not refuted; above `level` only if something is unknown."""
        return max(level for level in Level if self.has_level(level) is not CheckAnswer.NO)

    def ladder_answers(self, ladder: Ladder) -> dict[str, CheckAnswer]:
        """Whether the history has each level of a paper."""
        return ladder.answers_by_level(self.answers)


def check_history(
    history: RecordedHistory, limit: int = LIMIT, at_least: Level | None = None
) -> Verdict:
    """Decide a history; with `at_least`, only as far as that level needs."""
    if not history.states:
        raise HistoryError("no state", hint="the first state is what the view showed at the start")
    return _Examination(history, limit, at_least).reach_verdict()


class _Examination:
    """One check at work: what is decided so far."""

    def __init__(self, history: RecordedHistory, limit: int, at_least: Level | None) -> None:
        self._history = history
        self._limit = limit
        self._at_least = at_least
        self._schedule = Schedule(history)
        self._views = Recomputation(history, self._schedule)
        self._numbers = tuple(self._views.number_of(state.rows) for state in history.states)
        self._answers = dict.fromkeys(Predicate, CheckAnswer.UNKNOWN)
        self._claims = Claims((), ())
        self._chain: tuple[Point, ...] | None = None
        self._order: Search | None = None
        self._steps: Search | None = None
        self._missing: set[int] = set()

    def _search_arguments(self) -> tuple[Recomputation, Schedule, list[int], int]:
        """What is searched: the values shown, one after the other, without repetitions."""
        merged = [number for number, _ in groupby(self._numbers)]
        return self._views, self._schedule, merged, self._limit

    def reach_verdict(self) -> Verdict:
        for decide in self._decision_plan():
            if self._is_decided():
                break
            decide()
        unmatched = [i for i, number in enumerate(self._numbers) if number in self._missing]
        evidence = Evidence(
            self._views, self._schedule, self._numbers, tuple(unmatched), self._order, self._steps
        )
        faults = self._claims.faults
        return Verdict(self._history, self._answers, faults, self._chain, evidence)

    def _decision_plan(self) -> tuple[Callable[[], None], ...]:
        match self._at_least:
            case Level.NONE:
                return ()
            case Level.CONVERGENCE:
                return (self._decide_convergent, self._decide_quiet)
            case Level.WEAK:
                return (self._decide_convergent, self._prove_by_claims, self._decide_legal)
            case Level.STRONG:
                return (
                    self._decide_convergent,
                    self._prove_by_claims,
                    self._decide_ordered,
                    self._decide_legal,
                )
            case _:
                return (
                    self._decide_convergent,
                    self._prove_by_claims,
                    self._decide_complete,
                    self._decide_legal,
                    self._decide_ordered,
                )

    def _is_decided(self) -> bool:
        if self._at_least is None:
            return False
        wanted = all_of(self._answers[need] for need in predicates_of(self._at_least))
        return wanted is not CheckAnswer.UNKNOWN

    def _decide_convergent(self) -> None:
        if self._numbers[-1] != self._views.number_at(self._schedule.final):
            self._note_no(Predicate.CONVERGENT, Predicate.COMPLETE)
        elif not self._quiet_values():
            self._note_yes(Predicate.CONVERGENT)

    def _quiet_values(self) -> set[int]:
        """Values shown at quiet moments; the last is the final one already."""
        states = zip(self._history.states, self._numbers, strict=True)
        return {number for state, number in states if state.quiet} - {self._numbers[-1]}

    def _decide_quiet(self) -> None:
        found = find_legal(self._views, self._schedule, self._quiet_values(), self._limit)
        self._note_legal(*found)

    def _prove_by_claims(self) -> None:
        """Let the claims prove what they can."""
        self._claims = read_claims(self._history, self._views, self._schedule, self._numbers)
        chain = self._claims.chain
        if chain is None:
            return
        self._chain = chain
        self._note_yes(Predicate.ORDERED, Predicate.LEGAL)
        if self._answers[Predicate.COMPLETE] is CheckAnswer.UNKNOWN and self._wants_complete():
            limit = self._limit
            if prove_steps(self._views, self._schedule, chain, self._numbers, limit):
                self._note_yes(Predicate.COMPLETE)

    def _wants_complete(self) -> bool:
        return self._at_least in (None, Level.COMPLETE)

    def _decide_legal(self) -> None:
        if self._answers[Predicate.LEGAL] is CheckAnswer.UNKNOWN:
            found = find_legal(self._views, self._schedule, self._numbers, self._limit)
            self._note_legal(*found)
            if found[0] is CheckAnswer.YES:
                self._note_yes(Predicate.LEGAL)

    def _note_legal(self, answer: CheckAnswer, missing: set[int]) -> None:
        """What follows from values for which no vector was found."""
        self._missing |= missing
        if answer is CheckAnswer.NO:
            self._note_no(Predicate.LEGAL, Predicate.ORDERED, Predicate.COMPLETE)
        if self._answers[Predicate.CONVERGENT] is CheckAnswer.UNKNOWN:
            if not missing & self._quiet_values():
                self._note_yes(Predicate.CONVERGENT)
            elif answer is CheckAnswer.NO:
                self._note_no(Predicate.CONVERGENT)

    def _decide_ordered(self) -> None:
        if self._answers[Predicate.ORDERED] is CheckAnswer.UNKNOWN:
            self._order = find_chain(*self._search_arguments())
            match self._order.answer:
                case CheckAnswer.YES:
                    # A state is taken at the last vector before the next one is looked for.
                    self._chain = self._spread_chain(dict(self._order.path))
                    self._note_yes(Predicate.ORDERED, Predicate.LEGAL)
                case CheckAnswer.NO:
                    self._note_no(Predicate.ORDERED, Predicate.COMPLETE)

    def _decide_complete(self) -> None:
        if self._answers[Predicate.COMPLETE] is CheckAnswer.UNKNOWN:
            self._steps = find_steps(*self._search_arguments())
            match self._steps.answer:
                case CheckAnswer.YES:
                    self._chain = self._spread_chain(dict(reversed(self._steps.path)))
                    self._note_yes(Predicate.COMPLETE, Predicate.ORDERED, Predicate.LEGAL)
                case CheckAnswer.NO:
                    self._note_no(Predicate.COMPLETE)

    def _spread_chain(self, points: dict[int, Point]) -> tuple[Point, ...]:
        """Vectors of merged states, given to all states."""
        chain = list[Point]()
        for index, (_, group) in enumerate(groupby(self._numbers)):
            chain += [points[index] for _ in group]
        return tuple(chain)

    def _note_yes(self, *predicates: Predicate) -> None:
        for predicate in predicates:
            self._answers[predicate] = CheckAnswer.YES
        if (
            Predicate.LEGAL in predicates
            and self._answers[Predicate.CONVERGENT] is CheckAnswer.UNKNOWN
        ):
            # The last state is the final one, or this would be a no.
            self._answers[Predicate.CONVERGENT] = CheckAnswer.YES

    def _note_no(self, *predicates: Predicate) -> None:
        for predicate in predicates:
            self._answers[predicate] = CheckAnswer.NO
