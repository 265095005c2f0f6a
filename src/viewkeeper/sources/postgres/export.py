"""Exporting a snapshot, and telling what the stream knows around it.

The coordinator's transaction locks the tables, takes the snapshot and exports it. Then the stream
is read past a watermark that was committed after the snapshot: nothing that the snapshot sees can
come later. From there on everything is computed from the spool.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import psycopg

from viewkeeper.errors import SourceAwayError
from viewkeeper.sources.postgres.capture import WATERMARK, Capture
from viewkeeper.sources.postgres.open import Server
from viewkeeper.sources.postgres.rows import layout
from viewkeeper.sources.postgres.shared import BEGIN
from viewkeeper.sources.postgres.slot import emit
from viewkeeper.sources.postgres.snapshot import PostgresOpener
from viewkeeper.sources.postgres.table import Table, called_by
from viewkeeper.sources.postgres.tail import cannot_be_reversed, seen_by, tell
from viewkeeper.sources.postgres.troubles import other_shape, other_table, partition_gone
from viewkeeper.sources.postgres.visible import Visible
from viewkeeper.updates.protocol import Tables

_SHAPE = """
SELECT to_regclass(%s)::oid::int8, a.attname, a.atttypid::int8, a.atttypmod
  FROM pg_attribute a WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped
"""
_LEAVES = "SELECT relid::oid::int8 FROM pg_partition_tree(%s::oid::regclass) WHERE isleaf"
_PAUSE_SECONDS = 0.02


def lock_and_export(
    coordinator: psycopg.Connection[Any], tables: Mapping[str, Table]
) -> tuple[str, str]:
    """Lock, then take the snapshot: `pg_current_snapshot()` and its exported name."""
    locks = ", ".join(table.quoted for table in tables.values())
    coordinator.execute(BEGIN.encode())
    if locks:
        coordinator.execute(f"LOCK TABLE {locks} IN ACCESS SHARE MODE".encode())
    row = coordinator.execute("SELECT pg_current_snapshot()::text, pg_export_snapshot()").fetchone()
    assert row is not None
    return str(row[0]), str(row[1])


def told_opener(
    server: Server,
    capture: Capture,
    exported: tuple[str, str],
    found: Mapping[str, Table],
    after: int,
    tables: Tables,
) -> PostgresOpener | None:
    """The opener; None if a commit that took rows away without listing them is not visible yet."""
    seen = seen_by(capture, Visible.parse(exported[0]))
    kept = frozenset(capture.kept_name(name) for name in tables)
    if cannot_be_reversed(seen, after, kept):
        return None
    shapes = {name: layout(server.source, found[name], c) for name, c in tables.items()}
    told = tell(capture, seen, after, shapes, capture.home)
    lacking = frozenset(each.position for each in seen.lacking)
    snapshot, name = exported
    return PostgresOpener(
        server.settings, name, snapshot, seen.newest, lacking, after, dict(found), told
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


def check_shape(
    coordinator: psycopg.Connection[Any], source: str, capture: Capture, name: str
) -> None:
    """An error if the table that a snapshot shows is not the one that is followed."""
    followed = capture.state.tables[capture.kept_name(name)]
    called = called_by(name)
    rows = coordinator.execute(_SHAPE, (called, called)).fetchall()
    if not rows or rows[0][0] != followed.oid:
        raise other_table(source, name)
    found = {str(column): (kind, modifier) for _, column, kind, modifier in rows}
    changed = [c for c, kind in followed.columns.items() if found.get(c) != kind]
    if changed:
        raise other_shape(source, name, changed[0])
    if followed.leaves:
        there = {int(oid) for (oid,) in coordinator.execute(_LEAVES, (followed.oid,))}
        if not there.issuperset(followed.leaves):
            raise partition_gone(source, name)
