"""What a member has received of its sources: the inboxes of one span, and how they are filled.

Databases are looked at in threads; parents afterwards, since their marks tell of commits that must
have been seen. Everything received is noted at the mediator too, which says whose turn it is.

Reports are kept as the source made them, up to where it was looked at. When an id is taken, all
that was reported up to its position becomes one entry; a report that goes beyond it stays, because
it was made of several commits, and the rows of each are found in the log by their positions.

One member reports a base for all that read it: every position gets its number once. The reporter
follows what all members read, from a position that gets a number too: others begin to follow there.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from viewkeeper.engine.capture.followed_tables import FollowedTables
from viewkeeper.engine.capture.lookout import (
    LocalLookout,
    LookQuestion,
    LookResult,
    look_ahead,
    look_once,
)
from viewkeeper.engine.connections.open_sources import Connections
from viewkeeper.engine.group.membership import Membership
from viewkeeper.engine.group.order_client import QUEUE_MAX, OrderClient
from viewkeeper.errors import GapError, SourceError
from viewkeeper.order.mediator import Mediator, OrderMark, ParentView, RegisteredBase, TakenIds
from viewkeeper.updates.source_protocol import Boundary, Source, Tables
from viewkeeper.warehouse.metadata.plan_files import LedgerEntry

OVERDUE_SECONDS = 3.0


@dataclass(slots=True)
class Inbox:
    """What was received of one source: taken up to `at`, looked at up to `read`."""

    at: int
    read: int
    began: int | None = None
    """Where it began to be followed, until a number stands for where it is."""
    required: int | None = None
    """Where all that a new view reads began to be captured; to be taken before that is loaded."""
    captured: Tables = field(default_factory=dict)
    """What is captured since then."""
    beyond: int | None = None
    """The last position that was registered before it began to be followed, if that lies beyond."""
    reports: deque[Boundary] = field(default_factory=deque)
    since: float = 0.0
    """When the first of them became the first."""

    def add_reports(self, boundaries: Sequence[Boundary]) -> None:
        if not self.reports:
            self.since = time.monotonic()
        self.reports.extend(boundaries)
        if boundaries:
            self.read = boundaries[-1].position

    def note_registered(self, registered: Iterable[int]) -> None:
        """Note what was registered before it began to be followed, and lies beyond that."""
        last = max(registered, default=0)
        if self.began is not None and last > self.at:
            self.beyond = last

    def settle_place(self) -> None:
        """The position of the source has a number in the order now."""
        self.began = None

    def require_captured(self, tables: Tables) -> None:
        """These are captured from where it was looked at; what came before is to be taken first."""
        self.required, self.captured = self.read, tables

    def drop_requirement(self) -> None:
        """What a new view reads is loaded."""
        self.required = None

    def has_gone_back(self, source: Source) -> bool:
        """Whether a database that was just looked at has less than its group has ordered."""
        if self.beyond is None:
            return False
        return max(self.at, self.read) < self.beyond and not source.has_passed(self.beyond)

    @property
    def overdue_position(self) -> int | None:
        """The position of a report that has waited for long; its reporter may not see it."""
        late = bool(self.reports) and time.monotonic() - self.since > OVERDUE_SECONDS
        return self.reports[0].position if late else None

    def has_captured(self, tables: Tables) -> bool:
        """Whether these are captured, and what came before that waits to be taken."""
        return self.required is not None and self.captured == tables

    @property
    def is_ready(self) -> bool:
        """Whether all that was captured with too few columns is taken."""
        return self.required is None or not self.reports or self.at >= self.required

    def take_entry(
        self, source: str, until: int, ts: int, taken: TakenIds, now: float
    ) -> LedgerEntry:
        """What an id is at this source: all that was reported up to its position."""
        after, self.at, self.read = self.at, until, max(self.read, until)
        found: list[Boundary] = []
        while self.reports and self.reports[0].position <= until:
            found.append(self.reports.popleft())
            self.since = time.monotonic()
        # Changes of a report that goes beyond are counted at its end.
        rest = [self.reports[0]] if self.reports else []
        times = [boundary.committed_at for boundary in (*found, *rest)]
        return LedgerEntry(
            ts,
            source,
            after,
            until,
            min(times, default=now),
            sum(boundary.changes for boundary in found),
            _joined_names(boundary.emptied for boundary in found),
            _joined_names(boundary.keyed for boundary in found),
            tuple(change for boundary in found for change in boundary.reshaped),
            taken.n,
            taken.first,
        )


def gone_back_error(source: str, received: Inbox) -> GapError:
    """The error of a database whose log ends before a position that its group has registered."""
    return GapError(
        source,
        "it has gone back behind what its group has ordered",
        detail=f"it is at position {received.at}, and {received.beyond} is registered: it was "
        "replaced, or restored from a backup",
        hint="begin a new order: `viewkeeper registry leave URL MEMBER` with this member, then run "
        "all members that read it again",
    )


def _joined_names(parts: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for part in parts for name in part))


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
