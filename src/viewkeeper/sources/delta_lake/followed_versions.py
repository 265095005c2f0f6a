"""The versions of a followed Delta Lake table: its log entries, and its shapes since then.

What is remembered is the newest version that was seen, the digest of its entry and every shape up
to it. A shape before that is read from the table itself, if it is still there.

Versions only ever grow, and an entry of the log never changes. So the table is another one, or was
restored and written on, if it has fewer versions than were seen, or another entry of one of them.
While the entry of the position that is looked from is the same file, nothing else has to be asked.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from viewkeeper.errors import GapError, reload_hint
from viewkeeper.sources.delta_lake import log
from viewkeeper.sources.delta_lake.state import DeltaState, note_state, read_state
from viewkeeper.sources.delta_lake.table_version import (
    VersionMetadata,
    gone_version_error,
    open_shape,
    open_version,
)
from viewkeeper.sources.delta_lake.version_shapes import (
    SeenShape,
    history_of,
    shape_from_metadata,
    shape_in,
)
from viewkeeper.sources.handles import SourceHandles
from viewkeeper.sources.state_files import StateFiles
from viewkeeper.sources.tables.column_type import TableColumns
from viewkeeper.sources.tables.shape import TableShape
from viewkeeper.sources.tables.shape_changes import schema_changes
from viewkeeper.sources.tables.shape_history import ShapeHistory
from viewkeeper.updates.schema_change import SchemaChange


@dataclass(frozen=True, slots=True)
class _LogEntry:
    """The log entry of the position that was last looked from: its file, and what is in it."""

    version: int
    file: tuple[int, int, int]
    digest: str | None


@dataclass(slots=True)
class LogContinuity:
    """Watches the log of one table; used under the source's lock."""

    table: log.TableFolder
    _entry: _LogEntry | None = None

    @property
    def source(self) -> str:
        return self.table.source

    @property
    def folder(self) -> Path:
        return self.table.path

    def check_position(self, after: int, state: DeltaState | None) -> None:
        """A GapError unless this is still the table in which `after` was reached."""
        file, known = self._stamp_of_entry(after), self._entry
        if known is not None and (known.version, known.file) == (after, file):
            return
        if state is None:
            raise GapError(
                self.source,
                "it is not known which table was followed",
                detail="the source's folder inside the warehouse was lost",
                hint=reload_hint(),
            )
        version, shape = open_shape(self.table)
        is_proven = log.digest_entry(self.folder, state.seen) is not None
        if (
            (shape.id != state.shapes[-1].id and not is_proven)
            or version < max(after, state.seen)
            or self.is_rewritten(state.seen, state.digest)
            or (known is not None and self.is_rewritten(known.version, known.digest))
        ):
            raise GapError(
                self.source,
                f"version {after} is not of this table, which is at version {version}",
                detail="it was restored from a backup, or replaced by another one",
                hint=reload_hint(),
            )
        if version > after and not log.entry_path_of(self.folder, after + 1).exists():
            raise gone_version_error(self.source, after + 1, "its log entry was cleaned up")
        self.note_position(after)

    def is_rewritten(self, version: int, digest: str | None) -> bool:
        """Whether the log has another entry of a version than the one that was there."""
        found = log.digest_entry(self.folder, version)
        return found is not None and digest is not None and found != digest

    def note_position(self, version: int) -> None:
        """The next look will be from here."""
        file = self._stamp_of_entry(version)
        digest = log.digest_entry(self.folder, version)
        self._entry = None if file is None else _LogEntry(version, file, digest)

    def forget_entry(self) -> None:
        self._entry = None

    def _stamp_of_entry(self, version: int) -> tuple[int, int, int] | None:
        """What tells the file of a log entry from one that was put in its place."""
        try:
            found = log.entry_path_of(self.folder, version).stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size


class FollowedVersions:
    """One table, as far as its log was read."""

    def __init__(self, folder: log.TableFolder, files: StateFiles, names: SourceHandles) -> None:
        self.same = LogContinuity(folder)
        self._folder = folder
        self._files = files
        self._names = names

    def open_newest(self) -> tuple[int, VersionMetadata]:
        return open_shape(self._folder)

    def newest_columns(self) -> tuple[TableColumns, TableShape]:
        """The newest columns and their shape, with the identities of earlier shapes if known."""
        version, shape = self.open_newest()
        shapes = self.shapes_until(version) or (shape.seen,)
        return shapes[-1].parse_columns(), history_of(shapes).newest

    def shapes_until(self, version: int) -> tuple[SeenShape, ...] | None:
        """The shapes since the table is followed; None if they do not lead to a version."""
        state = self.read_state()
        if (
            state is None
            or version < state.seen
            or self.same.is_rewritten(state.seen, state.digest)
        ):
            return None
        shapes = list(state.shapes)
        for number in range(state.seen + 1, version + 1):
            try:
                metadata = self.read_commit(number).metadata
            except FileNotFoundError:
                return None
            if metadata is not None:
                shapes.append(shape_from_metadata(number, metadata))
        return tuple(shapes)

    def schema_changes_of(
        self, state: DeltaState | None, commit: log.DeltaCommit
    ) -> tuple[SchemaChange, ...]:
        """The schema changes of a version that concern what is followed."""
        if state is None or commit.metadata is None:
            return ()
        history, seen = state.history, shape_from_metadata(commit.version, commit.metadata)
        before = self.shape_at(history, commit.version - 1)
        now = shape_in(history, commit.version, seen.parse_shape)
        return tuple(
            change
            for handle, named in self._names.copy_book().items()
            for change in schema_changes(handle, named, before, now)
        )

    def shape_at(self, history: ShapeHistory[TableShape], version: int) -> TableShape:
        return shape_in(history, version, lambda: self.open_shape(version))

    def open_shape(self, version: int) -> TableShape:
        return open_version(self._folder, version).shape.seen.parse_shape()

    def read_commit(self, version: int) -> log.DeltaCommit:
        return log.read_commit(self._folder.source, self._folder.path, version)

    def remember_version(self, state: DeltaState | None, version: int) -> None:
        if state is not None and version > state.seen:
            digest = log.digest_entry(self._folder.path, version)
            note_state(self._files, replace(state, seen=version, digest=digest))
        self.same.note_position(version)

    def read_state(self) -> DeltaState | None:
        return read_state(self._files)
