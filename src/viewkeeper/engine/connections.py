"""The sources of a project as the maintainer sees them: open, away, or coming back.

A source that cannot be reached is left alone for a while, longer each time; the views that need it
wait meanwhile and the others go on. Whoever uses a source has it from here, guarded, so that all
that goes wrong in it is its own error; `note` decides what an error means for the source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from viewkeeper.engine.guarded_source import GuardedSource, contained
from viewkeeper.errors import (
    DamagedSourceError,
    SourceAwayError,
    SourceError,
    UnexpectedSourceError,
    ViewkeeperError,
)
from viewkeeper.sources.catalogue import open_source as open_database
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.updates.protocol import Source
from viewkeeper.warehouse.identity import read_identity

RETRY_SECONDS_MAX = 30.0

if TYPE_CHECKING:
    from viewkeeper.sources.files.accept import Differ

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Away:
    """Since when a source is away, why, and when it is tried again."""

    error: SourceAwayError
    since: float
    attempts: int
    retry_at: float


def reader_of(warehouse: Path) -> str:
    """How the warehouse is called at its sources; nothing while it follows none."""
    try:
        return read_identity(warehouse)
    except OSError:
        return ""


def open_source(settings: SourceSettings, reader: str) -> Source:
    """The source that the settings describe, a database or another project; nothing is connected
    yet."""
    if settings.kind == "warehouse":
        # Imported here, because reading warehouses needs more than most projects do.
        from viewkeeper.registry import view_source

        return view_source.open_source(settings, reader)
    return open_database(settings, reader)


class Connections:
    """Every source of a project, opened when first used."""

    def __init__(
        self,
        settings: Mapping[str, SourceSettings],
        reader: str,
        now: Callable[[], float],
        differ: Differ | None = None,
    ) -> None:
        """`differ` takes large differences between states of folders."""
        self.settings = settings
        self.reader = reader
        self.away: dict[str, Away] = {}
        self._now = now
        self._differ = differ
        self._open: dict[str, Source] = {}
        self.failed: dict[str, SourceError] = {}
        """Sources that are damaged or failed as nobody foresaw: left alone until the next run."""
        self.trouble: Callable[[ViewkeeperError], None] = lambda _: None
        """Is told of errors that spoil nothing, like that of closing a snapshot."""

    def source(self, name: str) -> Source:
        if name not in self._open:
            with contained(name):
                opened = self._opened(self.settings[name])
            self._open[name] = GuardedSource(opened, self._spoils_nothing)
        return self._open[name]

    def _spoils_nothing(self, error: ViewkeeperError) -> None:
        self.note(error)
        self.trouble(error)

    def _opened(self, settings: SourceSettings) -> Source:
        source = open_source(settings, self.reader)
        if settings.kind == "files":
            # Imported here, because it takes a second that other kinds need not pay.
            from viewkeeper.sources.files import FilesSource

            assert isinstance(source, FilesSource)
            source.differ = self._differ
        return source

    def attempt(self, name: str, action: Callable[[Source], T]) -> T | None:
        """Do something with a source; None if it is, or turns out to be, away."""
        if not self.ready([name]):
            return None
        try:
            with contained(name):
                result = action(self.source(name))
        except SourceAwayError as error:
            self.note(error)
            return None
        self.away.pop(name, None)
        return result

    def ready(self, names: Iterable[str]) -> bool:
        """Whether all of these may be asked now."""
        now = self._now()
        return all(self._is_ready(name, now) for name in names)

    def _is_ready(self, name: str, now: float) -> bool:
        away = self.away.get(name)
        return name not in self.failed and (away is None or away.retry_at <= now)

    def note(self, error: ViewkeeperError) -> None:
        """What an error means for the source that it names, if it names one."""
        match error:
            case SourceAwayError():
                self._mark(error)
            case UnexpectedSourceError() | DamagedSourceError():
                self.failed.setdefault(error.source, error)

    def _mark(self, error: SourceAwayError) -> None:
        """A source did not answer; it is tried again after 1, 2, 4 ... seconds."""
        now, before = self._now(), self.away.get(error.source)
        attempts = before.attempts + 1 if before else 1
        wait = min(2.0 ** min(attempts - 1, 10), RETRY_SECONDS_MAX)
        since = before.since if before else now
        self.away[error.source] = Away(error, since, attempts, now + wait)

    def close(self) -> None:
        for source in self._open.values():
            source.close()
        self._open.clear()
