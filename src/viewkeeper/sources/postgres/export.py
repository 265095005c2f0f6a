"""Telling what the stream knows around an exported snapshot.

The coordinator's transaction has locked the tables and exported a snapshot (`locking`). Then the
stream is read past a watermark that was committed after the snapshot: nothing that the snapshot
sees can come later. From there on everything is computed from the spool.
"""

from __future__ import annotations

import time
from typing import Any

import psycopg

from viewkeeper.errors import SourceAwayError
from viewkeeper.sources.postgres.capture import WATERMARK, Capture
from viewkeeper.sources.postgres.locking import Locked
from viewkeeper.sources.postgres.open import Server
from viewkeeper.sources.postgres.slot import emit
from viewkeeper.sources.postgres.snapshot import PostgresOpener
from viewkeeper.sources.postgres.table import Table
from viewkeeper.sources.postgres.tail import cannot_be_reversed, seen_by, tell
from viewkeeper.sources.postgres.troubles import partition_gone
from viewkeeper.sources.postgres.visible import Visible
from viewkeeper.updates.protocol import Tables

_LEAVES = "SELECT relid::oid::int8 FROM pg_partition_tree(%s::oid::regclass) WHERE isleaf"
_PAUSE_SECONDS = 0.02


def told_opener(
    server: Server,
    capture: Capture,
    locked: Locked,
    after: int,
    tables: Tables,
) -> PostgresOpener | None:
    """The opener; None if a commit that took rows away without listing them is not visible yet."""
    found = locked.tables
    seen = seen_by(capture, Visible.parse(server.source, locked.snapshot))
    kept = frozenset(str(table.oid) for table in found.values())
    if cannot_be_reversed(seen, after, kept):
        return None
    told = tell(capture, seen, after, found, tables, capture.home)
    lacking = frozenset(each.position for each in seen.lacking)
    return PostgresOpener(
        server.settings,
        locked.exported,
        locked.snapshot,
        seen.newest,
        lacking,
        after,
        dict(found),
        told,
    )


def watermark(control: psycopg.Connection[Any], capture: Capture) -> None:
    """Read the stream past everything that a snapshot taken before can contain."""
    capture.read_mark(emit(control, WATERMARK))


def wait_for_visibility(source: str, end: float) -> None:
    if time.monotonic() > end:
        raise SourceAwayError(
            source,
            "a commit that was logged does not become visible",
            hint="look whether a synchronous standby is away",
        )
    time.sleep(_PAUSE_SECONDS)


def check_partitions(
    coordinator: psycopg.Connection[Any], source: str, capture: Capture, table: Table
) -> None:
    """A GapError if partitions of a table went with their rows."""
    followed = capture.state.tables[str(table.oid)]
    if followed.leaves:
        there = {int(oid) for (oid,) in coordinator.execute(_LEAVES, (followed.oid,))}
        if not there.issuperset(followed.leaves):
            raise partition_gone(source, table.asked)
