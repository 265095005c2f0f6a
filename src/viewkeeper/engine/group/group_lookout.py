"""The lookout of a member of a group: what it sees is taken in the order of the registry.

It keeps what it sees (the mediator's RMQ) until the registry has given it a number and all that
comes before it can be taken. Then the report is split at the registered positions, and one id is
one ts, with an entry for every source that it moves, parents that have committed it included.

Nothing here is durable but the ledger and the membership's file. After a crash the order is read
again behind the last number in the ledger; positions say what of it is contained already.
A source that no view has yet is known from the first registered position on that lies at or beyond
the one where it began to be followed, so that a view is loaded in a state which has a number.

Whether the sources of a new view show one state of each base is computed from what the parents'
ledgers say, through all levels, so it is looked at now and then only. While it does not hold, the
bases concerned are awaited: their reporters give a number to where they stand, and everybody who
takes it is at one position.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from viewkeeper.engine.capture.followed_tables import FollowedTables, LoadPoint
from viewkeeper.engine.capture.lookout import PATIENCE_SECONDS, LocalLookout, Lookout, Sightings
from viewkeeper.engine.connections.guarded_source import contain_errors
from viewkeeper.engine.connections.open_sources import Connections
from viewkeeper.engine.group.membership import Membership
from viewkeeper.engine.group.order_client import ORDER_MAX, OrderClient
from viewkeeper.engine.group.order_client import PATIENCE_SECONDS as REGISTRY_SECONDS
from viewkeeper.engine.group.received_sources import BaseReporter, ReceivedSources
from viewkeeper.engine.views.workspace import Workspace
from viewkeeper.errors import SchemaError, SourceError
from viewkeeper.order.mediator import Mediator, RegisteredBase, TakenIds
from viewkeeper.order.member_secret import member_secret
from viewkeeper.order.registry_address import is_service, open_registry
from viewkeeper.order.registry_protocol import OrderedId
from viewkeeper.updates.source_protocol import Source
from viewkeeper.upstream.order_marks import base_positions, find_diverged_bases
from viewkeeper.warehouse.metadata.plan_files import LedgerEntry

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


class GroupLookout:
    """Watches the sources of a member."""

    def __init__(
        self,
        connections: Connections,
        local: LocalLookout,
        membership: Membership,
        ordering: OrderClient,
    ) -> None:
        """`local` looks where the project is alone in its group."""
        self.sightings = local.sightings
        self.tables = local.tables
        self._connections = connections
        self._local = local
        self._membership = membership
        self._ordering = ordering
        self._begin_span()

    def _begin_span(self) -> None:
        """Forget what was seen; it is seen again, in the order of the group."""
        span = self._membership.span
        self.sightings.forget_all()
        self._agreeing = SourceAgreement(self._membership, self._connections)
        number = self._membership.taken_number() if span else 0
        self._mediator = Mediator(number, self._agreeing.has_common_state)
        self._received = ReceivedSources(
            self._connections, self._local, self._membership, self._ordering, self._mediator
        )
        self._reporter = BaseReporter(
            self._connections, self.tables, self._ordering, self._received
        )

    def look_at_sources(self, seconds: float = PATIENCE_SECONDS) -> dict[str, SourceError]:
        if not self._in_group():
            span = self._membership.span
            return self._local.look_at_sources(seconds) if span and span.alone else {}
        self.sightings.begin_look()
        self._ordering.fetch_order(self._mediator)
        self._reporter.forget_sources(self._received.forget_sources())
        self._reporter.claim_bases()
        found = self._received.observe_sources(seconds)
        self._reporter.register_positions()
        self._take_ordered()
        return found

    def has_news(self) -> bool | None:
        """Nobody can tell what the registry knows."""
        return None

    def _in_group(self) -> bool:
        """Keep up with the registry's assignment; whether an order is to be taken."""
        before = self._membership.span
        ended = self._ordering.closed and not self._mediator.queued_ids
        self._ordering.follow_assignment(ended, self._awaited_positions())
        span = self._membership.span
        if span is None:
            return False
        moves = self._membership.has_other_group and (
            span.alone or (ended and self.sightings.is_empty)
        )
        if moves:
            if not span.alone:
                self._membership.note_taken(self._mediator.n, now=True)
            self._membership.begin_next_span()
        if moves or before is None or before.identity != span.identity:
            self._ordering.begin_group()
            self._begin_span()
        # Before the first answer of this run it is not known what the sources are in the group.
        return self._is_ordered and bool(self._membership.members)

    def _awaited_positions(self) -> dict[str, int]:
        """Positions that must get a number: of sources that begin, stand apart, or are overdue."""
        found = dict(self._agreeing.awaits)
        for name, base in self._received.followed_bases():
            received = self._received.inboxes[name]
            late = received.overdue_position
            if received.began is not None:
                found[base.name] = received.at
            elif late is not None and not self._mediator.has_queued(base.name, late):
                found[base.name] = late
        return found

    @property
    def _is_ordered(self) -> bool:
        span = self._membership.span
        return span is not None and not span.alone

    def _take_ordered(self) -> None:
        """Take what has its turn."""
        queued = tuple(self._mediator.queued_ids) if self._received.fresh_sources else ()
        is_young = self._mediator.agrees is not None
        if self._agreeing.is_due or not is_young:
            for taken in self._mediator.take_ids(ORDER_MAX):
                self.sightings.add_entries(self._make_entries(taken))
        more = bool(self._mediator.queued_ids) and self._mediator.next_wait is None
        self.sightings.note_more(more and not is_young)
        self._settle_places([each for each in queued if each.n <= self._mediator.n])
        if self._received.fresh_sources:
            self._settle_places(self._ordering.passed_ids(self._mediator))
        for name, received in self._received.inboxes.items():
            if received.began is None:
                self.sightings.known[name] = received.at
        if self.sightings.is_empty:
            self._note_progress()

    def _note_progress(self, now: bool = False) -> None:
        if self._membership.note_taken(self._mediator.n, now):
            self._ordering.report_committed(self._membership.committed_number(self._mediator.n))

    def _settle_places(self, passed: Sequence[OrderedId]) -> None:
        """Sources are known when a number stands for where they are."""
        newest = {each.id.source: each.id.position for each in passed}
        for name, base in self._received.followed_bases():
            received = self._received.inboxes[name]
            if received.began is not None and (last := newest.get(base.name, -1)) >= received.began:
                received.note_registered([last])
                received.settle_place()

    def _make_entries(self, taken: TakenIds) -> list[LedgerEntry]:
        ts, now = self.sightings.next_ts, time.time()
        return [
            self._received.inboxes[source].take_entry(source, until, ts, taken, now)
            for source, until in sorted(taken.moves.items())
        ]

    def entries_until(self, name: str, position: int) -> tuple[LedgerEntry, ...]:
        assert not self._is_ordered, "algorithms that read arrival order are refused in a group"
        return self._local.entries_until(name, position)

    def take_with_gap(self, name: str) -> tuple[LedgerEntry, ...]:
        return self._local.take_with_gap(name)

    def begin_again(self, name: str) -> None:
        self._local.begin_again(name)

    def extend_capture(self, names: Iterable[str]) -> dict[str, SourceError]:
        if not self._is_ordered:
            return self._local.extend_capture(names)
        known = self.sightings.known
        wanted = {name: self.tables.tables_of(name) for name in names if name in known}
        # While what was captured with too few columns waits for its turn, nothing begins anew.
        again = [
            n for n, tables in wanted.items() if not self._received.inboxes[n].has_captured(tables)
        ]
        found = self.tables.extend_capture(again, self._received.follow_on)
        for name in again:
            if name not in found:
                self._received.inboxes[name].require_captured(wanted[name])
        return found

    def can_load(self, sources: Iterable[str]) -> bool:
        names = list(sources)
        span = self._membership.span
        if span is None or not self._local.can_load(names):
            return False
        if not span.alone:
            if not all(self._received.inboxes[name].is_ready for name in names):
                return False
            known = {name: self.sightings.known[name] for name in names}
            if not (self._agreeing.is_due and self._agreeing.has_common_state(known)):
                return False
            for name in names:
                self._received.inboxes[name].drop_requirement()
        return True

    @property
    def has_pending(self) -> bool:
        span = self._membership.span
        if span is None or self._membership.has_other_group:
            return True
        return not span.alone and bool(
            self._received.fresh_sources
            or self._agreeing.awaits
            or self._received.unplaced
            or self._mediator.queued_ids
            or any(each.reports for each in self._received.inboxes.values())
        )

    @property
    def waiting_reason(self) -> str | None:
        if self._ordering.trouble is not None:
            return str(self._ordering.trouble)
        waits = self._mediator.next_wait
        if waits is not None:
            return f'source "{waits.source}" has not come to {waits.next.id} yet'
        for name in sorted(self._received.unplaced):
            group = self._membership.span.group if self._membership.span else ""
            at = f"number {self._mediator.n} of group {group}"
            return f'source "{name}" has not come to {at} yet: is it running, with this registry?'
        for name in self._received.fresh_sources:
            return f'source "{name}" is not reported yet'
        for base in self._agreeing.awaits:
            return f'its sources do not show one state of "{base}" yet'
        return "what was seen has no number yet" if self.has_pending else None

    def close(self) -> None:
        """Say how far we are, so that children need not wait until this project runs again."""
        if self._is_ordered and self.sightings.is_empty:
            self._note_progress(now=True)
        self._ordering.close()


def follow_others(
    membership: Membership, ordering: OrderClient, source: Source, position: int
) -> int:
    """Follow also what other members read of a source that we report; its position then.

    A change of unfollowed columns would be missed.
    """
    upstream = membership.upstream_of(source.name)
    if not (isinstance(upstream, RegisteredBase) and ordering.is_reporter(upstream.name)):
        return position
    for table in membership.tables_of_others(upstream.name):
        try:
            handle = source.handle_of(table)
            columns = [field.name for field in source.describe_table(handle).fields]
            position = source.follow_tables({handle: columns})
        except SchemaError:
            # It is gone, or cannot be followed: that is the trouble of those who read it.
            continue
    return position


def make_lookout(workspace: Workspace, loads: Callable[[], Iterable[LoadPoint]]) -> Lookout:
    """The lookout of a project, in a group if it names a registry; `loads` gives the loads that
    are under way."""
    named = workspace.settings.registry
    connections, sightings = workspace.connections, Sightings(workspace.store)
    if named is None:
        return LocalLookout(connections, sightings, FollowedTables(workspace, loads))
    secret = member_secret(workspace.store.local_root) if is_service(named.url) else None
    access = (named.token, REGISTRY_SECONDS, secret, named.ca)
    registry = open_registry(named.url, workspace.settings.folder, *access)
    membership = Membership(workspace, registry)
    ordering = OrderClient(membership, registry, workspace.observer.on_trouble)
    tables = FollowedTables(workspace, loads, partial(follow_others, membership, ordering))
    local = LocalLookout(connections, sightings, tables)
    return GroupLookout(connections, local, membership, ordering)
