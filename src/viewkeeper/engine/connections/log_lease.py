"""A lease on the logs of sources, for readers beside the maintainer.

What a scan saw too early is taken back by the source's log. So whoever scans while a maintainer
acknowledges, a verification or a preview, holds the logs until it has read them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from viewkeeper.engine.connections.open_sources import Connections

if TYPE_CHECKING:
    pass

LEASE_SECONDS = 600.0


@contextmanager
def hold_logs(connections: Connections, names: Sequence[str]) -> Iterator[None]:
    """Keep the sources' logs from being trimmed, by a lease that ends by itself if we die."""
    lease = f"verify:{connections.reader}:{time.time_ns()}"
    for name in names:
        connections.get_source(name).begin_hold(lease, LEASE_SECONDS)
    try:
        yield
    finally:
        for name in names:
            # One that has gone away lets the lease end by itself: the verdict stands.
            connections.try_action(name, lambda source: source.end_hold(lease))
