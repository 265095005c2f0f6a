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

from viewkeeper.errors import SchemaError, reload_hint
from viewkeeper.sources.delta_lake import log
from viewkeeper.sources.delta_lake.continuity import LogContinuity
from viewkeeper.sources.delta_lake.doctor import diagnose_table, health_of
from viewkeeper.sources.delta_lake.snapshot import ChangeReader, DeltaLakeOpener, table_folder_of
from viewkeeper.sources.delta_lake.state import DeltaState, read_state, write_state
from viewkeeper.sources.delta_lake.table_version import (
    VersionMetadata,
    gone_version_error,
    missing_table_error,
    open_shape,
    open_version,
    refuse_features,
    unsupported_features_of,
)
from viewkeeper.sources.delta_lake.version_shapes import (
    DeltaShapeHistory,
    SeenShape,
    StoredColumns,
    current_columns_of,
    resolve_handle_columns,
    resolve_plain_columns,
    schema_changes,
    shape_from_metadata,
)
from viewkeeper.sources.files.parquet import change_columns_of, require_types
from viewkeeper.sources.files.parquet_types import TableColumns
from viewkeeper.sources.handles import Book, HandleTarget, SourceHandles
from viewkeeper.sources.settings import SourceSettings, suggest_nearest
from viewkeeper.updates.schema_change import SchemaChange, name_of_handle
from viewkeeper.updates.source_protocol import (
    LOOK_TRANSACTIONS,
    Boundary,
    CurrentNames,
    DetachResult,
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
        self.folder = settings.read_path()
        self.table = settings.read_text("table") or self.folder.name
        # Tasks may run in another folder.
        self._settings = replace(settings, folder=str(Path(settings.folder).absolute()))
        self._home = Path(settings.home)
        self._lock = threading.RLock()
        self._folder = table_folder_of(self._settings)
        self._same = LogContinuity(self._folder)
        self._names = SourceHandles(self._home)
        self._passed = -1

    def describe_source(self) -> str:
        return f"Delta Lake table {self.folder}"

    def advise_setup(self) -> str | None:
        _, shape = self._open_newest()
        if shape.has_feed:
            return None
        return (
            "it has no change data feed, so an update costs reading the files that it rewrote;"
            " SET TBLPROPERTIES ('delta.enableChangeDataFeed' = true) makes that cheap"
        )

    def handle_of(self, name: str) -> str:
        self._check_handle(name)
        with self._lock:
            version, shape = self._open_newest()
            history = self._history_until(version)
            identities = {} if history is None else history.column_identities()
            return self._names.choose_handle(name, shape.id, identities)

    def current_names_of(self, handle: str) -> CurrentNames | None:
        self._check_handle(handle)
        with self._lock:
            now = current_columns_of(self._names.target_of(handle), self._history_now())
            return None if now is None else CurrentNames(self.table, now)

    def schema_of(self, table: str) -> tuple[Field, ...]:
        return self._columns_of(table).fields

    def refusals_of(self, table: str) -> Mapping[str, str]:
        return self._columns_of(table).refused

    def key_of(self, table: str) -> tuple[str, ...]:
        """None: the format enforces no key."""
        self._check_handle(table)
        return ()

    def is_indexed(self, table: str, columns: Sequence[str]) -> bool:
        """Never: a lookup skips files by their statistics, and reads the others."""
        require_types(self.name, table, self._columns_of(table), columns)
        return False

    def can_find_by_key(self, table: str, columns: Sequence[str]) -> bool:
        types = require_types(self.name, table, self._columns_of(table), columns)
        return any(not pa.types.is_floating(kind) for kind in types.values())

    def _columns_of(self, handle: str) -> TableColumns:
        self._check_handle(handle)
        with self._lock:
            history = self._history_now()
            names = current_columns_of(self._names.target_of(handle), history, whole=True)
            if names is None:
                raise SchemaError(
                    self.name,
                    f'table "{self.table}" was replaced by another one',
                    hint=f"change the views that use it, or {reload_hint()}",
                )
            columns = history.newest_shape.parse_columns()
            types = columns.types_by_name()
            fields = (Field(name, types[now]) for name, now in names.items() if now in types)
            return TableColumns(tuple(fields), columns.refused)

    def _check_handle(self, handle: str) -> None:
        if self.table not in (handle, name_of_handle(handle)):
            raise SchemaError(
                self.name,
                f'there is no table "{handle}"',
                hint=f'its only table is "{self.table}"{suggest_nearest(handle, [self.table])}',
            )

    def _open_newest(self) -> tuple[int, VersionMetadata]:
        with self._lock:
            return open_shape(self._folder)

    def _history_now(self) -> DeltaShapeHistory:
        """The shapes up to now; only that of now if nothing is followed, or it cannot be known."""
        version, shape = self._open_newest()
        return self._history_until(version) or DeltaShapeHistory((shape.seen,))

    def _history_until(self, version: int) -> DeltaShapeHistory | None:
        """The shapes since the table is followed; None if they do not lead to a version."""
        state = self._read_state()
        if (
            state is None
            or version < state.seen
            or self._same.is_rewritten(state.seen, state.digest)
        ):
            return None
        shapes = list(state.shapes)
        for number in range(state.seen + 1, version + 1):
            try:
                metadata = self._read_commit(number).metadata
            except FileNotFoundError:
                return None
            if metadata is not None:
                shapes.append(shape_from_metadata(number, metadata))
        return DeltaShapeHistory(tuple(shapes))

    def follow_tables(self, tables: Tables) -> int:
        """Remember which table it is and which columns are read; nothing is put into it.

        Whoever goes on from an earlier position looks first: what is found here becomes the truth.
        """
        with self._lock:
            version, shape = self._open_newest()
            history = self._history_until(version)
            book = {} if history is None else self._names.copy_book()
            wanted = self._resolve_followed(
                tables, history or DeltaShapeHistory((shape.seen,)), book
            )
            digest = log.digest_entry(self.folder, version)
            if digest is not None:
                # The library takes an empty entry, which a crash leaves, for a version.
                self._read_commit(version)
            if history is None:
                self._names.forget_all()
                history = DeltaShapeHistory((shape.seen,))
            write_state(self._home, DeltaState(history.shapes, version, digest))
            for handle, named in wanted.items():
                self._names.add_target(handle, named.identity, named.columns)
            return version

    def _resolve_followed(
        self, tables: Tables, history: DeltaShapeHistory, book: Book
    ) -> dict[str, HandleTarget]:
        """What handles are to stand for; tables and columns that are gone are passed over."""
        found = {}
        for handle, columns in tables.items():
            self._check_handle(handle)
            named = book.get(handle)
            if named is None:
                require_types(self.name, self.table, history.newest_shape.parse_columns(), columns)
            elif named.identity != history.newest_shape.id:
                continue
            known, now = dict(named.columns) if named else {}, history.column_identities()
            fresh = [name for name in columns if name not in known]
            require_types(self.name, self.table, history.newest_shape.parse_columns(), fresh)
            both = {**known, **{name: now[name] for name in fresh}}
            found[handle] = HandleTarget(history.newest_shape.id, both)
        return found

    def look_for_transactions(self, after: int) -> tuple[Boundary, ...]:
        """The versions after a position, each a transaction; compactions are empty ones.

        While nothing is committed a look costs two questions to the file system.
        """
        with self._lock, self._translate_errors():
            self._same.check_position(after, self._read_state())
            found: list[Boundary] = []
            reader, state = self._make_reader(), self._read_state()
            while len(found) < LOOK_TRANSACTIONS:
                try:
                    commit = self._read_commit(after + len(found) + 1)
                except FileNotFoundError:
                    break
                needed = unsupported_features_of(commit.protocol or {}, commit.metadata or {})
                if needed and found:
                    break
                refuse_features(self.name, needed)
                if state is not None and commit.metadata and commit.version > state.seen:
                    fresh = shape_from_metadata(commit.version, commit.metadata)
                    state = replace(state, shapes=(*state.shapes, fresh))
                reshaped = self._schema_changes_of(state, commit)
                rows = reader.count_changes(commit)
                found.append(Boundary(commit.version, commit.committed_at, rows, reshaped=reshaped))
            if found:
                self._remember_version(state, found[-1].position)
            self._passed = found[-1].position if found else after
            return tuple(found)

    def has_passed(self, position: int) -> bool:
        return position <= self._passed

    def _schema_changes_of(
        self, state: DeltaState | None, commit: log.DeltaCommit
    ) -> tuple[SchemaChange, ...]:
        """The schema changes of a version that concern what is followed."""
        if state is None or commit.metadata is None:
            return ()
        history, now = state.history, shape_from_metadata(commit.version, commit.metadata)
        before = self._shape_at(history, commit.version - 1)
        return tuple(
            change
            for handle, named in self._names.copy_book().items()
            for change in schema_changes(handle, named, history, before, now)
        )

    def _shape_at(self, history: DeltaShapeHistory, version: int) -> SeenShape:
        if history.shapes[0].version <= version:
            return history.shape_at(version)
        return open_version(self._folder, version).shape.seen

    def _read_commit(self, version: int) -> log.DeltaCommit:
        return log.read_commit(self.name, self.folder, version)

    def _remember_version(self, state: DeltaState | None, version: int) -> None:
        if state is not None and version > state.seen:
            digest = log.digest_entry(self.folder, version)
            write_state(self._home, replace(state, seen=version, digest=digest))
        self._same.note_position(version)

    def read_changes(
        self, tables: Tables, after: int, until: int
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Version by version, in pieces; `_position` is the version."""
        for handle, names in tables.items():
            self._check_handle(handle)
            if until > after:
                columns = self._resolve_columns(handle, names, after, until)
                for batch in self._read_versions(columns, after, until):
                    yield handle, batch.select(list(change_columns_of(columns.types)))

    def _resolve_columns(
        self, handle: str, names: Sequence[str], after: int, until: int
    ) -> StoredColumns:
        named, state = self._names.target_of(handle), self._read_state()
        if named is None or state is None or not set(names) <= set(named.columns):
            shape = open_version(self._folder, until).shape.seen
            return resolve_plain_columns(self.name, self.table, shape, names)
        return resolve_handle_columns(
            self.name, state.history, handle, named, names, (after, until)
        )

    def _read_versions(
        self, columns: StoredColumns, after: int, until: int
    ) -> Iterator[pa.RecordBatch]:
        state, reader = self._read_state(), self._make_reader()
        if state is None:
            known = open_version(self._folder, after).shape.seen
        else:
            known = self._shape_at(state.history, after)
        for version in range(after + 1, until + 1):
            try:
                commit = self._read_commit(version)
            except FileNotFoundError as error:
                raise gone_version_error(
                    self.name, version, "its log entry was cleaned up"
                ) from error
            if commit.metadata is not None:
                known = shape_from_metadata(version, commit.metadata)
            yield from reader.read_changes(commit, columns, known)

    def _make_reader(self) -> ChangeReader:
        return ChangeReader(self._folder, self.table, self._home / "scratch")

    @contextmanager
    def prepare_snapshots(self, after: int, tables: Tables) -> Iterator[Opener]:
        """Every snapshot reads version `after`; nobody needs to keep anything open."""
        state = self._read_state()
        history = None if state is None else state.history
        yield DeltaLakeOpener(self._settings, self._names.copy_book(), history)

    def acknowledge_position(self, position: int) -> None:
        """Nothing is kept for us, so nothing can be let go."""

    def begin_hold(self, name: str, seconds: float) -> None:
        """Nothing can be held: how long versions stay is the table's own setting."""

    def end_hold(self, name: str) -> None:
        """Nothing was held."""

    def read_health(self, positions: Iterable[int]) -> Health:
        with self._translate_errors():
            version, shape = self._open_newest()
            return health_of(
                self._make_reader(), self._read_state(), version, shape, tuple(positions)
            )

    def diagnose_source(self, tables: Tables) -> list[Finding]:
        return diagnose_table(self._folder, self._columns_of, tables)

    def detach_source(self, force: bool = False) -> DetachResult:
        """Forget the table; nothing of ours is in it."""
        with self._lock:
            followed = self._read_state() is not None
            self._names.forget_all()
            shutil.rmtree(self._home, ignore_errors=True)
            self._same.forget_entry()
            return DetachResult(followed, capture_dropped=followed)

    def close(self) -> None:
        self._same.forget_entry()

    def _read_state(self) -> DeltaState | None:
        return read_state(self._home)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise missing_table_error(self.name, self.folder) from error
