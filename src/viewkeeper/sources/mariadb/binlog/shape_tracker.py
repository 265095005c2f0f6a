"""The shapes of followed tables, carried along while the log is read.

Every statement that changes them makes the next version, which counts from where its transaction
ends. The versions are kept for as long as somebody may ask what a table was called at a position.

The log is believed, not trusted: before rows it describes their table (`log_table`). A description
that does not agree with all statements before means that something was not logged, or not
understood; then the table is told to be another one, and is read anew.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from viewkeeper.sources.mariadb.binlog.event_bodies import Statement
from viewkeeper.sources.mariadb.binlog.rows import ChangedError, Layout, ObscureError, layout_of
from viewkeeper.sources.mariadb.binlog.table_map import read_log_table
from viewkeeper.sources.mariadb.ddl.shape_effect import Effect, effect_of
from viewkeeper.sources.mariadb.logged_shapes import Shapes, key_ids
from viewkeeper.sources.mariadb.schema import characters_of
from viewkeeper.sources.mariadb.server_connection import Server
from viewkeeper.updates.schema_change import SchemaChange

KeyOf = Callable[[str, str], Sequence[str] | None]
"""The names of the columns of a table's key now, by database and table; None if it is not there."""


@dataclass(frozen=True, slots=True)
class Watch:
    """What to follow: the shapes at a position of the log, and the columns whose values are kept,
    by identity."""

    shapes: Shapes
    position: int
    columns: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Told:
    """What was told of a table in the transaction that ends at a position."""

    position: int
    change: SchemaChange


class Tracker:
    """Follows a watch from a position on; without `key_of` keys do not matter."""

    def __init__(
        self, server: Server, watch: Watch, start: int, key_of: KeyOf | None = None
    ) -> None:
        early = start < watch.position
        shapes = watch.shapes.known_from(watch.position) if early else watch.shapes
        self._wanted = watch.columns
        self._key_of = key_of
        self._positions = [start]
        self._versions = [shapes]
        self._open = shapes
        self._open_told: list[SchemaChange] = []
        self._layouts: dict[bytes, Layout | None] = {}
        self._characters = cache(lambda charset: _ask_characters(server, charset))
        self.told: list[Told] = []
        self.reached = start

    @property
    def shapes(self) -> Shapes:
        """As of the last transaction that has ended."""
        return self._versions[-1]

    @property
    def is_reshaping(self) -> bool:
        """Whether the transaction that is being read has something to tell."""
        return bool(self._open_told)

    def at(self, position: int) -> Shapes:
        """As of a position that was read."""
        return self._versions[max(0, bisect_right(self._positions, position) - 1)]

    def between(self, after: int, until: int) -> list[Told]:
        """What was told with `after` < position <= `until`."""
        start = bisect_right(self.told, after, key=_position)
        return self.told[start : bisect_right(self.told, until, key=_position)]

    def is_wanted(self, id: str) -> bool:
        """Whether rows of a table are wanted; only its shape is, if they are not."""
        return id in self._wanted

    def apply(self, statement: Statement, position: int) -> Effect | None:
        """Take a statement that ends at a position; what it did to followed tables, if anything."""
        effect = effect_of(statement, self._open, position, self._characters)
        if effect is None:
            return None
        for id in effect.keys:
            self._compare_key(effect, id)
        self._open_told += effect.told
        self._become(effect.shapes)
        return effect

    def _become(self, shapes: Shapes) -> None:
        if shapes != self._open:
            self._open = shapes
            self._layouts.clear()

    def _compare_key(self, effect: Effect, id: str) -> None:
        """The server knows what the key is now; by the last statement that is what it should be."""
        shape = effect.shapes.get(id)
        if shape is None or self._key_of is None:
            return
        names = self._key_of(shape.database, shape.name)
        if names is None or any(shape.called(name) is None for name in names):
            return
        key = key_ids(shape, names)
        if key != shape.key:
            effect.told.append(SchemaChange("change_key", id, now=", ".join(names)))
            effect.shapes = effect.shapes.with_table(replace(shape, key=key))

    def lay_out(self, described: bytes, position: int) -> Layout | None:
        """How the rows of the table that the log describes are read; None if it is not followed.
        An ObscureError if that cannot be told."""
        if described not in self._layouts:
            self._layouts[described] = self._layout(described, position)
        return self._layouts.get(described)

    def _layout(self, described: bytes, position: int) -> Layout | None:
        log = read_log_table(described)
        shape = self._open.find(log.database, log.name)
        if shape is None or not self.is_wanted(shape.id):
            return None
        if not log.named:
            raise ObscureError(shape, "has columns that the binlog does not name")
        try:
            return layout_of(shape, self._wanted[shape.id], log)
        except ChangedError:
            if position > shape.since:
                self.contradict(shape.id)
            else:
                self._open_told.append(SchemaChange("recreate_table", shape.id))
            return None

    def contradict(self, id: str) -> None:
        """A table is not what it should be; that is told with the next transaction."""
        if self._open.get(id) is not None:
            self._open_told.append(SchemaChange("recreate_table", id))
            self._become(self._open.without([id]))

    def end(self, position: int) -> None:
        """The transaction that was being read ends here."""
        self.told += [Told(position, change) for change in self._open_told]
        self._open_told = []
        if self._open is not self._versions[-1]:
            self._positions.append(position)
            self._versions.append(self._open)

    def abandon(self) -> None:
        """The transaction that was being read has no end."""
        self._open_told = []
        self._become(self._versions[-1])

    def forget(self, position: int) -> None:
        """Nobody will ask for what was before a position."""
        past = max(0, bisect_right(self._positions, position) - 1)
        del self._positions[:past], self._versions[:past]
        del self.told[: bisect_right(self.told, position, key=_position)]


def _position(told: Told) -> int:
    return told.position


def _ask_characters(server: Server, charset: str) -> str:
    connection = server.connect()
    try:
        with server.errors():
            return characters_of(connection, charset)
    finally:
        connection.close()
