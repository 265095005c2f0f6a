"""The sources of a project as the maintainer sees them: open, away, or coming back.

A source that cannot be reached is left alone for a while, longer each time; the views that need it
wait meanwhile and the others go on. Whatever asks a source goes through `attempt`, so that one
place decides who is away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from viewkeeper.errors import SourceAwayError
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

    def source(self, name: str) -> Source:
        if name not in self._open:
            self._open[name] = self._opened(self.settings[name])
        return self._open[name]

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
            result = action(self.source(name))
        except SourceAwayError as error:
            self.mark(error)
            return None
        self.away.pop(name, None)
        return result

    def ready(self, names: Iterable[str]) -> bool:
        """Whether all of these may be asked now."""
        now = self._now()
        return all(n not in self.away or self.away[n].retry_at <= now for n in names)

    def mark(self, error: SourceAwayError) -> None:
        """Note that a source did not answer; it is tried again after 1, 2, 4 ... seconds."""
        now, before = self._now(), self.away.get(error.source)
        attempts = before.attempts + 1 if before else 1
        wait = min(2.0 ** min(attempts - 1, 10), RETRY_SECONDS_MAX)
        since = before.since if before else now
        self.away[error.source] = Away(error, since, attempts, now + wait)

    def close(self) -> None:
        for source in self._open.values():
            source.close()
        self._open.clear()
