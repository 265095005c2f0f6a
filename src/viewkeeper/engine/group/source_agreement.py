"""Whether the sources of a view that is to be loaded show one state of each base.

Computed from what the parents' ledgers say, through all levels, so it is looked at now and then
only. While it does not hold, the bases concerned are awaited: their reporters give a number to
where they stand, and everybody who takes it is at one position.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from viewkeeper.engine.connections.guarded_source import contain_errors
from viewkeeper.engine.connections.open_sources import Connections
from viewkeeper.engine.group.membership import Membership
from viewkeeper.errors import SourceError
from viewkeeper.order.mediator import RegisteredBase
from viewkeeper.upstream.base_positions import base_positions, find_diverged_bases

COMPARE_SECONDS = 0.3


class SourceAgreement:
    """The sources of one member, compared."""

    def __init__(self, membership: Membership, connections: Connections) -> None:
        self._membership = membership
        self._connections = connections
        self._compared = 0.0
        self.awaits: Mapping[str, int] = {}
        """Bases of which the sources of a new view show several states, with the newest."""

    @property
    def is_due(self) -> bool:
        """Whether it is time to compare; those that stood apart are not compared all the time."""
        return not self.awaits or time.monotonic() - self._compared >= COMPARE_SECONDS

    def has_common_state(self, known: Mapping[str, int]) -> bool:
        """Whether sources at these positions show one state of each base."""
        self._compared = time.monotonic()
        stands = (each for name, at in known.items() for each in self._positions_shown(name, at))
        try:
            self.awaits = find_diverged_bases(stands)
        except SourceError:
            # A ledger cannot be read now; who needs that parent's rows says so.
            return False
        return not self.awaits

    def _positions_shown(self, name: str, at: int) -> Iterator[tuple[str, int]]:
        """The bases that a source shows at a position, with their own."""
        upstream = self._membership.upstream_of(name)
        if isinstance(upstream, RegisteredBase):
            yield upstream.name, at
            return
        upper = self._connections.get_parent(name)
        assert upper is not None
        members = {member.name for member in self._membership.members}
        with contain_errors(name):
            yield from base_positions(upper.parent, at, members)
