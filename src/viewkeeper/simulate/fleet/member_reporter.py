"""The sources that a simulated member reports to the registry, under leases.

A reporter first registers where its log stands, if that is beyond what is registered. A claim that
the registry does not accept any more, or whose answer was lost, is made again.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Protocol

from viewkeeper.order.registry_protocol import Reporter
from viewkeeper.simulate.fleet.fleet_registry import FleetRegistry, GroupOrder, RegistryLink
from viewkeeper.simulate.fleet.member_warehouse import MemberWarehouse
from viewkeeper.simulate.fleet.mistakes import Mistake
from viewkeeper.simulate.fleet.signed_log import SignedLog


class Surroundings(Protocol):
    """What a member sees of the world."""

    registry: FleetRegistry
    bases: Mapping[str, SignedLog]
    warehouses: Mapping[str, MemberWarehouse]
    rng: random.Random
    link: RegistryLink
    mistake: Mistake | None
    ordered: bool


class MemberReporter:
    """The claims of one member."""

    def __init__(self, world: Surroundings, warehouse: MemberWarehouse) -> None:
        self._world = world
        self._warehouse = warehouse
        self._claims: dict[str, Reporter] = {}

    def forget_claims(self) -> None:
        """Another group begins."""
        self._claims = {}

    def report_source(self, group: GroupOrder, source: str, log: SignedLog) -> None:
        """Register what a source has committed, if nobody else does."""
        if not self._world.link.can_reach or not self._world.ordered:
            return
        reporter = self._claim_reporter(group, source)
        if reporter is None:
            return
        positions = self._unregistered_positions(
            source, log, max(group.numbers.get(source, {}), default=None)
        )
        if positions:
            accepted = self._world.registry.register_positions(group, positions, reporter)
            if not accepted or not self._world.link.can_reach:
                # Stale, or the answer was lost: claimed again, and sent again.
                del self._claims[source]

    def _claim_reporter(self, group: GroupOrder, source: str) -> Reporter | None:
        """Our claim on a source, renewed; None while it is another member's."""
        registry, clock = self._world.registry, self._world.link.clock
        found = self._claims.get(source)
        if found is not None:
            registry.renew_claim(group, found, clock)
            return found
        found = registry.claim_source(group, source, self._warehouse.name, clock)
        if found is not None:
            self._claims[source] = found
        return found

    def _unregistered_positions(
        self, source: str, log: SignedLog, registered: int | None
    ) -> list[int]:
        """The positions to register: some of those that are new, the last always."""
        mistake = self._world.mistake
        stands = self._warehouse.positions.get(source, log.position)
        after = stands if registered is None else registered
        new = [position for position in log.positions if position > after]
        if registered is None and not new and mistake is not Mistake.NO_FIRST_REPORT:
            new = [log.position]
        early = mistake is Mistake.REGISTERS_EARLY and source not in self._world.bases
        if early and after <= log.position:
            new = [*new, log.position + 1]
        return [at for at in new if at == new[-1] or self._world.rng.random() < 0.7]
