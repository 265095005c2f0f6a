"""Types of Delta Lake columns, and the values of partition columns, which its log has as text.

A schema in the log is JSON: each column a name and a type, which is a word, or an object where the
column is nested. Integers of all widths are kept as one type, as everywhere; nested columns are
refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from viewkeeper.sources.files.text_types import values_from_text
from viewkeeper.sources.tables.column_type import DIGITS_MAX, ColumnRefusal, TableColumns
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
