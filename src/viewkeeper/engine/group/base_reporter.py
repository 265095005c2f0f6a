"""The reporter of bases: which databases this member reports to the registry, and what of them.

One member reports a base for all that read it: every position gets its number once. The reporter
follows what all members read, from a position that gets a number too: others begin to follow there.
"""

from __future__ import annotations

from collections.abc import Iterable

from viewkeeper.engine.capture.followed_tables import FollowedTables
from viewkeeper.engine.connections.open_sources import Connections
from viewkeeper.engine.group.order_client import OrderClient
from viewkeeper.engine.group.received_sources import ReceivedSources
from viewkeeper.errors import SourceError


class BaseReporter:
    """Reports the bases that a member has claimed, in one span of the order."""

    def __init__(
        self,
        connections: Connections,
        tables: FollowedTables,
        ordering: OrderClient,
        received: ReceivedSources,
    ) -> None:
        self._connections = connections
        self._tables = tables
        self._ordering = ordering
        self._received = received
        self._beats: dict[str, int] = {}
        """Positions from which all that members read is followed, until they have a number."""

    def forget_sources(self, names: Iterable[str]) -> None:
        """These sources are not received any more."""
        for name in names:
            self._beats.pop(name, None)

    def claim_bases(self) -> None:
        """Become the reporter of what nobody reports; follow what other members read of it.

        The position from which that is so gets a number, for those who begin to follow.
        """
        if self._ordering.closed:
            return
        changed = self._ordering.take_changed()
        for name, base in self._received.followed_bases():
            if name in self._connections.away:
                # Others may see more of it.
                self._ordering.drop_base(base.name)
                continue
            became = self._ordering.claim_base(base.name)
            if self._ordering.is_reporter(base.name) and (became or changed):
                self._beat_base(name)
        if changed:
            self._received.update_upstreams()

    def _beat_base(self, name: str) -> None:
        """Follow what all members read of a source, from a position that will have a number."""
        read = self._received.inboxes[name].read
        try:
            position = self._connections.try_action(
                name, lambda source: self._tables.follow_after(source, read)
            )
        except SourceError:
            # The look that comes says the same, for all views that read it.
            return
        if position is not None:
            self._beats[name] = position

    def register_positions(self) -> None:
        """Give numbers to what was seen of the sources that we report."""
        new = False
        for name, base in self._received.followed_bases():
            if self._ordering.is_reporter(base.name):
                seen = [boundary.position for boundary in self._received.inboxes[name].reports]
                seen += [self._beats[name]] if name in self._beats else []
                done = self._ordering.register_positions(base.name, seen)
                if done is not None:
                    self._beats.pop(name, None)
                new |= bool(done)
        if new:
            self._ordering.fetch_order(self._received.mediator, now=True)
