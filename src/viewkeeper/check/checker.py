"""The checker: which predicates hold of a history, and so which level each paper gives it.

Cheap questions come first. Convergence is one recomputation. Claims, where states have them, are a
proof that needs no search if they are right; if they are wrong that is reported, and a search
decides as if there were none. What a predicate implies is not asked again: complete is ordered,
ordered is legal, and what is not legal is neither.

A campaign asks `check(history, at_least=level)`, which decides only what that level is made of and
stops at the first no; what was not decided is left unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby

from viewkeeper.check.claims import ClaimFault, Claims, prove_steps, read_claims
from viewkeeper.check.history.recorded_history import History
from viewkeeper.check.levels import LIMIT, Answer, Ladder, Predicate, all_of, needs
from viewkeeper.check.recomputation import Recomputation
from viewkeeper.check.serial_schedules import Point, Schedule
from viewkeeper.check.vector_search import Search, find_chain, find_legal, find_steps
from viewkeeper.errors import HistoryError
from viewkeeper.maintain.promises import Level


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

    history: History
    answers: dict[Predicate, Answer]
    claim_faults: tuple[ClaimFault, ...]
    chain: tuple[Point, ...] | None
    """If the history is ordered: the vector that each state stands for."""
    evidence: Evidence = field(repr=False)

    def has(self, level: Level) -> Answer:
        """Whether the history has at least a level of the Strobe paper."""
        return all_of(self.answers[need] for need in needs(level))

    @property
    def level(self) -> Level:
        """The highest level that is proven."""
        return max(level for level in Level if self.has(level) is Answer.YES)

    @property
    def possible(self) -> Level:
        """The highest level that is not refuted; above `level` only if something is unknown."""
        return max(level for level in Level if self.has(level) is not Answer.NO)

    def named(self, ladder: Ladder) -> dict[str, Answer]:
        """Whether the history has each level of a paper."""
        return ladder.answers(self.answers)


def check(history: History, limit: int = LIMIT, at_least: Level | None = None) -> Verdict:
    """Decide a history; with `at_least`, only as far as that level needs."""
    if not history.states:
        raise HistoryError("no state", hint="the first state is what the view showed at the start")
    return _Examination(history, limit, at_least).verdict()


class _Examination:
    """One check at work: what is decided so far."""

    def __init__(self, history: History, limit: int, at_least: Level | None) -> None:
        self._history = history
        self._limit = limit
        self._at_least = at_least
        self._schedule = Schedule(history)
        self._views = Recomputation(history, self._schedule)
        self._numbers = tuple(self._views.number(state.rows) for state in history.states)
        self._merged = [number for number, _ in groupby(self._numbers)]
        self._answers = dict.fromkeys(Predicate, Answer.UNKNOWN)
        self._claims = Claims((), ())
        self._chain: tuple[Point, ...] | None = None
        self._order: Search | None = None
        self._steps: Search | None = None
        self._missing: set[int] = set()

    def verdict(self) -> Verdict:
        for decide in self._plan():
            if self._is_decided():
                break
            decide()
        unmatched = [i for i, number in enumerate(self._numbers) if number in self._missing]
        evidence = Evidence(
            self._views,
            self._schedule,
            self._numbers,
            tuple(unmatched),
            self._order,
            self._steps,
        )
        faults = self._claims.faults
        return Verdict(self._history, self._answers, faults, self._chain, evidence)

    def _plan(self) -> tuple[Callable[[], None], ...]:
        match self._at_least:
            case Level.NONE:
                return ()
            case Level.CONVERGENCE:
                return (self._converge, self._quiet)
            case Level.WEAK:
                return (self._converge, self._believe, self._legal)
            case Level.STRONG:
                return (self._converge, self._believe, self._ordered, self._legal)
            case _:
                return (
                    self._converge,
                    self._believe,
                    self._complete,
                    self._legal,
                    self._ordered,
                )

    def _is_decided(self) -> bool:
        if self._at_least is None:
            return False
        wanted = all_of(self._answers[need] for need in needs(self._at_least))
        return wanted is not Answer.UNKNOWN

    # -- decisions ---------------------------------------------------------------------------------

    def _converge(self) -> None:
        if self._numbers[-1] != self._views.at(self._schedule.final):
            self._no(Predicate.CONVERGENT, Predicate.COMPLETE)
        elif not self._quiet_values():
            self._yes(Predicate.CONVERGENT)

    def _quiet_values(self) -> set[int]:
        """Values shown at quiet moments; the last is the final one already."""
        states = zip(self._history.states, self._numbers, strict=True)
        return {number for state, number in states if state.quiet} - {self._numbers[-1]}

    def _quiet(self) -> None:
        found = find_legal(self._views, self._schedule, self._quiet_values(), self._limit)
        self._note_legal(*found)

    def _believe(self) -> None:
        """Let the claims prove what they can."""
        self._claims = read_claims(self._history, self._views, self._schedule, self._numbers)
        chain = self._claims.chain
        if chain is None:
            return
        self._chain = chain
        self._yes(Predicate.ORDERED, Predicate.LEGAL)
        if self._answers[Predicate.COMPLETE] is Answer.UNKNOWN and self._wants_complete():
            limit = self._limit
            if prove_steps(self._views, self._schedule, chain, self._numbers, limit):
                self._yes(Predicate.COMPLETE)

    def _wants_complete(self) -> bool:
        return self._at_least in (None, Level.COMPLETE)

    def _legal(self) -> None:
        if self._answers[Predicate.LEGAL] is Answer.UNKNOWN:
            found = find_legal(self._views, self._schedule, self._numbers, self._limit)
            self._note_legal(*found)
            if found[0] is Answer.YES:
                self._yes(Predicate.LEGAL)

    def _note_legal(self, answer: Answer, missing: set[int]) -> None:
        """What follows from values for which no vector was found."""
        self._missing |= missing
        if answer is Answer.NO:
            self._no(Predicate.LEGAL, Predicate.ORDERED, Predicate.COMPLETE)
        if self._answers[Predicate.CONVERGENT] is Answer.UNKNOWN:
            if not missing & self._quiet_values():
                self._yes(Predicate.CONVERGENT)
            elif answer is Answer.NO:
                self._no(Predicate.CONVERGENT)

    def _ordered(self) -> None:
        if self._answers[Predicate.ORDERED] is Answer.UNKNOWN:
            self._order = find_chain(self._views, self._schedule, self._merged, self._limit)
            match self._order.answer:
                case Answer.YES:
                    # A state is taken at the last vector before the next one is looked for.
                    self._chain = self._spread(dict(self._order.path))
                    self._yes(Predicate.ORDERED, Predicate.LEGAL)
                case Answer.NO:
                    self._no(Predicate.ORDERED, Predicate.COMPLETE)

    def _complete(self) -> None:
        if self._answers[Predicate.COMPLETE] is Answer.UNKNOWN:
            self._steps = find_steps(self._views, self._schedule, self._merged, self._limit)
            match self._steps.answer:
                case Answer.YES:
                    self._chain = self._spread(dict(reversed(self._steps.path)))
                    self._yes(Predicate.COMPLETE, Predicate.ORDERED, Predicate.LEGAL)
                case Answer.NO:
                    self._no(Predicate.COMPLETE)

    def _spread(self, points: dict[int, Point]) -> tuple[Point, ...]:
        """Vectors of merged states, given to all states."""
        chain = list[Point]()
        for index, (_, group) in enumerate(groupby(self._numbers)):
            chain += [points[index] for _ in group]
        return tuple(chain)

    # -- what follows ------------------------------------------------------------------------------

    def _yes(self, *predicates: Predicate) -> None:
        for predicate in predicates:
            self._answers[predicate] = Answer.YES
        if Predicate.LEGAL in predicates and self._answers[Predicate.CONVERGENT] is Answer.UNKNOWN:
            # The last state is the final one, or this would be a no.
            self._answers[Predicate.CONVERGENT] = Answer.YES

    def _no(self, *predicates: Predicate) -> None:
        for predicate in predicates:
            self._answers[predicate] = Answer.NO
