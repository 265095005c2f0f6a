"""The shapes that a followed Delta Lake table had, by version, and the lives of its columns.

A table is told by the id in its metadata. A column is told by the name that it has in files: that
is its own name, or, in a table that maps column names, one that stays when the column is renamed.
It lives from the version that added it until one that drops it or gives it a type that does not
keep its values; what is called so after that is another column. Versions are in order, so every
schema change has the position of its own version.

A version never changes its shape, so a question about one can be decided in any task: rows of a
version in which the column lived come exactly; before it was added they have NULL in it; everything
else is a BrokenQueryError.

A schema in the log is JSON: each column a name and a type, which is a word, or an object where the
column is nested. Integers of all widths are kept as one type, as everywhere; nested columns are
refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from viewkeeper.sources.files.settings import values_from_text
from viewkeeper.sources.handles import HandleTarget
from viewkeeper.sources.tables.column_type import DIGITS_MAX, ColumnRefusal, TableColumns
from viewkeeper.sources.tables.shape import REFUSED_TYPE, ShapeColumn, TableShape
from viewkeeper.sources.tables.shape_history import (
    HandleQuestion,
    ShapeHistory,
    name_lives,
    place_of,
)
from viewkeeper.view.definition import Field

_TYPES: dict[str, pa.DataType] = {
    **dict.fromkeys(("byte", "short", "integer", "long"), pa.int64()),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_PHYSICAL = "delta.columnMapping.physicalName"
_UNSURE = (pa.float32(), pa.float64(), pa.binary())


def columns_of_schema(schema: str, partitioned_by: tuple[str, ...]) -> TableColumns:
    """How the columns of a table are kept, by the schema in its log."""
    kept, refused = [], {}
    for column in json.loads(schema)["fields"]:
        name, target = str(column["name"]), _type_of(column["type"])
        if isinstance(target, pa.DataType) and name in partitioned_by and target in _UNSURE:
            target = ColumnRefusal(
                f"the table is partitioned by it, and its values of type {target} are kept as text",
                "partition by a column of another type",
            )
        if isinstance(target, ColumnRefusal):
            refused[name] = str(target)
        else:
            kept.append(Field(name, target))
    return TableColumns(tuple(kept), refused)


def physical_names(schema: str) -> dict[str, str]:
    """The name that each column has in files; its own, unless the table maps names."""
    return {
        str(column["name"]): str((column.get("metadata") or {}).get(_PHYSICAL, column["name"]))
        for column in json.loads(schema)["fields"]
    }


def _type_of(stored: object) -> pa.DataType | ColumnRefusal:
    if isinstance(stored, str):
        if stored in _TYPES:
            return _TYPES[stored]
        if found := _DECIMAL.fullmatch(stored):
            digits, places = int(found[1][:9]), int(found[2][:9])
            if 0 < digits <= DIGITS_MAX >= places:
                return pa.decimal128(digits, places)
    word = stored.get("type") if isinstance(stored, Mapping) else stored
    return ColumnRefusal(
        f"values of type {word} cannot be kept",
        "use a number, string, binary, boolean, date or timestamp column",
    )


def parse_partition_value(text: str | None, kind: pa.DataType) -> Any:
    """The value of a partition column that a log has as text; the empty text is NULL.

    A text that is no value of the type is a MisfitError.
    """
    if text is None or text == "":
        return None
    return values_from_text(pa.array([text], pa.string()), kind)[0].as_py()


@dataclass(frozen=True, slots=True)
class SeenShape:
    """The shape that a table has from a version on, as its log has it."""

    version: int
    id: str
    schema: str
    partitioned_by: tuple[str, ...]

    def parse_columns(self) -> TableColumns:
        return columns_of_schema(self.schema, self.partitioned_by)

    def parse_shape(self) -> TableShape:
        """The shape; its columns have no identities yet, which come with a history."""
        types = self.parse_columns().types_by_name()
        columns = (
            ShapeColumn(stored, "", name, types.get(name), str(types.get(name, REFUSED_TYPE)))
            for name, stored in physical_names(self.schema).items()
        )
        return TableShape(self.id, "", tuple(columns))


def shape_from_metadata(version: int, metadata: Any) -> SeenShape:
    """The shape that a `metaData` action of the log says."""
    partitioned_by = tuple(metadata.get("partitionColumns", ()))
    return SeenShape(version, str(metadata["id"]), str(metadata["schemaString"]), partitioned_by)


def history_of(shapes: Sequence[SeenShape]) -> ShapeHistory[TableShape]:
    """The shapes of a table since it is followed, oldest first."""
    return name_lives((shape.version, shape.parse_shape()) for shape in shapes)


def shape_in(
    history: ShapeHistory[TableShape], version: int, parse_shape: Callable[[], TableShape]
) -> TableShape:
    """The shape of a version; one from before the history begins is parsed, and its columns are
    those that are at their places then."""
    first, oldest = history.steps[0]
    if first <= version:
        return history.shape_at(version)
    shape, there = parse_shape(), {column.place: column.identity for column in oldest.columns}
    return replace(
        shape, columns=tuple(replace(c, identity=there.get(c.place, "")) for c in shape.columns)
    )


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
    types = shape.parse_columns().require_types(source, table, columns)
    names = physical_names(shape.schema)
    return StoredColumns({name: names[name] for name in columns}, types)


def resolve_handle_columns(
    source: str,
    history: ShapeHistory[TableShape],
    handle: str,
    named: HandleTarget,
    columns: Sequence[str],
    span: tuple[int, int],
) -> StoredColumns:
    """The columns of a handle over a range of versions; a BrokenQueryError where one ends or
    begins in it, other than by being added."""
    question = HandleQuestion(source, handle, named, columns)
    known = [shape for _, shape in history.steps]
    types = question.types_over(history.steps_in(*span), span[0], known)
    return StoredColumns({name: place_of(named.columns[name]) for name in columns}, types)
