"""A process that reports, and commits what it reported, until it is killed: the order is trimmed.

    python -m tests.registry.trim_writer URL

`ack N POSITION` is printed after the answer to a report.
"""

from __future__ import annotations

import sys

from tests.registry.order_places import reading
from viewkeeper.order.global_id import GlobalId
from viewkeeper.order.registry_address import open_store
from viewkeeper.order.retention_rule import RetentionWindows
from viewkeeper.order.store.stored_registry import StoredRegistry


def main(url: str) -> None:
    windows = RetentionWindows(order=5, groups=2, step=3)
    registry = StoredRegistry(open_store(url).database, windows)
    group = registry.join_registry("a", reading("shop", "crm")).group
    reporter = registry.claim_source(group, "shop", "a", 600)
    assert reporter is not None, "another member reports this source"
    position = reporter.position or 0
    while True:
        piece = [GlobalId("shop", position + step) for step in range(1, 8)]
        n = registry.register_ids(group, piece, reporter)
        position += len(piece)
        print(f"ack {n} {position}", flush=True)
        for member in ("a", "b"):
            registry.note_reached(group, member, n)


if __name__ == "__main__":
    main(*sys.argv[1:])
