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

Mask = npt.NDArray[np.bool_] | None
Maker = Callable[[MariadbKind, BinlogColumn], Reader | None]
Convert = Callable[[Matrix, Mask, MariadbKind, BinlogColumn], Array]
_INTEGERS = (WireType.TINY, WireType.SHORT, WireType.INT24, WireType.LONG, WireType.LONGLONG)

_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_SECOND = 1_000_000


def reader_of(kind: MariadbKind, column: BinlogColumn) -> Reader | None:
    """How a column's raw values are read; None if its type in the log cannot be of this kind."""
    return _MAKERS[kind.family](kind, column)


def _byte_matrix(raw: Raw, width: int) -> tuple[Matrix, Mask]:
    """The values as rows of bytes, and which of them are NULL, if any is."""
    if None in raw:
        nothing = bytes(width)
        mask = np.fromiter((value is None for value in raw), np.bool_, len(raw))
        joined = b"".join([nothing if value is None else value for value in raw])
    else:
        mask, joined = None, b"".join(raw)  # type: ignore[arg-type]  # no NULL among them
    return np.frombuffer(joined, np.uint8).reshape(len(raw), width), mask


def _masked_array(values: npt.NDArray[Any], mask: Mask) -> Array:
    found: Array = pa.array(values, mask=mask)
    return found


def _big_endian(matrix: Matrix) -> Numbers:
    found = np.zeros(len(matrix), np.int64)
    for place in range(matrix.shape[1]):
        found = found << 8 | matrix[:, place]
    return found


def _fixed_reader(fits: Callable[[MariadbKind, BinlogColumn], bool], convert: Convert) -> Maker:
    """A maker for values that have one width, which come as a matrix."""

    def make(kind: MariadbKind, column: BinlogColumn) -> Reader | None:
        if not fits(kind, column):
            return None
        width = column.width
        return lambda raw: convert(*_byte_matrix(raw, width), kind, column)

    return make


def _of_wire(*wires: WireType) -> Callable[[MariadbKind, BinlogColumn], bool]:
    return lambda kind, column: column.wire in wires


def _is_integer(kind: MariadbKind, column: BinlogColumn) -> bool:
    return column.wire in _INTEGERS and not _is_unsigned(kind, column)


def _convert_integers(matrix: Matrix, mask: Mask, kind: MariadbKind, column: BinlogColumn) -> Array:
    width = matrix.shape[1]
    wide = np.zeros((len(matrix), 8), np.uint8)
    wide[:, :width] = matrix
    if not column.unsigned and width < 8:
        wide[:, width:] = np.where(matrix[:, -1:] & 0x80, 0xFF, 0)
    return _masked_array(wide.view("<i8").ravel(), mask)


def _is_unsigned(kind: MariadbKind, column: BinlogColumn) -> bool:
    return column.wire == WireType.LONGLONG and column.unsigned


def _convert_unsigned(matrix: Matrix, mask: Mask, kind: MariadbKind, column: BinlogColumn) -> Array:
    wide = np.zeros((len(matrix), 16), np.uint8)
    wide[:, :8] = matrix
    return _decimal_array(wide, mask, kind.arrow)


def _decimal_array(wide: Matrix, mask: Mask, kind: pa.DataType) -> Array:
    """Rows of 16 bytes, little-endian, as an array of decimals."""
    valid = None
    if mask is not None:
        valid = pa.py_buffer(np.packbits(~mask, bitorder="little").tobytes())
    return pa.Array.from_buffers(kind, len(wide), [valid, pa.py_buffer(wide.tobytes())])


def _is_decimal(kind: MariadbKind, column: BinlogColumn) -> bool:
    target: Any = kind.arrow
    return column.wire == WireType.DECIMAL and column.detail == (target.precision, target.scale)


def _convert_decimals(matrix: Matrix, mask: Mask, kind: MariadbKind, column: BinlogColumn) -> Array:
    target: Any = kind.arrow
    negative = (matrix[:, 0] & 0x80) == 0
    plain = matrix ^ np.where(negative, 0xFF, 0).astype(np.uint8)[:, None]
    plain[:, 0] ^= 0x80
    small, at = target.precision <= 18, 0
    total: Any = np.zeros(len(matrix), np.int64 if small else object)
    for size, digits in _digit_groups(target.precision - target.scale, target.scale):
        total = total * 10**digits + _big_endian(plain[:, at : at + size])
        at += size
    if mask is not None:
        total[mask] = 0
    _require_fits(total < 10**target.precision, "a number with too many digits")
    total = np.where(negative, -total, total)
    return _decimal_array(_widen_numbers(total, small), mask, target)


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


def _is_float(kind: MariadbKind, column: BinlogColumn) -> bool:
    single = kind.arrow == pa.float32()
    return column.wire == (WireType.FLOAT if single else WireType.DOUBLE)


def _convert_floats(matrix: Matrix, mask: Mask, kind: MariadbKind, column: BinlogColumn) -> Array:
    values = np.ascontiguousarray(matrix).view(f"<f{matrix.shape[1]}").ravel()
    _require_fits(np.isfinite(values), "no number")
    return _masked_array(values + values.dtype.type(0), mask)


def _is_bits(kind: MariadbKind, column: BinlogColumn) -> bool:
    return column.wire == WireType.BIT and column.width == (kind.length + 7) // 8


def _convert_bits(matrix: Matrix, mask: Mask, kind: MariadbKind, column: BinlogColumn) -> Array:
    if kind.length == 64:
        return _convert_unsigned(matrix[:, ::-1], mask, kind, column)
    return _masked_array(_big_endian(matrix), mask).cast(kind.arrow)


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


def _convert_years(matrix: Matrix, mask: Mask, kind: MariadbKind, column: BinlogColumn) -> Array:
    years = matrix[:, 0].astype(np.int64)
    return _masked_array(np.where(years == 0, 0, years + 1900), mask)


def _require_fits(fits: npt.NDArray[np.bool_], what: str) -> None:
    """A MisfitError for the first value that does not fit."""
    if not fits.all():
        raise MisfitError(int((~fits).argmax()), what)


def _days_since_epoch(years: Numbers, months: Numbers, days: Numbers, mask: Mask) -> Numbers:
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


def _convert_dates(matrix: Matrix, mask: Mask, kind: MariadbKind, column: BinlogColumn) -> Array:
    packed = _big_endian(matrix[:, ::-1])
    days = _days_since_epoch(packed >> 9, packed >> 5 & 15, packed & 31, mask)
    return _masked_array(days.astype(np.int32), mask).cast(pa.date32())


def _read_fraction(matrix: Matrix, at: int, digits: int) -> Numbers:
    """Microseconds of the bytes behind a moment's seconds."""
    width = (digits + 1) // 2
    scale: int = 10 ** (6 - 2 * width)
    found = _big_endian(matrix[:, at : at + width]) * scale
    _require_fits(found < _SECOND, "a second with a fraction of more than one")
    return found


def _convert_datetimes(
    matrix: Matrix, mask: Mask, kind: MariadbKind, column: BinlogColumn
) -> Array:
    packed = _big_endian(matrix[:, :5]) - (1 << 39)
    months = packed >> 22 & 0x1FFFF
    days = _days_since_epoch(months // 13, months % 13, packed >> 17 & 31, mask)
    hours, minutes, seconds = packed >> 12 & 31, packed >> 6 & 63, packed & 63
    if mask is not None:
        hours, minutes, seconds = (np.where(mask, 0, v) for v in (hours, minutes, seconds))
    _require_fits((hours < 24) & (minutes < 60) & (seconds < 60), "a time that no clock has")
    moment = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    found = moment * _SECOND + _read_fraction(matrix, 5, column.detail[0])
    return _masked_array(found, mask).cast(kind.arrow)


def _convert_timestamps(
    matrix: Matrix, mask: Mask, kind: MariadbKind, column: BinlogColumn
) -> Array:
    moment = _big_endian(matrix[:, :4]) * _SECOND + _read_fraction(matrix, 4, column.detail[0])
    zero = moment == 0 if mask is None else (moment == 0) & ~mask
    if zero.any():
        raise MisfitError(int(zero.argmax()), "0000-00-00 00:00:00")
    return _masked_array(moment, mask).cast(kind.arrow)


def _convert_times(matrix: Matrix, mask: Mask, kind: MariadbKind, column: BinlogColumn) -> Array:
    digits: int = column.detail[0]
    width = (digits + 1) // 2
    packed = _big_endian(matrix[:, : 3 + width]) - (1 << 23 + 8 * width)
    sizes = np.abs(packed)
    whole, fractions = sizes >> 8 * width, sizes & (1 << 8 * width) - 1
    hours, minutes, seconds = whole >> 12 & 0x3FF, whole >> 6 & 63, whole & 63
    if mask is not None:
        minutes, seconds, fractions = (np.where(mask, 0, v) for v in (minutes, seconds, fractions))
    fits = (minutes < 60) & (seconds < 60) & (fractions < 10 ** (2 * width))
    _require_fits(fits, "a time that no clock has")
    texts = [
        f"{'-' * (one < 0)}{hour:02d}:{minute:02d}:{second:02d}"
        + (f".{fraction:0{2 * width}d}"[: digits + 1] if digits else "")
        for one, hour, minute, second, fraction in zip(
            packed.tolist(),
            *(v.tolist() for v in (hours, minutes, seconds, fractions)),
            strict=True,
        )
    ]
    return pa.array(texts, pa.string(), mask=mask)


def _is_enum(kind: MariadbKind, column: BinlogColumn) -> bool:
    return column.wire == WireType.ENUM and _same_labels(kind, column)


def _convert_enums(matrix: Matrix, mask: Mask, kind: MariadbKind, column: BinlogColumn) -> Array:
    # Number 0 is a value that was none of the labels.
    labels = pa.array(["", *kind.labels], pa.string())
    places: Any = _masked_array(_big_endian(matrix[:, ::-1]), mask)
    return pc.take(labels, places)


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


def _address_maker(spell: Callable[[bytes], str], length: int) -> Maker:
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
    "integer": _fixed_reader(_is_integer, _convert_integers),
    "unsigned": _fixed_reader(_is_unsigned, _convert_unsigned),
    "decimal": _fixed_reader(_is_decimal, _convert_decimals),
    "float": _fixed_reader(_is_float, _convert_floats),
    "bits": _fixed_reader(_is_bits, _convert_bits),
    "text": _text_reader,
    "binary": _binary_reader,
    "date": _fixed_reader(_of_wire(WireType.DATE, WireType.NEWDATE), _convert_dates),
    "datetime": _fixed_reader(_of_wire(WireType.DATETIME), _convert_datetimes),
    "timestamp": _fixed_reader(_of_wire(WireType.TIMESTAMP), _convert_timestamps),
    "time": _fixed_reader(_of_wire(WireType.TIME), _convert_times),
    "year": _fixed_reader(_of_wire(WireType.YEAR), _convert_years),
    "enum": _fixed_reader(_is_enum, _convert_enums),
    "set": _set_reader,
    "uuid": _address_maker(_spell_uuid, 16),
    "inet4": _address_maker(lambda value: socket.inet_ntop(socket.AF_INET, value), 4),
    "inet6": _address_maker(spell_inet6, 16),
}
