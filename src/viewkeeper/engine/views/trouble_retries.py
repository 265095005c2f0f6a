"""When something that went wrong is tried again in a run, though nobody starts the run again.

A missing grant, a table that is not there yet, a publication without a table, a full disk, a
cluster without workers: people mend these, and the run should notice. So a view whose load failed,
and one that stopped for an error of a source or for a lost job, are tried again after 1, 2, 4 ...
seconds, up to a minute. What cannot be mended so stays as it is: changes that a source has lost,
and what is stored that contradicts them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from viewkeeper.errors import (
    BarrierError,
    GapError,
    JobLostError,
    SourceAwayError,
    SourceError,
    ViewkeeperError,
)

RETRY_SECONDS_MAX = 60.0
CALM_SECONDS = 2 * RETRY_SECONDS_MAX
"""A view that was fine for so long begins again with short pauses."""


def can_be_mended(error: ViewkeeperError) -> bool:
    """Whether somebody may mend what has stopped a view, without loading it again.

    >>> can_be_mended(SourceError("shop", "permission denied")), can_be_mended(GapError("shop", ""))
    (True, False)
    """
    lasting = isinstance(error, GapError | BarrierError | SourceAwayError)
    return isinstance(error, SourceError | JobLostError) and not lasting


@dataclass(frozen=True, slots=True)
class RetryTime:
    """How often something has gone wrong, when it last did, and when it is tried again."""

    attempts: int
    failed_at: float
    retry_at: float | None


class TroubleRetries:
    """The views that are tried again, each in its time."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._times: dict[str, RetryTime] = {}

    def note_failure(self, name: str) -> None:
        """A view has gone wrong: it is tried again, later each time."""
        now, last = self._now(), self._times.get(name)
        if last is not None and last.retry_at is not None:
            return
        is_again = last is not None and now - last.failed_at < CALM_SECONDS
        attempts = last.attempts + 1 if last is not None and is_again else 1
        # A power of a view that fails for a day would be too large for a number.
        pause = min(2.0 ** min(attempts - 1, 10), RETRY_SECONDS_MAX)
        self._times[name] = RetryTime(attempts, now, now + pause)

    def has_failed(self, name: str) -> bool:
        """Whether a view waits to be tried again."""
        found = self._times.get(name)
        return found is not None and found.retry_at is not None

    def is_known(self, name: str) -> bool:
        """Whether a view has gone wrong before, and not long ago."""
        found = self._times.get(name)
        return found is not None and self._now() - found.failed_at < CALM_SECONDS

    def take_due(self) -> list[str]:
        """The views whose time has come; each is returned once per failure."""
        now = self._now()
        due = [
            name
            for name, each in self._times.items()
            if each.retry_at is not None and each.retry_at <= now
        ]
        for name in due:
            last = self._times[name]
            self._times[name] = RetryTime(last.attempts, last.failed_at, None)
        return due

    def forget_view(self, name: str) -> None:
        """A view is not tried again."""
        self._times.pop(name, None)
