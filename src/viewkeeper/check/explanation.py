"""Why a history does not have a level, in sentences with the rows.

Each explanation is about the root of a failure: a state that matches no source vector is said to be
that, not also to be out of order. The searches of the checker say where they failed; what is said
about it is found here, by looking through the vectors once more, within the same kind of limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, islice, product

from viewkeeper.check.checker import Evidence, Verdict
from viewkeeper.check.claims import ClaimFault, Fault
from viewkeeper.check.history_words import (
    Wording,
    count_differences,
    difference_text,
    list_words,
    rows_text,
)
from viewkeeper.check.levels import LIMIT, CheckAnswer, Predicate
from viewkeeper.check.serial_schedules import Point, Unit, is_within

EXAMPLES_MAX = 3
"""How many states, claims or transactions are named where many have the same fault."""


@dataclass(frozen=True, slots=True)
class HistoryExplanation:
    """A few sentences about one predicate, or about claims."""

    about: str
    text: str


def explain_verdict(verdict: Verdict) -> list[HistoryExplanation]:
    """Everything that is wrong with a history, or could not be decided."""
    return list(_Explainer(verdict).explain_all())


class _Explainer:
    """The sentences about one verdict."""

    def __init__(self, verdict: Verdict) -> None:
        self._verdict = verdict
        self._found: Evidence = verdict.evidence
        self._views = verdict.evidence.views
        self._schedule = verdict.evidence.schedule
        self._numbers = verdict.evidence.numbers
        self._words = Wording(verdict.history, self._schedule)
        # The index of the first state of every group of equal neighbours.
        groups = groupby(enumerate(self._numbers), key=lambda pair: pair[1])
        self._firsts = [next(group)[0] for _, group in groups]

    def explain_all(self) -> Iterator[HistoryExplanation]:
        no = [p for p, answer in self._verdict.answers.items() if answer is CheckAnswer.NO]
        if Predicate.CONVERGENT in no:
            yield HistoryExplanation("convergent", self._explain_convergence())
        if Predicate.LEGAL in no:
            yield from (HistoryExplanation("legal", text) for text in self._explain_legality())
        elif Predicate.ORDERED in no:
            yield HistoryExplanation("ordered", self._explain_order())
        elif Predicate.COMPLETE in no and Predicate.CONVERGENT not in no:
            yield HistoryExplanation("complete", self._explain_skipped())
        yield from (HistoryExplanation("claims", text) for text in self._explain_claims())
        unknown = [p.value for p, a in self._verdict.answers.items() if a is CheckAnswer.UNKNOWN]
        if unknown:
            text = f"Whether the history is {list_words(unknown)} is unknown: "
            yield HistoryExplanation("limit", text + "the search reached its limit of vectors.")

    def _explain_convergence(self) -> str:
        final = self._views.number_at(self._schedule.final)
        last = len(self._numbers) - 1
        if self._numbers[-1] == final:
            quiet = [i for i in self._found.unmatched if self._verdict.history.states[i].quiet]
            return (
                f"{self._sentence_start(quiet[0])} is marked quiet, and matches no source vector."
            )
        return (
            f"The last state, {self._words.state_text(last)}, is not the view over the sources' "
            f"final states: it {self._difference_from(last, final)}."
        )

    def _sentence_start(self, index: int) -> str:
        text = self._words.state_text(index)
        return text[0].upper() + text[1:]

    def _difference_from(self, state: int, number: int) -> str:
        return difference_text(self._views.bag_of(self._numbers[state]), self._views.bag_of(number))

    def _explain_legality(self) -> Iterator[str]:
        unmatched = self._found.unmatched
        for index in unmatched[:EXAMPLES_MAX]:
            number, point = self._nearest_value(index)
            rows = self._views.bag_of(self._numbers[index])
            never = f"exactly {rows_text(rows)}" if rows else "empty"
            yield (
                f"{self._sentence_start(index)} matches no source vector: however many "
                f"transactions of each source are taken, the view is never {never}. The nearest is "
                f"{self._words.vector_text(point)}: compared with the view there, the state "
                f"{self._difference_from(index, number)}."
            )
        if len(unmatched) > EXAMPLES_MAX:
            yield f"{len(unmatched) - EXAMPLES_MAX} other states match no source vector either."

    def _nearest_value(self, index: int) -> tuple[int, Point]:
        """The value of the view that differs least from a state, and a vector that gives it."""
        shown = self._views.bag_of(self._numbers[index])
        return min(
            self._views.values_at.items(),
            key=lambda item: (count_differences(shown, self._views.bag_of(item[0])), sum(item[1])),
        )

    def _explain_order(self) -> str:
        search = self._found.order
        assert search is not None, "only a search finds that there is no order"
        failing = self._firsts[search.reach]
        matches = self._matching_points()
        if matches is None or failing == 0:
            return self._explain_no_order(failing)
        here = matches[self._numbers[failing]]
        whole = [point for point in here if self._schedule.halved_unit(point) is None]
        if not whole:
            return self._explain_halves(failing, here)
        for earlier in reversed(self._firsts[: search.reach]):
            before = [
                p for p in matches[self._numbers[earlier]] if self._schedule.halved_unit(p) is None
            ]
            if not any(is_within(one, other) for one in before for other in whole):
                return self._explain_backwards(earlier, failing, before, whole)
        return self._explain_no_order(failing)

    def _matching_points(self) -> dict[int, list[Point]] | None:
        """For every state's value, all vectors that give it; None beyond the limit."""
        found: dict[int, list[Point]] = {number: [] for number in self._numbers}
        ranges = [range(n + 1) for n in self._schedule.final]
        for visited, point in enumerate(product(*ranges)):
            if visited >= LIMIT:
                return None
            number = self._views.number_at(point)
            if number in found:
                found[number].append(point)
        return found

    def _explain_halves(self, index: int, points: list[Point]) -> str:
        point = points[0]
        unit = self._schedule.halved_unit(point)
        assert unit is not None
        inside = [s for s, begin, _ in unit.spans if point[s] > begin]
        outside = [s for s, begin, end in unit.spans if point[s] < end and s not in inside]
        kind = "global transaction" if len(unit.names) == 1 else "global transactions"
        without = f" but not at {self._words.source_names(outside)}" if outside else ""
        return (
            f"{self._sentence_start(index)} shows the {kind} {unit} in halves: its rows are "
            f"{rows_text(self._views.bag_of(self._numbers[index]))}, the view with {unit} at "
            f"{self._words.source_names(inside)}{without} ({self._words.vector_text(point)}), and "
            "no vector that has every transaction whole or not at all gives them."
        )

    def _explain_backwards(
        self, earlier: int, later: int, before: list[Point], after: list[Point]
    ) -> str:
        # The pair that is nearest to being in order is the easiest to understand.
        one, other = min(
            product(before, after),
            key=lambda pair: sum(max(0, a - b) for a, b in zip(*pair, strict=True)),
        )
        undone = {
            name: source
            for source, log in enumerate(self._schedule.logs)
            for name in log[other[source] : one[source]]
        }
        return (
            f"{self._sentence_start(later)} goes backwards: {self._words.state_text(earlier)} "
            f"stands for {self._words.vector_text(one)}, {self._words.state_text(later)} for "
            f"{self._words.vector_text(other)}, without {list_words(list(undone))} at "
            f"{self._words.source_names(dict.fromkeys(undone.values()))}. No vectors that give "
            "their rows are in this order."
        )

    def _explain_no_order(self, failing: int) -> str:
        if failing == 0:
            return (
                f"{self._sentence_start(0)} matches no vector that has every global "
                "transaction whole."
            )
        return (
            "No order of the transactions fits all states up to "
            f"{self._words.state_text(failing)}: those before it have one, and nothing that can "
            f"follow shows {rows_text(self._views.bag_of(self._numbers[failing]))}."
        )

    def _explain_skipped(self) -> str:
        search = self._found.steps
        assert search is not None, "only a search finds that a state is missing"
        if not search.frontier:
            initial = self._views.number_at(self._schedule.start)
            return (
                f"{self._sentence_start(0)} is not the view over the sources' initial states: it "
                f"{self._difference_from(0, initial)}. What came before it was not shown."
            )
        shown = self._firsts[search.reach]
        point = self._stop_point(search.reach, search.frontier)
        ways = [
            self._next_step(unit, further) for unit, further in self._schedule.units_after(point)
        ]
        more = [f"{len(ways) - EXAMPLES_MAX} others"] if len(ways) > EXAMPLES_MAX else []
        following = list_words([*ways[:EXAMPLES_MAX], *more]) if ways else "nothing"
        if search.reach + 1 < len(self._firsts):
            where = f"between {self._words.state_text(shown)} and "
            where += self._words.state_text(self._firsts[search.reach + 1])
        else:
            where = f"after {self._words.state_text(shown)}"
        return (
            f"A state was skipped {where}. {self._sentence_start(shown)} stands for "
            f"{self._words.vector_text(point)}; what comes next there is "
            f"{following}, and that was not shown."
        )

    def _stop_point(self, reach: int, frontier: tuple[Point, ...]) -> Point:
        """Where the path ended: as far as possible on the way to the states that follow."""
        chain = self._verdict.chain
        ahead = list(frontier)
        if chain is not None and reach + 1 < len(self._firsts):
            goal = chain[self._firsts[reach + 1]]
            ahead = [point for point in frontier if is_within(point, goal)] or ahead
        open_ends = [p for p in ahead if next(self._schedule.units_after(p), None) is not None]
        return max(open_ends or ahead, key=sum)

    def _next_step(self, unit: Unit, further: Point) -> str:
        return (
            f"{unit}, which gives {rows_text(self._views.bag_of(self._views.number_at(further)))}"
        )

    def _explain_claims(self) -> Iterator[str]:
        faults = self._verdict.claim_faults
        yield from (self._explain_claim(fault) for fault in islice(faults, EXAMPLES_MAX))
        if len(faults) > EXAMPLES_MAX:
            yield f"{len(faults) - EXAMPLES_MAX} other claims are wrong too."

    def _explain_claim(self, fault: ClaimFault) -> str:
        claim = self._verdict.history.states[fault.state].claim
        assert claim is not None, "a fault is of a claim"
        if fault.point is None:
            named = list_words([f"{source} {n}" for source, n in claim.items()])
        else:
            named = self._words.vector_text(fault.point)
        return (
            f"{self._sentence_start(fault.state)} claims to stand for {named}, but "
            f"{self._claim_reason(fault)}."
        )

    def _claim_reason(self, fault: ClaimFault) -> str:
        match fault:
            case ClaimFault(fault=Fault.WRONG, point=point) if point is not None:
                number = self._views.number_at(point)
                there = rows_text(self._views.bag_of(number))
                difference = self._difference_from(fault.state, number)
                return f"the view there is {there}: the state {difference}"
            case ClaimFault(fault=Fault.HALVED, point=point) if point is not None:
                return f"that has {self._schedule.halved_unit(point)} in halves"
            case ClaimFault(fault=Fault.BACKWARDS, earlier=earlier) if earlier is not None:
                return f"{self._words.state_text(earlier)} claims something that this lacks"
            case _:
                return "the history has no such source, or not so many transactions there"
