"""Tables and columns by identity: numbers of our own that stay while names change.

MariaDB has no number of a table or column that lasts (every ALTER may make a new table inside). So
a table gets an identity when it is followed, its columns with it, and the DDL in the binlog carries
them along: `shape_effect` makes of the shapes before a statement those after it. A table's name
at any place of the log then follows from the shapes at an earlier place and the statements between.

An identity that the log gives, as to a column that is added, is made of the position of the
statement: whoever reads the log again gives it again.

What must hold: of two shapes that are there, no two have one name. A table that is gone stays here
as such, so that another one under its name is noticed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from viewkeeper.sources.mariadb.schema import MariadbTable
from viewkeeper.sources.mariadb.types import DeclaredType, MariadbKind, kind_of
from viewkeeper.sources.tables.column_type import ColumnRefusal
from viewkeeper.sources.tables.shape import ShapeColumn, TableShape
from viewkeeper.sources.tables.shape_changes import ShapeChange
from viewkeeper.storage.typed_json import read_typed


@dataclass(frozen=True, slots=True)
class ShapedColumn:
    """A column: its identity, what it is called and how it is declared at some place of the log."""

    id: str
    name: str
    declared: DeclaredType
    nullable: bool = True
    generated: bool = False

    @property
    def kind(self) -> MariadbKind | None:
        """How its values are kept; None if they cannot be."""
        found = kind_of(self.declared)
        return None if isinstance(found, ColumnRefusal) else found

    @property
    def shape_column(self) -> ShapeColumn:
        """What somebody who follows the column knows of it."""
        kind = None if self.kind is None else self.kind.arrow
        return ShapeColumn(self.id, self.id, self.name, kind, self.declared.type)


@dataclass(frozen=True, slots=True)
class LoggedShape:
    """A table at some place of the log.

    `key` are the identities of the columns of its key, `charset` is what text columns get that say
    none. Before the position `since` nothing is known of it but its name.
    """

    id: str
    database: str
    name: str
    columns: tuple[ShapedColumn, ...]
    key: tuple[str, ...] = ()
    charset: str = ""
    since: int = 0
    gone: bool = False

    @property
    def full_name(self) -> str:
        return f"{self.database}.{self.name}"

    def column_named(self, name: str) -> ShapedColumn | None:
        """A column by its name, in MariaDB's way: without regard to case."""
        folded = name.lower()
        return next((column for column in self.columns if column.name.lower() == folded), None)

    def column_by_id(self, id: str) -> ShapedColumn | None:
        return next((column for column in self.columns if column.id == id), None)

    def table_shape(self) -> TableShape:
        """What somebody who follows the table knows of it."""
        columns = tuple(column.shape_column for column in self.columns)
        return TableShape(
            self.id, self.full_name, columns, self.key, "dropped" if self.gone else ""
        )


@dataclass(frozen=True, slots=True)
class LoggedChange:
    """A change of the table with an identity."""

    table: str
    change: ShapeChange


@dataclass(frozen=True, slots=True)
class LoggedShapes:
    """The followed tables by identity, at one place of the log.

    `folds` where the server does not tell upper from lower case in names of tables.
    """

    tables: Mapping[str, LoggedShape]
    folds: bool = False

    def __iter__(self) -> Iterator[LoggedShape]:
        return (shape for shape in self.tables.values() if not shape.gone)

    def shape_by_id(self, id: str) -> LoggedShape | None:
        """A table by its identity; None if it is gone."""
        found = self.tables.get(id)
        return None if found is None or found.gone else found

    def find_shape(self, database: str, name: str) -> LoggedShape | None:
        """The table that is called so."""
        return next((shape for shape in self if self.has_name(shape, database, name)), None)

    def find_lost(self, database: str, name: str) -> Iterator[LoggedShape]:
        """The tables that had this name when they were dropped."""
        gone = (shape for shape in self.tables.values() if shape.gone)
        return (shape for shape in gone if self.has_name(shape, database, name))

    def has_name(self, shape: LoggedShape, database: str, name: str) -> bool:
        return self.fold_name(shape.database, shape.name) == self.fold_name(database, name)

    def fold_name(self, database: str, name: str) -> tuple[str, str]:
        return (database.lower(), name.lower()) if self.folds else (database, name)

    def with_table(self, shape: LoggedShape) -> LoggedShapes:
        return LoggedShapes({**self.tables, shape.id: shape}, self.folds)

    def without_tables(self, ids: Iterable[str]) -> LoggedShapes:
        dropped = set(ids)
        left = {id: shape for id, shape in self.tables.items() if id not in dropped}
        return LoggedShapes(left, self.folds)

    def known_from(self, position: int) -> LoggedShapes:
        """The same, where nothing is known of the time before a position."""
        tables = {
            id: replace(shape, since=max(shape.since, position))
            for id, shape in self.tables.items()
        }
        return LoggedShapes(tables, self.folds)


def shape_of(table: MariadbTable, id: str, since: int) -> LoggedShape:
    """A table as the server describes it, with new identities."""
    columns = tuple(
        ShapedColumn(f"{id}.{number}", one.name, one.declared, one.nullable, one.generated)
        for number, one in enumerate(table.columns, 1)
    )
    shape = LoggedShape(id, table.database, table.name, columns, (), table.charset, since)
    return replace(shape, key=key_ids(shape, table.exact_key))


def key_ids(shape: LoggedShape, names: Sequence[str]) -> tuple[str, ...]:
    """The identities of the columns of a key; () if one of them is not known."""
    found = [shape.column_named(name) for name in names]
    return tuple(column.id for column in found if column is not None) if all(found) else ()


def shapes_to_json(shapes: LoggedShapes) -> dict[str, Any]:
    return {"folds": shapes.folds, "tables": [asdict(one) for one in shapes.tables.values()]}


def shapes_from_json(read: Mapping[str, Any]) -> LoggedShapes:
    tables = [read_typed(LoggedShape, one) for one in read["tables"]]
    return LoggedShapes({shape.id: shape for shape in tables}, read["folds"])
