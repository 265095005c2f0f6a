"""A folder of CSV, JSON or Parquet files as a source: no log, so states are compared.

A table is a folder of files, or one file. A state is accepted when the files have come to rest
(`listing`); then what is new of them is copied, typed, into the source's folder inside the
warehouse, and compared with the copies of the state before (`accept`). The signed difference
is the transaction; the number of the state is the position. Questions are answered from the copies
(`snapshot`), so it does not matter to them what the files look like meanwhile.

One accepted state covers all followed tables of the source: all of them are at rest, or none is
taken. What somebody wrote between two accepted states is one transaction.

A state with a value that does not fit, or a key twice, is not accepted: the source counts as away,
with the reason, until the files are mended. A state of another shape is accepted, and says what
became of the tables and columns (`shapes`).
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa

from viewkeeper.errors import GapError, SchemaError, SourceError
from viewkeeper.sources.files.accepted_states import Kept, KeptTable, State
from viewkeeper.sources.files.acceptor import Differ, merged
from viewkeeper.sources.files.doctor import diagnose, health_of
from viewkeeper.sources.files.file_parser import Parser
from viewkeeper.sources.files.parquet import DataFile, changed, chosen, read_rows
from viewkeeper.sources.files.parquet_types import Columns
from viewkeeper.sources.files.settings import FolderSettings, folder_settings
from viewkeeper.sources.files.snapshot import FilesOpener, reading
from viewkeeper.sources.files.state_sequence import States
from viewkeeper.sources.files.state_shapes import (
    asked,
    identities,
    identity_of,
    is_behind,
    schema_changes,
    table_name,
)
from viewkeeper.sources.files.table_files import list_table, locate_file, require_table
from viewkeeper.sources.handles import Names
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.updates.schema_change import SchemaChange
from viewkeeper.updates.source_protocol import (
    COUNT,
    LOOK_TRANSACTIONS,
    POSITION,
    Became,
    Boundary,
    Detached,
    Finding,
    Health,
    Opener,
    Tables,
)
from viewkeeper.view.definition import Field


def open_source(settings: SourceSettings, reader: str) -> FilesSource:
    return FilesSource(folder_settings(settings))


class FilesSource:
    """One folder of files.

    `differ` may be set to have large differences taken on Spark.
    """

    def __init__(self, settings: FolderSettings) -> None:
        self.name = settings.source
        self._settings = settings
        self._kept = Kept(self.name, settings.home)
        self._names = Names(settings.home)
        self._lock = threading.RLock()
        self.states = States(settings, self._kept)

    @property
    def differ(self) -> Differ | None:
        return self.states.differ

    @differ.setter
    def differ(self, differ: Differ | None) -> None:
        self.states.differ = differ

    def describe(self) -> str:
        return f"{self._settings.format} files in {self._settings.folder}"

    def advice(self) -> str | None:
        """None: lookups read the kept copy, which disturbs nobody."""
        return None

    def handle(self, name: str) -> str:
        with self._lock:
            require_table(self._settings, name)
            table = self._accepted(name)
            if table is None or table.gone:
                return self._names.handle(name, "", {})
            return self._names.handle(name, identity_of(name, table), identities(table))

    def became(self, handle: str) -> Became | None:
        with self._lock:
            named = self._names.get(handle)
            name = table_name(handle, named)
            table = self._accepted(name)
            if named is None:
                return Became(name, {field.name: field.name for field in self.schema(handle)})
            if table is None or not is_behind(named, table):
                return None
            now = identities(table)
            return Became(name, {c: c for c, each in named.columns.items() if now.get(c) == each})

    def schema(self, table: str) -> tuple[Field, ...]:
        return self._columns(table).fields

    def refused(self, table: str) -> Mapping[str, str]:
        return self._columns(table).refused

    def key(self, table: str) -> tuple[str, ...]:
        """The declared key, if all its columns are there: a state in which it does not hold is
        never accepted."""
        columns = self._columns(table).types()
        key = self._settings.table(self._name(table)).key
        return key if set(key) <= set(columns) else ()

    def indexed(self, table: str, columns: Sequence[str]) -> bool:
        """Never: a lookup reads the kept copy, except row groups that cannot match."""
        chosen(self.name, self._name(table), self._columns(table), columns)
        return False

    def finds_by_key(self, table: str, columns: Sequence[str]) -> bool:
        types = chosen(self.name, self._name(table), self._columns(table), columns)
        return any(not pa.types.is_floating(kind) for kind in types.values())

    def _name(self, handle: str) -> str:
        return table_name(handle, self._names.get(handle))

    def _accepted(self, name: str) -> KeptTable | None:
        """A table as it was accepted last; None if it was not followed, or that is lost."""
        try:
            newest = self._kept.newest()
        except GapError:
            return None
        return newest.tables.get(name) if newest else None

    def _columns(self, handle: str) -> Columns:
        """The columns that a handle has, and those besides that have no name of its own."""
        with self._lock:
            named, name = self._names.get(handle), self._name(handle)
            found, table = self._present(name), self._accepted(name)
            if named is None:
                return found
            if table is None or not is_behind(named, table):
                raise SchemaError(
                    self.name,
                    f'the files of table "{name}" are gone, or were for a time',
                    hint="bring them back, or change the views that use them",
                )
            now, types = identities(table), table.kept_columns().types()
            own = {c: types[c] for c, each in named.columns.items() if now.get(c) == each}
            fields = [
                Field(field.name, own.get(field.name, field.type))
                for field in found.fields
                if field.name in own or field.name not in named.columns
            ]
            return Columns(tuple(fields), found.refused)

    def _present(self, table: str) -> Columns:
        """As the files have them now, if they can be read; else as accepted last."""
        known = self._accepted(table)
        if known is None or known.gone:
            return self._live_columns(table)
        try:
            listing = list_table(self._settings, table)
            if known.is_of(listing, self._settings.table(table).fingerprint()):
                return known.kept_columns()
            return self._live_columns(table)
        except SourceError:
            return known.kept_columns()

    def _live_columns(self, table: str) -> Columns:
        declared = self._settings.table(table)
        parser = Parser(self.name, self._settings.format, declared)
        files = require_table(self._settings, table).files
        found = merged({n: parser.columns(locate_file(self._settings, n), n) for n in files})
        if found is None and not declared.columns:
            raise SchemaError(
                self.name,
                f'table "{table}" has no files, so its columns are not known',
                hint="put a file there, or declare its columns",
            )
        return found or Columns(tuple(Field(*pair) for pair in declared.columns.items()), {})

    def follow(self, tables: Tables) -> int:
        """Keep these tables from now on; the number of an accepted state that has them.

        Whoever goes on from an earlier position looks first: where the present state cannot follow
        from the last one, this begins anew.
        """
        with self._lock:
            self.states.recheck()
            if self._is_lost():
                self._names.clear()
            wanted: dict[str, list[str]] = {}
            for handle, columns in tables.items():
                named, name = self._names.get(handle), self._name(handle)
                if named is not None and not is_behind(named, self._accepted(name)):
                    continue
                known = named.columns if named is not None else {}
                fresh = [column for column in columns if column not in known]
                chosen(self.name, name, self._present(name), fresh)
                wanted.setdefault(name, []).extend(fresh)
            state = self.states.cover(wanted)
            self._note(tables, state)
            return state.number

    def _is_of(self, state: State) -> bool:
        """Whether all handles stand for tables of a state."""
        return all(
            is_behind(named, state.tables.get(table_name(handle, named)))
            for handle, named in self._names.book().items()
        )

    def _is_lost(self) -> bool:
        """Whether there is no state to go on from."""
        try:
            return self.states.newest() is None
        except GapError:
            return True

    def _note(self, tables: Tables, state: State) -> None:
        """What the handles stand for, by the state that was accepted last; those whose table or
        column has just gone stand for what they stood for."""
        if state.before is None and not self._is_of(state):
            self._names.clear()
        for handle, columns in tables.items():
            named, name = self._names.get(handle), self._name(handle)
            table = state.tables.get(name)
            if table is None or (named is not None and not is_behind(named, table)):
                continue
            now = identities(table)
            known = {column: now[column] for column in columns if column in now}
            self._names.follow(handle, identity_of(name, table), known)

    def look(self, after: int) -> tuple[Boundary, ...]:
        """The accepted states after a position; accepts the present one if it is at rest.

        While nothing changes, a look lists the folders and asks for no more than sizes and times.
        The first look of a process waits for files that have just been written, so that whoever
        looks once sees them.
        """
        with self._lock:
            newest = self.states.newest()
            if newest is None or after not in self._kept.numbers():
                raise self._kept.gap(after, "what was kept of the files was lost or damaged")
            if self.states.advance(newest) is None and after == newest.number:
                self.states.raise_refusal()
                return ()
            states = self._kept.between(after, limit=LOOK_TRANSACTIONS)
            found, before = [], self._kept.state(after)
            for state in states:
                reshaped = self._reshaped(before, state)
                found.append(
                    Boundary(state.number, state.committed_at, state.changes, reshaped=reshaped)
                )
                before = state
            return tuple(found)

    def passed(self, position: int) -> bool:
        newest = self.states.newest()
        return newest is not None and position <= newest.number

    def _reshaped(self, before: State, now: State) -> tuple[SchemaChange, ...]:
        """The schema changes of a state that concern what is followed."""
        found: list[SchemaChange] = []
        for handle, named in self._names.book().items():
            name = table_name(handle, named)
            tables = before.tables.get(name), now.tables.get(name)
            found += schema_changes(handle, named, *tables)
        return tuple(found)

    def changes(
        self, tables: Tables, after: int, until: int
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """State by state, in pieces; `_position` is the number of the state."""
        states = self._kept.between(after, until)
        if not states:
            return
        whole, newest = [self._kept.state(after), *states], self._kept.newest() or states[-1]
        wanted = {
            handle: asked(self.name, handle, self._names.get(handle), columns, whole, newest)
            for handle, columns in tables.items()
        }
        for state in states:
            for handle, each in wanted.items():
                table = state.tables.get(each.table)
                if table is not None and table.changes:
                    for batch in self._changes(state.number, each.table, each.types):
                        yield handle, batch

    def _changes(
        self, number: int, name: str, types: Mapping[str, pa.DataType]
    ) -> Iterator[pa.RecordBatch]:
        file = DataFile(self._kept.changes_path(number, name), f"changes of {number}")
        with reading(self.name, self._kept, number):
            for batch in read_rows(self.name, name, file, {**types, COUNT: pa.int64()}):
                position = pa.repeat(pa.scalar(number, pa.int64()), batch.num_rows)
                numbered = batch.append_column(POSITION, position)
                yield numbered.select(list(changed(types)))

    @contextmanager
    def snapshots(self, after: int, tables: Tables) -> Iterator[Opener]:
        """Every snapshot reads the kept state `after`."""
        yield FilesOpener(self.name, str(self._kept.home.absolute()), self._names.book())

    def acknowledge(self, position: int) -> None:
        """Remove the states before a position, and the copies and changes that only they need."""
        with self._lock:
            newest = self.states.newest()
            if newest is not None and self._kept.numbers()[0] < position:
                self._kept.forget(min(position, newest.number))

    def hold(self, name: str, seconds: float) -> None:
        self._kept.write_lease(name, time.time() + seconds)

    def release(self, name: str) -> None:
        self._kept.end_lease(name)

    def health(self, positions: Iterable[int]) -> Health:
        return health_of(self._settings, self._kept, tuple(positions))

    def diagnose(self, tables: Tables) -> list[Finding]:
        named: dict[str, list[str]] = {}
        for handle, columns in tables.items():
            named.setdefault(self._name(handle), []).extend(columns)
        return diagnose(self._settings, self._kept, named)

    def detach(self, force: bool = False) -> Detached:
        """Forget the files; nothing of ours is among them."""
        with self._lock:
            followed = bool(self._kept.numbers())
            self._names.clear()
            shutil.rmtree(self._kept.home, ignore_errors=True)
            self.close()
            return Detached(followed, capture_dropped=followed)

    def close(self) -> None:
        with self._lock:
            self.states.forget()
