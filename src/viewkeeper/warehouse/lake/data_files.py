"""The one writer of data files.

The same rows written by Spark, by pyarrow and by `deltalake` are different values when read back
(zoned or naive timestamps, INT96), and then a delete never cancels its insert. So every row of a
view, from a task or inline, goes through this module: pyarrow, with the view's Arrow schema plus
`_count` and `_ts`, exactly.

A file gets a name that no other attempt can have and that says what is in it (`named_digest`), and
is synced with its folder before its descriptor is returned. A file whose descriptor never reaches a
record is an orphan, removed later. Descriptors are small frozen values: that is all that a task
sends back.

The head keeps a digest of a table's list of files: each file's name, size, rows and statistics are
digested, and the digests are added up by exclusive or: in any order, and one commit changes the
digest by its own files only. A Delta Lake log that was emptied, cut, added to or changed gives
another list than the head has, and is not believed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import BinaryIO, Protocol, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from viewkeeper.errors import CorruptError
from viewkeeper.storage import stored_files
from viewkeeper.storage.named_digest import DigestSink, final_name_of
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.updates.source_protocol import COUNT, TS
from viewkeeper.warehouse.lake.verified_files import (
    check_footer,
    new_data_file_name,
    open_parquet,
    read_footer,
    translate_read_errors,
)
from viewkeeper.warehouse.metadata.record import DataFile

ROWS_PER_FILE = 1_000_000
ROWS_PER_GROUP = 131_072


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of a view's files: its rows' columns, then `_count` and `_ts`."""
    own = [pa.field(COUNT, pa.int64()), pa.field(TS, pa.int64())]
    return pa.schema([*schema.remove_metadata(), *own])


def write_rows(
    folder: StoragePath,
    schema: pa.Schema,
    rows: pa.Table,
    batch: int,
    part: int,
    *,
    sync_folder: bool = True,
) -> DataFile:
    """Write signed rows of a view as one file; `schema` is that of the view's rows.

    A task that writes many files may sync the folder once, after the last.
    """
    writer = _Writer(folder, stored_schema(schema), batch, part)
    file = writer.finish_with(rows)
    if sync_folder:
        stored_files.sync_folder(folder)
    return file


def write_stream(
    folder: StoragePath,
    stored: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    batch: int,
    part: int,
    rows_per_file: int = ROWS_PER_FILE,
    sorted_by: str | None = None,
) -> Iterator[DataFile]:
    """Write a stream of rows as files of about equal size; none for an empty stream.

    `stored` is the exact schema of the files. Small batches are gathered into large row groups.
    `sorted_by` is the column by which the rows come in order, if they do.
    """
    writer: _Writer | None = None
    try:
        for group in _gather_groups(batches, min(ROWS_PER_GROUP, rows_per_file)):
            writer = writer or _Writer(folder, stored, batch, part, sorted_by)
            writer.write_group(group)
            if writer.rows >= rows_per_file:
                full, writer = writer, None
                yield full.finish_file()
        if writer:
            last, writer = writer, None
            yield last.finish_file()
    finally:
        # Rows that stopped coming, or that nobody wants any more, leave no file.
        if writer:
            writer.abandon_file()
    stored_files.sync_folder(folder)


def describe_rows(rows: pa.Table, schema: pa.Schema, name: str) -> tuple[pa.Table, DataFile]:
    """Signed rows exactly as a file of the view would have them, and how that would be described.

    `schema` is that of the view's rows; the size is that of the rows in memory.
    """
    exact = _exact_rows(rows, stored_schema(schema)).combine_chunks()
    return exact, _join_measures(name, [_measure_rows(exact)], exact.nbytes)


def check_file(folder: StoragePath, stored: pa.Schema, file: DataFile) -> None:
    """Compare a file with its descriptor: `deltalake` believes any descriptor, we do not."""
    path = folder / file.path
    try:
        check_footer(path, file.size, "")
        footer = read_footer(path)
    except CorruptError as error:
        raise _misdescribed_error(path, str(error.detail)) from error
    except (OSError, pa.ArrowException) as error:
        raise _misdescribed_error(path, str(error)) from error
    if footer.num_rows != file.rows:
        raise _misdescribed_error(path, f"{footer.num_rows} rows; described {file.rows}")
    schema = footer.schema.to_arrow_schema()
    if not schema.equals(stored, check_metadata=False):
        raise _misdescribed_error(path, f"its schema is {schema}, the view's is {stored}")


def count_sum(paths: Iterable[StoragePath]) -> int:
    """The sum of `_count` over files: what a rewrite must not change."""
    total = 0
    for path in paths:
        with open_parquet(path) as file:
            for batch in file.iter_batches(columns=[COUNT], batch_size=ROWS_PER_GROUP):
                total += _whole_number(pc.sum(batch.column(0)))
    return total


def read_stamps(path: StoragePath) -> set[int]:
    """Every ts of which a file has rows."""
    with open_parquet(path) as file:
        return {_whole_number(ts) for ts in pc.unique(file.read(columns=[TS])[TS])}


def read_rows(folder: StoragePath, file: DataFile) -> pa.Table:
    """The rows of a file that was just written."""
    with open_parquet(folder / file.path) as parquet:
        return parquet.read().replace_schema_metadata(None)


class _Writer:
    """One file that is being written; removed again if writing fails."""

    def __init__(
        self,
        folder: StoragePath,
        stored: pa.Schema,
        batch: int,
        part: int,
        sorted_by: str | None = None,
    ) -> None:
        self._stored = stored
        epoch = stored_files.storage_of(folder).epoch
        self._file = stored_files.begin_file(folder, new_data_file_name(batch, part, epoch))
        self._path = self._file.place
        self._sink = DigestSink(self._file.sink)
        try:
            # It writes the first bytes of the file.
            with stored_files.translate_os_errors("write", self._path):
                self._parquet = pq.ParquetWriter(
                    cast("BinaryIO", self._sink),
                    stored,
                    compression="zstd",
                    write_page_checksum=True,
                    sorting_columns=_sorting_columns(stored, sorted_by),
                )
        except BaseException:
            self._file.abandon_file()
            raise
        self._measures: list[DataFile] = []
        self.rows = 0

    def write_group(self, rows: pa.Table) -> None:
        try:
            exact = _exact_rows(rows, self._stored)
            with stored_files.translate_os_errors("write", self._path):
                self._parquet.write_table(exact, row_group_size=ROWS_PER_GROUP)
        except BaseException:
            self.abandon_file()
            raise
        self._measures.append(_measure_rows(exact))
        self.rows += exact.num_rows

    def finish_file(self) -> DataFile:
        try:
            with stored_files.translate_os_errors("write", self._path):
                self._parquet.close()
                whole = self._sink.hex_digest()
                self._path, size = self._file.finish_file(lambda path: final_name_of(path, whole))
        except BaseException:
            self.abandon_file()
            raise
        return _join_measures(self._path.name, self._measures, size)

    def finish_with(self, rows: pa.Table) -> DataFile:
        assert rows.num_rows > 0, "a file without rows is not written"
        self.write_group(rows)
        return self.finish_file()

    def abandon_file(self) -> None:
        """Leave nothing behind; also after a failure, so it may be called twice."""
        # Parquet writes its footer when it is closed or collected: now, while the file is open.
        with suppress(OSError, pa.ArrowException, ValueError):
            self._parquet.close()
        self._parquet.is_open = False
        self._file.abandon_file()


def _sorting_columns(stored: pa.Schema, name: str | None) -> list[pq.SortingColumn] | None:
    if name is None:
        return None
    return [pq.SortingColumn(stored.get_field_index(name), nulls_first=True)]


def is_unordered(folder: StoragePath, files: Iterable[ListedFile], view: str) -> bool:
    """Whether files are large enough that order would spare reading row groups, and have none."""
    listed = list(files)
    large = sum(file.rows for file in listed) > ROWS_PER_GROUP
    return large and not all(_is_sorted(folder / file.path, file.size, view) for file in listed)


def _is_sorted(path: StoragePath, size: int, view: str) -> bool:
    check_footer(path, size, view)
    with translate_read_errors(path, view):
        footer = read_footer(path)
    return footer.num_row_groups > 0 and bool(footer.row_group(0).sorting_columns)


def _gather_groups(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        while batch.num_rows:
            held.append(batch.slice(0, rows - count))
            count += held[-1].num_rows
            batch = batch.slice(held[-1].num_rows)
            if count == rows:
                yield pa.Table.from_batches(held)
                held, count = [], 0
    if count:
        yield pa.Table.from_batches(held)


def _exact_rows(rows: pa.Table, stored: pa.Schema) -> pa.Table:
    assert rows.schema.names == stored.names, f"{rows.schema.names} are not {stored.names}"
    return rows.replace_schema_metadata(None).cast(stored, safe=True)


def _measure_rows(rows: pa.Table) -> DataFile:
    if COUNT not in rows.schema.names:
        return DataFile("", 0, rows.num_rows, rows.num_rows, 1, 1, 0, 0)
    assert rows[COUNT].null_count == 0, "a row without a count"
    assert rows[TS].null_count == 0, "a row without a ts"
    return DataFile(
        path="",
        size=0,
        rows=rows.num_rows,
        count_sum=_whole_number(pc.sum(rows[COUNT])),
        count_min=_whole_number(pc.min(rows[COUNT])),
        count_max=_whole_number(pc.max(rows[COUNT])),
        ts_min=_whole_number(pc.min(rows[TS])),
        ts_max=_whole_number(pc.max(rows[TS])),
    )


def _join_measures(name: str, measures: list[DataFile], size: int) -> DataFile:
    return DataFile(
        path=name,
        size=size,
        rows=sum(m.rows for m in measures),
        count_sum=sum(m.count_sum for m in measures),
        count_min=min(m.count_min for m in measures),
        count_max=max(m.count_max for m in measures),
        ts_min=min(m.ts_min for m in measures),
        ts_max=max(m.ts_max for m in measures),
    )


def _whole_number(value: pa.Scalar) -> int:  # type: ignore[type-arg]  # the stubs make Scalar generic
    return int(value.as_py() or 0)


def _misdescribed_error(path: StoragePath, detail: str) -> CorruptError:
    return CorruptError(
        f'warehouse file "{path}": not what its writer described',
        detail=detail,
        hint="nothing was committed; run again, and check the disk if it comes back",
    )


NOTHING = "0" * 16


class ListedFile(Protocol):
    """What a log says of a file, and a record too."""

    @property
    def path(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def count_min(self) -> int: ...
    @property
    def count_max(self) -> int: ...
    @property
    def ts_min(self) -> int: ...
    @property
    def ts_max(self) -> int: ...


def list_digest(files: Iterable[ListedFile], before: str = NOTHING) -> str:
    """The digest of a list, or of a list with more files; taking a file out is adding it again.

    >>> list_digest([])
    '0000000000000000'
    """
    total = int(before, 16)
    for file in files:
        total ^= int.from_bytes(_file_digest(file), "big")
    return f"{total:016x}"


def _file_digest(f: ListedFile) -> bytes:
    facts = f"{f.path} {f.size} {f.rows} {f.count_min} {f.count_max} {f.ts_min} {f.ts_max}"
    return hashlib.sha256(facts.encode(), usedforsecurity=False).digest()[:8]
