"""Talking to the registry: what it has ordered, what is reported to it, and when it is away.

While the registry does not answer, everything that it ordered already can still be taken; it is
asked again after a second. Whatever else it says - that it is another registry, or an older copy -
ends the run, because going on would give one group two orders.

Whoever reads a source tries to become its reporter, now and then; the one who is registers the
positions of what it sees, and nobody else does. It follows every table that some member reads, so
that no member's changes wait for those of another one to be registered. A reporter that dies is
replaced when its lease has ended; the next one goes on behind the last position that is registered.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from viewkeeper.engine.group.membership import Membership
from viewkeeper.errors import (
    ClosedGroupError,
    OrderError,
    RegistryAwayError,
    StaleReporterError,
    ViewkeeperError,
)
from viewkeeper.order.global_id import GlobalId
from viewkeeper.order.mediator import Mediator, OrderWait
from viewkeeper.order.registry_protocol import OrderedId, Registry, Reporter

LEASE_SECONDS = 10.0
RENEW_SECONDS = 3.0
IDS_MAX = 5_000


@dataclass(frozen=True, slots=True)
class HeldClaim:
    """A claim, and the last position that is registered."""

    reporter: Reporter
    position: int


class ReporterClaims:
    """The claims of one member in one group."""

    def __init__(self, registry: Registry, group: str, member: str) -> None:
        self._registry = registry
        self._group = group
        self._member = member
        self._held: dict[str, HeldClaim] = {}
        self._tried: dict[str, float] = {}

    def is_reporting(self, base: str) -> bool:
        return base in self._held

    def claim_lease(self, base: str) -> bool:
        """Become or stay the reporter of a base, where that is due; whether it became so now."""
        now = time.monotonic()
        if now - self._tried.get(base, -RENEW_SECONDS) < RENEW_SECONDS:
            return False
        self._tried[base] = now
        before = self._held.get(base)
        found = self._registry.claim_source(self._group, base, self._member, LEASE_SECONDS)
        if found is None:
            self._held.pop(base, None)
            return False
        position = found.position if found.position is not None else -1
        self._held[base] = HeldClaim(found, position)
        return before is None

    def register_new(self, base: str, positions: Iterable[int]) -> bool:
        """Register what lies beyond the last registered position; whether there was anything."""
        held = self._held.get(base)
        if held is None:
            return False
        new = sorted({position for position in positions if position > held.position})
        for start in range(0, len(new), IDS_MAX):
            some = new[start : start + IDS_MAX]
            ids = [GlobalId(base, position) for position in some]
            try:
                self._registry.register_ids(self._group, ids, held.reporter)
            except (StaleReporterError, ClosedGroupError):
                del self._held[base]
                return False
            held = self._held[base] = replace(held, position=some[-1])
        return bool(new)

    def drop_claim(self, base: str) -> None:
        """Report a base no more, for now."""
        held = self._held.pop(base, None)
        if held is not None:
            self._registry.release_claim(held.reporter)

    def release_claims(self) -> None:
        """Let others report at once; where the registry is away they wait for the leases' end."""
        for base in tuple(self._held):
            try:
                self.drop_claim(base)
            except RegistryAwayError:
                return


ORDER_MAX = 10_000
QUEUE_MAX = 100_000
"""As much is kept of what is not taken yet; the rest stays with the sources and the registry."""
ORDER_SECONDS = 0.04
RETRY_SECONDS = 1.0
REREAD_SECONDS = 5.0
PATIENCE_SECONDS = 1.0
"""For how long one question is tried again: meanwhile nothing else is done."""

T = TypeVar("T")


class OrderClient:
    """The registry as one member sees it."""

    def __init__(
        self, membership: Membership, registry: Registry, told: Callable[[ViewkeeperError], None]
    ) -> None:
        self._membership = membership
        self._registry = registry
        self._told = told
        self._retry_at = 0.0
        self.trouble: RegistryAwayError | None = None
        """Why the registry does not answer."""
        self.begin_group()

    def begin_group(self) -> None:
        """Take part in the group of the newest span."""
        self._fetched = self._looked = 0.0
        self._waits: tuple[OrderWait | None, float] = None, 0.0
        self.closed = False
        """Whether the group's order has ended, and all of it was heard."""
        self._changed = True
        span = self._membership.span
        group = span.group if span else ""
        self._reporting = ReporterClaims(self._registry, group, self._membership.member)

    def follow_assignment(self, now: bool, awaits: Mapping[str, int]) -> None:
        """Keep up with the assignment; `awaits` are positions that must get a number."""
        found = self._ask_registry(partial(self._membership.join_group, now, awaits))
        if found is not None and found.asked:
            self.trouble = None
        self._changed |= found is not None and found.changed

    def take_changed(self) -> bool:
        """Whether other members may read something else than when this was last asked."""
        changed, self._changed = self._changed, False
        return changed

    def fetch_order(self, mediator: Mediator, now: bool = False) -> None:
        """Hear what is ordered, unless that was just done."""
        span = self._membership.span
        assert span is not None
        if not now and time.monotonic() - self._fetched < ORDER_SECONDS:
            return
        self._fetched = time.monotonic()
        self._read_again(mediator, span.group)
        while not self.closed and len(mediator.queued_ids) < QUEUE_MAX:
            try:
                found = self._ask_registry(
                    partial(self._registry.fetch_order, span.group, mediator.last_number, ORDER_MAX)
                )
            except ClosedGroupError:
                self.closed = True
                return
            if found is not None:
                self.trouble = None
            mediator.add_ordered(found or ())
            if found is None or len(found) < ORDER_MAX:
                return

    def _read_again(self, mediator: Mediator, group: str) -> None:
        """Hear again of ids that are waited for: an administrator may have taken one back."""
        wait, now = mediator.next_wait, time.monotonic()
        if wait is None or wait != self._waits[0]:
            self._waits = wait, now
        elif now - self._waits[1] >= REREAD_SECONDS:
            self._waits = wait, now
            found = self._ask_registry(
                partial(self._registry.fetch_order, group, mediator.n, ORDER_MAX)
            )
            mediator.correct_ordered(found or ())

    def claim_base(self, base: str) -> bool:
        """Become or stay the reporter of a base; whether it became so now."""
        try:
            return bool(self._ask_registry(partial(self._reporting.claim_lease, base)))
        except (ClosedGroupError, OrderError):
            # The registry has not heard yet that we read it.
            return False

    def is_reporter(self, base: str) -> bool:
        return self._reporting.is_reporting(base)

    def register_positions(self, base: str, positions: Sequence[int]) -> bool | None:
        """Give numbers to positions; whether some were new, None if that is not known."""
        return self._ask_registry(partial(self._reporting.register_new, base, positions))

    def passed_ids(self, mediator: Mediator) -> list[OrderedId]:
        """The last ids of bases that were passed before this run, as if they were passed now.

        Nothing if that was just asked.
        """
        if time.monotonic() - self._looked < RETRY_SECONDS:
            return []
        self._looked = time.monotonic()
        found, span = self._ask_registry(self._registry.fetch_status), self._membership.span
        mine = [g for g in found.groups if span and g.identity == span.identity] if found else []
        # What is registered by now is queued by now, unless it was passed long ago.
        self.fetch_order(mediator, now=True)
        if self.trouble is not None or len(mediator.queued_ids) >= QUEUE_MAX:
            return []
        waiting = {each.id for each in mediator.queued_ids}
        reports = [each for group in mine for each in group.reports if each.position is not None]
        last = [GlobalId(each.source, each.position or 0) for each in reports]
        return [OrderedId(mediator.n, each) for each in last if each not in waiting]

    def drop_base(self, base: str) -> None:
        """Let somebody else report a base."""
        self._ask_registry(partial(self._reporting.drop_claim, base))

    def report_committed(self, n: int) -> None:
        """How far this member has committed."""
        self._ask_registry(partial(self._membership.report_reached, n))

    def close(self) -> None:
        self._reporting.release_claims()
        self._registry.close()

    def _ask_registry(self, call: Callable[[], T]) -> T | None:
        """What the registry answers; None while it is away."""
        if time.monotonic() < self._retry_at:
            return None
        try:
            answer = call()
        except RegistryAwayError as error:
            if self.trouble is None:
                self._told(error)
            self.trouble = error
            self._retry_at = time.monotonic() + RETRY_SECONDS
            return None
        return answer
