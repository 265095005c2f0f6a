"""What becomes of the values of a column when its declaration changes.

They are kept where the new type has room for every value that the old one can hold. Where that is
so and they arrive as before, nothing has happened; where they arrive in a wider type, it was
widened. All else may have changed them, because a server that is not strict makes values fit.
"""

from __future__ import annotations

import re
from typing import Literal

import pyarrow as pa

from viewkeeper.sources.mariadb.types import DeclaredType, MariadbKind, kind_of
from viewkeeper.sources.tables.column_type import ColumnRefusal
from viewkeeper.sources.tables.wider_types import is_widening

Retyped = Literal["same", "widen_type", "change_type", "rewrite"]

_INTEGER_BYTES = {"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "bigint": 8}
_TEXT_BYTES = {
    "tinytext": 255,
    "tinyblob": 255,
    "text": 1 << 16,
    "blob": 1 << 16,
    "mediumtext": 1 << 24,
    "mediumblob": 1 << 24,
    "longtext": 1 << 32,
    "longblob": 1 << 32,
}
_CHARACTER_BYTES = {"utf8mb3": 3, "utf8mb4": 4}
_UNICODE = {"utf8": "utf8mb3"}


def value_effect_of(old: DeclaredType, new: DeclaredType) -> Retyped:
    """What happened to the values of a column that was declared `old` and is `new` now.

    >>> value_effect_of(DeclaredType("int(11)"), DeclaredType("bigint(20)"))
    'same'
    >>> value_effect_of(DeclaredType("int(11)"), DeclaredType("decimal(12,2)"))
    'widen_type'
    """
    before, after = kind_of(old), kind_of(new)
    if isinstance(after, ColumnRefusal) or isinstance(before, ColumnRefusal):
        return "same" if type(after) is type(before) else "change_type"
    if before.arrow == after.arrow:
        return "same" if _has_room(old, before, new, after) else "rewrite"
    loses_sign = _split_type(new)[2] and not _split_type(old)[2]
    wider = not loses_sign and _is_wider(old, before, after)
    return "widen_type" if wider else "change_type"


def _split_type(declared: DeclaredType) -> tuple[str, str, bool]:
    """The type's name, what it has in parentheses, and whether it has no sign."""
    match = re.fullmatch(r"(\w+)(?:\((.*)\))?(.*)", declared.type, re.DOTALL)
    assert match is not None, "every type begins with a name"
    return match[1], match[2] or "", "unsigned" in match[3]


def _integer_bounds(declared: DeclaredType) -> tuple[int, int] | None:
    """The least and the greatest value of a column of whole numbers."""
    name, inside, unsigned = _split_type(declared)
    if name in _INTEGER_BYTES:
        bits = 8 * _INTEGER_BYTES[name]
        return (0, (1 << bits) - 1) if unsigned else (-(1 << bits - 1), (1 << bits - 1) - 1)
    if name == "bit":
        return 0, (1 << int(inside)) - 1
    if name == "year":
        return 0, 2155
    if name == "decimal" and inside.endswith(",0"):
        most: int = 10 ** int(inside.partition(",")[0]) - 1
        return (0 if unsigned else -most), most
    return None


def _has_room(
    old: DeclaredType, before: MariadbKind, new: DeclaredType, after: MariadbKind
) -> bool:
    """Whether every value arrives as it did; both arrive in one Arrow type."""
    if old.type == new.type and old.charset == new.charset:
        return True
    if pa.types.is_string(after.arrow):
        return _keeps_text(old, before, new, after)
    if after.family == "binary":
        return _keeps_bytes(old, new)
    if after.family in ("datetime", "timestamp"):
        return before.family == after.family and _digits_of(old) <= _digits_of(new)
    held, room = _integer_bounds(old), _integer_bounds(new)
    if held is not None and room is not None and _split_type(new)[0] not in ("year", "bit"):
        return room[0] <= held[0] and held[1] <= room[1]
    name, inside, unsigned = _split_type(new)
    if name == "bit":
        return before.family == "bits" and before.length <= after.length
    # A sign that goes, or digits that are rounded to, changes values.
    loses_sign = unsigned and not _split_type(old)[2]
    return before.family == after.family and not loses_sign and (not inside or name == "decimal")


def _digits_of(declared: DeclaredType) -> int:
    return int(_split_type(declared)[1] or 0)


def _keeps_text(
    old: DeclaredType, before: MariadbKind, new: DeclaredType, after: MariadbKind
) -> bool:
    if before.family != after.family:
        return before.family == "enum" and after.family == "text" and _text_room_bytes(new) > 255
    if after.family == "enum":
        return set(before.labels) <= set(after.labels)
    if after.family == "set":
        return [label for label in after.labels if label in before.labels] == list(before.labels)
    if after.family != "text":
        return True
    # CHAR has no blanks at the end of a value.
    blanks = _split_type(new)[0] == "char" and _split_type(old)[0] != "char"
    return (
        not blanks
        and _covers_charset(old.charset, new.charset)
        and _text_room(old) <= _text_room(new)
    )


def _covers_charset(old: str, new: str) -> bool:
    """Whether a character set has all characters of another one."""
    before, after = _UNICODE.get(old, old), _UNICODE.get(new, new)
    return after in (before, "utf8mb4") or before == "ascii"


def _text_room_bytes(declared: DeclaredType) -> int:
    return _text_room(declared)[1]


def _text_room(declared: DeclaredType) -> tuple[int, int]:
    """The characters and the bytes that a text has room for; compared as one, smaller first."""
    name, inside, _ = _split_type(declared)
    width = _CHARACTER_BYTES.get(_UNICODE.get(declared.charset, declared.charset), 1)
    if name in _TEXT_BYTES:
        return _TEXT_BYTES[name] // width, _TEXT_BYTES[name]
    return int(inside), int(inside) * width


def _keeps_bytes(old: DeclaredType, new: DeclaredType) -> bool:
    """BINARY fills its values up with zeros."""
    before, after = _split_type(old), _split_type(new)
    if after[0] == "binary":
        return before[:2] == after[:2]
    return _text_room(old)[1] <= _text_room(new)[1]


def _is_wider(old: DeclaredType, before: MariadbKind, after: MariadbKind) -> bool:
    held = _integer_bounds(old)
    digits = None if held is None else len(str(max(-held[0], held[1])))
    # Whole numbers without a sign are kept as decimals where they have no other type.
    is_plain = after.family == "decimal" or not pa.types.is_decimal(after.arrow)
    is_unsigned = held is not None and held[0] >= 0 and before.family != "decimal"
    return (is_plain or is_unsigned) and is_widening(before.arrow, after.arrow, digits)
