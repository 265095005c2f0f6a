"""Reporting sources to a group: at most one member reports each of them, under a lease.

Whoever reads a source tries to become its reporter, now and then; the one who is registers the
positions of what it sees, and nobody else does. It follows every table that some member reads, so
that no member's changes wait for those of another one to be registered. A reporter that dies is
replaced when its lease has ended; the next one goes on behind the last position that is registered.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

from viewkeeper.errors import ClosedGroupError, RegistryAwayError, StaleReporterError
from viewkeeper.order.global_id import GlobalId
from viewkeeper.order.registry_protocol import Registry, Reporter

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
