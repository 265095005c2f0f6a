"""The view over any vector, recomputed by definition and independently of what maintains views.

A search asks for thousands of vectors that differ little. So bags are numbered by what they hold
(a transaction that the view does not see changes no number), joins are kept by the numbers of
their bags, and values of the view are numbered too: equal views have equal
numbers, and comparing a state with the view over a vector is comparing two integers.

A view's join is computed by definition: the places are joined one after the other, by hashing on
the view's equalities; the other conditions and the outputs are evaluated by the reference. No
delta, no compensation and no kernel is used, so nothing that is being checked can be wrong here in
the same way. (Only functions, the words of `viewkeeper.view.kernel_words`, are the kernel's own;
what they mean is Spark's to judge.)

Whoever asks has bags that return again and again. So a place numbers the bags that it is given, and
joins of the first k places are kept by these numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from viewkeeper.check.history.recorded_history import Bag, RecordedHistory, Row
from viewkeeper.check.history_words import row_text
from viewkeeper.check.serial_schedules import Point, Schedule
from viewkeeper.delta.reference_carrier import evaluate_for_row
from viewkeeper.errors import HistoryError
from viewkeeper.view.definition import Place, Relation, ViewDefinition
from viewkeeper.view.expression import Column, Expression, places_of

Counted = list[tuple[Row, int]]
Pick = Callable[[Row], Row]


@dataclass(slots=True)
class JoinStep:
    """A place at its turn in the join: its bags, and how earlier places find its rows.

    `key` takes the key from a row of the earlier places; `indexes` has the rows of each bag by key.
    A NULL in a key that is not null-safe finds nothing, because no such key is in an index.
    """

    place: Place
    local: list[Expression]
    """The conditions on this place alone."""
    key: Callable[[Row], Any]
    own_key: Callable[[Row], Any]
    strict: tuple[int, ...]
    """Columns of the key, by index in the place's rows, in which NULL equals nothing."""
    numbers: dict[frozenset[tuple[Row, int]], int] = field(default_factory=dict)
    """The number of every bag that was given, over the place's columns."""
    bags: list[Counted] = field(default_factory=list)
    indexes: list[dict[Any, Counted]] = field(default_factory=list)

    def number_bag(self, rows: Mapping[Row, int], columns: list[str]) -> int:
        """The number of a bag of the relation, whose rows have these columns."""
        pick = column_picker([columns.index(name) for name in self.place.columns])
        bag = sum_counts((pick(row), count) for row, count in rows.items())
        number = self.numbers.setdefault(frozenset(bag.items()), len(self.bags))
        if number == len(self.bags):
            labels = [f"{self.place.index}.{name}" for name in self.place.columns]
            self._index_bag(
                [item for item in bag.items() if _conditions_hold(self.local, labels, item[0])]
            )
        return number

    def _index_bag(self, bag: Counted) -> None:
        index: dict[Any, Counted] = {}
        for row, count in bag:
            if all(row[at] is not None for at in self.strict):
                index.setdefault(self.own_key(row), []).append((row, count))
        self.bags.append(bag)
        self.indexes.append(index)


class ViewJoin:
    """The rows of one view over any bags, by their numbers at each place."""

    def __init__(self, view: ViewDefinition) -> None:
        if view.needs_spark:
            raise HistoryError(
                f'view "{view.name}": has an expression that only Spark can evaluate',
                hint="a checker evaluates columns, literals, operators, and the functions of the "
                "kernel",
            )
        self.steps = _join_order(view)
        """The places in the order in which they are joined."""
        self._labels = [f"{s.place.index}.{c}" for s in self.steps for c in s.place.columns]
        self._residual = [p for p in view.predicates if len(places_of(p)) != 1]
        self._shown = _output_projection(view, self._labels)
        self._joins: dict[tuple[int, ...], Counted] = {}

    def rows_over(self, numbers: tuple[int, ...]) -> dict[Row, int]:
        """The view's rows over the bags with these numbers, in the order of `steps`."""
        rows = self._join_first(numbers)
        if self._residual:
            rows = [
                item for item in rows if _conditions_hold(self._residual, self._labels, item[0])
            ]
        return sum_counts((self._shown(row), count) for row, count in rows)

    def _join_first(self, versions: tuple[int, ...]) -> Counted:
        """The join of the first places, with these bags."""
        if len(versions) == 1:
            return self.steps[0].bags[versions[0]]
        rows = self._joins.get(versions)
        if rows is None:
            step = self.steps[len(versions) - 1]
            index, key = step.indexes[versions[-1]], step.key
            rows = [
                (ours + theirs, n * count)
                for ours, n in self._join_first(versions[:-1])
                for theirs, count in index.get(key(ours), ())
            ]
            # What is joined completely is kept as a value, by its number.
            if len(versions) < len(self.steps):
                self._joins[versions] = rows
        return rows


def sum_counts(items: Iterable[tuple[Row, int]]) -> dict[Row, int]:
    total: dict[Row, int] = {}
    for row, count in items:
        total[row] = total.get(row, 0) + count
    return {row: count for row, count in total.items() if count}


def _conditions_hold(conditions: list[Expression], labels: list[str], row: Row) -> bool:
    if not conditions:
        return True
    values = dict(zip(labels, row, strict=True))
    return all(evaluate_for_row(condition, values) is True for condition in conditions)


def _join_order(view: ViewDefinition) -> list[JoinStep]:
    """The places, each after one that an equality connects it with, where there is one."""
    steps: list[JoinStep] = []
    labels: list[str] = []
    left = list(view.places)
    while left:
        joined = {step.place.index for step in steps}
        place = next((p for p in left if _join_keys(view, p, joined)), left[0])
        left.remove(place)
        keys = _join_keys(view, place, joined)
        own = [place.columns.index(want.name) for _, want, _ in keys]
        strict = tuple(at for at, (_, _, safe) in zip(own, keys, strict=True) if not safe)
        have = [labels.index(column.label) for column, _, _ in keys]
        local = [p for p in view.predicates if places_of(p) == {place.index}]
        steps.append(JoinStep(place, local, column_picker(have), column_picker(own), strict))
        labels += [f"{place.index}.{name}" for name in place.columns]
    return steps


def _join_keys(
    view: ViewDefinition, place: Place, joined: set[int]
) -> list[tuple[Column, Column, bool]]:
    """The equalities between a place and those joined before: theirs, its own, null-safe."""
    found = []
    for equality in view.equalities:
        for have, want in ((equality.left, equality.right), (equality.right, equality.left)):
            if want.place == place.index and have.place in joined:
                found.append((have, want, equality.null_safe))
    return found


def column_picker(indexes: list[int]) -> Pick:
    """A function that takes these columns from a row, as a row."""
    if len(indexes) > 1:
        return itemgetter(*indexes)
    if indexes:
        at = indexes[0]
        return lambda row: (row[at],)
    return lambda row: ()


def _output_projection(view: ViewDefinition, labels: list[str]) -> Pick:
    """A function that makes a row of the view from a joined row."""
    expressions = [output.expression for output in view.outputs]
    columns = [e.label for e in expressions if isinstance(e, Column)]
    if len(columns) == len(expressions):
        return column_picker([labels.index(label) for label in columns])

    def shown(row: Row) -> Row:
        values: Mapping[str, Any] = dict(zip(labels, row, strict=True))
        return tuple(evaluate_for_row(expression, values) for expression in expressions)

    return shown


class BagNumbers:
    """Numbers of bags of rows: equal bags have equal numbers."""

    def __init__(self) -> None:
        self._numbers: dict[frozenset[tuple[Row, int]], int] = {}
        self._bags: list[dict[Row, int]] = []

    def number_of(self, bag: Bag) -> int:
        """The number of any bag, of a view or of a state."""
        value = frozenset(item for item in bag.items() if item[1])
        number = self._numbers.setdefault(value, len(self._bags))
        if number == len(self._bags):
            self._bags.append(dict(value))
        return number

    def bag_of(self, number: int) -> Bag:
        return self._bags[number]


class Recomputation:
    """V(vector) for all vectors of a history, as numbers of values."""

    def __init__(self, history: RecordedHistory, schedule: Schedule) -> None:
        self._join = ViewJoin(history.view)
        self._numbers: dict[tuple[int, ...], int] = {}
        values = BagNumbers()
        self.number_of, self.bag_of = values.number_of, values.bag_of
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
