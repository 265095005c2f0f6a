"""Accepting a state: copies of the files that are new, and the difference to the state before.

The unit of comparison is the file. One that has the stamp that it had is not opened; one with the
content that it had is not converted; of the others the copies are compared, old against new, as
bags: what is left is the signed difference. Rows in another order, files renamed, split or merged
make no change.

    difference  =  rows of new copies  -  rows of old copies,  summed per tuple

It is taken over the columns that go on from one state to the next (`shapes`).

A small difference is taken here, in bounded memory (`sum_signed_rows`); a large one by a `Differ`,
which the engine lends us, on Spark. A table with a declared key is accepted only if no key is NULL
or occurs twice. That holds in the state before, so only the keys that came have to be looked at.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import pyarrow as pa

from viewkeeper.delta.arrow_compute import pc
from viewkeeper.errors import ConversionError
from viewkeeper.sources.files.accepted_states import (
    AcceptedState,
    KeptFile,
    KeptTable,
    StateFolder,
    type_words_of,
)
from viewkeeper.sources.files.bag_difference import (
    MEMORY_BYTES,
    add_count,
    repeat_by_count,
    sum_signed_rows,
)
from viewkeeper.sources.files.file_parser import FileParser
from viewkeeper.sources.files.parquet import (
    Keys,
    ParquetInput,
    columns_of_parquet,
    count_rows,
    open_parquet,
    read_rows,
    read_stored_schema,
)
from viewkeeper.sources.files.settings import FolderSettings, TableSettings
from viewkeeper.sources.files.snapshot import translate_kept_errors
from viewkeeper.sources.files.table_files import (
    FileStamp,
    Listing,
    list_table,
    locate_file,
    stamp_of,
)
from viewkeeper.sources.kinds import Differ
from viewkeeper.sources.tables.column_type import TableColumns, can_keep_values, shorten_value
from viewkeeper.storage.stored_files import file_size
from viewkeeper.updates.source_protocol import COUNT
from viewkeeper.view.definition import Field

DIFFER_BYTES = 64 << 20
"""Above so many bytes of changed copies a difference is left to the differ, if there is one."""

_HASH_BYTES = 1 << 20


class UnsettledError(Exception):
    """Files were changed while they were read; the state is taken up again when they rest."""


@dataclass(frozen=True, slots=True)
class Acceptor:
    """Makes accepted states of one source."""

    settings: FolderSettings
    kept: StateFolder
    differ: Differ | None = None
    differ_bytes: int = DIFFER_BYTES
    memory_bytes: int = MEMORY_BYTES

    def accept_state(
        self, listings: Mapping[str, Listing], before: AcceptedState | None
    ) -> AcceptedState:
        """Write the next state; nothing is accepted unless all of it is."""
        number = max([time.time_ns() // 1_000_000, *(n + 1 for n in self.kept.list_numbers())])
        tables = {}
        previous = before.number if before else None
        for name, listing in listings.items():
            old = before.tables.get(name) if before else None
            with translate_kept_errors(self.settings.source, self.kept, previous or number):
                tables[name] = self._accept_table(number, name, listing, old)
            if not listing.gone and list_table(self.settings, name).files != listing.files:
                raise UnsettledError(name)
        state = AcceptedState(number, previous, commit_time_of(listings, before), tables)
        self.kept.write_state(state)
        return state

    def _accept_table(
        self, number: int, name: str, listing: Listing, old: KeptTable | None
    ) -> KeptTable:
        declared = self.settings.settings_of(name).fingerprint_text()
        if old is not None and old.has_same_files(listing, declared):
            return replace(old, done_ns=listing.done_ns, changes=0, filled=())
        if listing.gone:
            nothing = old or KeptTable(declared, {}, {}, {}, None, 0)
            return replace(nothing, files={}, done_ns=None, changes=0, filled=(), gone=True)
        # Files that were gone and have come back are another table.
        old = None if old is None or old.gone else old
        same = old.files if old is not None and old.declared == declared else {}
        files, shapes = {}, {}
        for file, stamp in listing.files.items():
            known = same.get(file)
            if known is None or known.stamp != stamp:
                known, shapes[file] = self._copy_file(name, file, stamp)
            else:
                shapes[file] = columns_of_parquet(
                    read_stored_schema(self.kept.rows.copy_path(known.copy))
                )
            files[file] = known
        columns = self._columns_of_files(name, shapes, old)
        table = KeptTable(
            declared, type_words_of(columns), columns.refused, files, listing.done_ns, changes=0
        )
        table = self._with_shape(number, name, table, old)
        return replace(table, changes=self._write_difference(number, name, table, old))

    def _columns_of_files(
        self, name: str, shapes: Mapping[str, TableColumns], old: KeptTable | None
    ) -> TableColumns:
        """The columns that all files have, in one type; those of before if there is no file."""
        declared = self.settings.settings_of(name)
        nothing = TableColumns(tuple(Field(*pair) for pair in declared.columns.items()), {})
        return merge_columns(shapes) or (old.kept_columns() if old else nothing)

    def _with_shape(
        self, number: int, name: str, table: KeptTable, old: KeptTable | None
    ) -> KeptTable:
        """A table that knows since when it and its columns are there, and which are new in it."""
        key = self.settings.settings_of(name).key
        since = dict.fromkeys(table.columns, number)
        since |= {
            column: old.since.get(column, 0) for column in _continued_columns(table, old) if old
        }
        fresh = [c for c in table.columns if old is not None and c not in old.columns]
        return replace(
            table,
            made=number if old is None else old.made,
            since=since,
            filled=[column for column in fresh if self._has_values(name, table, column)],
            key=key if set(key) <= set(table.columns) else (),
        )

    def _has_values(self, name: str, table: KeptTable, column: str) -> bool:
        copies = (file.copy for file in table.files.values())
        rows = self._read_copies(name, copies, _types_of(table, [column]))
        return any(batch.column(0).null_count < batch.num_rows for batch in rows)

    def _copy_file(self, table: str, name: str, stamp: FileStamp) -> tuple[KeptFile, TableColumns]:
        """The copy of a file, made unless there is one with that content and those types."""
        declared, path = self.settings.settings_of(table), locate_file(self.settings, name)
        parser = FileParser(self.settings.source, self.settings.format, declared)
        try:
            columns = parser.read_columns(path, name)
            content = _fingerprint_copy(path, columns, declared)
            copy = self.kept.find_copy(content)
            if copy is None:
                schema = pa.schema(list(columns.types_by_name().items()))
                with self.kept.rows.write_copy(content, schema) as written:
                    for batch in parser.read_batches(path, name, columns):
                        written.write(batch)
                    if stamp_of(path) != stamp:
                        raise UnsettledError(table)
                copy = self.kept.rows.take_copy(content, written.path)
        except FileNotFoundError:
            raise UnsettledError(table) from None
        return KeptFile(stamp, copy, count_rows(self.kept.rows.copy_path(copy))), columns

    def _write_difference(
        self, number: int, name: str, table: KeptTable, old: KeptTable | None
    ) -> int:
        """Write the changes against the state before; how many there are."""
        columns = _continued_columns(table, old)
        if old is None:
            self._check_whole(name, table)
            return 0
        came, went = _changed_copies(table, old)
        schema, changes = pa.schema([*columns.items(), (COUNT, pa.int64())]), 0
        with self.kept.rows.write_changes(number, name, schema) as written:
            for batch in self._signed_rows(name, came, went, columns, old):
                piece = repeat_by_count(pa.Table.from_batches([batch]).select(schema.names))
                written.write(piece)
                changes += piece.num_rows
        names = [*table.key, COUNT]
        if list(table.key) != list(old.key) or _types_of(table, table.key) != _types_of(
            old, table.key
        ):
            self._check_whole(name, table)
        elif table.key:
            batches = (
                b.select(names) for b in open_parquet(written.path).iter_batches(columns=names)
            )
            self._check_key(name, batches, old.files.values(), table)
        return changes

    def _check_whole(self, name: str, table: KeptTable) -> None:
        """The key holds in all rows; nothing is known of the state before."""
        if table.key:
            copies = (file.copy for file in table.files.values())
            rows = self._read_copies(name, copies, _types_of(table, table.key))
            self._check_key(name, add_count(rows, 1), (), table)

    def _signed_rows(
        self,
        name: str,
        came: Sequence[str],
        went: Sequence[str],
        columns: Mapping[str, pa.DataType],
        old: KeptTable,
    ) -> Iterator[pa.RecordBatch]:
        schema = pa.schema([*columns.items(), (COUNT, pa.int64())])
        paths = [[self.kept.rows.copy_path(copy) for copy in side] for side in (came, went)]
        # Spark reads files by itself, which it may not be able to in object storage.
        are_local = all(isinstance(path, Path) for side in paths for path in side)
        size = sum(file_size(path) for side in paths for path in side) if are_local else 0
        # Spark does not tell names apart that differ in case only.
        plain = len({name.lower() for name in columns}) == len(columns)
        # Nor does it read a column in a wider type than a file has it.
        plain = plain and columns.items() <= old.kept_columns().types_by_name().items()
        if self.differ is not None and plain and size > self.differ_bytes:
            before, after = ([str(path) for path in side] for side in paths)
            yield from self.differ(before, after, pa.schema(list(columns.items())))
            return
        both = chain(
            add_count(self._read_copies(name, went, columns), -1),
            add_count(self._read_copies(name, came, columns), 1),
        )
        for table in self._sum_rows(both, schema):
            yield from table.to_batches()

    def _sum_rows(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
        scratch = self.kept.files.local / "scratch"
        try:
            yield from sum_signed_rows(batches, schema, scratch, self.memory_bytes)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _read_copies(
        self,
        name: str,
        copies: Iterable[str],
        columns: Mapping[str, pa.DataType],
        keys: Keys | None = None,
    ) -> Iterator[pa.RecordBatch]:
        for copy in copies:
            file = ParquetInput(self.kept.rows.copy_path(copy), copy)
            yield from read_rows(self.settings.source, name, file, columns, keys)

    def _check_key(
        self,
        name: str,
        batches: Iterable[pa.RecordBatch],
        old: Iterable[KeptFile],
        table: KeptTable,
    ) -> None:
        """The keys that came are not NULL, come once, and were not there before."""
        key = tuple(table.key)
        schema = pa.schema([*_types_of(table, key).items(), (COUNT, pa.int64())])
        copies = [file.copy for file in old]
        for netted in self._sum_rows(batches, schema):
            came = netted.filter(pc.greater(netted[COUNT], 0))
            twice = came.filter(pc.greater(came[COUNT], 1))
            nulls = [pc.is_null(came[column]) for column in key]
            for bad in (
                twice,
                *(came.filter(null) for null in nulls),
                *self._find_existing_keys(name, copies, came),
            ):
                if bad.num_rows:
                    raise self._key_error(name, key, bad.select(list(key)).to_pylist()[0])

    def _find_existing_keys(
        self, name: str, copies: Sequence[str], came: pa.Table
    ) -> Iterator[pa.Table]:
        """The rows that came with a key that a row has which did not go."""
        if not came.num_rows or not copies:
            return
        columns = {n: came.schema.field(n).type for n in came.column_names if n != COUNT}
        keys = Keys({column: pc.unique(came[column].combine_chunks()) for column in columns})
        for batch in self._read_copies(name, copies, columns, keys):
            there = pa.Table.from_batches([batch])
            yield there.join(came.drop_columns([COUNT]), list(columns), join_type="left semi")

    def _key_error(
        self, name: str, key: tuple[str, ...], values: Mapping[str, object]
    ) -> ConversionError:
        shown = ", ".join(f"{column} = {shorten_value(values[column])}" for column in key)
        null = any(value is None for value in values.values())
        return ConversionError(
            self.settings.source,
            f'table "{name}": the key {shown} {"is NULL" if null else "occurs more than once"}',
            hint="mend the files, or leave out `key:` to keep the table as a bag of rows",
        )


def _types_of(table: KeptTable, key: Sequence[str]) -> dict[str, pa.DataType]:
    types = table.kept_columns().types_by_name()
    return {column: types[column] for column in key if column in types}


def _continued_columns(table: KeptTable, old: KeptTable | None) -> dict[str, pa.DataType]:
    """The columns that the state before has too, their values kept, in their newest types."""
    before = old.kept_columns().types_by_name() if old is not None else {}
    return {
        name: kind
        for name, kind in table.kept_columns().types_by_name().items()
        if name in before and can_keep_values(before[name], kind)
    }


def _changed_copies(table: KeptTable, old: KeptTable) -> tuple[list[str], list[str]]:
    """The copies that came and those that went; files with the same content cancel out."""
    now = Counter(file.copy for file in table.files.values())
    before = Counter(file.copy for file in old.files.values())
    return list((now - before).elements()), list((before - now).elements())


def merge_columns(shapes: Mapping[str, TableColumns]) -> TableColumns | None:
    """The columns that all files have in one type; why others cannot be used."""
    if not shapes:
        return None
    kept: dict[str, Field] = {}
    refused: dict[str, str] = {}
    for file, columns in shapes.items():
        refused |= columns.refused
        for field in columns.fields:
            first = kept.setdefault(field.name, field)
            if first.type != field.type:
                refused[field.name] = (
                    f"{file} has it as {field.type}, another file as {first.type};"
                    " write all files alike"
                )
    for name in kept:
        lacking = [file for file, columns in shapes.items() if name not in columns.types_by_name()]
        if lacking and name not in refused:
            refused[name] = f"{lacking[0]} does not have it; write all files alike"
    return TableColumns(tuple(f for n, f in kept.items() if n not in refused), refused)


def commit_time_of(listings: Mapping[str, Listing], before: AcceptedState | None) -> float:
    """When the newest file that is not as it was got so; when the folder did if files went."""
    known = {
        (name, file, kept.stamp)
        for name, table in (before.tables.items() if before else ())
        for file, kept in table.files.items()
    }
    times = [
        stamp.changed_ns
        for name, listing in listings.items()
        for file, stamp in listing.files.items()
        if (name, file, stamp) not in known
    ]
    newest = max(times or [listing.changed_ns for listing in listings.values()])
    return min(newest / 1e9, time.time())


def _fingerprint_copy(path: Path, columns: TableColumns, declared: TableSettings) -> str:
    """What a copy is called: after the content of the file and how it is read."""
    words = sorted(type_words_of(columns).items())
    content = hashlib.sha256(f"{words}{declared.fingerprint_text()}".encode())
    with open(path, "rb") as file:
        while block := file.read(_HASH_BYTES):
            content.update(block)
    return content.hexdigest()[:40]
