"""What a member has received of its sources: the inboxes of one span, and how they are filled.

Databases are looked at in threads; parents afterwards, since their marks tell of commits that must
have been seen. Everything received is noted at the mediator too, which says whose turn it is.
"""

from __future__ import annotations

from collections.abc import Iterator

from viewkeeper.engine.capture.lookout import (
    LocalLookout,
    LookQuestion,
    LookResult,
    look_ahead,
    look_once,
)
from viewkeeper.engine.connections.open_sources import Connections
from viewkeeper.engine.group.inbox import Inbox, gone_back_error
from viewkeeper.engine.group.membership import Membership
from viewkeeper.engine.group.order_client import QUEUE_MAX, OrderClient
from viewkeeper.errors import SourceError
from viewkeeper.order.mediator import Mediator, OrderMark, ParentView, RegisteredBase
from viewkeeper.updates.source_protocol import Boundary, Source


class ReceivedSources:
    """The sources of a member in one span of the order."""

    def __init__(
        self,
        connections: Connections,
        local: LocalLookout,
        membership: Membership,
        ordering: OrderClient,
        mediator: Mediator,
    ) -> None:
        self.mediator = mediator
        self.inboxes: dict[str, Inbox] = {}
        self.unplaced: set[str] = set()
        """Parents that have not come to where we are."""
        self._connections = connections
        self._sightings = local.sightings
        self._tables = local.tables
        self._membership = membership
        self._ordering = ordering
        self._ahead: dict[str, LookResult] = {}
        """What sources have reported in threads and is to be received."""
        self._marked: dict[str, OrderMark] = {}
        """The newest mark of each parent."""

    @property
    def fresh_sources(self) -> list[str]:
        """Sources whose place in the order is not known yet."""
        return [name for name, each in self.inboxes.items() if each.began is not None]

    def followed_bases(self) -> Iterator[tuple[str, RegisteredBase]]:
        """The sources that are bases of the group, received already."""
        for name in self.inboxes:
            upstream = self._membership.upstream_of(name)
            if isinstance(upstream, RegisteredBase):
                yield name, upstream

    def update_upstreams(self) -> None:
        """Follow the sources as what they are now that the members of the group have changed."""
        for name in self.mediator.sources:
            self.mediator.follow_source(name, self._membership.upstream_of(name))

    def observe_sources(self, seconds: float) -> dict[str, SourceError]:
        """See what is new at all sources; those that turned out to be broken."""
        # Not parents: what their marks tell of must be looked for after those.
        questions = {name: self._look_question(name) for name, _ in self.followed_bases()}
        self._ahead, found = look_ahead(self._connections, questions, seconds)
        for name in self._tables.watched_sources():
            try:
                self._expect_source(name)
                if name not in found:
                    self._connections.try_action(name, self._observe_source)
            except SourceError as error:
                found[name] = error
        self._tables.note_failed(found)
        return found

    def _observe_source(self, source: Source) -> None:
        """See what is new at one source."""
        name = source.name
        if name not in self.inboxes and name not in self.unplaced:
            self._begin_source(source)
        upstream = self._membership.upstream_of(name)
        if isinstance(upstream, ParentView) and not self._observe_parent(source):
            return
        received = self.inboxes[name]
        if len(received.reports) >= QUEUE_MAX and isinstance(upstream, RegisteredBase):
            # Others go on: whoever can keep up reports.
            self._ordering.drop_base(upstream.name)
            return
        boundaries, more = self._reported_boundaries(source, received.read)
        received.add_reports(boundaries)
        while more and isinstance(upstream, ParentView):
            # Marks tell of all that it has committed, so all of that must have been seen.
            boundaries, more = look_once(source, received.read)
            received.add_reports(boundaries)
        self._sightings.note_more(more)
        if isinstance(upstream, RegisteredBase):
            # Of a parent that is a base, others may read views that are further than ours.
            whole = not more and not self._connections.is_parent(name)
            if whole and received.has_gone_back(source):
                raise gone_back_error(name, received)
            self._receive_progress(source, upstream)

    def _reported_boundaries(self, source: Source, after: int) -> tuple[tuple[Boundary, ...], bool]:
        """What a source reports after a position: found ahead, or now."""
        seen = self._ahead.pop(source.name, None)
        if seen is not None and seen.after == after:
            return seen.boundaries, seen.more
        return look_once(source, after)

    def _look_question(self, name: str) -> LookQuestion:
        after = self.inboxes[name].read
        return lambda source: LookResult(after, *look_once(source, after))

    def forget_sources(self) -> list[str]:
        """Wait for nothing of sources that have broken, or that no view reads any more; these."""
        there = self._tables.watched_sources()
        gone = [name for name in self.mediator.sources if name not in there]
        for name in gone:
            self.mediator.forget_source(name)
            self.unplaced.discard(name)
            for facts in (self.inboxes, self._sightings.known, self._marked):
                facts.pop(name, None)
        return gone

    def _expect_source(self, name: str) -> None:
        """Let ids wait for a source that views have, also while it is away."""
        if (
            name not in self.mediator.sources
            and (left := self._tables.left_position(name)) is not None
        ):
            self.mediator.follow_source(name, self._membership.upstream_of(name), left)

    def _begin_source(self, source: Source) -> None:
        """Take a source into the order, from the position at which we are."""
        name = source.name
        is_used = self._tables.left_position(name) is not None
        position = self._tables.start_position(source)
        upstream = self._membership.upstream_of(name)
        parent = isinstance(upstream, ParentView)
        self.mediator.follow_source(name, upstream, None if parent and not is_used else position)
        if parent and not is_used:
            self.unplaced.add(name)
            return
        self.inboxes[name] = Inbox(position, position, None if is_used else position)
        if isinstance(upstream, RegisteredBase):
            self.inboxes[name].note_registered(self.mediator.queued_of(upstream.name))

    def _observe_parent(self, source: Source) -> bool:
        """Hear what a parent has committed; whether it has a position for us."""
        name, span = source.name, self._membership.span
        parent = self._connections.get_parent(name)
        assert span is not None
        assert parent is not None
        needed = span.opened if self.mediator.is_held_by(name) else 0
        found = parent.group_marks(span.identity, self._marked.get(name), needed)
        if found is not None:
            self.mediator.note_committed(name, *found)
            for newest in found[0][-1:]:
                self._marked[name] = newest
        position = self.mediator.positions.get(name)
        if position is not None and name not in self.inboxes:
            self.inboxes[name] = Inbox(position, position)
            self.unplaced.discard(name)
        return name in self.inboxes

    def _receive_progress(self, source: Source, base: RegisteredBase) -> None:
        """How far the log has been read; also over what concerns others only."""
        read = self.inboxes[source.name].read
        self.mediator.note_received(source.name, read)
        for position in reversed(self.mediator.queued_of(base.name)):
            if position <= read:
                return
            if source.has_passed(position):
                self.mediator.note_received(source.name, position)
                return

    def follow_on(self, source: Source) -> int:
        """Follow what views read now; what came before that is received."""
        position = self._tables.follow_after(source, self._sightings.known[source.name])
        if source.name in self.inboxes:
            received = self.inboxes[source.name]
            received.add_reports(look_once(source, received.read)[0])
        return position
