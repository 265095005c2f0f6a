"""Reading a Delta Lake table: its rows as of a version, and what a version changed.

Time travel makes answers exact: a snapshot asked about position `after` reads version `after`, so
its cut is that position and its tail is empty. Files whose partition or statistics rule the keys
out are not opened.

What a version changed comes from its own log entry (`log`). Without a change data feed
a writer that updates one row writes a whole file anew: the rows of files removed and files added
cancel each other, in bounded memory, and what is left is the change.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from viewkeeper.delta.arrow_compute import pc
from viewkeeper.errors import BrokenQueryError, ConversionError, SourceAwayError
from viewkeeper.sources.delta_lake import log
from viewkeeper.sources.delta_lake.table_version import (
    DeltaVersion,
    gone_version_error,
    open_version,
)
from viewkeeper.sources.delta_lake.version_shapes import (
    StoredColumns,
    parse_partition_value,
    resolve_handle_columns,
    resolve_plain_columns,
)
from viewkeeper.sources.files.bag_difference import (
    MEMORY_BYTES,
    add_count,
    repeat_by_count,
    sum_signed_rows,
)
from viewkeeper.sources.files.parquet import (
    Keys,
    ParquetInput,
    UnreadableFileError,
    count_rows,
    gather_answer,
    keys_of,
    read_rows,
)
from viewkeeper.sources.handles import Book
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.sources.tables.column_type import MisfitError
from viewkeeper.sources.tables.shape import TableShape
from viewkeeper.sources.tables.shape_history import ShapeHistory
from viewkeeper.updates.cut import Cut
from viewkeeper.updates.schema_change import name_of_handle
from viewkeeper.updates.source_protocol import COUNT, POSITION, Answer, KeyRange, Lookup, Scan
from viewkeeper.view.definition import Relation

_KIND = "_change_type"
_SIGNS = {"insert": 1, "update_postimage": 1, "delete": -1, "update_preimage": -1}


def table_folder_of(settings: SourceSettings) -> log.TableFolder:
    outside = settings.is_switched_on("allow_outside")
    return log.TableFolder(settings.name, settings.read_path(), outside)


class DeltaLakeSnapshot:
    """Reads one table at any version that it still has; used by one task."""

    def __init__(
        self, folder: log.TableFolder, book: Book, history: ShapeHistory[TableShape] | None
    ) -> None:
        self._source = folder.source
        self._folder = folder
        self._book = book
        self._history = history
        self._version: DeltaVersion | None = None

    def answer_lookup(self, lookup: Lookup, after: int) -> Answer:
        handle, version = lookup.relation.table, self._open_at(after)
        columns = self._resolve_columns(handle, version, lookup.columns)
        keys = keys_of(lookup)
        if keys is not None:
            on = self._resolve_columns(handle, version, tuple(keys.values)).stored
            keys = Keys({on[name]: values for name, values in keys.values.items()})
        found = (
            columns.rename_batch(batch)
            for file in version.data_files(keys)
            for batch in read_rows(
                self._source, name_of_handle(handle), file, columns.types_in_files(), keys
            )
        )
        with translate_file_errors(self._source, after):
            return gather_answer(found, columns.types, after, lookup.paging)

    def find_key_range(self, relation: Relation, columns: Sequence[str]) -> KeyRange | None:
        """Its files have no index."""
        return None

    def scan_relation(
        self,
        relation: Relation,
        columns: Sequence[str],
        after: int,
        part: KeyRange | None = None,
    ) -> Scan:
        version = self._open_at(after)
        wanted = self._resolve_columns(relation.table, version, columns)
        rows = rows_of_version(version, name_of_handle(relation.table), wanted)
        return Scan(Cut(after), rows, iter(()))

    def _resolve_columns(
        self, handle: str, version: DeltaVersion, columns: Sequence[str]
    ) -> StoredColumns:
        named, seen = self._book.get(handle), version.shape.seen
        if named is None or self._history is None or not set(columns) <= set(named.columns):
            return resolve_plain_columns(self._source, name_of_handle(handle), seen, columns)
        if seen.id != named.identity:
            raise BrokenQueryError(
                self._source, name_of_handle(handle), "another table is called so"
            )
        span = (version.number, version.number)
        return resolve_handle_columns(self._source, self._history, handle, named, columns, span)

    def _open_at(self, after: int) -> DeltaVersion:
        if self._version is None or self._version.number != after:
            self._version = open_version(self._folder, after)
        return self._version

    def close(self) -> None:
        self._version = None


def rows_of_version(
    version: DeltaVersion, table: str, columns: StoredColumns
) -> Iterator[pa.RecordBatch]:
    """Every row of a version."""
    source = version.folder.source
    with translate_file_errors(source, version.number):
        for file in version.data_files():
            for batch in read_rows(source, table, file, columns.types_in_files()):
                yield columns.rename_batch(batch)


@dataclass(frozen=True, slots=True)
class ChangeReader:
    """Reads the changes of single versions of one table; `scratch` is a folder for large ones."""

    folder: log.TableFolder
    table: str
    scratch: Path
    memory_bytes: int = MEMORY_BYTES

    @property
    def source(self) -> str:
        return self.folder.source

    def read_changes(
        self, commit: log.DeltaCommit, columns: StoredColumns, known: TableShape
    ) -> Iterator[pa.RecordBatch]:
        """The signed rows of a version; `known` is the shape of the table as of it."""
        with translate_file_errors(self.source, commit.version):
            for batch in self._read_signed(commit, columns.types_in_files(), known):
                position = pa.repeat(pa.scalar(commit.version, pa.int64()), batch.num_rows)
                yield columns.rename_batch(batch.append_column(POSITION, position))

    def _read_signed(
        self, commit: log.DeltaCommit, columns: Mapping[str, pa.DataType], known: TableShape
    ) -> Iterator[pa.RecordBatch]:
        if commit.feed:
            for file in self._locate_files(commit, commit.feed, known):
                yield from self._read_feed(file, columns)
            return
        added = add_count(self._read_files(commit, commit.added, columns, known), 1)
        removed = add_count(self._read_files(commit, commit.removed, columns, known), -1)
        if not (commit.added and commit.removed):
            yield from chain(added, removed)
            return
        with tempfile.TemporaryDirectory(dir=self._scratch_folder()) as folder:
            schema = pa.schema([*columns.items(), (COUNT, pa.int64())])
            both = chain(removed, added)
            for table in sum_signed_rows(both, schema, Path(folder), self.memory_bytes):
                yield from repeat_by_count(table).to_batches()

    def _scratch_folder(self) -> Path:
        self.scratch.mkdir(parents=True, exist_ok=True)
        return self.scratch

    def _read_feed(
        self, file: ParquetInput, columns: Mapping[str, pa.DataType]
    ) -> Iterator[pa.RecordBatch]:
        words = pa.array(_SIGNS)
        signs = pa.array(_SIGNS.values(), pa.int64())
        wanted = {**columns, _KIND: pa.string()}
        for batch in read_rows(self.source, self.table, file, wanted):
            count = signs.take(pc.index_in(batch.column(_KIND), value_set=words))
            yield batch.drop_columns([_KIND]).append_column(COUNT, count)

    def _read_files(
        self,
        commit: log.DeltaCommit,
        files: Sequence[log.LoggedFile],
        columns: Mapping[str, pa.DataType],
        known: TableShape,
    ) -> Iterator[pa.RecordBatch]:
        for file in self._locate_files(commit, files, known):
            yield from read_rows(self.source, self.table, file, columns)

    def _locate_files(
        self, commit: log.DeltaCommit, files: Sequence[log.LoggedFile], known: TableShape
    ) -> Iterator[ParquetInput]:
        types = {column.place: column.type for column in known.columns}
        before: DeltaVersion | None = None
        for file in files:
            path = self.folder.locate_logged_file(file.path)
            if file.partition is None:
                before = before or open_version(self.folder, commit.version - 1)
                yield ParquetInput(path, file.path, before.partition_of(file.path))
                continue
            yield ParquetInput(
                path, file.path, self._partition_values(file.path, file.partition, types)
            )

    def _partition_values(
        self,
        file: str,
        partition: Mapping[str, str | None],
        types: Mapping[str, pa.DataType | None],
    ) -> dict[str, Any]:
        """The values that a file has in its partition's columns."""
        fixed = {}
        for name, text in partition.items():
            if (kind := types.get(name)) is not None:
                try:
                    fixed[name] = parse_partition_value(text, kind)
                except MisfitError as error:
                    raise ConversionError(
                        self.source,
                        f'table "{self.table}", column "{name}": {error}',
                        detail=f"the partition of file {file}, in the log",
                        hint="mend the value in the source",
                    ) from error
        return fixed

    def count_changes(self, commit: log.DeltaCommit) -> int:
        """How many rows a version's changes are at most, without reading them."""
        files = commit.feed or (*commit.added, *commit.removed)
        with translate_file_errors(self.source, commit.version):
            paths = ((file, self.folder.locate_logged_file(file.path)) for file in files)
            return sum(count_rows(p) if f.rows is None else f.rows for f, p in paths)


@contextmanager
def translate_file_errors(source: str, version: int) -> Iterator[None]:
    """A data file that is gone was vacuumed; one that cannot be read is damaged."""
    try:
        yield
    except FileNotFoundError as error:
        raise gone_version_error(source, version, str(error)) from error
    except (OSError, UnreadableFileError) as error:
        raise SourceAwayError(
            source,
            f"a data file of version {version} cannot be read",
            detail=str(error),
            hint="restore that file, or the table to a version without it; the views wait, and go"
            " on by themselves",
        ) from error
