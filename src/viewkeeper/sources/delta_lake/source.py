"""A Delta Lake table as a source, written by any engine: versions are positions.

One table is one source. Its log is the change stream (`log`), time travel gives answers
as of any version (`read`), and the library that knows the format replays the log
(`table`). Nothing is put into the table, and nothing in it can be held: how long old
versions stay is the table's own setting, so what VACUUM may take is watched and shown.

What is remembered, in the source's folder inside the warehouse: the table's id, the columns that
views read, and the newest version that was reported, with a digest of its log entry. A table that
was replaced, or restored to an earlier state and written on, is noticed by them: a GapError, never
a silent continuation.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from viewkeeper.errors import GapError, SchemaError
from viewkeeper.sources.delta_lake import log
from viewkeeper.sources.delta_lake.health import diagnose, health_of
from viewkeeper.sources.delta_lake.read import ChangeReader, DeltaLakeOpener
from viewkeeper.sources.delta_lake.state import State, read_state, write_state
from viewkeeper.sources.delta_lake.table import (
    Shape,
    features_in,
    gone,
    missing,
    open_shape,
    open_version,
    refuse_features,
)
from viewkeeper.sources.delta_lake.types import columns_of
from viewkeeper.sources.files.read import changed, chosen
from viewkeeper.sources.files.values import Columns
from viewkeeper.sources.settings import SourceSettings, nearest
from viewkeeper.updates.protocol import (
    LOOK_TRANSACTIONS,
    Boundary,
    Detached,
    Finding,
    Health,
    Opener,
    Tables,
)
from viewkeeper.view.definition import Field

_LOAD = "load its views anew: viewkeeper run --full-refresh VIEW"


@dataclass(frozen=True, slots=True)
class _Entry:
    """The log entry of the position that was last looked from: its file, and what is in it."""

    version: int
    file: tuple[int, int, int]
    digest: str | None


def open_source(settings: SourceSettings, reader: str) -> DeltaLakeSource:
    return DeltaLakeSource(settings)


class DeltaLakeSource:
    """One Delta Lake table in a folder."""

    def __init__(self, settings: SourceSettings) -> None:
        self.name = settings.name
        self.folder = settings.path()
        self.table = settings.text("table") or self.folder.name
        # Tasks may run in another folder.
        self._settings = replace(settings, folder=str(Path(settings.folder).absolute()))
        self._home = Path(settings.home)
        self._lock = threading.RLock()
        self._entry: _Entry | None = None

    def describe(self) -> str:
        return f"Delta Lake table {self.folder}"

    def advice(self) -> str | None:
        _, shape = self._now()
        if shape.has_feed:
            return None
        return (
            "it has no change data feed, so an update costs reading the files that it rewrote;"
            " SET TBLPROPERTIES ('delta.enableChangeDataFeed' = true) makes that cheap"
        )

    def schema(self, table: str) -> tuple[Field, ...]:
        return self._columns(table).fields

    def refused(self, table: str) -> Mapping[str, str]:
        return self._columns(table).refused

    def key(self, table: str) -> tuple[str, ...]:
        """None: the format enforces no key."""
        self._check(table)
        return ()

    def indexed(self, table: str, columns: Sequence[str]) -> bool:
        """Never: a lookup skips files by their statistics, and reads the others."""
        chosen(self.name, table, self._columns(table), columns)
        return False

    def finds_by_key(self, table: str, columns: Sequence[str]) -> bool:
        types = chosen(self.name, table, self._columns(table), columns)
        return any(not pa.types.is_floating(kind) for kind in types.values())

    def _columns(self, table: str) -> Columns:
        self._check(table)
        return self._now()[1].columns

    def _check(self, table: str) -> None:
        if table != self.table:
            raise SchemaError(
                self.name,
                f'there is no table "{table}"',
                hint=f'its only table is "{self.table}"{nearest(table, [self.table])}',
            )

    def _now(self) -> tuple[int, Shape]:
        with self._lock:
            return open_shape(self.name, self.folder)

    def follow(self, tables: Tables) -> int:
        """Remember which table it is and which columns are read; nothing is put into it.

        Whoever goes on from an earlier position looks first: what is found here becomes the truth.
        """
        with self._lock:
            version, shape = self._now()
            state = self._state()
            known = state.columns if state and state.id == shape.id else ()
            wanted = dict.fromkeys(known)
            for table, columns in tables.items():
                self._check(table)
                wanted |= dict.fromkeys(chosen(self.name, table, shape.columns, columns))
            digest = log.digest(self.folder, version)
            if digest is not None:
                # The library takes an empty entry, which a crash leaves, for a version.
                self._commit(version)
            write_state(self._home, State(shape.id, tuple(wanted), version, digest))
            return version

    def look(self, after: int) -> tuple[Boundary, ...]:
        """The versions after a position, each a transaction; compactions are empty ones.

        While nothing is committed a look costs two questions to the file system.
        """
        with self._lock, self._errors():
            self._check_same(after)
            found: list[Boundary] = []
            reader = self._reader()
            while len(found) < LOOK_TRANSACTIONS:
                try:
                    commit = self._commit(after + len(found) + 1)
                except FileNotFoundError:
                    break
                if (error := self._shape_change(after, commit)) is not None:
                    if not found:
                        raise error
                    break
                found.append(Boundary(commit.version, commit.committed_at, reader.count(commit)))
            if found:
                self._remember(found[-1].position)
            return tuple(found)

    def _check_same(self, after: int) -> None:
        """A GapError unless this is still the table in which `after` was reached."""
        file, known = self._file(after), self._entry
        if known is not None and (known.version, known.file) == (after, file):
            return
        state = self._state()
        if state is None:
            raise GapError(
                self.name,
                "it is not known which table was followed",
                detail="the source's folder inside the warehouse was lost",
                hint=_LOAD,
            )
        version, shape = self._now()
        if (
            shape.id != state.id
            or version < max(after, state.seen)
            or self._is_rewritten(state.seen, state.digest)
            or (known is not None and self._is_rewritten(known.version, known.digest))
        ):
            raise GapError(
                self.name,
                f"version {after} is not of this table, which is at version {version}",
                detail="it was restored from a backup, or replaced by another one",
                hint=_LOAD,
            )
        if version > after and not log.entry(self.folder, after + 1).exists():
            raise gone(self.name, after + 1, "its log entry was cleaned up")
        self._note(after)

    def _is_rewritten(self, version: int, digest: str | None) -> bool:
        """Whether the log has another entry of a version than the one that was there."""
        found = log.digest(self.folder, version)
        return found is not None and digest is not None and found != digest

    def _file(self, version: int) -> tuple[int, int, int] | None:
        """What tells the file of a log entry from one that was put in its place."""
        try:
            found = log.entry(self.folder, version).stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _note(self, version: int) -> None:
        file = self._file(version)
        digest = log.digest(self.folder, version)
        self._entry = None if file is None else _Entry(version, file, digest)

    def _commit(self, version: int) -> log.Commit:
        return log.read_commit(self.name, self.folder, version)

    def _shape_change(self, after: int, commit: log.Commit) -> SchemaError | None:
        """Why a version cannot be followed, if it changes columns that views read."""
        try:
            refuse_features(self.name, features_in(commit.protocol or {}, commit.metadata or {}))
        except SchemaError as error:
            return error
        if commit.metadata is None:
            return None
        state = self._state()
        before = open_version(self.name, self.folder, after).shape.columns.types()
        partitioned = tuple(commit.metadata.get("partitionColumns", ()))
        now = columns_of(commit.metadata["schemaString"], partitioned).types()
        for name in state.columns if state else ():
            if name in before and before[name] != now.get(name):
                became = "is gone" if name not in now else f"became {now[name]}"
                return SchemaError(
                    self.name,
                    f'table "{self.table}", column "{name}": {before[name]} {became}'
                    f" in version {commit.version}",
                    hint=f"mend the views, then {_LOAD}",
                )
        return None

    def _remember(self, version: int) -> None:
        state = self._state()
        if state is not None and version > state.seen:
            digest = log.digest(self.folder, version)
            write_state(self._home, State(state.id, state.columns, version, digest))
        self._note(version)

    def changes(
        self, tables: Tables, after: int, until: int
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Version by version, in pieces; `_position` is the version."""
        names = next(iter(tables.values()), ())
        for table in tables:
            self._check(table)
        if not tables or until <= after:
            return
        known = open_version(self.name, self.folder, after).shape.columns
        columns = chosen(
            self.name, self.table, open_version(self.name, self.folder, until).shape.columns, names
        )
        reader = self._reader()
        for version in range(after + 1, until + 1):
            try:
                commit = self._commit(version)
            except FileNotFoundError as error:
                raise gone(self.name, version, "its log entry was cleaned up") from error
            if commit.metadata is not None:
                partitioned = tuple(commit.metadata.get("partitionColumns", ()))
                known = columns_of(commit.metadata["schemaString"], partitioned)
            for batch in reader.changes(commit, columns, known):
                yield self.table, batch.select(list(changed(columns)))

    def _reader(self) -> ChangeReader:
        return ChangeReader(self.name, self.folder, self.table, self._home / "scratch")

    @contextmanager
    def snapshots(self, after: int, tables: Tables) -> Iterator[Opener]:
        """Every snapshot reads version `after`; nobody needs to keep anything open."""
        yield DeltaLakeOpener(self._settings)

    def acknowledge(self, position: int) -> None:
        """Nothing is kept for us, so nothing can be let go."""

    def hold(self, name: str, seconds: float) -> None:
        """Nothing can be held: how long versions stay is the table's own setting."""

    def release(self, name: str) -> None:
        """Nothing was held."""

    def health(self, positions: Iterable[int]) -> Health:
        with self._errors():
            version, shape = self._now()
            return health_of(self._reader(), self._state(), version, shape, tuple(positions))

    def diagnose(self, tables: Tables) -> list[Finding]:
        return diagnose(self.name, self.folder, self.table, tables)

    def detach(self, force: bool = False) -> Detached:
        """Forget the table; nothing of ours is in it."""
        with self._lock:
            followed = self._state() is not None
            shutil.rmtree(self._home, ignore_errors=True)
            self._entry = None
            return Detached(followed, capture_dropped=followed)

    def close(self) -> None:
        self._entry = None

    def _state(self) -> State | None:
        return read_state(self._home)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise missing(self.name, self.folder) from error
