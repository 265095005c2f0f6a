"""Rows of one Parquet file, streamed: the asked columns in their exact types, by key if asked.

A file may lack columns that its table got later (their values are NULL) and columns whose value is
the same in the whole file (a Delta Lake table's partition). Keys narrow what is read, by the
statistics of row groups and then by value: each key column on its own, so more rows may come than
match a whole key, never fewer. Floating-point columns are not compared at all: statistics say
nothing of NaN.

A Parquet file comes from anybody, and Arrow says in many ways that it cannot be read. All of them
are one UnreadableFileError here, which callers turn into an error of their own; only a file that is
not there stays a FileNotFoundError. Page checksums are compared where a file has them.

Joins across sources need one integer type, one type of text, one unit of time. Every Arrow type
that a Parquet file can have is brought to one of them here, or refused because some of its values
would not survive. A single value that does not fit (a nanosecond that a microsecond cannot hold, a
year that Spark's calendar lacks) is a MisfitError, which says which; nothing is rounded.

Equal values have one form: -0.0 becomes 0.0, and there is one NaN.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
from pyarrow.fs import LocalFileSystem

from viewkeeper.delta.arrow_compute import pc
from viewkeeper.delta.exact_cast import exact_cast
from viewkeeper.delta.kernel import canonical_floats
from viewkeeper.errors import ConversionError
from viewkeeper.sources.tables.column_type import (
    DIGITS_MAX,
    IN_CALENDAR,
    ColumnRefusal,
    MisfitError,
    TableColumns,
    can_keep_values,
    convert_or_blame,
    find_outside_calendar,
)
from viewkeeper.sources.tables.shape import change_columns_of
from viewkeeper.storage.named_digest import has_own_footer
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.storage.stored_files import storage_of
from viewkeeper.updates.answer_pages import Paging, gather_pages
from viewkeeper.updates.cut import Cut
from viewkeeper.updates.source_protocol import Answer, Lookup
from viewkeeper.view.definition import Field


def columns_of_parquet(schema: pa.Schema) -> TableColumns:
    """How the columns of a Parquet file are kept."""
    kept, refused = [], {}
    for column in schema:
        target = exact_type_of(column.type)
        if schema.names.count(column.name) > 1:
            refused[column.name] = "several columns have this name; give each its own"
        elif isinstance(target, ColumnRefusal):
            refused[column.name] = str(target)
        else:
            kept.append(Field(column.name, target))
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


BATCH_ROWS = 65_536
_RANGE_FROM = 50
_INT_BITS = {pa.int8(): 7, pa.int16(): 15, pa.int32(): 31}
_VIEWS: dict[pa.DataType, pa.DataType] = {
    pa.string_view(): pa.string(),
    pa.binary_view(): pa.binary(),
}
# What Arrow raises at damaged files, besides its own errors: texts that are no UTF-8 in names,
# numbers that no type holds, types that it does not know.
_FAILURES = (
    *(pa.ArrowException, OSError, ValueError, TypeError),
    *(LookupError, ArithmeticError, MemoryError),
)
_FORMAT: Any = pyarrow.dataset.ParquetFileFormat()


@dataclass(frozen=True, slots=True)
class ParquetInput:
    """A Parquet file, what to call it, and the columns that have one value in all of it."""

    path: StoragePath
    name: str
    fixed: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Keys:
    """The distinct values that a lookup allows per column; NULL among them where it is equal."""

    values: Mapping[str, Any]


class UnreadableFileError(Exception):
    """A Parquet file cannot be read: damaged, encrypted, or refused by the operating system."""

    def __init__(self, file: ParquetInput, error: BaseException) -> None:
        super().__init__(f"{file.name}: {_first_line(error)}")
        self.path = file.path
        self.is_damaged = not (isinstance(error, OSError) and error.errno is not None)


def _first_line(error: BaseException) -> str:
    text = str(error).strip().partition("\n")[0] or type(error).__name__
    return text if len(text) <= 300 else text[:297] + "..."


@contextmanager
def _translate_errors(file: ParquetInput) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except _FAILURES as error:
        raise UnreadableFileError(file, error) from error


def keys_of(lookup: Lookup) -> Keys | None:
    """What a lookup compares; None if it asks for every row."""
    if lookup.keys is None or not lookup.on:
        return None
    found = {}
    for name, null_safe in zip(lookup.on, lookup.null_safe, strict=True):
        values = pc.unique(lookup.keys[name].combine_chunks())
        if not pa.types.is_floating(values.type):
            found[name] = values if null_safe else values.drop_null()
    return Keys(found)


def read_stored_schema(path: StoragePath) -> pa.Schema:
    """The schema that a Parquet file has, as we read it."""
    with _translate_errors(ParquetInput(path, path.name)), open_parquet(path) as parquet:
        schema: pa.Schema = parquet.schema_arrow
        return schema


def read_rows(
    source: str,
    table: str,
    file: ParquetInput,
    columns: Mapping[str, pa.DataType],
    keys: Keys | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a file in pieces, with these columns in these types."""
    target, start = pa.schema(list(columns.items())), 0
    for rows in _read_pieces(source, table, file, columns, keys):
        arrays = [
            _values_of(source, table, file, name, kind, rows, start)
            for name, kind in columns.items()
        ]
        start += rows.num_rows
        if rows.num_rows:
            # Without columns, only the selection still knows how many rows there are.
            yield pa.record_batch(arrays, schema=target) if arrays else rows.select([])


def _read_pieces(
    source: str,
    table: str,
    file: ParquetInput,
    columns: Mapping[str, pa.DataType],
    keys: Keys | None,
) -> Iterator[pa.RecordBatch]:
    """The rows as they are stored, as far as the keys allow."""
    with _translate_errors(file), open_parquet(file.path) as parquet:
        stored = parquet.schema_arrow
        found = _comparable_keys(keys, file, stored) if keys else {}
        if found is None:
            return
        present = [name for name in columns if name in stored.names and name not in file.fixed]
        for name in present:
            _check_type(source, table, file, name, stored.field(name).type, columns[name])
        for batch in parquet.iter_batches(
            BATCH_ROWS,
            row_groups=_row_groups(file.path, found) if found else None,
            columns=[*dict.fromkeys([*present, *found])],
            use_threads=False,
        ):
            yield _filter_rows(batch, found)


def _check_type(
    source: str, table: str, file: ParquetInput, name: str, stored: pa.DataType, kind: pa.DataType
) -> None:
    """A file may have a column in a narrower type than its table, not in any other."""
    if not is_kept_in(stored, kind):
        raise ConversionError(
            source,
            f'table "{table}", column "{name}": file {file.name} has values of type {stored} where'
            f" the table has {kind}",
            hint="write the file anew, in the types of the table",
        )


def count_rows(path: StoragePath) -> int:
    """The number of rows of a file, from its footer."""
    with _translate_errors(ParquetInput(path, path.name)), open_parquet(path) as parquet:
        return max(int(parquet.metadata.num_rows), 0)


def open_parquet(path: StoragePath) -> Any:
    """A file to be read piece by piece: a scanner of Arrow's would read ahead without a limit.

    Spark writes timestamps of 12 bytes unless it is told not to; as nanoseconds, what Arrow makes
    of them by default, they would reach no further than the year 2262. A copy of ours has a digest
    of its footer in its name.
    """
    if not has_own_footer(path):
        raise ValueError("its footer is not the one that was written")
    return pq.ParquetFile(
        storage_of(path).parquet_source(path),
        coerce_int96_timestamp_unit="us",
        pre_buffer=False,
        page_checksum_verification=True,
    )


def _values_of(
    source: str,
    table: str,
    file: ParquetInput,
    name: str,
    kind: Any,
    batch: pa.RecordBatch,
    start: int,
) -> Any:
    if name in file.fixed:
        value: Any = pa.scalar(file.fixed[name], kind)
        return pa.repeat(value, batch.num_rows)
    if name not in batch.schema.names:
        return pa.nulls(batch.num_rows, kind)
    try:
        return cast_exactly(batch.column(name), kind)
    except MisfitError as error:
        raise ConversionError(
            source,
            f'table "{table}", column "{name}": {error}',
            detail=f"file {file.name}, row {start + error.index + 1} of those read",
            hint="mend the value in the source",
        ) from error


def _comparable_keys(keys: Keys, file: ParquetInput, stored: pa.Schema) -> dict[str, Any] | None:
    """The values that a row may have, per stored column; None if no row can match."""
    found = {}
    for name, values in keys.values.items():
        if name in file.fixed:
            if not pc.is_in(pa.scalar(file.fixed[name], values.type), value_set=values).as_py():
                return None
        elif name not in stored.names:
            if not values.null_count:
                return None
        else:
            comparable = _cast_keys(values, stored.field(name).type)
            if comparable is not None:
                found[name] = comparable
    return found


def _filter_rows(batch: Any, allowed: Mapping[str, Any]) -> Any:
    if allowed and any(field.type in _VIEWS for field in batch.schema):
        # Some writers of Delta Lake tables store views of text, which Arrow cannot pick rows of.
        types = [(field.name, _VIEWS.get(field.type, field.type)) for field in batch.schema]
        batch = batch.cast(pa.schema(types))
    for name, values in allowed.items():
        batch = batch.filter(pc.is_in(batch.column(name), value_set=values))
    return batch


def _row_groups(path: StoragePath, allowed: Mapping[str, Any]) -> list[int]:
    """The row groups whose statistics do not rule these values out."""
    if isinstance(path, Path):
        fragment = _FORMAT.make_fragment(str(path), filesystem=LocalFileSystem())
    else:
        fragment = _FORMAT.make_fragment(storage_of(path).parquet_source(path))
    conditions = [_is_among(name, values) for name, values in allowed.items()]
    narrowed = fragment.subset(functools.reduce(operator.and_, conditions))
    return [group.id for group in narrowed.row_groups]


def _cast_keys(values: Any, stored: pa.DataType) -> Any:
    """The keys in the type that the file has; None if they cannot be compared there."""
    if values.type == stored:
        return values
    if pa.types.is_int64(values.type) and stored in _INT_BITS:
        limit = 1 << _INT_BITS[stored]
        inside = pc.and_(pc.greater_equal(values, -limit), pc.less(values, limit))
        return values.filter(pc.or_kleene(inside, pc.is_null(values))).cast(stored)
    return None


def _is_among(name: str, values: Any) -> Any:
    """Arrow holds few values one by one against statistics; of many, it is given the range too."""
    column = pc.field(name)
    if len(values) <= _RANGE_FROM or values.null_count or not _is_ordered(values.type):
        return column.isin(values)
    low, high = pc.min_max(values).values()
    return (column >= low) & (column <= high) & column.isin(values)


def _is_ordered(kind: pa.DataType) -> bool:
    return not (pa.types.is_boolean(kind) or pa.types.is_binary(kind))


def can_match(keys: Keys, name: str, low: Any, high: Any, nulls: int | None) -> bool:
    """Whether a file whose values of a column lie in these bounds can have a row for the keys."""
    values = keys.values.get(name)
    if values is None:
        return True
    if values.null_count and nulls != 0:
        return True
    inside = pc.and_(pc.greater_equal(values, low), pc.less_equal(values, high))
    return bool(pc.any(inside).as_py())


def table_of_batches(
    batches: Sequence[pa.RecordBatch] | Iterator[pa.RecordBatch], columns: Mapping[str, pa.DataType]
) -> pa.Table:
    return pa.Table.from_batches(list(batches), schema=schema_of_columns(columns))


def schema_of_columns(columns: Mapping[str, pa.DataType]) -> pa.Schema:
    return pa.schema(list(columns.items()))


def gather_answer(
    batches: Iterable[pa.RecordBatch],
    columns: Mapping[str, pa.DataType],
    after: int,
    paging: Paging | None,
) -> Answer:
    """An answer of rows that are exactly as of a position."""
    rows, pages = gather_pages(batches, schema_of_columns(columns), paging)
    tail = table_of_batches([], change_columns_of(columns))
    return Answer(rows, Cut(after), after, tail, pages)
