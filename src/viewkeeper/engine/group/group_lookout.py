"""The lookout of a member of a group: what it sees is taken in the order of the registry.

It keeps what it sees (the mediator's RMQ) until the registry has given it a number and all that
comes before it can be taken. Then the report is split at the registered positions, and one id is
one ts, with an entry for every source that it moves, parents that have committed it included.

Nothing here is durable but the ledger and the membership's file. After a crash the order is read
again behind the last number in the ledger; positions say what of it is contained already.
A source that no view has yet is known from the first registered position on that lies at or beyond
the one where it began to be followed, so that a view is loaded in a state which has a number.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence

from viewkeeper.engine.capture.lookout import (
    PATIENCE_SECONDS,
    LocalLookout,
    LookQuestion,
    LookResult,
    look_ahead,
    look_once,
)
from viewkeeper.engine.connections.open_sources import Connections
from viewkeeper.engine.group.inbox import Inbox, gone_back_error
from viewkeeper.engine.group.membership import Membership
from viewkeeper.engine.group.order_client import ORDER_MAX, QUEUE_MAX, OrderClient
from viewkeeper.engine.group.source_agreement import SourceAgreement
from viewkeeper.errors import SchemaError, SourceError
from viewkeeper.order.mediator import Mediator, OrderMark, ParentView, RegisteredBase, TakenIds
from viewkeeper.order.registry_protocol import OrderedId
from viewkeeper.updates.source_protocol import Boundary, Source
from viewkeeper.warehouse.metadata.batch_plan import LedgerEntry


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
        self._received: dict[str, Inbox] = {}
        self._unplaced: set[str] = set()
        """Parents that have not come to where we are."""
        self._beats: dict[str, int] = {}
        self._ahead: dict[str, LookResult] = {}
        """What sources have reported in threads and is to be received."""
        self._marked: dict[str, OrderMark] = {}
        """The newest mark of each parent."""

    # -- looking -------------------------------------------------------------------------------

    def look_at_sources(self, seconds: float = PATIENCE_SECONDS) -> dict[str, SourceError]:
        if not self._in_group():
            span = self._membership.span
            return self._local.look_at_sources(seconds) if span and span.alone else {}
        self.sightings.begin_look()
        self._ordering.fetch_order(self._mediator)
        self._forget_sources()
        self._claim_bases()
        # Not parents: what their marks tell of must be looked for after those.
        questions = {name: self._look_question(name) for name, _ in self._followed_bases()}
        self._ahead, found = look_ahead(self._connections, questions, seconds)
        for name in self.tables.watched_sources():
            try:
                self._expect_source(name)
                if name not in found:
                    self._connections.try_action(name, self._observe_source)
            except SourceError as error:
                found[name] = error
        self.tables.note_failed(found)
        self._register_positions()
        self._take_ordered()
        return found

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
        for name, base in self._followed_bases():
            received = self._received[name]
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

    def _observe_source(self, source: Source) -> None:
        """See what is new at one source."""
        name = source.name
        if name not in self._received and name not in self._unplaced:
            self._begin_source(source)
        upstream = self._membership.upstream_of(name)
        if isinstance(upstream, ParentView) and not self._observe_parent(source):
            return
        received = self._received[name]
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
        self.sightings.note_more(more)
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
        after = self._received[name].read
        return lambda source: LookResult(after, *look_once(source, after))

    def _forget_sources(self) -> None:
        """Wait for nothing of sources that have broken, or that no view reads any more."""
        there = self.tables.watched_sources()
        for name in [n for n in self._mediator.sources if n not in there]:
            self._mediator.forget_source(name)
            self._unplaced.discard(name)
            for facts in (self._received, self.sightings.known, self._beats, self._marked):
                facts.pop(name, None)

    def _expect_source(self, name: str) -> None:
        """Let ids wait for a source that views have, also while it is away."""
        if (
            name not in self._mediator.sources
            and (left := self.tables.left_position(name)) is not None
        ):
            self._mediator.follow_source(name, self._membership.upstream_of(name), left)

    def _begin_source(self, source: Source) -> None:
        """Take a source into the order, from where it stands for us."""
        name = source.name
        is_used = self.tables.left_position(name) is not None
        position = self.tables.start_position(source)
        upstream = self._membership.upstream_of(name)
        parent = isinstance(upstream, ParentView)
        self._mediator.follow_source(name, upstream, None if parent and not is_used else position)
        if parent and not is_used:
            self._unplaced.add(name)
            return
        self._received[name] = Inbox(position, position, None if is_used else position)
        if isinstance(upstream, RegisteredBase):
            self._received[name].note_registered(self._mediator.queued_of(upstream.name))

    def _observe_parent(self, source: Source) -> bool:
        """Hear what a parent has committed; whether it has a position for us."""
        name, span = source.name, self._membership.span
        parent = self._connections.get_parent(name)
        assert span is not None
        assert parent is not None
        needed = span.opened if self._mediator.is_held_by(name) else 0
        found = parent.group_marks(span.identity, self._marked.get(name), needed)
        if found is not None:
            self._mediator.note_committed(name, *found)
            for newest in found[0][-1:]:
                self._marked[name] = newest
        position = self._mediator.positions.get(name)
        if position is not None and name not in self._received:
            self._received[name] = Inbox(position, position)
            self._unplaced.discard(name)
        return name in self._received

    def _receive_progress(self, source: Source, base: RegisteredBase) -> None:
        """How far the log has been read; also over what concerns others only."""
        read = self._received[source.name].read
        self._mediator.note_received(source.name, read)
        for position in reversed(self._mediator.queued_of(base.name)):
            if position <= read:
                return
            if source.has_passed(position):
                self._mediator.note_received(source.name, position)
                return

    # -- reporting -----------------------------------------------------------------------------

    def _followed_bases(self) -> Iterator[tuple[str, RegisteredBase]]:
        for name in self._received:
            upstream = self._membership.upstream_of(name)
            if isinstance(upstream, RegisteredBase):
                yield name, upstream

    def _claim_bases(self) -> None:
        """Become the reporter of what nobody reports; follow what other members read of it.

        The position from which that is so gets a number, for those who begin to follow.
        """
        if self._ordering.closed:
            return
        changed = self._ordering.take_changed()
        for name, base in self._followed_bases():
            if name in self._connections.away:
                # Others may see more of it.
                self._ordering.drop_base(base.name)
                continue
            became = self._ordering.claim_base(base.name)
            if self._ordering.is_reporter(base.name) and (became or changed):
                self._beat_base(name)
        if changed:
            for name in self._mediator.sources:
                self._mediator.follow_source(name, self._membership.upstream_of(name))

    def _beat_base(self, name: str) -> None:
        """Follow what all members read of a source, from a position that will have a number."""
        read = self._received[name].read
        try:
            position = self._connections.try_action(
                name, lambda source: self.tables.follow_after(source, read)
            )
        except SourceError:
            # The look that comes says the same, for all views that read it.
            return
        if position is not None:
            self._beats[name] = position

    def _register_positions(self) -> None:
        """Give numbers to what was seen of the sources that we report."""
        new = False
        for name, base in self._followed_bases():
            if self._ordering.is_reporter(base.name):
                seen = [boundary.position for boundary in self._received[name].reports]
                seen += [self._beats[name]] if name in self._beats else []
                done = self._ordering.register_positions(base.name, seen)
                if done is not None:
                    self._beats.pop(name, None)
                new |= bool(done)
        if new:
            self._ordering.fetch_order(self._mediator, now=True)

    def _take_ordered(self) -> None:
        """Take what has its turn."""
        queued = tuple(self._mediator.queued_ids) if self._fresh_sources else ()
        is_young = self._mediator.agrees is not None
        if self._agreeing.is_due or not is_young:
            for taken in self._mediator.take_ids(ORDER_MAX):
                self.sightings.add_entries(self._make_entries(taken))
        more = bool(self._mediator.queued_ids) and self._mediator.next_wait is None
        self.sightings.note_more(more and not is_young)
        self._settle_places([each for each in queued if each.n <= self._mediator.n])
        if self._fresh_sources:
            self._settle_places(self._ordering.passed_ids(self._mediator))
        for name, received in self._received.items():
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
        for name, base in self._followed_bases():
            received = self._received[name]
            if received.began is not None and (last := newest.get(base.name, -1)) >= received.began:
                received.note_registered([last])
                received.settle_place()

    def _make_entries(self, taken: TakenIds) -> list[LedgerEntry]:
        ts, now = self.sightings.next_ts, time.time()
        return [
            self._received[source].take_entry(source, until, ts, taken, now)
            for source, until in sorted(taken.moves.items())
        ]

    def entries_until(self, name: str, position: int) -> tuple[LedgerEntry, ...]:
        assert not self._is_ordered, "algorithms that read arrival order are refused in a group"
        return self._local.entries_until(name, position)

    def take_with_gap(self, name: str) -> tuple[LedgerEntry, ...]:
        return self._local.take_with_gap(name)

    def begin_again(self, name: str) -> None:
        self._local.begin_again(name)

    # -- loading -------------------------------------------------------------------------------

    def extend_capture(self, names: Iterable[str]) -> dict[str, SourceError]:
        if not self._is_ordered:
            return self._local.extend_capture(names)
        known = self.sightings.known
        wanted = {name: self.tables.tables_of(name) for name in names if name in known}
        # While what was captured with too few columns waits for its turn, nothing begins anew.
        again = [n for n, tables in wanted.items() if not self._received[n].has_captured(tables)]
        found = self.tables.extend_capture(again, self._follow_on)
        for name in again:
            if name not in found:
                self._received[name].require_captured(wanted[name])
        return found

    def _follow_on(self, source: Source) -> int:
        """Follow what views read now; what came before that is received."""
        position = self.tables.follow_after(source, self.sightings.known[source.name])
        if source.name in self._received:
            received = self._received[source.name]
            received.add_reports(look_once(source, received.read)[0])
        return position

    def can_load(self, sources: Iterable[str]) -> bool:
        names = list(sources)
        span = self._membership.span
        if span is None or not self._local.can_load(names):
            return False
        if not span.alone:
            if not all(self._received[name].is_ready for name in names):
                return False
            known = {name: self.sightings.known[name] for name in names}
            if not (self._agreeing.is_due and self._agreeing.has_common_state(known)):
                return False
            for name in names:
                self._received[name].drop_requirement()
        return True

    @property
    def _fresh_sources(self) -> list[str]:
        """Sources whose place in the order is not known yet."""
        return [name for name, each in self._received.items() if each.began is not None]

    @property
    def has_pending(self) -> bool:
        span = self._membership.span
        if span is None or self._membership.has_other_group:
            return True
        return not span.alone and bool(
            self._fresh_sources
            or self._agreeing.awaits
            or self._unplaced
            or self._mediator.queued_ids
            or any(each.reports for each in self._received.values())
        )

    @property
    def waiting_reason(self) -> str | None:
        if self._ordering.trouble is not None:
            return str(self._ordering.trouble)
        waits = self._mediator.next_wait
        if waits is not None:
            return f'source "{waits.source}" has not come to {waits.next.id} yet'
        for name in sorted(self._unplaced):
            group = self._membership.span.group if self._membership.span else ""
            at = f"number {self._mediator.n} of group {group}"
            return f'source "{name}" has not come to {at} yet: is it running, with this registry?'
        for name in self._fresh_sources:
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
