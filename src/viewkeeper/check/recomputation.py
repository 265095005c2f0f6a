"""The view over any vector, recomputed by definition and independently of what maintains views.

A vector gives every place a bag of rows; they are joined by hashing on the view's equalities, the
other conditions and the outputs are evaluated by the reference. No delta, no compensation and no
kernel is used, so nothing that is being checked can be wrong here in the same way.

A search asks for thousands of vectors that differ little. So bags are numbered by what they hold
(a transaction that the view does not see changes no number), joins of the first k places are kept
by the numbers of their bags, and values of the view are numbered too: equal views have equal
numbers, and comparing a state with the view over a vector is comparing two integers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from viewkeeper.check.history import Bag, History, Row
from viewkeeper.check.schedule import Point, Schedule
from viewkeeper.check.wording import row_text
from viewkeeper.delta.reference import evaluate
from viewkeeper.errors import HistoryError
from viewkeeper.view.definition import Place, Relation, ViewDefinition
from viewkeeper.view.expression import Column, Expression, places_of

Counted = list[tuple[Row, int]]
Pick = Callable[[Row], Row]


@dataclass(slots=True)
class Joined:
    """A place at its turn in the join: its bags, and how earlier places find its rows.

    `key` takes the key from a row of the earlier places; `indexes` has the rows of each bag by key.
    A NULL in a key that is not null-safe finds nothing, because no such key is in an index.
    """

    place: Place
    source: int
    key: Callable[[Row], Any]
    own_key: Callable[[Row], Any]
    strict: tuple[int, ...]
    """Columns of the key, by index in the place's rows, in which NULL equals nothing."""
    versions: list[int] = field(default_factory=list)
    """Per position of the source, the number of the bag."""
    bags: list[Counted] = field(default_factory=list)
    indexes: list[dict[Any, Counted]] = field(default_factory=list)

    def add(self, bag: Counted) -> None:
        index: dict[Any, Counted] = {}
        for row, count in bag:
            if all(row[at] is not None for at in self.strict):
                index.setdefault(self.own_key(row), []).append((row, count))
        self.bags.append(bag)
        self.indexes.append(index)


class Recomputation:
    """V(vector) for all vectors of a history, as numbers of values."""

    def __init__(self, history: History, schedule: Schedule) -> None:
        view = history.view
        if view.needs_spark:
            raise HistoryError(
                f'view "{view.name}": has an expression that only Spark can evaluate',
                hint="a checker evaluates columns, literals, comparisons, AND, OR, NOT, IS NULL, "
                "+, - and *",
            )
        self._view = view
        self._steps = _join_order(view, schedule.sources)
        self._labels = [f"{s.place.index}.{c}" for s in self._steps for c in s.place.columns]
        self._residual = [p for p in view.predicates if len(places_of(p)) != 1]
        self._shown = _projection(view, self._labels)
        self._joins: dict[tuple[int, ...], Counted] = {}
        self._numbers: dict[tuple[int, ...], int] = {}
        self._values: dict[frozenset[tuple[Row, int]], int] = {}
        self._bags: list[dict[Row, int]] = []
        for relation in view.relations:
            self._fill(history, relation)
        self._pairs = [(step.source, step.versions) for step in self._steps]
        self.values_at: dict[int, Point] = {}
        """For every value that was computed, the first vector that gave it."""

    def _fill(self, history: History, relation: Relation) -> None:
        """The bags of a relation at every position of its source."""
        states = list(_states(history, relation))
        columns = [f.name for f in history.tables[relation]]
        for step in self._steps:
            if step.place.relation != relation:
                continue
            pick = _picker([columns.index(name) for name in step.place.columns])
            local = [p for p in self._view.predicates if places_of(p) == {step.place.index}]
            labels = [f"{step.place.index}.{name}" for name in step.place.columns]
            known: dict[frozenset[tuple[Row, int]], int] = {}
            previous: dict[Row, int] | None = None
            for state in states:
                if state is not previous:
                    previous = state
                    bag = _sum((pick(row), n) for row, n in state.items())
                    number = known.setdefault(frozenset(bag.items()), len(known))
                    if number == len(step.bags):
                        step.add([item for item in bag.items() if _holds(local, labels, item[0])])
                step.versions.append(number)

    # -- values ------------------------------------------------------------------------------------

    def at(self, point: Point) -> int:
        """The number of the view's value over a vector."""
        versions = tuple([numbers[point[source]] for source, numbers in self._pairs])
        number = self._numbers.get(versions)
        if number is None:
            number = self._numbers[versions] = self.number(self._evaluate(versions))
            self.values_at.setdefault(number, point)
        return number

    def number(self, bag: Bag) -> int:
        """The number of any value, of the view or of a state."""
        value = frozenset(item for item in bag.items() if item[1])
        number = self._values.setdefault(value, len(self._bags))
        if number == len(self._bags):
            self._bags.append(dict(value))
        return number

    def bag(self, number: int) -> Bag:
        return self._bags[number]

    def positions(self, source: int, length: int) -> list[int]:
        """Positions of a source, one for each content that the view can tell apart."""
        numbers = [step.versions for step in self._steps if step.source == source]
        seen: dict[tuple[int, ...], int] = {}
        for position in range(length + 1):
            seen.setdefault(tuple(versions[position] for versions in numbers), position)
        return list(seen.values())

    def _evaluate(self, versions: tuple[int, ...]) -> dict[Row, int]:
        rows = self._join(versions)
        if self._residual:
            rows = [item for item in rows if _holds(self._residual, self._labels, item[0])]
        return _sum((self._shown(row), count) for row, count in rows)

    def _join(self, versions: tuple[int, ...]) -> Counted:
        """The join of the first places, with these bags."""
        if len(versions) == 1:
            return self._steps[0].bags[versions[0]]
        rows = self._joins.get(versions)
        if rows is None:
            step = self._steps[len(versions) - 1]
            index, key = step.indexes[versions[-1]], step.key
            rows = [
                (ours + theirs, n * count)
                for ours, n in self._join(versions[:-1])
                for theirs, count in index.get(key(ours), ())
            ]
            # What is joined completely is kept as a value, by its number.
            if len(versions) < len(self._steps):
                self._joins[versions] = rows
        return rows


def _states(history: History, relation: Relation) -> Iterable[dict[Row, int]]:
    """A relation's rows at every position of its source."""
    rows = {tuple(row): count for row, count in history.initial.get(relation, {}).items()}
    yield rows
    for transaction in history.transactions:
        part = transaction.parts.get(relation.source)
        if part is None:
            continue
        if changes := part.get(relation):
            rows = _sum((*rows.items(), *changes))
            for row in [row for row, count in rows.items() if count < 0]:
                raise HistoryError(
                    f'transaction "{transaction.name}": deletes {row_text(row)} from {relation}, '
                    f"which does not have it",
                    hint="check the initial rows and the order of the transactions",
                )
        yield rows


def _sum(items: Iterable[tuple[Row, int]]) -> dict[Row, int]:
    total: dict[Row, int] = {}
    for row, count in items:
        total[row] = total.get(row, 0) + count
    return {row: count for row, count in total.items() if count}


def _holds(conditions: list[Expression], labels: list[str], row: Row) -> bool:
    if not conditions:
        return True
    values = dict(zip(labels, row, strict=True))
    return all(evaluate(condition, values) is True for condition in conditions)


def _join_order(view: ViewDefinition, sources: tuple[str, ...]) -> list[Joined]:
    """The places, each after one that an equality connects it with, where there is one."""
    steps: list[Joined] = []
    labels: list[str] = []
    left = list(view.places)
    while left:
        joined = {step.place.index for step in steps}
        place = next((p for p in left if _keys(view, p, joined)), left[0])
        left.remove(place)
        keys = _keys(view, place, joined)
        own = [place.columns.index(want.name) for _, want, _ in keys]
        strict = tuple(at for at, (_, _, safe) in zip(own, keys, strict=True) if not safe)
        have = [labels.index(column.label) for column, _, _ in keys]
        source = sources.index(place.relation.source)
        steps.append(Joined(place, source, _picker(have), _picker(own), strict))
        labels += [f"{place.index}.{name}" for name in place.columns]
    return steps


def _keys(
    view: ViewDefinition, place: Place, joined: set[int]
) -> list[tuple[Column, Column, bool]]:
    """The equalities between a place and those joined before: theirs, its own, null-safe."""
    found = []
    for equality in view.equalities:
        for have, want in ((equality.left, equality.right), (equality.right, equality.left)):
            if want.place == place.index and have.place in joined:
                found.append((have, want, equality.null_safe))
    return found


def _picker(indexes: list[int]) -> Pick:
    """A function that takes these columns from a row, as a row."""
    if len(indexes) > 1:
        return itemgetter(*indexes)
    if indexes:
        at = indexes[0]
        return lambda row: (row[at],)
    return lambda row: ()


def _projection(view: ViewDefinition, labels: list[str]) -> Pick:
    """A function that makes a row of the view from a joined row."""
    expressions = [output.expression for output in view.outputs]
    columns = [e.label for e in expressions if isinstance(e, Column)]
    if len(columns) == len(expressions):
        return _picker([labels.index(label) for label in columns])

    def shown(row: Row) -> Row:
        values: Mapping[str, Any] = dict(zip(labels, row, strict=True))
        return tuple(evaluate(expression, values) for expression in expressions)

    return shown
