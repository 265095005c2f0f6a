"""Opening one snapshot of a source whose snapshots need nobody to stay around (SQLite)."""

from __future__ import annotations

from viewkeeper.updates.source_protocol import Snapshot, Source


def opened(source: Source) -> Snapshot:
    with source.prepare_snapshots(0, {}) as opener:
        return opener()
