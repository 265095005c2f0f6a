"""The judge of a run with schema changes: the view over any vector, by identities alone.

What the view should be is in the scenario: the sketch, and what each transaction does to it. The
judge applies operations and effects of exactly the transactions in a vector and joins what the
places mean then, row by row. No SQL, no name, no delta and no definition of the code under test is
used. A state is compared on the columns that the view had when it was shown; a column that the view
shows and the vector does not have yet is NULL.

Every state claims its vector, so consistency needs no search:

- *convergent*: the last state is the view over everything;
- *strong*: every claim is right, and claims never go back;
- *complete*: between two claims, single transactions lead from one to the other and show nothing
  else on the way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from viewkeeper.check.serial_schedules import is_within
from viewkeeper.maintain.algorithm_protocol import Level
from viewkeeper.simulate.schema_changes.reshaped_scenario import (
    GoneEffect,
    MeaningEffect,
    PlaceMeaning,
    ReshapedScenario,
    ReshapedTransaction,
)
from viewkeeper.simulate.schema_changes.reshaped_tables import Row, Tables, apply_operation

Point = tuple[int, ...]
Bag = frozenset[tuple[Row, int]]


@dataclass(frozen=True, slots=True)
class ReshapedState:
    """What a reader saw: columns, rows, and the vector that it was said to stand for."""

    columns: tuple[str, ...]
    rows: Bag
    claim: Mapping[str, int]
    label: str = ""


@dataclass(frozen=True, slots=True)
class ReshapedFault:
    """What is wrong with a run: of which state, and how."""

    state: int
    what: str


class ReshapedJudge:
    """The view of a scenario over any vector."""

    def __init__(self, scenario: ReshapedScenario) -> None:
        self._sketch = scenario.sketch
        self.sources = tuple(scenario.tables)
        self._logs = [scenario.logs_by_source()[source] for source in self.sources]
        self._states = [
            list(_states_after(scenario.tables[source], log))
            for source, log in zip(self.sources, self._logs, strict=True)
        ]
        self.final: Point = tuple(len(log) for log in self._logs)
        self.at = lru_cache(maxsize=None)(self._view_at)

    def point_of(self, vector: Mapping[str, int]) -> Point:
        return tuple(vector[source] for source in self.sources)

    def outputs_at(self, point: Point) -> list[str]:
        """The names of what the view shows at a vector."""
        gone = {
            effect.output
            for log, position in zip(self._logs, point, strict=True)
            for transaction in log[:position]
            for effect in transaction.effects
            if isinstance(effect, GoneEffect)
        }
        return [shown.name for shown in self._sketch.outputs if shown.name not in gone]

    def _view_at(self, point: Point, columns: tuple[str, ...]) -> Bag:
        """The view over a vector, on these columns."""
        there = set(self.outputs_at(point))
        shown = {each.name: each for each in self._sketch.outputs if each.name in there}
        total: Counter[Row] = Counter()
        for joined, count in self._joined_rows(point):
            row = tuple(
                joined[shown[name].place, shown[name].letter] if name in shown else None
                for name in columns
            )
            total[row] += count
        return frozenset((row, count) for row, count in total.items() if count)

    def _meanings_at(self, point: Point) -> list[PlaceMeaning]:
        meanings = list(self._sketch.places)
        for log, position in zip(self._logs, point, strict=True):
            for transaction in log[:position]:
                for effect in transaction.effects:
                    if isinstance(effect, MeaningEffect):
                        meanings[effect.place] = effect.meaning
        return meanings

    def _joined_rows(self, point: Point) -> Iterator[tuple[dict[tuple[int, str], object], int]]:
        rows: list[tuple[dict[tuple[int, str], object], int]] = [({}, 1)]
        for place, meaning in enumerate(self._meanings_at(point)):
            values = list(self._place_rows(point, place, meaning))
            rows = [
                ({**ours, **theirs}, n * count)
                for ours, n in rows
                for theirs, count in values
                if self._meets_conditions({**ours, **theirs})
            ]
        yield from rows

    def _place_rows(
        self, point: Point, place: int, meaning: PlaceMeaning
    ) -> Iterator[tuple[dict[tuple[int, str], object], int]]:
        source = self.sources.index(meaning.table[0])
        table = self._states[source][point[source]][meaning.table[1]]
        at = {column.id: i for i, column in enumerate(table.shape.columns)}
        for row, count in table.rows.items():
            letters = {k: row[at[id]] for k, id in meaning.columns.items() if id in at}
            yield {(place, letter): value for letter, value in letters.items()}, count

    def _meets_conditions(self, row: Mapping[tuple[int, str], object]) -> bool:
        """Whether a row, of the first places or of all, passes every condition on them."""
        for one, other in self._sketch.joins:
            if one in row and other in row and (row[one] is None or row[one] != row[other]):
                return False
        if self._sketch.limit is None or self._sketch.limit[:2] not in row:
            return True
        value = row[self._sketch.limit[:2]]
        return isinstance(value, int) and value < self._sketch.limit[2]


def _states_after(tables: Tables, log: Sequence[ReshapedTransaction]) -> Iterator[Tables]:
    yield tables
    for transaction in log:
        for operation in transaction.operations:
            tables = apply_operation(tables, operation)
        yield tables


def first_fault(judge: ReshapedJudge, states: Sequence[ReshapedState]) -> ReshapedFault | None:
    """The first thing that keeps a run from being strong."""
    for index, state in enumerate(states):
        point = judge.point_of(state.claim)
        if judge.at(point, state.columns) != state.rows:
            return ReshapedFault(index, f"{state.label}: not the view at {dict(state.claim)}")
        if index and not is_within(judge.point_of(states[index - 1].claim), point):
            return ReshapedFault(index, f"{state.label}: goes back")
    last = states[-1]
    if judge.point_of(last.claim) != judge.final:
        return ReshapedFault(len(states) - 1, "something is missing in the end")
    if list(last.columns) != judge.outputs_at(judge.final):
        return ReshapedFault(
            len(states) - 1, f"in the end the columns are {', '.join(last.columns)}"
        )
    return None


def level_of(judge: ReshapedJudge, states: Sequence[ReshapedState]) -> Level:
    """How consistent a run is: complete, strong, convergent or nothing."""
    if first_fault(judge, states) is None:
        return Level.COMPLETE if _is_complete(judge, states) else Level.STRONG
    last = states[-1]
    converged = judge.at(judge.final, last.columns) == last.rows
    return Level.CONVERGENCE if converged else Level.NONE


def _is_complete(judge: ReshapedJudge, states: Sequence[ReshapedState]) -> bool:
    begins = judge.point_of(states[0].claim) == (0,) * len(judge.sources)
    return begins and all(_leads_to(judge, one, other) for one, other in pairwise(states))


def _leads_to(judge: ReshapedJudge, one: ReshapedState, other: ReshapedState) -> bool:
    """Whether single transactions lead from a state to the next and show nothing but these two."""
    end = judge.point_of(other.claim)
    reached = {(judge.point_of(one.claim), one.columns == other.columns and one.rows == other.rows)}
    waiting = list(reached)
    while waiting:
        point, moved = waiting.pop()
        if point == end and (moved or judge.at(point, other.columns) == other.rows):
            return True
        for further in _points_after(point, end):
            for shown, now in ((one, False), (other, True)):
                if (moved and not now) or judge.at(further, shown.columns) != shown.rows:
                    continue
                if (further, now) not in reached:
                    reached.add((further, now))
                    waiting.append((further, now))
    return False


def _points_after(point: Point, end: Point) -> Iterator[Point]:
    for source, position in enumerate(point):
        if position < end[source]:
            yield (*point[:source], position + 1, *point[source + 1 :])
