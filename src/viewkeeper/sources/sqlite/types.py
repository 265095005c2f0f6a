"""Declared types of SQLite columns, and stored values as exact Arrow arrays.

SQLite stores what it likes: the declared type of a column is advice. A column has an Arrow type
here only if every value that *fits* its declared type can be kept exactly; a value that does not
fit is an error that names it, and nothing is guessed. A column whose type cannot be kept is
refused, with the reason, when a view uses it.

Conversion is done by whole columns. One pass collects the Python types of the values (text in an
INTEGER column shows there), then pyarrow converts; single values are looked at only to find the
culprit of a failure.

A lookup by key never misses for types with *one spelling*: equal values are stored equally, up to
what SQLite's own `=` calls equal (1 and 1.0, 0.0 and -0.0). Timestamps have several ('T' or a
blank, any number of trailing zeros), so they are not looked up by key.

The select of a fetch lists the columns of `fields` first; whatever comes after them (a sign, a
position) is turned into int64 columns. The last column of all may be there only to name a row in
errors.
"""

from __future__ import annotations

import datetime
import decimal
import math
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.delta.exact_cast import decimals_of
from viewkeeper.errors import ConversionError, SchemaError, reload_hint
from viewkeeper.sources.sqlite.schema import SqliteTable
from viewkeeper.sources.tables.column_type import ColumnRefusal, MisfitError, convert_or_blame
from viewkeeper.sources.tables.shape import batch_without_columns

_DATE = r"^\d{4}-\d{2}-\d{2}$"
_TIMESTAMP = r"^\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}:\d{2}(\.\d{1,6})?$"
_DECLARED = r"([A-Z0-9_ ]*?)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?"
# The digits that survive SQLite's REAL storage.
_PRECISION_MAX = 15

Values = Sequence[object]
Array: TypeAlias = "pa.Array[pa.Scalar[pa.DataType]]"


@dataclass(frozen=True, slots=True)
class SqliteKind:
    """How the values of a column are kept: their Arrow type, storage classes and conversions."""

    arrow: pa.DataType
    stored: frozenset[type]
    to_arrow: Callable[[Values], Array]
    to_stored: Callable[[object], object]
    expects: str
    one_spelling: bool = True


def convert_values(values: Values, kind: SqliteKind) -> Array:
    """All values as one Arrow array, or a MisfitError for the first that does not fit."""

    def convert(part: Values) -> Array:
        if not set(map(type, part)) <= kind.stored:
            raise ValueError("a value has another storage class")
        return kind.to_arrow(part)

    return convert_or_blame(values, convert, lambda n: MisfitError(n, values[n], kind.expects))


def _to_integers(values: Values) -> Array:
    return pa.array(values, pa.int64())


def _to_floats(values: Values) -> Array:
    # Adding zero turns -0.0 into 0.0, which Spark calls equal and Arrow does not.
    return pc.add(pa.array(values, pa.float64()), 0.0)


def _to_texts(values: Values) -> Array:
    return pa.array(values, pa.string())


def _to_blobs(values: Values) -> Array:
    return pa.array(values, pa.binary())


def _to_booleans(values: Values) -> Array:
    if not set(values) <= {0, 1, None}:
        raise ValueError("a boolean is 0 or 1")
    return pa.array(values, pa.int64()).cast(pa.bool_())


def _match_texts(values: Values, pattern: str) -> Array:
    texts = pa.array(values, pa.string())
    if not pc.all(pc.match_substring_regex(texts, pattern), min_count=0).as_py():
        raise ValueError("a text does not have the one form that is accepted")
    # Spark's calendar begins with year 1.
    if pc.any(pc.starts_with(texts, "0000"), min_count=0).as_py():
        raise ValueError("there is no year 0")
    return texts


def _to_dates(values: Values) -> Array:
    return _match_texts(values, _DATE).cast(pa.date32())


def _to_timestamps(values: Values) -> Array:
    return _match_texts(values, _TIMESTAMP).cast(pa.timestamp("us"))


def _to_decimals(target: pa.DataType) -> Callable[[Values], Array]:
    def to_arrow(values: Values) -> Array:
        # repr() is the shortest text that reads back as the same number, so the number that was
        # meant; it is refused if it has more digits than the declared type.
        texts = [None if value is None else repr(value) for value in values]
        return decimals_of(pa.array(texts, pa.string()), target)

    return to_arrow


def _to_plain_numbers(values: Values) -> Array:
    """Numbers of any length as their text, without an exponent."""
    texts = [None if value is None else f"{decimal.Decimal(repr(value)):f}" for value in values]
    if not {"Infinity", "-Infinity"}.isdisjoint(texts):
        raise ValueError("a number is finite")
    return pa.array(texts, pa.string())


def as_is(value: object) -> object:
    """What is stored is what Arrow has."""
    return value


def _stored_float(value: object) -> object:
    # SQLite keeps no NaN: it would be bound as NULL, and find rows that it must not.
    assert isinstance(value, float)
    return None if math.isnan(value) else value


def _stored_date(value: object) -> object:
    assert isinstance(value, datetime.date)
    return value.isoformat()


def _stored_decimal(value: object) -> object:
    assert isinstance(value, decimal.Decimal)
    return int(value) if value == value.to_integral_value() else float(value)


def _stored_boolean(value: object) -> object:
    return int(bool(value))


def _make_kind(
    target: pa.DataType,
    stored: set[type],
    to_arrow: Callable[[Values], Array],
    to_stored: Callable[[object], object],
    expects: str,
    one_spelling: bool = True,
) -> SqliteKind:
    storage = frozenset({*stored, type(None)})
    return SqliteKind(target, storage, to_arrow, to_stored, expects, one_spelling)


_INTEGER = _make_kind(pa.int64(), {int}, _to_integers, as_is, "an integer")
_FLOAT = _make_kind(
    pa.float64(), {float, int}, _to_floats, _stored_float, "a floating-point number"
)
_TEXT = _make_kind(pa.string(), {str}, _to_texts, as_is, "text")
_BLOB = _make_kind(pa.binary(), {bytes}, _to_blobs, as_is, "a blob")
_BOOLEAN = _make_kind(pa.bool_(), {int}, _to_booleans, _stored_boolean, "a boolean (0 or 1)")
_DAY = _make_kind(pa.date32(), {str}, _to_dates, _stored_date, "a date (YYYY-MM-DD)")
_TIME = _make_kind(
    pa.timestamp("us"),
    {str},
    _to_timestamps,
    as_is,
    "a timestamp without zone (YYYY-MM-DD HH:MM:SS, at most 6 digits of fraction)",
    one_spelling=False,
)
_NUMBER = _make_kind(
    pa.string(), {int, float}, _to_plain_numbers, as_is, "a number", one_spelling=False
)

_BY_NAME: dict[str, SqliteKind] = {
    **dict.fromkeys(
        ["INT", "INTEGER", "TINYINT", "SMALLINT", "MEDIUMINT", "BIGINT", "INT2", "INT4", "INT8"],
        _INTEGER,
    ),
    **dict.fromkeys(("REAL", "DOUBLE", "DOUBLE PRECISION", "FLOAT"), _FLOAT),
    **dict.fromkeys(
        ["TEXT", "CHAR", "CHARACTER", "VARCHAR", "NCHAR", "NVARCHAR", "CLOB", "LONGTEXT"], _TEXT
    ),
    **dict.fromkeys(("BLOB", "TINYBLOB", "MEDIUMBLOB", "LONGBLOB"), _BLOB),
    **dict.fromkeys(("BOOLEAN", "BOOL"), _BOOLEAN),
    **dict.fromkeys(["UNSIGNED BIG INT", "INT UNSIGNED", "BIGINT UNSIGNED"], _INTEGER),
    **dict.fromkeys(["CHARACTER VARYING", "VARYING CHARACTER", "NATIVE CHARACTER"], _TEXT),
    "DATE": _DAY,
    **dict.fromkeys(("DATETIME", "TIMESTAMP"), _TIME),
}


def kind_of(declared: str) -> SqliteKind | ColumnRefusal:
    """How a declared type is kept, or why it is not."""
    if not declared:
        return ColumnRefusal(
            "it has no declared type", "declare one: INTEGER, REAL, TEXT, BLOB, ..."
        )
    match = re.fullmatch(_DECLARED, declared.upper())
    if match is None:
        return _refuse_unknown(declared)
    name, precision, scale = match.groups()
    name = " ".join(name.split())
    if name in ("DECIMAL", "NUMERIC", "DEC"):
        return _decimal_kind(declared, precision, scale)
    return _BY_NAME.get(name) or _refuse_unknown(declared)


def _decimal_kind(
    declared: str, precision: str | None, scale: str | None
) -> SqliteKind | ColumnRefusal:
    if precision is None:
        return _NUMBER
    digits, places = int(precision), int(scale or 0)
    if not 1 <= digits <= _PRECISION_MAX or places > digits:
        return ColumnRefusal(
            f"{declared} asks for digits that SQLite, which stores it as floating point, loses",
            f"declare it with at most {_PRECISION_MAX} digits, or keep the value as TEXT",
        )
    target = pa.decimal128(digits, places)
    expects = f"a number with at most {digits} digits, {places} after the point"
    return _make_kind(target, {int, float}, _to_decimals(target), _stored_decimal, expects)


def _refuse_unknown(declared: str) -> ColumnRefusal:
    return ColumnRefusal(
        f"SQLite knows no type {declared} and may have changed its values when storing them",
        "declare the column as INTEGER, REAL, TEXT, BLOB, BOOLEAN, DATE, DATETIME or DECIMAL(p, s)",
    )


ROWS_PER_BATCH = 50_000
# Few enough that the rows of a fetch die young: the garbage collector never walks through them.
ROWS_PER_FETCH = 2_000

Columns = Sequence[Sequence[object]]


@dataclass(frozen=True, slots=True)
class SqliteLayout:
    """What a select returns: columns of a table under the asked names, then plain integers."""

    source: str
    table: str
    names: tuple[str, ...]
    kinds: tuple[SqliteKind, ...]
    integers: tuple[str, ...] = ()
    schema: pa.Schema = field(init=False)

    def __post_init__(self) -> None:
        fields = [
            pa.field(name, kind.arrow) for name, kind in zip(self.names, self.kinds, strict=True)
        ]
        fields += [pa.field(name, pa.int64()) for name in self.integers]
        object.__setattr__(self, "schema", pa.schema(fields))

    def read_batches(self, cursor: sqlite3.Cursor) -> Iterator[pa.RecordBatch]:
        while columns := self._next_columns(cursor):
            yield from self._convert_batch(columns)

    def read_all(self, cursor: sqlite3.Cursor) -> pa.Table:
        return pa.Table.from_batches(self.read_batches(cursor), self.schema)

    def _next_columns(self, cursor: sqlite3.Cursor) -> Columns:
        """The next rows, by column; nothing at the end."""
        columns: list[list[object]] = []
        size = 0
        while size < ROWS_PER_BATCH and (rows := self._fetch_rows(cursor)):
            columns = columns or [[] for _ in rows[0]]
            for number, column in enumerate(columns):
                column.extend(map(itemgetter(number), rows))
            size += len(rows)
        return columns

    def _fetch_rows(self, cursor: sqlite3.Cursor) -> list[tuple[object, ...]]:
        try:
            return cursor.fetchmany(ROWS_PER_FETCH)
        except sqlite3.OperationalError as error:
            # Raised by Python, not by SQLite; the message names the column and shows the text.
            if "decode to UTF-8" not in str(error):
                raise
            raise ConversionError(
                self.source,
                f'table "{self.table}": a text is not valid UTF-8',
                detail=str(error)[:200],
                hint="correct the value, or declare the column as BLOB",
            ) from None

    def _convert_batch(self, columns: Columns) -> Iterator[pa.RecordBatch]:
        width = len(self.names)
        arrays = [self._convert_column(number, columns) for number in range(width)]
        if any(isinstance(array, pa.ChunkedArray) for array in arrays):
            # Arrow gives one array at most 2 GB of text: such rows go into smaller batches.
            half = len(columns[0]) // 2
            yield from self._convert_batch([column[:half] for column in columns])
            yield from self._convert_batch([column[half:] for column in columns])
            return
        arrays += [self._convert_integers(columns[width + n], n) for n in range(len(self.integers))]
        if not arrays:
            yield batch_without_columns(len(columns[0]))
            return
        yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _convert_integers(self, values: Sequence[object], number: int) -> Array:
        """What the log itself has of a change: the sign, which comes first, and the position."""
        odd = [v for v in values if type(v) is not int or (number == 0 and v not in (1, -1))]
        if odd:
            raise ConversionError(
                self.source,
                f'table "{self.table}": the change log holds what no trigger of ours has written',
                detail=f"{self.integers[number]} is {str(odd[0])[:50]!r}",
                hint=reload_hint(),
            )
        return pa.array(values, pa.int64())

    def _convert_column(self, number: int, columns: Columns) -> Array:
        try:
            return convert_values(columns[number], self.kinds[number])
        except MisfitError as error:
            extra = len(self.names) + len(self.integers)
            row = ""
            if len(columns) > extra:
                row = f", row {columns[extra][error.index]}"
            elif self.integers:
                row = f", change {columns[extra - 1][error.index]}"
            raise ConversionError(
                self.source,
                f'table "{self.table}", column "{self.names[number]}"{row}: {error}',
                hint="correct the value, or declare a type that all values of the column have",
            ) from None


def kind_or_refuse(source: str, table: SqliteTable, column: str) -> SqliteKind:
    """How a column of a table is kept; a SchemaError for one that cannot be."""
    found = table.column_named(source, column)
    return kind_of_declared(source, table.name, found.name, found.declared)


def kind_of_declared(source: str, table: str, column: str, declared: str) -> SqliteKind:
    """How a column of a declared type is kept; a SchemaError for one that cannot be."""
    kind = kind_of(declared)
    if isinstance(kind, ColumnRefusal):
        raise SchemaError(
            source,
            f'table "{table}": column "{column}" cannot be kept exactly',
            detail=kind.reason,
            hint=kind.hint,
        )
    return kind
