"""A clock that a test moves, and what it showed at every ts."""

from __future__ import annotations

import datetime
from pathlib import Path

from viewkeeper.sources.clock.ticks import moment_of
from viewkeeper.warehouse.store import Store


class MovedClock:
    """The time, as far as the project can tell."""

    def __init__(self, moment: datetime.datetime) -> None:
        self.moment = moment

    def __call__(self) -> float:
        return self.moment.timestamp()


def read_moments(
    warehouse: Path, clock: MovedClock, since: int
) -> tuple[dict[int, datetime.datetime], frozenset[int]]:
    """What the views' clock showed at every ts from `since` on, and at which ts it ticked."""
    with Store.open(warehouse, "test", clock) as store:
        entries = store.ledger.entries_between(since, store.ledger.next_ts)
        views = store.head.views.values()
        now = max(
            (view.positions["clock"] for view in views if "clock" in view.positions), default=0
        )
    ticks = {entry.ts: entry for entry in entries if entry.source == "clock" and entry.ts > since}
    moment = moment_of(ticks[min(ticks)].after if ticks else now)
    moments = {since: moment}
    for ts in sorted(entry.ts for entry in entries if entry.ts > since):
        moment = moment_of(ticks[ts].until) if ts in ticks else moment
        moments[ts] = moment
    return moments, frozenset(ticks)
