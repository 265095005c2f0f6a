"""A Delta Lake table as a source, written by any engine: versions are positions.

One table is one source. Its log is the change stream (`log`), time travel gives answers
as of any version (`read`), and the library that knows the format replays the log
(`table`). Nothing is put into the table, and nothing in it can be held: how long old
versions stay is the table's own setting, so what VACUUM may take is watched and shown.

What is remembered, in the source's folder inside the warehouse: the shapes that the table had, the
newest version that was reported, with a digest of its log entry, and what handles stand for. A
folder that holds another table, or one that was restored to an earlier state and written on, is
noticed by them: a GapError, never a silent continuation. A table that was replaced within its log
is a schema change, like all others (`shapes`), at the position of its version.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from viewkeeper.errors import SchemaError
from viewkeeper.sources.delta_lake import log
from viewkeeper.sources.delta_lake.continuity import Continuity
from viewkeeper.sources.delta_lake.doctor import diagnose, health_of
from viewkeeper.sources.delta_lake.snapshot import ChangeReader, DeltaLakeOpener, folder_of
from viewkeeper.sources.delta_lake.state import State, read_state, write_state
from viewkeeper.sources.delta_lake.table_version import (
    Shape,
    features_in,
    gone,
    missing,
    open_shape,
    open_version,
    refuse_features,
)
from viewkeeper.sources.delta_lake.version_shapes import (
    Asked,
    History,
    SeenShape,
    asked,
    asked_plainly,
    lives,
    schema_changes,
    shape_in,
)
from viewkeeper.sources.files.parquet import changed, chosen
from viewkeeper.sources.files.parquet_types import Columns
from viewkeeper.sources.handles import Book, Named, Names
from viewkeeper.sources.settings import SourceSettings, nearest
from viewkeeper.updates.schema_change import SchemaChange, called
from viewkeeper.updates.source_protocol import (
    LOOK_TRANSACTIONS,
    Became,
    Boundary,
    Detached,
    Finding,
    Health,
    Opener,
    Tables,
)
from viewkeeper.view.definition import Field


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
        self._folder = folder_of(self._settings)
        self._same = Continuity(self._folder)
        self._names = Names(self._home)
        self._passed = -1

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

    def handle(self, name: str) -> str:
        self._check(name)
        with self._lock:
            version, shape = self._now()
            history = self._history(version)
            identities = {} if history is None else history.identities()
            return self._names.handle(name, shape.id, identities)

    def became(self, handle: str) -> Became | None:
        self._check(handle)
        with self._lock:
            now = lives(self._names.get(handle), self._history_now())
            return None if now is None else Became(self.table, now)

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

    def _columns(self, handle: str) -> Columns:
        self._check(handle)
        with self._lock:
            history = self._history_now()
            names = lives(self._names.get(handle), history, whole=True)
            if names is None:
                raise SchemaError(
                    self.name,
                    f'table "{self.table}" was replaced by another one',
                    hint="change the views that use it, or load them anew",
                )
            columns = history.newest.columns()
            types = columns.types()
            fields = (Field(name, types[now]) for name, now in names.items() if now in types)
            return Columns(tuple(fields), columns.refused)

    def _check(self, handle: str) -> None:
        if self.table not in (handle, called(handle)):
            raise SchemaError(
                self.name,
                f'there is no table "{handle}"',
                hint=f'its only table is "{self.table}"{nearest(handle, [self.table])}',
            )

    def _now(self) -> tuple[int, Shape]:
        with self._lock:
            return open_shape(self._folder)

    def _history_now(self) -> History:
        """The shapes up to now; only that of now if nothing is followed, or it cannot be known."""
        version, shape = self._now()
        return self._history(version) or History((shape.seen,))

    def _history(self, version: int) -> History | None:
        """The shapes since the table is followed; None if they do not lead to a version."""
        state = self._state()
        if (
            state is None
            or version < state.seen
            or self._same.is_rewritten(state.seen, state.digest)
        ):
            return None
        shapes = list(state.shapes)
        for number in range(state.seen + 1, version + 1):
            try:
                metadata = self._commit(number).metadata
            except FileNotFoundError:
                return None
            if metadata is not None:
                shapes.append(shape_in(number, metadata))
        return History(tuple(shapes))

    def follow(self, tables: Tables) -> int:
        """Remember which table it is and which columns are read; nothing is put into it.

        Whoever goes on from an earlier position looks first: what is found here becomes the truth.
        """
        with self._lock:
            version, shape = self._now()
            history = self._history(version)
            book = {} if history is None else self._names.book()
            wanted = self._wanted(tables, history or History((shape.seen,)), book)
            digest = log.digest(self.folder, version)
            if digest is not None:
                # The library takes an empty entry, which a crash leaves, for a version.
                self._commit(version)
            if history is None:
                self._names.clear()
                history = History((shape.seen,))
            write_state(self._home, State(history.shapes, version, digest))
            for handle, named in wanted.items():
                self._names.follow(handle, named.identity, named.columns)
            return version

    def _wanted(self, tables: Tables, history: History, book: Book) -> dict[str, Named]:
        """What handles are to stand for; tables and columns that are gone are passed over."""
        found = {}
        for handle, columns in tables.items():
            self._check(handle)
            named = book.get(handle)
            if named is None:
                chosen(self.name, self.table, history.newest.columns(), columns)
            elif named.identity != history.newest.id:
                continue
            known, now = dict(named.columns) if named else {}, history.identities()
            fresh = [name for name in columns if name not in known]
            chosen(self.name, self.table, history.newest.columns(), fresh)
            both = {**known, **{name: now[name] for name in fresh}}
            found[handle] = Named(history.newest.id, both)
        return found

    def look(self, after: int) -> tuple[Boundary, ...]:
        """The versions after a position, each a transaction; compactions are empty ones.

        While nothing is committed a look costs two questions to the file system.
        """
        with self._lock, self._errors():
            self._same.check(after, self._state())
            found: list[Boundary] = []
            reader, state = self._reader(), self._state()
            while len(found) < LOOK_TRANSACTIONS:
                try:
                    commit = self._commit(after + len(found) + 1)
                except FileNotFoundError:
                    break
                needed = features_in(commit.protocol or {}, commit.metadata or {})
                if needed and found:
                    break
                refuse_features(self.name, needed)
                if state is not None and commit.metadata and commit.version > state.seen:
                    fresh = shape_in(commit.version, commit.metadata)
                    state = replace(state, shapes=(*state.shapes, fresh))
                reshaped = self._reshaped(state, commit)
                rows = reader.count(commit)
                found.append(Boundary(commit.version, commit.committed_at, rows, reshaped=reshaped))
            if found:
                self._remember(state, found[-1].position)
            self._passed = found[-1].position if found else after
            return tuple(found)

    def passed(self, position: int) -> bool:
        return position <= self._passed

    def _reshaped(self, state: State | None, commit: log.Commit) -> tuple[SchemaChange, ...]:
        """The schema changes of a version that concern what is followed."""
        if state is None or commit.metadata is None:
            return ()
        history, now = state.history, shape_in(commit.version, commit.metadata)
        before = self._shape_at(history, commit.version - 1)
        return tuple(
            change
            for handle, named in self._names.book().items()
            for change in schema_changes(handle, named, history, before, now)
        )

    def _shape_at(self, history: History, version: int) -> SeenShape:
        if history.shapes[0].version <= version:
            return history.at(version)
        return open_version(self._folder, version).shape.seen

    def _commit(self, version: int) -> log.Commit:
        return log.read_commit(self.name, self.folder, version)

    def _remember(self, state: State | None, version: int) -> None:
        if state is not None and version > state.seen:
            digest = log.digest(self.folder, version)
            write_state(self._home, replace(state, seen=version, digest=digest))
        self._same.note(version)

    def changes(
        self, tables: Tables, after: int, until: int
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Version by version, in pieces; `_position` is the version."""
        for handle, names in tables.items():
            self._check(handle)
            if until > after:
                columns = self._asked(handle, names, after, until)
                for batch in self._versions(columns, after, until):
                    yield handle, batch.select(list(changed(columns.types)))

    def _asked(self, handle: str, names: Sequence[str], after: int, until: int) -> Asked:
        named, state = self._names.get(handle), self._state()
        if named is None or state is None or not set(names) <= set(named.columns):
            shape = open_version(self._folder, until).shape.seen
            return asked_plainly(self.name, self.table, shape, names)
        return asked(self.name, state.history, handle, named, names, (after, until))

    def _versions(self, columns: Asked, after: int, until: int) -> Iterator[pa.RecordBatch]:
        state, reader = self._state(), self._reader()
        if state is None:
            known = open_version(self._folder, after).shape.seen
        else:
            known = self._shape_at(state.history, after)
        for version in range(after + 1, until + 1):
            try:
                commit = self._commit(version)
            except FileNotFoundError as error:
                raise gone(self.name, version, "its log entry was cleaned up") from error
            if commit.metadata is not None:
                known = shape_in(version, commit.metadata)
            yield from reader.changes(commit, columns, known)

    def _reader(self) -> ChangeReader:
        return ChangeReader(self._folder, self.table, self._home / "scratch")

    @contextmanager
    def snapshots(self, after: int, tables: Tables) -> Iterator[Opener]:
        """Every snapshot reads version `after`; nobody needs to keep anything open."""
        state = self._state()
        history = None if state is None else state.history
        yield DeltaLakeOpener(self._settings, self._names.book(), history)

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
        return diagnose(self._folder, self._columns, tables)

    def detach(self, force: bool = False) -> Detached:
        """Forget the table; nothing of ours is in it."""
        with self._lock:
            followed = self._state() is not None
            self._names.clear()
            shutil.rmtree(self._home, ignore_errors=True)
            self._same.forget()
            return Detached(followed, capture_dropped=followed)

    def close(self) -> None:
        self._same.forget()

    def _state(self) -> State | None:
        return read_state(self._home)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise missing(self.name, self.folder) from error
