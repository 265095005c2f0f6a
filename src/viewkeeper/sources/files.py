"""A folder of CSV, JSON or Parquet files as a source: no log, so states are compared.

A table is a folder of files, or one file. A state is accepted when the files have come to rest
(`files_listing`); then what is new of them is copied, typed, into the source's folder inside the
warehouse, and compared with the copies of the state before (`files_accept`). The signed difference
is the transaction; the number of the state is the position. Questions are answered from the copies
(`files_snapshot`), so it does not matter to them what the files look like meanwhile.

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

from viewkeeper.errors import ConversionError, GapError, SchemaError, SourceAwayError
from viewkeeper.sources.files_accept import (
    DIFFER_BYTES,
    Acceptor,
    Differ,
    UnsettledError,
    merged,
)
from viewkeeper.sources.files_health import diagnose, health_of
from viewkeeper.sources.files_kept import Kept, State
from viewkeeper.sources.files_listing import Listing, list_table, require_table
from viewkeeper.sources.files_net import MEMORY_BYTES
from viewkeeper.sources.files_parse import Parser
from viewkeeper.sources.files_read import DataFile, changed, chosen, read_rows
from viewkeeper.sources.files_settings import FolderSettings, folder_settings
from viewkeeper.sources.files_snapshot import FilesOpener, reading
from viewkeeper.sources.files_values import Columns
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

# How long `follow` waits for files to come to rest.
_PATIENCE_SECONDS = 30.0
# How long the first look of a process may wait for that.
_FIRST_SECONDS = 5.0


def open_source(settings: SourceSettings, reader: str) -> FilesSource:
    return FilesSource(folder_settings(settings))


class FilesSource:
    """One folder of files.

    `differ` may be set to have differences above `differ_bytes` taken on Spark; those taken here
    hold about `memory_bytes` in memory and the rest in files.
    """

    differ: Differ | None = None
    differ_bytes: int = DIFFER_BYTES
    memory_bytes: int = MEMORY_BYTES

    def __init__(self, settings: FolderSettings) -> None:
        self.name = settings.source
        self._settings = settings
        self._kept = Kept(self.name, settings.home)
        self._lock = threading.RLock()
        self._newest: State | None = None
        self._has_looked = False
        self._resting: tuple[Mapping[str, Listing], float] | None = None
        self._refused: tuple[Mapping[str, Listing], Exception] | None = None

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
        return self._settings.table(table).key

    def indexed(self, table: str, columns: Sequence[str]) -> bool:
        """Never: a lookup reads the kept copy, except row groups that cannot match."""
        return False

    def finds_by_key(self, table: str, columns: Sequence[str]) -> bool:
        types = chosen(self.name, table, self._columns(table), columns)
        return any(not pa.types.is_floating(kind) for kind in types.values())

    def _columns(self, table: str) -> Columns:
        """As accepted last; as the files have them if the table is not followed yet."""
        with self._lock:
            newest = self._kept.newest()
            if newest is not None and table in newest.tables:
                return newest.tables[table].kept_columns()
            return self._live_columns(table)

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
        """Keep these tables from now on; the number of an accepted state that has them."""
        with self._lock:
            for table, columns in tables.items():
                chosen(self.name, table, self._columns(table), columns)
            wanted = self._kept.followed()
            for table, columns in tables.items():
                wanted[table] = list(dict.fromkeys([*wanted.get(table, ()), *columns]))
            newest = self._load()
            if newest is None or not set(wanted) <= set(newest.tables):
                newest = self._accept_at_rest(wanted, newest)
            self._kept.write_followed(wanted)
            return newest.number

    def _accept_at_rest(self, wanted: Tables, before: State | None) -> State:
        """Wait until the files rest, then accept them as they are."""
        self._kept.remove_unnamed()
        until = time.monotonic() + max(_PATIENCE_SECONDS, 10 * self._settings.settle_seconds)
        while time.monotonic() < until:
            listings = self._list(wanted)
            time.sleep(self._settings.settle_seconds)
            if self._list(wanted) == listings and not any(x.is_open for x in listings.values()):
                try:
                    return self._accept(listings, wanted, before)
                except UnsettledError:
                    continue
        raise SourceAwayError(
            self.name,
            "its files do not come to rest",
            detail=f"they were written again and again for {_PATIENCE_SECONDS:.0f} seconds",
            hint="have them written under another name and renamed, or raise settle_seconds",
        )

    def _list(self, tables: Iterable[str]) -> dict[str, Listing]:
        return {table: list_table(self._settings, table) for table in tables}

    def _accept(
        self, listings: Mapping[str, Listing], followed: Tables, before: State | None
    ) -> State:
        acceptor = Acceptor(
            self._settings, self._kept, self.differ, self.differ_bytes, self.memory_bytes
        )
        self._newest = acceptor.accept(listings, followed, before)
        self._resting = self._refused = None
        self._kept.write_problem(None)
        return self._newest

    def _load(self) -> State | None:
        """The newest accepted state; everything that it needs is there."""
        if self._newest is None:
            newest = self._kept.newest()
            for table in newest.tables.values() if newest else ():
                for file in table.files.values():
                    if newest and not self._kept.copy_path(file.copy).exists():
                        raise self._kept.gap(newest.number, "a kept copy was removed")
            self._newest = newest
        return self._newest

    def look(self, after: int) -> tuple[Boundary, ...]:
        """The accepted states after a position; accepts the present one if it is at rest.

        While nothing changes, a look lists the folders and asks for no more than sizes and times.
        The first look of a process waits for files that have just been written, so that whoever
        looks once sees them.
        """
        with self._lock:
            newest = self._load()
            if newest is None or not (self._kept.numbers()[0] <= after <= newest.number):
                raise self._gap(after)
            accepted = self._try(newest)
            if accepted is None and self._resting is not None and not self._has_looked:
                time.sleep(min(self._settings.settle_seconds, _FIRST_SECONDS))
                accepted = self._try(newest)
            self._has_looked = True
            if accepted is None and after == newest.number:
                self._raise_refusal()
                return ()
            numbers = [n for n in self._kept.numbers() if n > after][:LOOK_TRANSACTIONS]
            states = (self._kept.state(number) for number in numbers)
            return tuple(Boundary(s.number, s.committed_at, s.changes) for s in states)

    def _gap(self, after: int) -> GapError:
        return GapError(
            self.name,
            f"state {after} of the files is not kept any more",
            detail="the source's folder inside the warehouse was lost, restored or damaged",
            hint="load its views anew: viewkeeper run --full-refresh VIEW",
        )

    def _try(self, newest: State) -> State | None:
        """Accept the present state if it is another one and the files are at rest."""
        followed = self._kept.followed()
        listings = self._list(newest.tables)
        if not self._is_new(listings, newest):
            self._resting = None
            return None
        if self._refused is not None and self._refused[0] == listings:
            return None
        if not self._is_at_rest(listings, newest):
            return None
        try:
            return self._accept(listings, followed, newest)
        except UnsettledError:
            self._resting = None
        except (ConversionError, SchemaError) as error:
            self._refused = (listings, error)
            self._kept.write_problem(str(error))
        return None

    def _is_new(self, listings: Mapping[str, Listing], newest: State) -> bool:
        return any(
            not newest.tables[name].is_of(listing, self._settings.table(name).fingerprint())
            for name, listing in listings.items()
        )

    def _is_at_rest(self, listings: Mapping[str, Listing], newest: State) -> bool:
        """By the word of `_SUCCESS` files, or because nothing has moved for some time."""
        told = {name: x for name, x in listings.items() if x.done_ns is not None}
        for name, listing in told.items():
            same = newest.tables[name].is_of(listing, self._settings.table(name).fingerprint())
            if listing.is_open or (not same and listing.done_ns == newest.tables[name].done_ns):
                return False
        if len(told) == len(listings):
            return True
        settle = self._settings.settle_seconds
        touched_ns = max(listing.touched_ns for listing in listings.values())
        if time.time() - touched_ns / 1e9 >= settle:
            return True
        now = time.monotonic()
        if self._resting is None or self._resting[0] != listings:
            self._resting = (listings, now)
        return now - self._resting[1] >= settle

    def _raise_refusal(self) -> None:
        if self._refused is None:
            return
        error = self._refused[1]
        if isinstance(error, SchemaError):
            raise error
        assert isinstance(error, ConversionError)
        reason = error.message.partition(": ")[2]
        raise SourceAwayError(
            self.name,
            f"the present state of its files cannot be accepted: {reason}",
            detail=error.detail,
            hint=f"{error.hint}; the views wait, and go on by themselves",
        ) from error

    def changes(
        self, tables: Tables, after: int, until: int
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """State by state, in pieces; `_position` is the number of the state."""
        for number in range(after + 1, until + 1):
            state = self._kept.state(number)
            for name, columns in tables.items():
                table = state.tables.get(name)
                if table is None or not table.changes:
                    continue
                types = chosen(self.name, name, table.kept_columns(), columns)
                file = DataFile(self._kept.changes_path(number, name), f"changes of {number}")
                with reading(self.name, self._kept, number):
                    wanted = {**types, COUNT: pa.int64()}
                    for batch in read_rows(self.name, name, file, wanted):
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
            newest = self._load()
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
            self._newest = self._resting = self._refused = None
