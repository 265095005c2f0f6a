"""Values of Parquet files of any writer, as the few exact types that views know.

Joins across sources need one integer type, one type of text, one unit of time. Every Arrow type
that a Parquet file can have is brought to one of them here, or refused because some of its values
would not survive. A single value that does not fit (a nanosecond that a microsecond cannot hold, a
year that Spark's calendar lacks) is a MisfitError, which says which; nothing is rounded.

Equal values have one form: -0.0 becomes 0.0, and there is one NaN.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from viewkeeper.delta.exact_cast import exact_cast
from viewkeeper.delta.kernel import canonical_floats
from viewkeeper.sources.tables.column_type import (
    DIGITS_MAX,
    IN_CALENDAR,
    ColumnRefusal,
    MisfitError,
    TableColumns,
    convert_or_blame,
    find_outside_calendar,
)
from viewkeeper.sources.tables.wider_types import can_keep_values
from viewkeeper.view.definition import Field


def columns_of_parquet(schema: pa.Schema) -> TableColumns:
    """How the columns of a Parquet file are kept."""
    kept, refused = [], {}
    for field in schema:
        target = exact_type_of(field.type)
        if schema.names.count(field.name) > 1:
            refused[field.name] = "several columns have this name; give each its own"
        elif isinstance(target, ColumnRefusal):
            refused[field.name] = str(target)
        else:
            kept.append(Field(field.name, target))
    return TableColumns(tuple(kept), refused)


def exact_type_of(stored: pa.DataType) -> pa.DataType | ColumnRefusal:
    """The type in which values of a stored type are kept exactly, or why there is none."""
    kinds = pa.types
    if kinds.is_dictionary(stored):
        return exact_type_of(stored.value_type)
    if kinds.is_uint64(stored):
        return pa.decimal128(20, 0)
    if kinds.is_decimal(stored):
        return _exact_decimal(stored)
    if kinds.is_timestamp(stored):
        return pa.timestamp("us", "UTC") if stored.tz else pa.timestamp("us")
    for holds, target in _TARGETS:
        if holds(stored):
            return target
    return ColumnRefusal(
        f"values of type {stored} cannot be kept",
        "write it as a number, text, binary, boolean, date or timestamp",
    )


def is_kept_in(stored: pa.DataType, kind: pa.DataType) -> bool:
    """Whether a column of a type can hold values that a file has in another one.

    >>> is_kept_in(pa.int8(), pa.int64()), is_kept_in(pa.float64(), pa.decimal128(10, 2))
    (True, False)
    """
    found = exact_type_of(stored)
    if isinstance(found, ColumnRefusal):
        return pa.types.is_null(stored)
    texts = (pa.string(), pa.binary())
    if (pa.types.is_timestamp(found) and pa.types.is_timestamp(kind)) or found in texts:
        # Spark's timestamps of 12 bytes have no zone, and some writers do not call a text a text.
        return pa.types.is_timestamp(kind) or kind in texts
    return can_keep_values(found, kind)


_TARGETS: tuple[tuple[Any, pa.DataType], ...] = (
    (pa.types.is_integer, pa.int64()),
    (pa.types.is_float64, pa.float64()),
    (pa.types.is_floating, pa.float32()),
    (pa.types.is_boolean, pa.bool_()),
    (pa.types.is_string, pa.string()),
    (pa.types.is_large_string, pa.string()),
    (pa.types.is_string_view, pa.string()),
    (pa.types.is_binary, pa.binary()),
    (pa.types.is_large_binary, pa.binary()),
    (pa.types.is_binary_view, pa.binary()),
    (pa.types.is_fixed_size_binary, pa.binary()),
    (pa.types.is_date, pa.date32()),
)


def _exact_decimal(stored: Any) -> pa.DataType | ColumnRefusal:
    if stored.precision > DIGITS_MAX or not 0 <= stored.scale <= stored.precision:
        return ColumnRefusal(
            f"values of type {stored} have more digits than can be kept",
            f"write it with at most {DIGITS_MAX} digits",
        )
    return pa.decimal128(stored.precision, stored.scale)


def cast_exactly(values: Any, target: pa.DataType) -> Any:
    """An array in its target type, every value unchanged; a MisfitError for the first that is
    not."""

    def cast(part: Any) -> Any:
        return _cast_validated(part, target)

    def blame(index: int) -> MisfitError:
        return MisfitError(index, _show_value(values.slice(index, 1)), str(target))

    kept = convert_or_blame(values, cast, blame)
    outside = find_outside_calendar(kept)
    if outside is not None:
        raise MisfitError(outside, _show_value(kept.slice(outside, 1)), IN_CALENDAR)
    return canonical_floats(kept)


def _cast_validated(values: Any, target: pa.DataType) -> Any:
    """The values cast, and looked at: a file can hold texts that are no UTF-8, and decimals with
    more digits than their own type has."""
    values.validate(full=True)
    kept = exact_cast(values, target)
    kept.validate(full=True)
    return kept


def _show_value(value: Any) -> object:
    """A value as a text for people: some are beyond what Python's own types hold."""
    try:
        return str(value.cast(pa.string())[0])
    except ValueError:
        return value.cast(pa.binary())[0].as_py()
