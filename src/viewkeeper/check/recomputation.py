"""The view over any vector, recomputed by definition and independently of what maintains views.

A search asks for thousands of vectors that differ little. So bags are numbered by what they hold
(a transaction that the view does not see changes no number), joins are kept by the numbers of their
bags (`viewkeeper.check.view_join`), and values of the view are numbered too: equal views have equal
numbers, and comparing a state with the view over a vector is comparing two integers.
"""

from __future__ import annotations

from collections.abc import Iterable

from viewkeeper.check.history.recorded_history import Bag, RecordedHistory, Row
from viewkeeper.check.history_words import row_text
from viewkeeper.check.serial_schedules import Point, Schedule
from viewkeeper.check.view_join import ViewJoin, sum_counts
from viewkeeper.errors import HistoryError
from viewkeeper.view.definition import Relation


class Recomputation:
    """V(vector) for all vectors of a history, as numbers of values."""

    def __init__(self, history: RecordedHistory, schedule: Schedule) -> None:
        self._join = ViewJoin(history.view)
        self._numbers: dict[tuple[int, ...], int] = {}
        self._values: dict[frozenset[tuple[Row, int]], int] = {}
        self._bags: list[dict[Row, int]] = []
        bags = {
            relation: _bag_numbers(history, relation, self._join)
            for relation in history.view.relations
        }
        self._pairs = [
            (schedule.sources.index(step.place.relation.source), bags[step.place.relation][at])
            for at, step in enumerate(self._join.steps)
        ]
        """For every place, its source and per position of that the number of the bag."""
        self.values_at: dict[int, Point] = {}
        """For every value that was computed, the first vector that gave it."""

    def number_at(self, point: Point) -> int:
        """The number of the view's value over a vector."""
        versions = tuple([numbers[point[source]] for source, numbers in self._pairs])
        number = self._numbers.get(versions)
        if number is None:
            number = self._numbers[versions] = self.number_of(self._join.rows_over(versions))
            self.values_at.setdefault(number, point)
        return number

    def number_of(self, bag: Bag) -> int:
        """The number of any value, of the view or of a state."""
        value = frozenset(item for item in bag.items() if item[1])
        number = self._values.setdefault(value, len(self._bags))
        if number == len(self._bags):
            self._bags.append(dict(value))
        return number

    def bag_of(self, number: int) -> Bag:
        return self._bags[number]

    def distinct_positions(self, source: int, length: int) -> list[int]:
        """Positions of a source, one for each content that the view can tell apart."""
        numbers = [bags for at, bags in self._pairs if at == source]
        seen: dict[tuple[int, ...], int] = {}
        for position in range(length + 1):
            seen.setdefault(tuple(versions[position] for versions in numbers), position)
        return list(seen.values())


def _bag_numbers(
    history: RecordedHistory, relation: Relation, join: ViewJoin
) -> dict[int, list[int]]:
    """For every place of a relation, the number of its bag at every position of the source."""
    columns = [field.name for field in history.tables[relation]]
    found: dict[int, list[int]] = {}
    for at, step in enumerate(join.steps):
        if step.place.relation != relation:
            continue
        previous: dict[Row, int] | None = None
        number = 0
        found[at] = []
        for state in _relation_states(history, relation):
            if state is not previous:
                previous, number = state, step.number_bag(state, columns)
            found[at].append(number)
    return found


def _relation_states(history: RecordedHistory, relation: Relation) -> Iterable[dict[Row, int]]:
    """A relation's rows at every position of its source."""
    rows = {tuple(row): count for row, count in history.initial.get(relation, {}).items()}
    yield rows
    for transaction in history.transactions:
        part = transaction.parts.get(relation.source)
        if part is None:
            continue
        if changes := part.get(relation):
            rows = sum_counts((*rows.items(), *changes))
            for row in [row for row, count in rows.items() if count < 0]:
                raise HistoryError(
                    f'transaction "{transaction.name}": deletes {row_text(row)} from {relation}, '
                    f"which does not have it",
                    hint="check the initial rows and the order of the transactions",
                )
        yield rows
