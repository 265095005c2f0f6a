"""The shapes of a table, one after the other: its shape at a position, and the lives of columns.

A column keeps its identity from one shape to the next while the table is the same one, the column
is at its place and its type keeps its values. Else what is at that place is another column. A life
that is counted so has the identity `place@since`, with the position of its first shape. Shapes do
not change, so a question about a position is decided alike by everybody who has the history.

A question may reach over several shapes, because it asks for what happened between two positions. A
column that is alive in all of them comes exactly; before it was added it is NULL. Whatever else is
found in one of the shapes breaks the question.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Generic, TypeVar

import pyarrow as pa

from viewkeeper.errors import BrokenQueryError
from viewkeeper.sources.handles import HandleTarget
from viewkeeper.sources.tables.column_type import can_keep_values
from viewkeeper.sources.tables.shape import ShapeColumn, TableShape
from viewkeeper.updates.schema_change import name_of_handle

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class ShapeHistory(Generic[S]):
    """What something was from each of some positions on, the oldest first; never empty.

    >>> history = ShapeHistory(((3, "a"), (7, "b")))
    >>> [history.shape_at(position) for position in (1, 6, 7)]
    ['a', 'a', 'b']
    """

    steps: tuple[tuple[int, S], ...]

    @property
    def newest(self) -> S:
        return self.steps[-1][1]

    def shape_at(self, position: int) -> S:
        """The shape at a position; the oldest that is known for positions before it."""
        return self.steps[self._index_at(position)][1]

    def add_step(self, position: int, shape: S) -> ShapeHistory[S]:
        """With what comes next."""
        return ShapeHistory((*self.steps, (position, shape)))

    def steps_in(self, first: int, last: int) -> tuple[tuple[int, S], ...]:
        """The steps that are current anywhere from one position to another."""
        return self.steps[self._index_at(first) : self._index_at(last) + 1]

    def pairs_between(self, after: int, until: int) -> Iterator[tuple[int, S, S]]:
        """The steps with `after` < position <= `until`: where, the shape before, the shape now."""
        for (_, before), (position, now) in pairwise(self.steps):
            if after < position <= until:
                yield position, before, now

    def fold_until(self, position: int) -> ShapeHistory[S]:
        """Without what was over before a position."""
        return ShapeHistory(self.steps[self._index_at(position) :])

    def _index_at(self, position: int) -> int:
        return max(0, bisect_right(self.steps, position, key=_position_of) - 1)


def _position_of(step: tuple[int, object]) -> int:
    return step[0]


def name_lives(shapes: Iterable[tuple[int, TableShape]]) -> ShapeHistory[TableShape]:
    """A history in which every column that is kept has the identity `place@since`."""
    named: list[tuple[int, TableShape]] = []
    for position, shape in shapes:
        before = named[-1][1] if named else None
        columns = tuple(_name_life(column, position, shape, before) for column in shape.columns)
        named.append((position, replace(shape, columns=columns)))
    return ShapeHistory(tuple(named))


def _name_life(
    column: ShapeColumn, position: int, shape: TableShape, before: TableShape | None
) -> ShapeColumn:
    if column.type is None:
        return column
    is_same = before is not None and before.identity == shape.identity
    if before is not None and is_same and column.place not in shape.lost:
        old = before.column_at(column.place)
        if old is not None and can_keep_values(old.type, column.type):
            return replace(column, identity=old.identity)
    return replace(column, identity=f"{column.place}@{position}")


def place_of(identity: str) -> str:
    """
    >>> place_of("a@b@12")
    'a@b'
    """
    return identity.rpartition("@")[0]


def start_of(identity: str) -> int:
    """
    >>> start_of("a@b@12")
    12
    """
    return int(identity.rpartition("@")[2])


@dataclass(frozen=True, slots=True)
class HandleQuestion:
    """Columns of a handle that somebody asks a source for; identities are lives (`name_lives`)."""

    source: str
    handle: str
    named: HandleTarget
    columns: Sequence[str]

    def types_over(
        self, steps: Iterable[tuple[int, TableShape]], first: int, known: Sequence[TableShape]
    ) -> dict[str, pa.DataType]:
        """The types in which the columns come, from the position `first` on, over some steps that
        follow each other; a BrokenQueryError if they cannot be had.

        A column has the type of the newest of the `known` shapes, the oldest first, that has it.
        """
        if what := self._find_break(steps, first):
            raise self._broken_query(what)
        types = {}
        for name in self.columns:
            kind = self._latest_type(self.named.columns[name], known)
            if kind is None:
                raise self._broken_query(f"column {name} is gone")
            types[name] = kind
        return types

    def _find_break(self, steps: Iterable[tuple[int, TableShape]], first: int) -> str | None:
        for position, shape in steps:
            if shape.fate or shape.identity != self.named.identity:
                return "it is gone, was for a time, or another table is called so"
            for name in self.columns:
                identity = self.named.columns[name]
                found = shape.column_at(place_of(identity))
                if found is None:
                    # Before it was added it is NULL.
                    if start_of(identity) <= position:
                        return f"column {name} is gone"
                elif found.identity != identity:
                    return f"column {name} has another type there"
                elif found.filled and position > first:
                    return f"column {name} was added with values"
        return None

    def _latest_type(self, identity: str, known: Sequence[TableShape]) -> pa.DataType | None:
        for shape in reversed(known):
            column = shape.column_by_identity(identity)
            if column is not None and shape.identity == self.named.identity and not shape.fate:
                return column.type
        return None

    def _broken_query(self, what: str) -> BrokenQueryError:
        return BrokenQueryError(self.source, name_of_handle(self.handle), what)


def current_columns_of(
    named: HandleTarget | None, shape: TableShape, whole: bool = False
) -> dict[str, str]:
    """The handle's columns that are there in a shape, each with its name in it.

    As a `whole`, those too that it does not stand for, by their own names unless it has these.
    """
    now = {identity: name for name, identity in shape.identities_by_name().items()}
    if named is None:
        return {name: name for name in now.values()}
    called_so = {identity: name for name, identity in named.columns.items()}
    return {
        called_so.get(identity, name): name
        for identity, name in now.items()
        if identity in called_so or (whole and name not in named.columns)
    }
