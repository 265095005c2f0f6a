"""Whether a type holds exactly every value of another one.

Values from before such a change need no new reading: they are cast when they are asked for. A text
or a timestamp of one database is kept in one Arrow type whatever its length is, so what happens to
those is decided by the kind, by what it knows of declared types.
"""

from __future__ import annotations

import pyarrow as pa

from viewkeeper.updates.schema_change import ChangeKind

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
