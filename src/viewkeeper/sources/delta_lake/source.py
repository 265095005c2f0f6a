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

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from viewkeeper.errors import SchemaError, reload_hint, suggest_nearest
from viewkeeper.sources.bucket_state import open_state_files
from viewkeeper.sources.delta_lake import log
from viewkeeper.sources.delta_lake.doctor import diagnose_table, health_of
from viewkeeper.sources.delta_lake.followed_versions import FollowedVersions
from viewkeeper.sources.delta_lake.snapshot import ChangeReader, DeltaLakeSnapshot, table_folder_of
from viewkeeper.sources.delta_lake.state import DeltaState, write_state
from viewkeeper.sources.delta_lake.table_version import (
    gone_version_error,
    missing_table_error,
    open_version,
    refuse_features,
    unsupported_features_of,
)
from viewkeeper.sources.delta_lake.version_shapes import (
    SeenShape,
    StoredColumns,
    history_of,
    resolve_handle_columns,
    resolve_plain_columns,
    shape_from_metadata,
)
from viewkeeper.sources.handles import Book, HandleTarget, SourceHandles
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.sources.tables.column_type import TableColumns
from viewkeeper.sources.tables.shape import change_columns_of, describe_file_table
from viewkeeper.sources.tables.shape_history import current_columns_of
from viewkeeper.updates.schema_change import name_of_handle
from viewkeeper.updates.source_protocol import (
    LOOK_TRANSACTIONS,
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
        self._files = open_state_files(settings)
        self._lock = threading.RLock()
        self._folder = table_folder_of(self._settings)
        self._names = SourceHandles(self._files)
        self._versions = FollowedVersions(self._folder, self._files, self._names)
        self._passed = -1

    def describe_source(self) -> str:
        return f"Delta Lake table {self.folder}"

    def handle_of(self, name: str) -> str:
        self._check_handle(name)
        with self._lock:
            version, shape = self._versions.open_newest()
            shapes = self._versions.shapes_until(version)
            identities = {} if shapes is None else history_of(shapes).newest.identities_by_name()
            return self._names.choose_handle(name, shape.id, identities)

    def describe_table(self, handle: str) -> TableDescription:
        """The format enforces no key."""
        self._check_handle(handle)
        with self._lock:
            columns, (_, shape) = self._columns_of(handle), self._versions.newest_columns()
            now = current_columns_of(self._names.target_of(handle), shape)
            return describe_file_table(CurrentNames(self.table, now), columns)

    def estimate_size(self, table: str) -> TableSize:
        """The bytes of the files of the newest version, and their rows, as its log has them."""
        self._check_handle(table)
        return open_version(self._folder).measure_size()

    def _columns_of(self, handle: str) -> TableColumns:
        self._check_handle(handle)
        with self._lock:
            named, (columns, shape) = self._names.target_of(handle), self._versions.newest_columns()
            if named is not None and named.identity != shape.identity:
                raise SchemaError(
                    self.name,
                    f'table "{self.table}" was replaced by another one',
                    hint=f"change the views that use it, or {reload_hint()}",
                )
            names, types = current_columns_of(named, shape, whole=True), columns.types_by_name()
            fields = (Field(name, types[now]) for name, now in names.items() if now in types)
            return TableColumns(tuple(fields), columns.refused)

    def _check_handle(self, handle: str) -> None:
        if self.table not in (handle, name_of_handle(handle)):
            raise SchemaError(
                self.name,
                f'there is no table "{handle}"',
                hint=f'its only table is "{self.table}"{suggest_nearest(handle, [self.table])}',
            )

    def follow_tables(self, tables: Tables) -> int:
        """Remember which table it is and which columns are read; nothing is put into it.

        Whoever goes on from an earlier position looks first: what is found here becomes the truth.
        """
        with self._lock:
            version, shape = self._versions.open_newest()
            known = self._versions.shapes_until(version)
            book, shapes = self._names.copy_book() if known else {}, known or (shape.seen,)
            wanted = self._resolve_followed(tables, shapes, book)
            digest = log.digest_entry(self.folder, version)
            if digest is not None:
                # The library takes an empty entry, which a crash leaves, for a version.
                self._versions.read_commit(version)
            if known is None:
                self._names.forget_all()
            write_state(self._files, DeltaState(shapes, version, digest))
            for handle, named in wanted.items():
                self._names.add_target(handle, named.identity, named.columns)
            return version

    def _resolve_followed(
        self, tables: Tables, shapes: Sequence[SeenShape], book: Book
    ) -> dict[str, HandleTarget]:
        """What handles are to stand for; tables and columns that are gone are passed over."""
        found, shape = {}, history_of(shapes).newest
        now, there = shape.identities_by_name(), shapes[-1].parse_columns()
        for handle, columns in tables.items():
            self._check_handle(handle)
            named = book.get(handle, HandleTarget(shape.identity))
            if named.identity != shape.identity:
                continue
            fresh = [name for name in columns if name not in named.columns]
            there.require_types(self.name, self.table, fresh)
            both = {**named.columns, **{name: now[name] for name in fresh}}
            found[handle] = HandleTarget(shape.identity, both)
        return found

    def look_for_transactions(self, after: int) -> tuple[Boundary, ...]:
        """The versions after a position, each a transaction; compactions are empty ones.

        While nothing is committed a look costs two questions to the file system.
        """
        with self._lock, self._translate_errors():
            self._versions.same.check_position(after, self._versions.read_state())
            found: list[Boundary] = []
            reader, state = self._make_reader(), self._versions.read_state()
            while len(found) < LOOK_TRANSACTIONS:
                try:
                    commit = self._versions.read_commit(after + len(found) + 1)
                except FileNotFoundError:
                    break
                needed = unsupported_features_of(commit.protocol or {}, commit.metadata or {})
                if needed and found:
                    break
                refuse_features(self.name, needed)
                if state is not None and commit.metadata and commit.version > state.seen:
                    fresh = shape_from_metadata(commit.version, commit.metadata)
                    state = replace(state, shapes=(*state.shapes, fresh))
                reshaped = self._versions.schema_changes_of(state, commit)
                rows = reader.count_changes(commit)
                found.append(Boundary(commit.version, commit.committed_at, rows, reshaped=reshaped))
            if found:
                self._versions.remember_version(state, found[-1].position)
            self._passed = found[-1].position if found else after
            return tuple(found)

    def has_passed(self, position: int) -> bool:
        return position <= self._passed

    def read_changes(self, tables: Tables, after: int, until: int) -> TableBatches:
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
        named, state = self._names.target_of(handle), self._versions.read_state()
        if named is None or state is None or not set(names) <= set(named.columns):
            shape = open_version(self._folder, until).shape.seen
            return resolve_plain_columns(self.name, self.table, shape, names)
        return resolve_handle_columns(
            self.name, state.history, handle, named, names, (after, until)
        )

    def _read_versions(
        self, columns: StoredColumns, after: int, until: int
    ) -> Iterator[pa.RecordBatch]:
        versions, reader = self._versions, self._make_reader()
        state = versions.read_state()
        known = versions.shape_at(state.history, after) if state else versions.open_shape(after)
        for version in range(after + 1, until + 1):
            try:
                commit = self._versions.read_commit(version)
            except FileNotFoundError as error:
                raise gone_version_error(
                    self.name, version, "its log entry was cleaned up"
                ) from error
            if commit.metadata is not None:
                known = shape_from_metadata(version, commit.metadata).parse_shape()
            yield from reader.read_changes(commit, columns, known)

    def _make_reader(self) -> ChangeReader:
        return ChangeReader(self._folder, self.table, self._files.local / "scratch")

    @contextmanager
    def prepare_snapshots(self, after: int, tables: Tables) -> Iterator[Opener]:
        """Every snapshot reads version `after`; nobody needs to keep anything open."""
        state = self._versions.read_state()
        history = None if state is None else state.history
        folder, book = table_folder_of(self._settings), self._names.copy_book()
        yield partial(DeltaLakeSnapshot, folder, book, history)

    def acknowledge_position(self, position: int) -> None:
        """Nothing is kept for us, so nothing can be let go."""
        with self._lock:
            self._files.save_noted()

    def begin_hold(self, name: str, seconds: float) -> None:
        """Nothing can be held: how long versions stay is the table's own setting."""

    def end_hold(self, name: str) -> None:
        """Nothing was held."""

    def read_health(self, positions: Iterable[int]) -> Health:
        with self._translate_errors():
            with self._lock:
                version, shape = self._versions.open_newest()
            return health_of(
                self._make_reader(), self._versions.read_state(), version, shape, tuple(positions)
            )

    def diagnose_source(self, tables: Tables) -> list[Finding]:
        return diagnose_table(self._folder, self._columns_of, tables)

    def detach_source(self, force: bool = False) -> DetachResult:
        """Forget the table; nothing of ours is in it."""
        with self._lock:
            followed = self._versions.read_state() is not None
            self._names.forget_all()
            self._files.forget_all()
            self._versions.same.forget_entry()
            return DetachResult(followed, capture_dropped=followed)

    def close(self) -> None:
        self._versions.same.forget_entry()

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise missing_table_error(self.name, self.folder) from error
