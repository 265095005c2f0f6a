"""What the binlog says about a table before its rows: names, types and labels of its columns.

With `binlog_row_metadata=FULL` every transaction describes the tables that it changes as they were
then. So rows are read by the shape that they were written in, whatever the table looks like now.

A row image is a bitmap of the columns that are NULL, then the other values, each either of a fixed
width or with its length before it. To *cut* an image into values nothing else needs to be known,
so that is done by a small function that is made for each shape; `log_values` then reads
whole columns of such raw values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from viewkeeper.sources.mariadb.log import length_coded

_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


class Wire(IntEnum):
    """Types of columns as the binlog numbers them."""

    TINY = 1
    SHORT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    TIMESTAMP_OLD = 7
    LONGLONG = 8
    INT24 = 9
    DATE = 10
    TIME_OLD = 11
    DATETIME_OLD = 12
    YEAR = 13
    NEWDATE = 14
    VARCHAR = 15
    BIT = 16
    TIMESTAMP = 17
    DATETIME = 18
    TIME = 19
    BLOB_COMPRESSED = 140
    VARCHAR_COMPRESSED = 141
    DECIMAL = 246
    ENUM = 247
    SET = 248
    BLOB = 252
    VAR_STRING = 253
    STRING = 254
    GEOMETRY = 255


_W = Wire
_FIXED = {
    _W.TINY: 1,
    _W.SHORT: 2,
    _W.INT24: 3,
    _W.LONG: 4,
    _W.LONGLONG: 8,
    _W.FLOAT: 4,
    _W.DOUBLE: 8,
    _W.YEAR: 1,
    _W.DATE: 3,
    _W.NEWDATE: 3,
}
_FRACTIONAL = {_W.TIMESTAMP: 4, _W.DATETIME: 5, _W.TIME: 3}
_BLOBS = {_W.BLOB, _W.BLOB_COMPRESSED, _W.GEOMETRY}
_STRINGS = {_W.VARCHAR, _W.VARCHAR_COMPRESSED, _W.STRING, _W.VAR_STRING}
_ONE_BYTE = {_W.FLOAT, _W.DOUBLE, _W.TIMESTAMP, _W.DATETIME, _W.TIME} | _BLOBS
_TWO_BYTES = {_W.BIT, _W.DECIMAL} | _STRINGS
_SIGNED_OR_NOT = {
    _W.TINY,
    _W.SHORT,
    _W.INT24,
    _W.LONG,
    _W.LONGLONG,
    _W.DECIMAL,
    _W.FLOAT,
    _W.DOUBLE,
    _W.YEAR,
}


@dataclass(frozen=True, slots=True)
class LogColumn:
    """A column as the binlog describes it.

    `wire` is a member of Wire for every type that can be read, `detail` what the type needs (digits
    of the fraction, precision and scale, the longest length, the bytes of a label's number).
    """

    name: str
    wire: int
    detail: tuple[int, ...] = ()
    unsigned: bool = False
    labels: tuple[bytes, ...] = ()

    @property
    def width(self) -> int:
        """The bytes of a value, or minus the bytes of the length before it; 0 if not known."""
        wire, detail = self.wire, self.detail
        if wire in _FIXED:
            return _FIXED[_W(wire)]
        if wire in _FRACTIONAL:
            return _FRACTIONAL[_W(wire)] + (detail[0] + 1) // 2
        if wire in _BLOBS:
            return -detail[0]
        if wire in _STRINGS:
            return -1 if detail[0] < 256 else -2
        if wire == _W.DECIMAL:
            return decimal_width(*detail)
        return detail[0] if wire in (_W.ENUM, _W.SET, _W.BIT) else 0


def decimal_width(precision: int, scale: int) -> int:
    """The bytes of a decimal: nine digits take four, what is left over takes less.

    >>> decimal_width(10, 2)
    5
    """
    whole = precision - scale
    return 4 * (whole // 9 + scale // 9) + _DIGIT_BYTES[whole % 9] + _DIGIT_BYTES[scale % 9]


@dataclass(frozen=True, slots=True)
class LogTable:
    """A table as the binlog describes it; `named` if it tells the names of the columns."""

    database: str
    name: str
    columns: tuple[LogColumn, ...]
    named: bool


def read_log_table(body: bytes) -> LogTable:
    """The table that an event describes; `body` begins with the length of the database's name."""
    database, at = _name(body, 0)
    name, at = _name(body, at)
    count, at = length_coded(body, at)
    wires = list(body[at : at + count])
    size, at = length_coded(body, at + count)
    details = _details(wires, body[at : at + size])
    more = dict(_metadata(body[at + size + (count + 7) // 8 :]))
    names = _texts(more.get(4, b""))
    unsigned = _unsigned(wires, more.get(1, b""))
    labels = {_W.ENUM: _labels(more.get(6, b"")), _W.SET: _labels(more.get(5, b""))}
    columns = tuple(
        LogColumn(
            names[i].decode() if names else "",
            wire,
            details[i],
            unsigned[i],
            labels[_W(wire)].pop(0) if wire in labels and labels[_W(wire)] else (),
        )
        for i, wire in enumerate(wires)
    )
    return LogTable(database, name, columns, bool(names))


def _name(body: bytes, at: int) -> tuple[str, int]:
    end = at + 1 + body[at]
    return body[at + 1 : end].decode(), end + 1


def _details(wires: list[int], data: bytes) -> list[tuple[int, ...]]:
    """What each type says of itself; labels come disguised as strings, which is put right."""
    found: list[tuple[int, ...]] = []
    at = 0
    for i, wire in enumerate(wires):
        size = 1 if wire in _ONE_BYTE else 2 if wire in _TWO_BYTES else 0
        raw, at = data[at : at + size], at + size
        detail = tuple(raw)
        if wire in (_W.VARCHAR, _W.VARCHAR_COMPRESSED):
            detail = (int.from_bytes(raw, "little"),)
        elif wire == _W.BIT:
            detail = (raw[1] + bool(raw[0]),)
        elif wire in (_W.STRING, _W.VAR_STRING):
            # The highest bits of a length over 255 are hidden in the type, inverted.
            wires[i] = raw[0] | 0x30
            detail = (raw[1] | ((raw[0] & 0x30) ^ 0x30) << 4,)
        found.append(detail)
    return found


def _metadata(data: bytes) -> list[tuple[int, bytes]]:
    found, at = [], 0
    while at < len(data):
        size, start = length_coded(data, at + 1)
        found.append((data[at], data[start : start + size]))
        at = start + size
    return found


def _unsigned(wires: Sequence[int], bits: bytes) -> list[bool]:
    """One bit for each number among the columns, from the highest bit of each byte down."""
    found, number = [], 0
    for wire in wires:
        is_number = wire in _SIGNED_OR_NOT
        known = is_number and number // 8 < len(bits)
        found.append(known and bool(bits[number // 8] & 0x80 >> number % 8))
        number += is_number
    return found


def _texts(data: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(data):
        size, start = length_coded(data, at)
        found.append(data[start : start + size])
        at = start + size
    return found


def _labels(data: bytes) -> list[tuple[bytes, ...]]:
    found, at = [], 0
    while at < len(data):
        count, at = length_coded(data, at)
        labels = []
        for _ in range(count):
            size, start = length_coded(data, at)
            labels.append(data[start : start + size])
            at = start + size
        found.append(tuple(labels))
    return found


Cutter = Callable[[bytes, int, Sequence[Callable[[bytes | None], None]]], int]


def make_cutter(columns: Sequence[LogColumn], wanted: Sequence[int]) -> Cutter:
    """A function that cuts the images from an offset on; it returns how many there were.

    Each value of column `wanted[i]` goes to the i-th of the functions that it is given. It is
    written for the shape because a loop over the columns would take several times as long; nothing
    but numbers goes into its text.
    """
    size = (len(columns) + 7) // 8
    places = {column: place for place, column in enumerate(wanted)}
    body = []
    for number, column in enumerate(columns):
        place = places.get(number)
        null = "pass" if place is None else f"a{place}(None)"
        body.append(f"  if nulls & {1 << number}: {null}")
        body.append("  else:")
        body += _cut(column.width, place)
    names = "".join(f"a{place}, " for place in range(len(wanted)))
    lines = [
        "def cut(data, at, appends):",
        f" {names}= appends" if wanted else "",
        " end, rows, number = len(data), 0, int.from_bytes",
        " while at < end:",
        f"  nulls = number(data[at:at + {size}], 'little')",
        f"  at += {size}",
        *body,
        "  rows += 1",
        " return rows",
    ]
    space: dict[str, Cutter] = {}
    exec("\n".join(lines), {"__builtins__": {"len": len, "int": int}}, space)
    return space["cut"]


def _cut(width: int, place: int | None) -> list[str]:
    if width > 0:
        keep = [] if place is None else [f"   a{place}(data[at:at + {width}])"]
        return [*keep, f"   at += {width}"]
    if width == -1:
        length = ["   start = at + 1", "   at = start + data[at]"]
    else:
        length = [
            f"   start = at + {-width}",
            "   at = start + number(data[at:start], 'little')",
        ]
    return length if place is None else [*length, f"   a{place}(data[start:at])"]
