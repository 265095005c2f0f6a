"""A folder of CSV, JSON or Parquet files as a source: no log, so states are compared.

A table is a folder of files, or one file. A state is accepted when the files have come to rest
(`table_files`); then what is new of them is copied, typed, into the source's place in the
warehouse, and compared with the copies of the state before (`acceptor`). The signed difference
is the transaction; the number of the state is the position. Questions are answered from the copies
(`snapshot`), so it does not matter to them what the files look like meanwhile.

One accepted state covers all followed tables of the source: all of them are at rest, or none is
taken. What somebody wrote between two accepted states is one transaction.

A state with a value that does not fit, or a key twice, is not accepted: the source counts as away,
with the reason, until the files are mended. A state of another shape is accepted, and says what
became of the tables and columns (`snapshot`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import pyarrow as pa

from viewkeeper.errors import GapError, SchemaError, SourceError
from viewkeeper.sources.files.accepted_states import AcceptedState, StateFolder
from viewkeeper.sources.files.acceptor import merge_columns
from viewkeeper.sources.files.doctor import diagnose_folder, health_of
from viewkeeper.sources.files.file_parser import FileParser
from viewkeeper.sources.files.parquet import ParquetInput, read_rows
from viewkeeper.sources.files.settings import FolderSettings, read_folder_settings
from viewkeeper.sources.files.snapshot import (
    FilesSnapshot,
    is_followed_table,
    resolve_state_columns,
    shape_of_table,
    state_changes,
    table_name_of,
    translate_kept_errors,
)
from viewkeeper.sources.files.state_sequence import StateSequence
from viewkeeper.sources.files.table_files import list_table, locate_file, require_table
from viewkeeper.sources.handles import SourceHandles
from viewkeeper.sources.kinds import Differ
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.sources.tables.column_type import TableColumns
from viewkeeper.sources.tables.shape import change_columns_of, describe_file_table
from viewkeeper.sources.tables.shape_history import current_columns_of
from viewkeeper.updates.schema_change import SchemaChange
from viewkeeper.updates.source_protocol import (
    COUNT,
    LOOK_TRANSACTIONS,
    POSITION,
    Boundary,
    CurrentNames,
    DetachResult,
    Finding,
    Health,
    Opener,
    TableBatches,
    TableDescription,
    Tables,
    TableSize,
)
from viewkeeper.view.definition import Field


def open_source(settings: SourceSettings, reader: str, differ: Differ | None = None) -> FilesSource:
    return FilesSource(read_folder_settings(settings), differ)


class FilesSource:
    """One folder of files."""

    def __init__(self, settings: FolderSettings, differ: Differ | None = None) -> None:
        """`differ` takes large differences, on Spark."""
        self.name = settings.source
        self._settings = settings
        self._kept = StateFolder(self.name, settings.files)
        self._names = SourceHandles(settings.files)
        self._lock = threading.RLock()
        self.states = StateSequence(settings, self._kept, differ)

    def describe_source(self) -> str:
        return f"{self._settings.format} files in {self._settings.folder}"

    def handle_of(self, name: str) -> str:
        with self._lock:
            require_table(self._settings, name)
            table = self._kept.newest_table(name)
            if table is None or table.gone:
                return self._names.choose_handle(name, "", {})
            shape = shape_of_table(name, table)
            return self._names.choose_handle(name, shape.identity, shape.identities_by_name())

    def describe_table(self, handle: str) -> TableDescription:
        """The key is the declared one: a state in which it does not hold is never accepted."""
        with self._lock:
            columns, named = self._columns_of(handle), self._names.target_of(handle)
            name = table_name_of(handle, named)
            table = self._kept.newest_table(name)
            if named is None or table is None:
                names = {column: column for column in columns.types_by_name()}
            else:
                names = current_columns_of(named, shape_of_table(name, table))
            key = self._settings.settings_of(name).key
            return describe_file_table(CurrentNames(name, names), columns, key)

    def estimate_size(self, table: str) -> TableSize:
        """The bytes of its files; how many rows they have is known when they are read."""
        files = list_table(self._settings, self._table_name_of(table)).files
        return TableSize(None, sum(stamp.size for stamp in files.values()))

    def _table_name_of(self, handle: str) -> str:
        return table_name_of(handle, self._names.target_of(handle))

    def _columns_of(self, handle: str) -> TableColumns:
        """The columns that a handle has, and those besides that have no name of its own."""
        with self._lock:
            named, name = self._names.target_of(handle), self._table_name_of(handle)
            found, table = self._present_columns(name), self._kept.newest_table(name)
            if named is None:
                return found
            if table is None or not is_followed_table(named, table):
                raise SchemaError(
                    self.name,
                    f'the files of table "{name}" are gone, or were for a time',
                    hint="bring them back, or change the views that use them",
                )
            types, shape = table.kept_columns().types_by_name(), shape_of_table(name, table)
            own = {c: types[c] for c in current_columns_of(named, shape)}
            fields = [
                Field(field.name, own.get(field.name, field.type))
                for field in found.fields
                if field.name in own or field.name not in named.columns
            ]
            return TableColumns(tuple(fields), found.refused)

    def _present_columns(self, table: str) -> TableColumns:
        """As the files have them now, if they can be read; else as accepted last."""
        known = self._kept.newest_table(table)
        if known is None or known.gone:
            return self._live_columns(table)
        try:
            listing = list_table(self._settings, table)
            if known.has_same_files(listing, self._settings.settings_of(table).fingerprint_text()):
                return known.kept_columns()
            return self._live_columns(table)
        except SourceError:
            return known.kept_columns()

    def _live_columns(self, table: str) -> TableColumns:
        declared = self._settings.settings_of(table)
        parser = FileParser(self.name, self._settings.format, declared)
        files = require_table(self._settings, table).files
        found = merge_columns(
            {n: parser.read_columns(locate_file(self._settings, n), n) for n in files}
        )
        if found is None and not declared.columns:
            raise SchemaError(
                self.name,
                f'table "{table}" has no files, so its columns are not known',
                hint="put a file there, or declare its columns",
            )
        return found or TableColumns(tuple(Field(*pair) for pair in declared.columns.items()), {})

    def follow_tables(self, tables: Tables) -> int:
        """Keep these tables from now on; the number of an accepted state that has them.

        Whoever goes on from an earlier position looks first: where the present state cannot follow
        from the last one, this begins anew.
        """
        with self._lock:
            self.states.recheck_newest()
            if self._is_lost():
                self._names.forget_all()
            wanted: dict[str, list[str]] = {}
            for handle, columns in tables.items():
                named, name = self._names.target_of(handle), self._table_name_of(handle)
                table = self._kept.newest_table(name)
                if named is not None and not is_followed_table(named, table):
                    continue
                known = named.columns if named is not None else {}
                fresh = [column for column in columns if column not in known]
                self._present_columns(name).require_types(self.name, name, fresh)
                wanted.setdefault(name, []).extend(fresh)
            state = self.states.cover_tables(wanted)
            self._note_handles(tables, state)
            return state.number

    def _is_lost(self) -> bool:
        """Whether there is no state to go on from."""
        try:
            return self.states.newest_state() is None
        except GapError:
            return True

    def _note_handles(self, tables: Tables, state: AcceptedState) -> None:
        """What the handles stand for, by the state that was accepted last; those whose table or
        column has just gone stand for what they stood for."""
        if state.before is None and not all(
            is_followed_table(named, state.tables.get(table_name_of(handle, named)))
            for handle, named in self._names.copy_book().items()
        ):
            self._names.forget_all()
        for handle, columns in tables.items():
            named, name = self._names.target_of(handle), self._table_name_of(handle)
            table = state.tables.get(name)
            if table is None or (named is not None and not is_followed_table(named, table)):
                continue
            shape = shape_of_table(name, table)
            now = shape.identities_by_name()
            known = {column: now[column] for column in columns if column in now}
            self._names.add_target(handle, shape.identity, known)

    def look_for_transactions(self, after: int) -> tuple[Boundary, ...]:
        """The accepted states after a position; accepts the present one if it is at rest.

        While nothing changes, a look lists the folders and asks for no more than sizes and times.
        The first look of a process waits for files that have just been written, so that whoever
        looks once sees them.
        """
        with self._lock:
            newest = self.states.newest_state()
            if newest is None or after not in self._kept.list_numbers():
                raise self._kept.gap_error(after, "what was kept of the files was lost or damaged")
            if self.states.advance_state(newest) is None and after == newest.number:
                self.states.raise_refusal()
                return ()
            states = self._kept.read_between(after, limit=LOOK_TRANSACTIONS)
            found, before = [], self._kept.read_state(after)
            for state in states:
                reshaped = self._schema_changes_between(before, state)
                found.append(
                    Boundary(
                        state.number, state.committed_at, state.change_count, reshaped=reshaped
                    )
                )
                before = state
            return tuple(found)

    def has_passed(self, position: int) -> bool:
        newest = self.states.newest_state()
        return newest is not None and position <= newest.number

    def _schema_changes_between(
        self, before: AcceptedState, now: AcceptedState
    ) -> tuple[SchemaChange, ...]:
        """The schema changes of a state that concern what is followed."""
        found: list[SchemaChange] = []
        for handle, named in self._names.copy_book().items():
            name = table_name_of(handle, named)
            tables = before.tables.get(name), now.tables.get(name)
            found += state_changes(handle, named, *tables)
        return tuple(found)

    def read_changes(self, tables: Tables, after: int, until: int) -> TableBatches:
        """State by state, in pieces; `_position` is the number of the state."""
        states = self._kept.read_between(after, until)
        if not states:
            return
        whole, newest = (
            [self._kept.read_state(after), *states],
            self._kept.read_newest() or states[-1],
        )
        wanted = {
            handle: resolve_state_columns(
                self.name, handle, self._names.target_of(handle), columns, whole, newest
            )
            for handle, columns in tables.items()
        }
        for state in states:
            for handle, each in wanted.items():
                table = state.tables.get(each.table)
                if table is not None and table.changes:
                    for batch in self._read_changes_of(state.number, each.table, each.types):
                        yield handle, batch

    def _read_changes_of(
        self, number: int, name: str, types: Mapping[str, pa.DataType]
    ) -> Iterator[pa.RecordBatch]:
        file = ParquetInput(self._kept.rows.changes_path(number, name), f"changes of {number}")
        with translate_kept_errors(self.name, self._kept, number):
            for batch in read_rows(self.name, name, file, {**types, COUNT: pa.int64()}):
                position = pa.repeat(pa.scalar(number, pa.int64()), batch.num_rows)
                numbered = batch.append_column(POSITION, position)
                yield numbered.select(list(change_columns_of(types)))

    @contextmanager
    def prepare_snapshots(self, after: int, tables: Tables) -> Iterator[Opener]:
        """Every snapshot reads the kept state `after`."""
        yield partial(FilesSnapshot, self.name, self._kept.files, self._names.copy_book())

    def acknowledge_position(self, position: int) -> None:
        """Remove the states before a position, and the copies and changes that only they need."""
        with self._lock:
            newest = self.states.newest_state()
            if newest is not None and self._kept.list_numbers()[0] < position:
                self._kept.forget_before(min(position, newest.number))

    def begin_hold(self, name: str, seconds: float) -> None:
        self._kept.leases.write_lease(name, time.time() + seconds)

    def end_hold(self, name: str) -> None:
        self._kept.leases.end_lease(name)

    def read_health(self, positions: Iterable[int]) -> Health:
        return health_of(self._settings, self._kept, tuple(positions))

    def diagnose_source(self, tables: Tables) -> list[Finding]:
        named: dict[str, list[str]] = {}
        for handle, columns in tables.items():
            named.setdefault(self._table_name_of(handle), []).extend(columns)
        return diagnose_folder(self._settings, self._kept, named)

    def detach_source(self, force: bool = False) -> DetachResult:
        """Forget the files; nothing of ours is among them."""
        with self._lock:
            followed = bool(self._kept.list_numbers())
            self._names.forget_all()
            self._kept.files.forget_all()
            self.close()
            return DetachResult(followed, capture_dropped=followed)

    def close(self) -> None:
        with self._lock:
            self.states.forget_memory()
