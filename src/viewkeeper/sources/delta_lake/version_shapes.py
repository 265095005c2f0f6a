"""The shapes that a followed Delta Lake table had, by version, and the lives of its columns.

A table is told by the id in its metadata. A column is told by the name that it has in files: that
is its own name, or, in a table that maps column names, one that stays when the column is renamed.
It lives from the version that added it until one that drops it or gives it a type that does not
keep its values; what is called so after that is another column. Versions are in order, so every
schema change has the position of its own version.

A version never changes its shape, so a question about one can be decided in any task: rows of a
version in which the column lived come exactly; before it was added they have NULL in it; everything
else is a BrokenQueryError.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from viewkeeper.errors import BrokenQueryError
from viewkeeper.sources.delta_lake.types import columns_of_schema, physical_names
from viewkeeper.sources.files.parquet import require_types
from viewkeeper.sources.files.parquet_types import TableColumns, classify_type_change
from viewkeeper.sources.handles import HandleTarget
from viewkeeper.updates.schema_change import SchemaChange, name_of_handle


@dataclass(frozen=True, slots=True)
class SeenShape:
    """The shape that a table has from a version on, as its log has it."""

    version: int
    id: str
    schema: str
    partitioned_by: tuple[str, ...]

    def parse_columns(self) -> TableColumns:
        return columns_of_schema(self.schema, self.partitioned_by)

    def names_by_stored(self) -> dict[str, str]:
        """The name that each column has now, by the one that it has in files."""
        return {stored: name for name, stored in physical_names(self.schema).items()}

    def type_of(self, stored: str) -> pa.DataType | None:
        """How a column is kept; None if it is not there, or refused."""
        name = self.names_by_stored().get(stored)
        return None if name is None else self.parse_columns().types_by_name().get(name)


def shape_from_metadata(version: int, metadata: Any) -> SeenShape:
    """The shape that a `metaData` action of the log says."""
    partitioned_by = tuple(metadata.get("partitionColumns", ()))
    return SeenShape(version, str(metadata["id"]), str(metadata["schemaString"]), partitioned_by)


@dataclass(frozen=True, slots=True)
class ColumnLife:
    """A column, from a version on and until another one, with the widest type that it got.

    `replaces`: right before that another column, or another table's, was called so.
    """

    stored: str
    since: int
    until: int | None
    replaces: bool
    type: pa.DataType

    @property
    def identity(self) -> str:
        return f"{self.stored}@{self.since}"


@dataclass(frozen=True, slots=True)
class DeltaShapeHistory:
    """The shapes of a table since it is followed, oldest first."""

    shapes: tuple[SeenShape, ...]

    def shape_at(self, version: int) -> SeenShape:
        """The shape of a version; the oldest that is known for versions before it."""
        found = [shape for shape in self.shapes if shape.version <= version]
        return found[-1] if found else self.shapes[0]

    @property
    def newest_shape(self) -> SeenShape:
        return self.shapes[-1]

    def life_at(self, stored: str, version: int) -> ColumnLife | None:
        """The life of the column that has a name in files at a version."""
        shapes, here = self.shapes, self.shapes.index(self.shape_at(version))
        kind = shapes[here].type_of(stored)
        if kind is None:
            return None
        first = last = here
        while first > 0 and _is_continued(shapes[first - 1], shapes[first], stored):
            first -= 1
        while last + 1 < len(shapes) and _is_continued(shapes[last], shapes[last + 1], stored):
            last += 1
        replaces = first > 0 and (
            shapes[first - 1].id != shapes[first].id
            or stored in shapes[first - 1].names_by_stored()
        )
        until = shapes[last + 1].version if last + 1 < len(shapes) else None
        widest = shapes[last].type_of(stored)
        assert widest is not None, "a column that goes on is kept"
        return ColumnLife(stored, shapes[first].version, until, replaces, widest)

    def column_identities(self) -> dict[str, str]:
        """The columns that can be kept now, by name, each with what tells it from any other."""
        found = {}
        for stored, name in self.newest_shape.names_by_stored().items():
            life = self.life_at(stored, self.newest_shape.version)
            if life is not None:
                found[name] = life.identity
        return found

    def life_of(self, identity: str) -> ColumnLife | None:
        stored, _, since = identity.rpartition("@")
        return self.life_at(stored, int(since))


def current_columns_of(
    named: HandleTarget | None, history: DeltaShapeHistory, whole: bool = False
) -> dict[str, str] | None:
    """The handle's columns that are there now, each with its name; None if its table is another.

    As a `whole`, those too that it does not stand for, by their own names unless it has these.
    """
    now = {identity: name for name, identity in history.column_identities().items()}
    if named is None:
        return {name: name for name in now.values()}
    if named.identity != history.newest_shape.id:
        return None
    called_so = {identity: name for name, identity in named.columns.items()}
    return {
        called_so.get(identity, name): name
        for identity, name in now.items()
        if identity in called_so or (whole and name not in named.columns)
    }


def _is_continued(before: SeenShape, now: SeenShape, stored: str) -> bool:
    """Whether a column is the same one in the next shape, its values kept."""
    old, new = before.type_of(stored), now.type_of(stored)
    if before.id != now.id or old is None or new is None:
        return False
    return classify_type_change(old, new) in (None, "widen_type")


def schema_changes(
    handle: str, named: HandleTarget, history: DeltaShapeHistory, before: SeenShape, now: SeenShape
) -> Iterator[SchemaChange]:
    """What the next shape of a table means to a handle."""
    if named.identity != before.id:
        return
    if before.id != now.id:
        yield SchemaChange("recreate_table", handle)
        return
    for name, identity in named.columns.items():
        stored = identity.rpartition("@")[0]
        life = history.life_at(stored, before.version)
        if life is not None and life.identity == identity:
            yield from _column_changes(handle, name, stored, before, now)
    known = before.names_by_stored()
    for stored, name in now.names_by_stored().items():
        if stored not in known and now.type_of(stored) is not None:
            yield SchemaChange("add_column", handle, name)


def _column_changes(
    handle: str, name: str, stored: str, before: SeenShape, now: SeenShape
) -> Iterator[SchemaChange]:
    if stored not in now.names_by_stored():
        yield SchemaChange("drop_column", handle, name)
        return
    if now.names_by_stored()[stored] not in (before.names_by_stored()[stored], name):
        yield SchemaChange("rename_column", handle, name, now.names_by_stored()[stored])
    old, new = before.type_of(stored), now.type_of(stored)
    assert old is not None, "a column that is followed is kept"
    if (kind := classify_type_change(old, new)) is not None:
        word = str(new) if new is not None else "one that cannot be kept"
        yield SchemaChange(kind, handle, name, word)


@dataclass(frozen=True, slots=True)
class StoredColumns:
    """Columns of a handle: the name that each has in files, and the type that it comes in."""

    stored: dict[str, str]
    types: dict[str, pa.DataType]

    def types_in_files(self) -> dict[str, pa.DataType]:
        return {self.stored[name]: kind for name, kind in self.types.items()}

    def rename_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch of these columns, and others after them, under the handle's names."""
        rest = batch.schema.names[len(self.types) :]
        return batch.rename_columns([*self.types, *rest])


def resolve_plain_columns(
    source: str, table: str, shape: SeenShape, columns: Sequence[str]
) -> StoredColumns:
    """Columns of a shape by the names that they have in it; a SchemaError for one that it lacks."""
    types = require_types(source, table, shape.parse_columns(), columns)
    names = physical_names(shape.schema)
    return StoredColumns({name: names[name] for name in columns}, types)


def resolve_handle_columns(
    source: str,
    history: DeltaShapeHistory,
    handle: str,
    named: HandleTarget,
    columns: Sequence[str],
    span: tuple[int, int],
) -> StoredColumns:
    """The columns of a handle over a range of versions; a BrokenQueryError where one ends or
    begins in it, other than by being added."""
    table = name_of_handle(handle)
    if {history.shape_at(version).id for version in span} != {named.identity}:
        raise BrokenQueryError(source, table, "another table is called so")
    stored, types = {}, {}
    for name in columns:
        life = history.life_of(named.columns[name])
        if life is None or (life.until is not None and life.until <= span[1]):
            raise BrokenQueryError(source, table, f"column {name} is gone, or has another type")
        if span[0] < life.since and life.replaces:
            raise BrokenQueryError(source, table, f"column {name} had another type")
        stored[name], types[name] = life.stored, life.type
    return StoredColumns(stored, types)
