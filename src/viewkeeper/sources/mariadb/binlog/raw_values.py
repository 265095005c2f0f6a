"""Raw values of the binlog as Arrow arrays, a whole column at a time.

MariaDB writes most types in a fixed width: all values of a column are joined and read as one
matrix of bytes. The result for a value must equal what a SELECT of it gives; a test compares both
for every type and its extremes.

A column is read by its *kind*, which is what the views know it as, from the type that the log had
for it then. If that type cannot give the kind's values, the column has changed meanwhile.
"""

from __future__ import annotations

import codecs
import socket
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.sources.mariadb.binlog.table_map import BinlogColumn, WireType
from viewkeeper.sources.mariadb.types import Array, MariadbKind
from viewkeeper.sources.tables.column_type import MisfitError

Raw = Sequence[bytes | None]
Reader = Callable[[Raw], Array]
Matrix = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]

_WIDTHS = {
    WireType.TINY: 1,
    WireType.SHORT: 2,
    WireType.INT24: 3,
    WireType.LONG: 4,
    WireType.LONGLONG: 8,
}
Maker = Callable[[MariadbKind, BinlogColumn], Reader | None]

_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_SECOND = 1_000_000


def reader_of(kind: MariadbKind, column: BinlogColumn) -> Reader | None:
    """How a column's raw values are read; None if its type in the log cannot be of this kind."""
    return _MAKERS[kind.family](kind, column)


def _byte_matrix(raw: Raw, width: int) -> tuple[Matrix, npt.NDArray[np.bool_] | None]:
    """The values as rows of bytes, and which of them are NULL, if any is."""
    if None in raw:
        nothing = bytes(width)
        mask = np.fromiter((value is None for value in raw), np.bool_, len(raw))
        joined = b"".join([nothing if value is None else value for value in raw])
    else:
        mask, joined = None, b"".join(raw)  # type: ignore[arg-type]  # no NULL among them
    return np.frombuffer(joined, np.uint8).reshape(len(raw), width), mask


def _masked_array(values: npt.NDArray[Any], mask: npt.NDArray[np.bool_] | None) -> Array:
    found: Array = pa.array(values, mask=mask)
    return found


def _big_endian(matrix: Matrix) -> Numbers:
    found = np.zeros(len(matrix), np.int64)
    for place in range(matrix.shape[1]):
        found = found << 8 | matrix[:, place]
    return found


def _integer_reader(kind: MariadbKind, column: BinlogColumn) -> Reader | None:
    width = _WIDTHS.get(WireType(column.wire)) if column.wire in _WIDTHS else None
    unsigned = column.unsigned
    if width is None or (width == 8 and unsigned):
        return None

    def read(raw: Raw) -> Array:
        matrix, mask = _byte_matrix(raw, width)
        wide = np.zeros((len(raw), 8), np.uint8)
        wide[:, :width] = matrix
        if not unsigned and width < 8:
            wide[:, width:] = np.where(matrix[:, -1:] & 0x80, 0xFF, 0)
        return _masked_array(wide.view("<i8").ravel(), mask)

    return read


def _unsigned_reader(kind: MariadbKind, column: BinlogColumn) -> Reader | None:
    if column.wire != WireType.LONGLONG or not column.unsigned:
        return None

    def read(raw: Raw) -> Array:
        matrix, mask = _byte_matrix(raw, 8)
        wide = np.zeros((len(raw), 16), np.uint8)
        wide[:, :8] = matrix
        return _decimal_array(wide, mask, kind.arrow)

    return read


def _decimal_array(wide: Matrix, mask: npt.NDArray[np.bool_] | None, kind: pa.DataType) -> Array:
    """Rows of 16 bytes, little-endian, as an array of decimals."""
    valid = None
    if mask is not None:
        valid = pa.py_buffer(np.packbits(~mask, bitorder="little").tobytes())
    return pa.Array.from_buffers(kind, len(wide), [valid, pa.py_buffer(wide.tobytes())])


def _decimal_reader(kind: MariadbKind, column: BinlogColumn) -> Reader | None:
    target: Any = kind.arrow
    if column.wire != WireType.DECIMAL or column.detail != (target.precision, target.scale):
        return None
    groups = _digit_groups(target.precision - target.scale, target.scale)
    width = column.width

    def read(raw: Raw) -> Array:
        matrix, mask = _byte_matrix(raw, width)
        negative = (matrix[:, 0] & 0x80) == 0
        plain = matrix ^ np.where(negative, 0xFF, 0).astype(np.uint8)[:, None]
        plain[:, 0] ^= 0x80
        parts, at = [], 0
        for size, digits in groups:
            parts.append((_big_endian(plain[:, at : at + size]), 10**digits))
            at += size
        small = target.precision <= 18
        total: Any = np.zeros(len(raw), np.int64 if small else object)
        for part, scale in parts:
            total = total * scale + part
        if mask is not None:
            total[mask] = 0
        _require_fits(total < 10**target.precision, "a number with too many digits")
        total = np.where(negative, -total, total)
        return _decimal_array(_widen_numbers(total, small), mask, target)

    return read


def _widen_numbers(total: npt.NDArray[Any], small: bool) -> Matrix:
    if not small:
        joined = b"".join(int(value).to_bytes(16, "little", signed=True) for value in total)
        return np.frombuffer(joined, np.uint8).reshape(len(total), 16)
    wide = np.empty((len(total), 2), np.int64)
    wide[:, 0], wide[:, 1] = total, total >> 63
    return wide.view(np.uint8)


def _digit_groups(whole: int, fraction: int) -> list[tuple[int, int]]:
    """The bytes and digits of each group that a decimal is stored in."""
    groups = [(_DIGIT_BYTES[whole % 9], whole % 9)] if whole % 9 else []
    groups += [(4, 9)] * (whole // 9 + fraction // 9)
    return groups + ([(_DIGIT_BYTES[fraction % 9], fraction % 9)] if fraction % 9 else [])


def _float_reader(kind: MariadbKind, column: BinlogColumn) -> Reader | None:
    single = kind.arrow == pa.float32()
    if column.wire != (WireType.FLOAT if single else WireType.DOUBLE):
        return None

    def read(raw: Raw) -> Array:
        matrix, mask = _byte_matrix(raw, 4 if single else 8)
        values = np.ascontiguousarray(matrix).view("<f4" if single else "<f8").ravel()
        _require_fits(np.isfinite(values), "no number")
        return _masked_array(values + values.dtype.type(0), mask)

    return read


def _bits_reader(kind: MariadbKind, column: BinlogColumn) -> Reader | None:
    if column.wire != WireType.BIT or column.width != (kind.length + 7) // 8:
        return None
    width = column.width

    def read(raw: Raw) -> Array:
        matrix, mask = _byte_matrix(raw, width)
        if kind.length == 64:
            wide = np.zeros((len(raw), 16), np.uint8)
            wide[:, :8] = matrix[:, ::-1]
            return _decimal_array(wide, mask, kind.arrow)
        return _masked_array(_big_endian(matrix), mask).cast(kind.arrow)

    return read


def _text_reader(kind: MariadbKind, column: BinlogColumn) -> Reader | None:
    if column.wire not in (WireType.VARCHAR, WireType.STRING, WireType.BLOB):
        return None
    if not kind.characters:
        return lambda raw: pa.array(raw, pa.binary()).cast(pa.string())
    decode, characters = codecs.charmap_decode, kind.characters

    def read(raw: Raw) -> Array:
        found = [None if v is None else decode(v, "strict", characters)[0] for v in raw]
        return pa.array(found, pa.string())

    return read


def _binary_reader(kind: MariadbKind, column: BinlogColumn) -> Reader | None:
    if column.wire not in (WireType.VARCHAR, WireType.STRING, WireType.BLOB):
        return None
    if column.wire != WireType.STRING:
        return lambda raw: pa.array(raw, pa.binary())
    # The log leaves out the zeros at the end of a BINARY.
    length = column.detail[0]
    return lambda raw: pa.array(
        [None if v is None else v.ljust(length, b"\0") for v in raw], pa.binary()
    )


def _year_reader(kind: MariadbKind, column: BinlogColumn) -> Reader | None:
    if column.wire != WireType.YEAR:
        return None

    def read(raw: Raw) -> Array:
        matrix, mask = _byte_matrix(raw, 1)
        years = matrix[:, 0].astype(np.int64)
        return _masked_array(np.where(years == 0, 0, years + 1900), mask)

    return read


def _require_fits(fits: npt.NDArray[np.bool_], what: str) -> None:
    """A MisfitError for the first value that does not fit."""
    if not fits.all():
        raise MisfitError(int((~fits).argmax()), what)


def _days_since_epoch(
    years: Numbers, months: Numbers, days: Numbers, mask: npt.NDArray[np.bool_] | None
) -> Numbers:
    """Days since 1970; a MisfitError for a date that no calendar has."""
    if mask is not None:
        years, months, days = (
            np.where(mask, one, v) for one, v in ((1, years), (1, months), (1, days))
        )
    first = ((years - 1970) * 12 + months - 1).astype("datetime64[M]")
    found = first.astype("datetime64[D]").astype(np.int64) + days - 1
    next_first = (first + 1).astype("datetime64[D]").astype(np.int64)
    wrong = (years < 1) | (years > 9999) | (months < 1) | (months > 12)
    wrong |= (days < 1) | (found >= next_first)
    if wrong.any():
        index = int(wrong.argmax())
        raise MisfitError(index, f"{years[index]:04d}-{months[index]:02d}-{days[index]:02d}")
    return found


def _date_reader(kind: MariadbKind, column: BinlogColumn) -> Reader | None:
    if column.wire not in (WireType.DATE, WireType.NEWDATE):
        return None

    def read(raw: Raw) -> Array:
        matrix, mask = _byte_matrix(raw, 3)
        packed = _big_endian(matrix[:, ::-1])
        days = _days_since_epoch(packed >> 9, packed >> 5 & 15, packed & 31, mask)
        return _masked_array(days.astype(np.int32), mask).cast(pa.date32())

    return read


def _read_fraction(matrix: Matrix, at: int, digits: int) -> Numbers:
    """Microseconds of the bytes behind a moment's seconds."""
    width = (digits + 1) // 2
    scale: int = 10 ** (6 - 2 * width)
    found = _big_endian(matrix[:, at : at + width]) * scale
    _require_fits(found < _SECOND, "a second with a fraction of more than one")
    return found


def _datetime_reader(kind: MariadbKind, column: BinlogColumn) -> Reader | None:
    if column.wire != WireType.DATETIME:
        return None
    digits, width = column.detail[0], column.width

    def read(raw: Raw) -> Array:
        matrix, mask = _byte_matrix(raw, width)
        packed = _big_endian(matrix[:, :5]) - (1 << 39)
        months = packed >> 22 & 0x1FFFF
        days = _days_since_epoch(months // 13, months % 13, packed >> 17 & 31, mask)
        hours, minutes, seconds = packed >> 12 & 31, packed >> 6 & 63, packed & 63
        if mask is not None:
            hours, minutes, seconds = (np.where(mask, 0, v) for v in (hours, minutes, seconds))
        _require_fits((hours < 24) & (minutes < 60) & (seconds < 60), "a time that no clock has")
        moment = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
        return _masked_array(moment * _SECOND + _read_fraction(matrix, 5, digits), mask).cast(
            kind.arrow
        )

    return read


def _timestamp_reader(kind: MariadbKind, column: BinlogColumn) -> Reader | None:
    if column.wire != WireType.TIMESTAMP:
        return None
    digits, width = column.detail[0], column.width

    def read(raw: Raw) -> Array:
        matrix, mask = _byte_matrix(raw, width)
        moment = _big_endian(matrix[:, :4]) * _SECOND + _read_fraction(matrix, 4, digits)
        zero = moment == 0 if mask is None else (moment == 0) & ~mask
        if zero.any():
            raise MisfitError(int(zero.argmax()), "0000-00-00 00:00:00")
        return _masked_array(moment, mask).cast(kind.arrow)

    return read


def _enum_reader(kind: MariadbKind, column: BinlogColumn) -> Reader | None:
    if column.wire != WireType.ENUM or not _same_labels(kind, column):
        return None
    # Number 0 is a value that was none of the labels.
    labels = pa.array(["", *kind.labels], pa.string())
    width = column.width

    def read(raw: Raw) -> Array:
        matrix, mask = _byte_matrix(raw, width)
        places: Any = _masked_array(_big_endian(matrix[:, ::-1]), mask)
        return pc.take(labels, places)

    return read


def _set_reader(kind: MariadbKind, column: BinlogColumn) -> Reader | None:
    if column.wire != WireType.SET or not _same_labels(kind, column):
        return None
    known: dict[bytes | None, str | None] = {None: None}

    def spelled(value: bytes) -> str:
        chosen = int.from_bytes(value, "little")
        return ",".join(label for i, label in enumerate(kind.labels) if chosen >> i & 1)

    def read(raw: Raw) -> Array:
        for value in set(raw).difference(known):
            assert value is not None
            known[value] = spelled(value)
        return pa.array([known[value] for value in raw], pa.string())

    return read


def _same_labels(kind: MariadbKind, column: BinlogColumn) -> bool:
    return tuple(label.encode() for label in kind.labels) == column.labels


def _address_maker(
    spell: Callable[[bytes], str], length: int
) -> Callable[[MariadbKind, BinlogColumn], Reader | None]:
    def make(kind: MariadbKind, column: BinlogColumn) -> Reader | None:
        if column.wire != WireType.STRING or column.detail[0] != length:
            return None
        return lambda raw: pa.array(
            [None if v is None else spell(v.ljust(length, b"\0")) for v in raw], pa.string()
        )

    return make


def _spell_uuid(value: bytes) -> str:
    return str(uuid.UUID(bytes=value))


def spell_inet6(value: bytes) -> str:
    """As MariaDB does, which also writes a single group of zeros as "::".

    >>> spell_inet6(bytes.fromhex("00010000000200030004000500060007"))
    '1::2:3:4:5:6:7'
    """
    groups = [value[i : i + 2].hex().lstrip("0") or "0" for i in range(0, 16, 2)]
    runs = [next((n for n, g in enumerate(groups[i:]) if g != "0"), 8 - i) for i in range(8)]
    longest = max(runs)
    if longest == 0:
        return ":".join(groups)
    start = runs.index(longest)
    if start == 0 and (longest == 6 or (longest == 5 and groups[5] == "ffff")):
        groups[6:] = [".".join(str(byte) for byte in value[12:])]
    return f"{':'.join(groups[:start])}::{':'.join(groups[start + longest :])}"


_MAKERS: dict[str, Maker] = {
    "integer": _integer_reader,
    "unsigned": _unsigned_reader,
    "decimal": _decimal_reader,
    "float": _float_reader,
    "bits": _bits_reader,
    "text": _text_reader,
    "binary": _binary_reader,
    "date": _date_reader,
    "datetime": _datetime_reader,
    "timestamp": _timestamp_reader,
    "year": _year_reader,
    "enum": _enum_reader,
    "set": _set_reader,
    "uuid": _address_maker(_spell_uuid, 16),
    "inet4": _address_maker(lambda value: socket.inet_ntop(socket.AF_INET, value), 4),
    "inet6": _address_maker(spell_inet6, 16),
}
