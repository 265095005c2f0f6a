"""A folder of CSV, JSON or Parquet files as a source: no log, so states are compared.

A table is a folder of files, or one file. A state is accepted when the files have come to rest
(`listing`); then what is new of them is copied, typed, into the source's folder inside the
warehouse, and compared with the copies of the state before (`accept`). The signed difference
is the transaction; the number of the state is the position. Questions are answered from the copies
(`snapshot`), so it does not matter to them what the files look like meanwhile.

One accepted state covers all followed tables of the source: all of them are at rest, or none is
taken. What somebody wrote between two accepted states is one transaction.

A state with a value that does not fit, or a key twice, is not accepted: the source counts as away,
with the reason, until the files are mended. A followed column that is gone is a SchemaError.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa

from viewkeeper.errors import GapError, SchemaError, SourceError
from viewkeeper.sources.files.accept import Differ, merged
from viewkeeper.sources.files.health import diagnose, health_of
from viewkeeper.sources.files.kept import Kept
from viewkeeper.sources.files.listing import list_table, require_table
from viewkeeper.sources.files.parse import Parser
from viewkeeper.sources.files.read import DataFile, changed, chosen, read_rows
from viewkeeper.sources.files.settings import FolderSettings, folder_settings
from viewkeeper.sources.files.snapshot import FilesOpener, reading
from viewkeeper.sources.files.states import States
from viewkeeper.sources.files.values import Columns
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.updates.protocol import (
    COUNT,
    LOOK_TRANSACTIONS,
    POSITION,
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

    def schema(self, table: str) -> tuple[Field, ...]:
        return self._columns(table).fields

    def refused(self, table: str) -> Mapping[str, str]:
        return self._columns(table).refused

    def key(self, table: str) -> tuple[str, ...]:
        """The declared key: a state in which it does not hold is never accepted."""
        self._columns(table)
        return self._settings.table(table).key

    def indexed(self, table: str, columns: Sequence[str]) -> bool:
        """Never: a lookup reads the kept copy, except row groups that cannot match."""
        chosen(self.name, table, self._columns(table), columns)
        return False

    def finds_by_key(self, table: str, columns: Sequence[str]) -> bool:
        types = chosen(self.name, table, self._columns(table), columns)
        return any(not pa.types.is_floating(kind) for kind in types.values())

    def _columns(self, table: str) -> Columns:
        """As the files have them now, if they can be read; else as accepted last."""
        with self._lock:
            try:
                newest = self._kept.newest()
            except GapError:
                newest = None
            known = newest.tables.get(table) if newest else None
            if known is None:
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
        found = merged({n: parser.columns(self._settings.folder / n, n) for n in files})
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
            for table, columns in tables.items():
                chosen(self.name, table, self._columns(table), columns)
            return self.states.cover(tables).number

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
            return tuple(Boundary(s.number, s.committed_at, s.changes) for s in states)

    def changes(
        self, tables: Tables, after: int, until: int
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """State by state, in pieces; `_position` is the number of the state."""
        for state in self._kept.between(after, until):
            for name, columns in tables.items():
                table = state.tables.get(name)
                if table is not None and table.changes:
                    types = chosen(self.name, name, table.kept_columns(), columns)
                    yield from self._changes(state.number, name, types)

    def _changes(
        self, number: int, name: str, types: Mapping[str, pa.DataType]
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        file = DataFile(self._kept.changes_path(number, name), f"changes of {number}")
        with reading(self.name, self._kept, number):
            for batch in read_rows(self.name, name, file, {**types, COUNT: pa.int64()}):
                position = pa.repeat(pa.scalar(number, pa.int64()), batch.num_rows)
                numbered = batch.append_column(POSITION, position)
                yield name, numbered.select(list(changed(types)))

    @contextmanager
    def snapshots(self, after: int, tables: Tables) -> Iterator[Opener]:
        """Every snapshot reads the kept state `after`."""
        yield FilesOpener(self.name, str(self._kept.home.absolute()))

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
        return diagnose(self._settings, self._kept, tables)

    def detach(self, force: bool = False) -> Detached:
        """Forget the files; nothing of ours is among them."""
        with self._lock:
            followed = bool(self._kept.numbers())
            shutil.rmtree(self._kept.home, ignore_errors=True)
            self.close()
            return Detached(followed, capture_dropped=followed)

    def close(self) -> None:
        with self._lock:
            self.states.forget()
