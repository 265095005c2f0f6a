"""A fleet in a seeded world: bases, a registry and members, one step at a time.

Nothing happens by itself. A base commits, somebody reads a log, fetches the order, reports, takes,
gets an answer, commits, crashes: each is a step. Messages of one link stay in order, since each is
a log that is read from where the reader stands; how far anybody has read is up to chance.

Members that meet in a new group come from different ones, or were alone, and may stand at different
positions of one base; nobody waits for them. Once every base of the group has an id at or beyond
where any of them began, all stand where that id says, and from then on they agree for ever. Before
that, view consistency is not promised. A group whose members began together has it from the start.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from viewkeeper.check.fleet.fleet_history import BaseHistory, BaseState, FleetHistory
from viewkeeper.check.recomputation import sum_counts
from viewkeeper.order.mediator import Mediator
from viewkeeper.simulate.fleet.fleet_registry import FleetRegistry, GroupOrder, RegistryLink
from viewkeeper.simulate.fleet.fleet_scenario import COLUMNS, BaseUpdate, FleetScenario, Mistake
from viewkeeper.simulate.fleet.member_warehouse import MemberWarehouse
from viewkeeper.simulate.fleet.signed_log import SignedLog
from viewkeeper.simulate.fleet.simulated_member import SimulatedMember


def agreement_start(group: GroupOrder, warehouses: Mapping[str, MemberWarehouse]) -> int:
    """The number; beyond the end of the order if it has not come to that."""
    begun = {
        name: span
        for name in group.facts
        for span in warehouses[name].spans
        if span.group == group.name
    }
    starts: dict[str, set[int]] = {base: set() for base in group.outside_bases}
    together = True
    for name, span in begun.items():
        for source, position in warehouses[name].positions_at(span.since).items():
            if source in starts:
                starts[source].add(position)
            else:
                together &= source in begun and begun[source].since == position
    if together and all(len(positions) <= 1 for positions in starts.values()):
        return 0
    waiting = {base: max(positions) for base, positions in starts.items() if positions}
    for each in group.order:
        if each.id.position >= waiting.get(each.id.source, each.id.position + 1):
            del waiting[each.id.source]
        if not waiting:
            return each.n
    return group.last_number + 1


class FleetWorld:
    """A scenario at work; `ordered` is False where members apply what arrives."""

    def __init__(
        self,
        scenario: FleetScenario,
        rng: random.Random,
        mistake: Mistake | None = None,
        ordered: bool = True,
    ) -> None:
        self.scenario = scenario
        self.rng = rng
        self.mistake = mistake
        self.ordered = ordered
        self.registry = FleetRegistry()
        self.bases: Mapping[str, SignedLog] = {
            name: SignedLog(tables) for name, tables in scenario.tables.items()
        }
        self.warehouses: Mapping[str, MemberWarehouse] = {
            plan.name: MemberWarehouse(plan) for plan in scenario.members
        }
        self.members: dict[str, SimulatedMember] = {}
        """Those that run."""
        self.left: set[str] = set()
        self.link = RegistryLink(rng)
        self.committed = 0
        self.crashes = 0
        first = {p.name: p.facts for p in scenario.members if not ordered or p.joins == 0}
        self.registry.change_members(first)
        for name in first:
            self.start_member(name)
            self.members[name].load_at_start()

    def commit_update(self) -> None:
        """The next update of the scenario."""
        update: BaseUpdate = self.scenario.updates[self.committed]
        log = self.bases[update.base]
        changes = {table: sum_counts(rows) for table, rows in update.changes.items()}
        log.commit_changes(log.position + 1, changes)
        self.committed += 1
        self.update_membership()

    def update_membership(self) -> None:
        """Members whose time has come join, or leave."""
        for plan in self.scenario.members:
            known = plan.name in self.registry.facts
            if not self.ordered or plan.name in self.left:
                continue
            if not known and plan.joins <= self.committed:
                self.registry.change_members({plan.name: plan.facts})
                self.start_member(plan.name)
            elif known and plan.leaves is not None and plan.leaves <= self.committed:
                self.registry.change_members({}, [plan.name])
                self.left.add(plan.name)
                self.members.pop(plan.name, None)

    def start_member(self, name: str) -> None:
        """Start a member, from what is on its disk."""
        self.members[name] = SimulatedMember(self, self.warehouses[name])

    def crash_member(self, name: str) -> None:
        """A member loses all that it has not committed."""
        del self.members[name]
        self.crashes += 1

    @property
    def stopped_members(self) -> list[str]:
        """Members that should run and do not."""
        return [name for name in self.registry.facts if name not in self.members]

    @property
    def fingerprint(self) -> tuple[object, ...]:
        """What changes when anything lasting has happened."""
        groups = self.registry.groups
        orders = tuple(
            (group.name, group.last_number, group.closed, group.trimmed) for group in groups
        )
        spans = tuple(
            (name, w.ts, len(w.spans), w.span.n if w.spans else -1)
            for name, w in self.warehouses.items()
        )
        return orders, spans

    def describe_waits(self) -> list[str]:
        """Who waits for whom, in words."""
        said = []
        for name, member in self.members.items():
            if member.mediator is None:
                said.append(f"{name} is not loaded")
            elif isinstance(member.mediator, Mediator) and member.mediator.next_wait is not None:
                wait = member.mediator.next_wait
                said.append(f"{name} waits for {wait.source} to take {wait.next.id}")
        return said

    def fleet_history(self) -> FleetHistory:
        """The run as the checker sees it."""
        bases = []
        for name, log in self.bases.items():
            columns = dict.fromkeys(self.scenario.tables[name], COLUMNS)
            states = (
                BaseState(p, log.tables_at(p), f"{name}@{p}" if p else "") for p in log.positions
            )
            bases.append(BaseHistory(name, columns, tuple(states)))
        began = {
            group.name: agreement_start(group, self.warehouses) if self.ordered else 0
            for group in (*self.registry.removed, *self.registry.groups)
        }
        shown = [w.member_history(began) for w in self.warehouses.values() if w.log is not None]
        return FleetHistory(tuple(bases), tuple(shown))
