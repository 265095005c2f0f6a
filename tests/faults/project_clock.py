"""The clock of a project under attack: a file beside its databases, which writers move."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.faults.shop import read_day
from viewkeeper.sources.clock.source import ClockSource
from viewkeeper.sources.clock.ticks import position_at


def follow_file(folder: Path) -> None:
    """From now on the clock of this process is the project's."""

    def position_now(_: ClockSource) -> int:
        return day_position(read_day(folder))

    setattr(ClockSource, "_position_now", position_now)  # noqa: B010


@contextmanager
def following_file(folder: Path) -> Iterator[None]:
    """The same for as long as the block lasts."""
    real = ClockSource._position_now
    follow_file(folder)
    try:
        yield
    finally:
        setattr(ClockSource, "_position_now", real)  # noqa: B010


def day_position(day: datetime.date) -> int:
    """Where the clock is when a day begins."""
    midnight = datetime.datetime.combine(day, datetime.time(), datetime.UTC)
    return position_at(midnight.timestamp())
