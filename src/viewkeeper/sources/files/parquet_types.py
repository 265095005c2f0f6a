"""Values of Parquet files, whoever wrote them, as the few exact types that views know.

Joins across sources need one integer type, one type of text, one unit of time. Every Arrow type
that a Parquet file can have is brought to one of them here, or refused because some of its values
would not survive. A single value that does not fit (a nanosecond that a microsecond cannot hold, a
year that Spark's calendar lacks) is a MisfitError, which says which; nothing is rounded.

Equal values have one form: -0.0 becomes 0.0, and there is one NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute

from viewkeeper.delta.exact_cast import exact_cast
from viewkeeper.delta.kernel import canonical_floats
from viewkeeper.updates.schema_change import ChangeKind
from viewkeeper.view.definition import Field

pc: Any = pyarrow.compute
"""Untyped: the stubs do not know that every function takes arrays and scalars alike."""

DIGITS_MAX = 38
_DAY_MIN, _DAY_MAX = -719_162, 2_932_896
_DAY_US = 86_400_000_000
_US_MIN, _US_MAX = _DAY_MIN * _DAY_US, (_DAY_MAX + 1) * _DAY_US - 1
_IN_TIME = "in the years 1 to 9999"


@dataclass(frozen=True, slots=True)
class FileTypeRefusal:
    """Why a column cannot be used, and what would help."""

    reason: str
    hint: str

    def __str__(self) -> str:
        return f"{self.reason}; {self.hint}"


@dataclass(frozen=True, slots=True)
class TableColumns:
    """The columns of a table: those that can be kept exactly, and why the others cannot."""

    fields: tuple[Field, ...]
    refused: dict[str, str]

    def types_by_name(self) -> dict[str, pa.DataType]:
        return {field.name: field.type for field in self.fields}


def classify_type_change(old: pa.DataType, new: pa.DataType | None) -> ChangeKind | None:
    """What it means to values that a type became another one.

    >>> classify_type_change(pa.float32(), pa.float64())
    'widen_type'
    >>> classify_type_change(pa.int64(), pa.float64())
    'change_type'
    """
    if old == new:
        return None
    if isinstance(new, pa.Decimal128Type):
        whole, scale = (19, 0) if pa.types.is_int64(old) else (DIGITS_MAX + 1, 0)
        if isinstance(old, pa.Decimal128Type):
            whole, scale = old.precision - old.scale, old.scale
        if new.precision - new.scale >= whole and new.scale >= scale:
            return "widen_type"
    return "widen_type" if (old, new) == (pa.float32(), pa.float64()) else "change_type"


class FileMisfitError(ValueError):
    """The value at `index` of a column does not fit; callers say where it was found."""

    def __init__(self, index: int, value: object, expects: str) -> None:
        super().__init__(f"{shorten_value(value)} is not {expects}")
        self.index = index
        self.value = value


def shorten_value(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def columns_of_parquet(schema: pa.Schema) -> TableColumns:
    """How the columns of a Parquet file are kept."""
    kept, refused = [], {}
    for field in schema:
        target = exact_type_of(field.type)
        if schema.names.count(field.name) > 1:
            refused[field.name] = "several columns have this name; give each its own"
        elif isinstance(target, FileTypeRefusal):
            refused[field.name] = str(target)
        else:
            kept.append(Field(field.name, target))
    return TableColumns(tuple(kept), refused)


def exact_type_of(stored: pa.DataType) -> pa.DataType | FileTypeRefusal:
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
    return FileTypeRefusal(
        f"values of type {stored} cannot be kept",
        "write it as a number, text, binary, boolean, date or timestamp",
    )


def is_kept_in(stored: pa.DataType, kind: pa.DataType) -> bool:
    """Whether a column of a type can hold values that a file has in another one.

    >>> is_kept_in(pa.int8(), pa.int64()), is_kept_in(pa.float64(), pa.decimal128(10, 2))
    (True, False)
    """
    found = exact_type_of(stored)
    if isinstance(found, FileTypeRefusal):
        return pa.types.is_null(stored)
    texts = (pa.string(), pa.binary())
    if (pa.types.is_timestamp(found) and pa.types.is_timestamp(kind)) or found in texts:
        # Spark's timestamps of 12 bytes have no zone, and some writers do not call a text a text.
        return pa.types.is_timestamp(kind) or kind in texts
    return classify_type_change(found, kind) in (None, "widen_type")


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


def _exact_decimal(stored: Any) -> pa.DataType | FileTypeRefusal:
    if stored.precision > DIGITS_MAX or not 0 <= stored.scale <= stored.precision:
        return FileTypeRefusal(
            f"values of type {stored} have more digits than can be kept",
            f"write it with at most {DIGITS_MAX} digits",
        )
    return pa.decimal128(stored.precision, stored.scale)


def cast_exactly(values: Any, target: pa.DataType) -> Any:
    """An array in its target type, every value unchanged; a MisfitError for the first that is
    not."""
    try:
        kept = _cast_validated(values, target)
    except ValueError:
        raise _find_misfit(values, target) from None
    _check_time(kept)
    return canonical_floats(kept)


def _cast_validated(values: Any, target: pa.DataType) -> Any:
    """The values cast, and looked at: a file can hold texts that are no UTF-8, and decimals with
    more digits than their own type has."""
    values.validate(full=True)
    kept = exact_cast(values, target)
    kept.validate(full=True)
    return kept


def _find_misfit(values: Any, target: pa.DataType) -> FileMisfitError:
    """The first value that cannot be cast, found by halving."""
    first, count = 0, len(values)
    while count > 1:
        half = count // 2
        try:
            _cast_validated(values.slice(first, half), target)
        except ValueError:
            count = half
        else:
            first, count = first + half, count - half
    return FileMisfitError(first, _show_value(values.slice(first, 1)), str(target))


def _show_value(value: Any) -> object:
    """A value as a text for people: some are beyond what Python's own types hold."""
    try:
        return str(value.cast(pa.string())[0])
    except ValueError:
        return value.cast(pa.binary())[0].as_py()


def _check_time(values: Any) -> None:
    """Spark's calendar has the years 1 to 9999, and so has Python's."""
    if pa.types.is_date32(values.type):
        numbers, low, high = values.cast(pa.int32()), _DAY_MIN, _DAY_MAX
    elif pa.types.is_timestamp(values.type):
        numbers, low, high = values.cast(pa.int64()), _US_MIN, _US_MAX
    else:
        return
    bounds = pc.min_max(numbers)
    if bounds["min"].is_valid and (bounds["min"].as_py() < low or bounds["max"].as_py() > high):
        outside = pc.or_(pc.less(numbers, low), pc.greater(numbers, high))
        index = int(pc.index(outside, True).as_py())
        raise FileMisfitError(index, str(values.slice(index, 1).cast(pa.string())[0]), _IN_TIME)
