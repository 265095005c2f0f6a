"""Columns that cannot be kept, and values that do not fit: what all kinds say about types.

A kind has its own table of types (`types`). A column whose values would not survive has a
`ColumnRefusal` there instead of an Arrow type. A type that allows a value which cannot be kept is
no reason to refuse the column: the value itself is refused when it is read, by a `MisfitError`
that says which one it is. Nothing is rounded, and nothing is guessed.

Values from before a type was widened need no new reading: they are cast when they are asked for. A
text or a timestamp of one database is kept in one Arrow type whatever its length is, so what
happens to those is decided by the kind, by what it knows of declared types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from viewkeeper.delta.arrow_compute import pc
from viewkeeper.errors import SchemaError, suggest_nearest
from viewkeeper.updates.schema_change import ChangeKind
from viewkeeper.view.definition import Field

DIGITS_MAX = 38
"""The digits that a decimal of 128 bits has at most."""

DAY_FIRST, DAY_LAST = -719_162, 2_932_896
"""The years 1 to 9999, which Spark's calendar has and Python's, as days since 1970."""

DAY_MICROSECONDS = 86_400_000_000
IN_CALENDAR = "in the years 1 to 9999"

CONVERSION_ERRORS = (pa.ArrowException, ValueError, OverflowError)
"""What the conversion of a value raises that is none of its type."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ColumnRefusal:
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

    def require_types(
        self, source: str, table: str, names: Sequence[str]
    ) -> dict[str, pa.DataType]:
        """The types of some columns; a SchemaError for one that is missing or refused."""
        types = self.types_by_name()
        for name in names:
            if name in self.refused:
                raise SchemaError(source, f'table "{table}", column "{name}": {self.refused[name]}')
            if name not in types:
                raise SchemaError(
                    source,
                    f'table "{table}" has no column "{name}"',
                    hint=f"columns: {', '.join(types)}{suggest_nearest(name, types)}",
                )
        return {name: types[name] for name in names}


class MisfitError(ValueError):
    """The value at `index` of a column does not fit; callers say where it was found.

    Without `expects` the text is the value alone.
    """

    def __init__(self, index: int, value: object, expects: str = "") -> None:
        super().__init__(f"{shorten_value(value)} is not {expects}" if expects else str(value))
        self.index = index
        self.value = value


def shorten_value(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def convert_or_blame(
    values: Any, convert: Callable[[Any], T], blame: Callable[[int], MisfitError]
) -> T:
    """Values, converted all at once; if that fails, `blame` tells of the first that cannot be."""
    try:
        return convert(values)
    except CONVERSION_ERRORS:
        pass
    raise blame(find_misfit(values, convert))


def find_misfit(values: Any, convert: Callable[[Any], object]) -> int:
    """The index of the first value that cannot be converted, found by halving.

    >>> find_misfit(["1", "2", "x", "y"], lambda texts: [int(text) for text in texts])
    2
    """
    first, count = 0, len(values)
    while count > 1:
        half = count // 2
        try:
            convert(values[first : first + half])
        except CONVERSION_ERRORS:
            count = half
        else:
            first, count = first + half, count - half
    return first


def find_outside_calendar(values: Any) -> int | None:
    """The index of the first date or timestamp that Spark's calendar lacks; None for other types.

    >>> find_outside_calendar(pa.array([0, None, 3_000_000], pa.date32()))
    2
    """
    if pa.types.is_date32(values.type):
        numbers, low, high = values.cast(pa.int32()), DAY_FIRST, DAY_LAST
    elif pa.types.is_timestamp(values.type):
        numbers = values.cast(pa.int64())
        low, high = DAY_FIRST * DAY_MICROSECONDS, (DAY_LAST + 1) * DAY_MICROSECONDS - 1
    else:
        return None
    bounds = pc.min_max(numbers)
    if not bounds["min"].is_valid or low <= bounds["min"].as_py() <= bounds["max"].as_py() <= high:
        return None
    outside = pc.or_(pc.less(numbers, low), pc.greater(numbers, high))
    return int(pc.index(outside, True).as_py())


_DIGITS: dict[pa.DataType, int] = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}


def is_widening(old: pa.DataType, new: pa.DataType, digits: int | None = None) -> bool:
    """Whether a type holds exactly every value of another one, and more.

    `digits` are those that an integer has at most where the database knows of fewer than its Arrow
    type allows.

    >>> is_widening(pa.int64(), pa.decimal128(20, 0)), is_widening(pa.int64(), pa.decimal128(18, 0))
    (True, False)
    >>> is_widening(pa.int64(), pa.decimal128(12, 2), digits=10)
    True
    """
    if old in _DIGITS and new in _DIGITS:
        return _DIGITS[old] < _DIGITS[new]
    if isinstance(old, pa.Decimal128Type):
        return old != new and has_decimal_room(new, old.precision - old.scale, old.scale)
    if old in _DIGITS:
        return has_decimal_room(new, digits or _DIGITS[old])
    return (old, new) == (pa.float32(), pa.float64())


def has_decimal_room(target: pa.DataType, whole: int, scale: int = 0) -> bool:
    """Whether a type is a decimal with so many digits before and after the point."""
    return (
        isinstance(target, pa.Decimal128Type)
        and target.precision - target.scale >= whole
        and target.scale >= scale
    )


def classify_type_change(
    old: pa.DataType | None, new: pa.DataType | None, digits: int | None = None
) -> ChangeKind | None:
    """What it means to values that a type became another one; None is a type that is refused.

    >>> classify_type_change(pa.float32(), pa.float64())
    'widen_type'
    >>> classify_type_change(pa.int64(), pa.float64())
    'change_type'
    """
    if old == new:
        return None
    if old is None or new is None or not is_widening(old, new, digits):
        return "change_type"
    return "widen_type"


def can_keep_values(old: pa.DataType | None, new: pa.DataType | None) -> bool:
    """Whether a column that is kept has all its values in the type that it got."""
    return new is not None and old is not None and classify_type_change(old, new) != "change_type"
