"""Whether a Delta Lake folder still holds the table that was followed in it.

Versions only ever grow, and an entry of the log never changes. So the table is another one, or was
restored and written on, if it has fewer versions than were seen, or another entry of one of them.
While the entry of the position that is looked from is the same file, nothing else has to be asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from viewkeeper.errors import GapError, reload_hint
from viewkeeper.sources.delta_lake import log
from viewkeeper.sources.delta_lake.state import DeltaState
from viewkeeper.sources.delta_lake.table_version import gone_version_error, open_shape


@dataclass(frozen=True, slots=True)
class _Entry:
    """The log entry of the position that was last looked from: its file, and what is in it."""

    version: int
    file: tuple[int, int, int]
    digest: str | None


@dataclass(slots=True)
class LogContinuity:
    """Watches the log of one table; used under the source's lock."""

    table: log.TableFolder
    _entry: _Entry | None = None

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
        self._entry = None if file is None else _Entry(version, file, digest)

    def forget_entry(self) -> None:
        self._entry = None

    def _stamp_of_entry(self, version: int) -> tuple[int, int, int] | None:
        """What tells the file of a log entry from one that was put in its place."""
        try:
            found = log.entry_path_of(self.folder, version).stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size
