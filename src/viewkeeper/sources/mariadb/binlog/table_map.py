"""What the binlog says about a table before its rows: names, types and labels of its columns.

With `binlog_row_metadata=FULL` every transaction describes the tables that it changes as they were
then. So rows are read by the shape that they were written in, whatever the table looks like now.

A row image is a bitmap of the columns that are NULL, then the other values, each either of a fixed
width or with its length before it. To *cut* an image into values nothing else needs to be known
(`rows`); `raw_values` then reads whole columns of such raw values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from viewkeeper.sources.mariadb.byte_codes import (
    MalformedBytesError,
    decode_name,
    read_length,
    read_piece,
    read_sized_piece,
)

_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_MOST_DIGITS, _MOST_FRACTION, _LENGTH_BYTES, _LABEL_BYTES = 65, 6, 4, 8


class WireType(IntEnum):
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


_W = WireType
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
_DISGUISED = {_W.STRING, _W.VAR_STRING, _W.ENUM, _W.SET}
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
class BinlogColumn:
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
class BinlogTable:
    """A table as the binlog describes it; `named` if it has the names of the columns."""

    database: str
    name: str
    columns: tuple[BinlogColumn, ...]
    named: bool


def read_table_map(body: bytes) -> BinlogTable:
    """The table that an event describes; `body` begins with the length of the database's name."""
    database, at = _read_name(body, 0)
    name, at = _read_name(body, at)
    count, at = read_length(body, at)
    if not count:
        raise MalformedBytesError(f"table {database}.{name} has no columns")
    wires = list(read_piece(body, at, count))
    described, at = read_sized_piece(body, at + count)
    details = _read_details(wires, described)
    more = dict(_read_metadata(body[at + (count + 7) // 8 :]))
    names = _read_texts(more.get(4, b""))
    if names and len(names) != count:
        raise MalformedBytesError(
            f"table {database}.{name} has {count} columns, {len(names)} names"
        )
    unsigned = _read_unsigned(wires, more.get(1, b""))
    labels = {_W.ENUM: _read_labels(more.get(6, b"")), _W.SET: _read_labels(more.get(5, b""))}
    columns = tuple(
        BinlogColumn(
            decode_name(names[i]) if names else "",
            wire,
            details[i],
            unsigned[i],
            labels[_W(wire)].pop(0) if wire in labels and labels[_W(wire)] else (),
        )
        for i, wire in enumerate(wires)
    )
    return BinlogTable(database, name, columns, bool(names))


def _read_name(body: bytes, at: int) -> tuple[str, int]:
    """A name with its length before it and a zero behind it."""
    end = at + 1 + read_piece(body, at, 1)[0]
    return decode_name(read_piece(body, at + 1, end - at - 1)), end + 1


def _read_details(wires: list[int], data: bytes) -> list[tuple[int, ...]]:
    """What each type says of itself; labels come disguised as strings, which is put right."""
    found: list[tuple[int, ...]] = []
    at = 0
    for i, wire in enumerate(wires):
        size = 1 if wire in _ONE_BYTE else 2 if wire in _TWO_BYTES else 0
        raw, at = read_piece(data, at, size), at + size
        detail = tuple(raw)
        if wire in (_W.VARCHAR, _W.VARCHAR_COMPRESSED):
            detail = (int.from_bytes(raw, "little"),)
        elif wire == _W.BIT:
            detail = (raw[1] + bool(raw[0]),)
        elif wire in (_W.STRING, _W.VAR_STRING):
            # The highest bits of a length over 255 are hidden in the type, inverted.
            wires[i] = raw[0] | 0x30
            detail = (raw[1] | ((raw[0] & 0x30) ^ 0x30) << 4,)
            if wires[i] not in _DISGUISED:
                raise MalformedBytesError(f"no column of type {wires[i]} comes as text")
        elif wire in _DISGUISED:
            raise MalformedBytesError(f"a column of type {wire} comes as text only")
        _require_possible(wires[i], detail)
        found.append(detail)
    return found


def _require_possible(wire: int, detail: tuple[int, ...]) -> None:
    """A MalformedError if no column of this type can be so."""
    if wire == _W.DECIMAL:
        wrong = not 0 <= detail[1] <= detail[0] <= _MOST_DIGITS or not detail[0]
    elif wire in _BLOBS:
        wrong = not 1 <= detail[0] <= _LENGTH_BYTES
    elif wire in _FRACTIONAL:
        wrong = detail[0] > _MOST_FRACTION
    elif wire in (_W.ENUM, _W.SET, _W.BIT):
        wrong = not 1 <= detail[0] <= _LABEL_BYTES
    else:
        wrong = False
    if wrong:
        raise MalformedBytesError(f"no column of type {wire} is described by {detail}")


def _read_metadata(data: bytes) -> list[tuple[int, bytes]]:
    found, at = [], 0
    while at < len(data):
        kind = data[at]
        value, at = read_sized_piece(data, at + 1)
        found.append((kind, value))
    return found


def _read_unsigned(wires: Sequence[int], bits: bytes) -> list[bool]:
    """One bit for each number among the columns, from the highest bit of each byte down."""
    found, number = [], 0
    for wire in wires:
        is_number = wire in _SIGNED_OR_NOT
        known = is_number and number // 8 < len(bits)
        found.append(known and bool(bits[number // 8] & 0x80 >> number % 8))
        number += is_number
    return found


def _read_texts(data: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(data):
        value, at = read_sized_piece(data, at)
        found.append(value)
    return found


def _read_labels(data: bytes) -> list[tuple[bytes, ...]]:
    found, at = [], 0
    while at < len(data):
        count, at = read_length(data, at)
        if count > len(data):
            raise MalformedBytesError(f"{count} labels in {len(data)} bytes")
        labels = []
        for _ in range(count):
            value, at = read_sized_piece(data, at)
            labels.append(value)
        found.append(tuple(labels))
    return found
