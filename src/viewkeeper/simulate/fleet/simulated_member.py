"""A simulated member at work: what a process holds in memory, and the steps that it can make.

It follows its sources and the order of its group, takes ids through the production `Mediator`,
sweeps, commits, reports sources that nobody else reports, and moves on when its group is closed. A
member that is alone in its group makes its own order, from what arrives.

Two rules that the order by itself does not give, and that tests switch off to show what happens:

1. *A reporter first registers where its log stands*, if that is beyond what is registered. Members
   of a new group may stand apart; the first id of each source brings all of them to one position.
2. *A new member loads where the others are*: as of a number at which its parents, through all
   levels of the group, stand at one position of each base, and its bases have an id.

A fleet without an order is Example 1 of Ding, Zhang, Rundensteiner (2000). Deltas carry the ids of
the base updates that caused them. A member takes the id that arrived first as soon as all its
parents have sent theirs, from each parent the state that it had after that id. Parents that took
ids in different orders then show different states of the bases, and nothing tells.

A claim that the registry does not accept any more, or whose answer was lost, is made again.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Protocol

from viewkeeper.order.global_id import GlobalId
from viewkeeper.order.mediator import Mediator, ParentView, RegisteredBase, TakenIds
from viewkeeper.order.registry_protocol import OrderedId, Reporter
from viewkeeper.simulate.fleet.fleet_registry import FleetRegistry, GroupOrder, RegistryLink
from viewkeeper.simulate.fleet.fleet_scenario import Mistake, make_mediator
from viewkeeper.simulate.fleet.member_warehouse import MemberEntry, MemberWarehouse
from viewkeeper.simulate.fleet.signed_log import SignedLog
from viewkeeper.simulate.fleet.sweep_run import ReceivedLogs, SweepRun, begin_run, rows_loaded_at
from viewkeeper.updates.source_protocol import Answer, Lookup


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


class ArrivalQueue:
    """The queue of one member; `behind` are the bases behind each source."""

    def __init__(self, positions: dict[str, int], behind: dict[str, frozenset[str]]) -> None:
        self.positions = positions
        self._behind = behind
        self._arrived: list[GlobalId] = []
        self._at: dict[tuple[str, GlobalId], int] = {}
        """Where a source stood after an id."""
        self.n = 0

    def note_delta(self, source: str, id: GlobalId, position: int) -> None:
        """A delta came from a source; it stood there after it."""
        self._at[source, id] = position
        if id not in self._arrived:
            self._arrived.append(id)

    def take_ids(self, limit: int) -> list[TakenIds]:
        """The ids that have come from everybody, in the order of their arrival."""
        taken: list[TakenIds] = []
        while self.n < len(self._arrived) and len(taken) < limit:
            id = self._arrived[self.n]
            to = {
                s: self._at.get((s, id)) for s, bases in self._behind.items() if id.source in bases
            }
            moves = {s: at for s, at in to.items() if at is not None}
            if len(moves) < len(to):
                break
            self.n += 1
            forward = {s: at for s, at in moves.items() if at > self.positions[s]}
            self.positions.update(forward)
            taken.append(TakenIds(self.n, (id,), forward, self.n))
        return taken


class SimulatedMember:
    """One process, from its start to its end or crash."""

    def __init__(self, world: Surroundings, warehouse: MemberWarehouse) -> None:
        self.warehouse = warehouse
        self._world = world
        self.mediator: Mediator | ArrivalQueue | None = None
        self._run: SweepRun | None = None
        self._reporter = MemberReporter(world, warehouse)
        self._received: dict[str, int] = {}
        self.group: GroupOrder | None = None
        if warehouse.log is not None:
            self._follow_group(world.registry.group_named(warehouse.span.group))

    @property
    def is_idle(self) -> bool:
        return self._run is None

    @property
    def group_parents(self) -> list[str]:
        """The parents in our group."""
        facts = self.group.facts if self.group is not None else {}
        return [parent for parent in self.warehouse.plan.facts.parents if parent in facts]

    @property
    def outside_sources(self) -> list[str]:
        """The bases of our group that we read: databases, and views of other groups."""
        return [
            name
            for name in sorted(self.warehouse.plan.facts.read_names)
            if name not in self.group_parents
        ]

    def _log_of(self, source: str) -> SignedLog | None:
        base = self._world.bases.get(source)
        return base if base is not None else self._world.warehouses[source].log

    def _source_logs(self) -> dict[str, SignedLog]:
        logs = {source: self._log_of(source) for source in self.warehouse.plan.facts.read_names}
        return {source: log for source, log in logs.items() if log is not None}

    def _follow_group(self, group: GroupOrder) -> None:
        """Take part in a group, from what is durable."""
        self.group = group
        self._reporter.forget_claims()
        self._received = dict(self.warehouse.positions)
        if not self._world.ordered:
            behind = {s: self._databases_behind(s) for s in self.warehouse.plan.facts.read_names}
            self.mediator = ArrivalQueue(dict(self.warehouse.positions), behind)
            return
        mediator = make_mediator(
            self._world.mistake, 0 if group.is_alone else self.warehouse.span.n
        )
        for source in self.warehouse.plan.facts.read_names:
            inside = source in self.group_parents
            upstream = ParentView(group.bases_behind(source)) if inside else RegisteredBase(source)
            mediator.follow_source(source, upstream, self.warehouse.positions[source])
        self.mediator = mediator

    def _databases_behind(self, source: str) -> frozenset[str]:
        if source in self._world.bases:
            return frozenset({source})
        reads = self._world.warehouses[source].plan.facts.read_names
        return frozenset().union(*map(self._databases_behind, reads))

    def move_on(self) -> None:
        """Go to the next group, when the order of ours has ended and is taken."""
        group, mediator = self.group, self.mediator
        if mediator is not None and group is not None and not self._world.link.is_down:
            self._world.registry.note_progress(self.warehouse.name, group, self.warehouse.span.n)
        if group is None or mediator is None or not group.closed or not self.is_idle:
            return
        if not group.is_alone and self.warehouse.span.n < group.last_number:
            return
        following = self._world.registry.next_group(self.warehouse.name, group.name)
        if following is not None and self._world.link.can_reach:
            self.warehouse.enter_group(following.name)
            self._follow_group(following)

    def load_when_ready(self) -> None:
        """Join, and load all views, once the parents show states that go together."""
        if self.warehouse.log is not None or not self._world.link.can_reach:
            return
        group = self._world.registry.next_group(self.warehouse.name, None)
        if group is None or len(self._source_logs()) < len(self.warehouse.plan.facts.read_names):
            return
        if group is not self.group:
            self.group = group
            self._reporter.forget_claims()
        n = self._loading_number(group)
        positions = None if n is None else self._positions_at(group, n)
        if n is not None and positions is not None:
            self._load_views(group, n, positions)

    def load_at_start(self) -> None:
        """Load before anything has happened."""
        group = self._world.registry.next_group(self.warehouse.name, None)
        assert group is not None, "it is a member"
        self._load_views(group, 0, dict.fromkeys(self.warehouse.plan.facts.read_names, 0))

    def _load_views(self, group: GroupOrder, n: int, positions: dict[str, int]) -> None:
        logs = self._source_logs()
        rows = {v: rows_loaded_at(p, logs, positions) for v, p in self.warehouse.plans.items()}
        self.warehouse.load_rows(rows, positions, group.name, n)
        self._follow_group(group)

    def _loading_number(self, group: GroupOrder) -> int | None:
        """A number at which all parents in the group have arrived; None if they have not."""
        if group.is_alone:
            return 0
        spans = [
            self._world.warehouses[parent].marks_of(group.name) for parent in self.group_parents
        ]
        if not all(marks for marks, _ in spans):
            return None
        n = min((reached for _, reached in spans), default=group.last_number)
        newest = ([mark for mark in marks if mark.n <= n] for marks, _ in spans)
        return n if all(marks and marks[-1].shown for marks in newest) else None

    def _positions_at(self, group: GroupOrder, n: int) -> dict[str, int] | None:
        """Where our sources stand as of a number; None if parents do not agree about a base."""
        found: dict[str, int] = {}
        stands: dict[str, set[int]] = {}
        for parent in self.group_parents:
            marks, _ = self._world.warehouses[parent].marks_of(group.name)
            found[parent] = [mark for mark in marks if mark.n <= n][-1].position
            collect_positions(self._world.warehouses, group, parent, found[parent], stands)
        for name in self.outside_sources:
            registered = [each.id.position for each in group.order[:n] if each.id.source == name]
            log = self._log_of(name)
            alone = [log.position] if group.is_alone and log is not None else []
            if not (registered or alone):
                return None
            found[name] = min(stands.get(name) or [*registered, *alone][-1:])
        agreed = all(len(at) == 1 for at in stands.values())
        return found if agreed or self._world.mistake is Mistake.LOADS_ANYWHERE else None

    def hear_order(self, limit: int) -> None:
        """Fetch what the registry has ordered."""
        group = self.group
        if (
            isinstance(self.mediator, Mediator)
            and group
            and not group.is_alone
            and self._world.link.can_reach
        ):
            self.mediator.add_ordered(group.ordered_after(self.mediator.last_number, limit))

    def hear_source(self, source: str, limit: int) -> None:
        """Read the log of a base or of a parent, some positions further."""
        log = self._log_of(source)
        if self.mediator is None or log is None:
            return
        ahead = [at for at in log.positions if at > self._received[source]][:limit]
        for position in ahead:
            self._hear_position(source, position)

    def _hear_position(self, source: str, position: int) -> None:
        mediator, group = self.mediator, self.group
        assert mediator is not None, "it follows"
        assert group is not None, "it follows"
        if isinstance(mediator, ArrivalQueue):
            mediator.note_delta(source, self._cause_of(source, position), position)
        elif source in self.group_parents:
            self._hear_marks(mediator, group, source, position)
        else:
            mediator.note_received(source, position)
            if group.is_alone:
                mediator.add_ordered(
                    [OrderedId(mediator.last_number + 1, GlobalId(source, position))]
                )
        self._received[source] = position

    def _hear_marks(self, mediator: Mediator, group: GroupOrder, parent: str, ts: int) -> None:
        marks, reached = self._world.warehouses[parent].marks_of(group.name)
        heard = [mark for mark in marks if mark.position <= ts]
        if heard:
            newest = ts == self._world.warehouses[parent].ts
            mediator.note_committed(parent, heard, reached if newest else heard[-1].n)

    def hear_reached(self) -> None:
        """Parents also say how far they are when nothing concerned them."""
        group = self.group
        if isinstance(self.mediator, Mediator) and group is not None:
            for parent in self.group_parents:
                warehouse = self._world.warehouses[parent]
                if warehouse.log is not None and self._received[parent] >= warehouse.ts:
                    self._hear_marks(self.mediator, group, parent, warehouse.ts)

    def _cause_of(self, source: str, position: int) -> GlobalId:
        """The id of the base update that a delta comes from."""
        if source in self._world.bases:
            return GlobalId(source, position)
        entries = self._world.warehouses[source].entries
        return next(entry.id for entry in entries if entry.ts == position)

    def report_source(self, source: str) -> None:
        """Register what a source has committed, if nobody else does."""
        log = self._log_of(source)
        if self.group is not None and log is not None and not self.group.is_alone:
            self._reporter.report_source(self.group, source, log)

    def continue_work(self, limit: int) -> None:
        """Take what can be taken, or go on with what was."""
        if self.mediator is None:
            return
        if self._run is None:
            taken = self.mediator.take_ids(limit)
            if taken:
                self._begin_run(taken)
            elif self.group is not None and not self.group.is_alone:
                self.warehouse.note_reached(self.mediator.n)
        elif self._run.answer_next(self._answer_lookup):
            self._commit_run(self._run)

    def _begin_run(self, taken: list[TakenIds]) -> None:
        assert self.mediator is not None, "it follows"
        received = ReceivedLogs(self._source_logs(), dict(self._received))
        world = self._world
        n = self.mediator.n
        self._run = begin_run(self.warehouse, taken, n, received, world.rng, world.ordered)
        if all(work.ended for work in self._run.works):
            self._commit_run(self._run)

    def _answer_lookup(self, lookup: Lookup, end: int) -> Answer:
        source = lookup.relation.source
        log = self._log_of(source)
        assert log is not None, "it is followed"
        if source in self._world.bases:
            return log.answer_lookup(lookup, log.position, end)
        if self._world.mistake is Mistake.READS_NEWEST:
            return log.answer_lookup(lookup, log.position, log.position)
        return log.answer_lookup(lookup, end, end)

    def _commit_run(self, run: SweepRun) -> None:
        entries: list[MemberEntry] = run.entries
        alone = self.group is not None and self.group.is_alone
        self.warehouse.commit_entries(entries, run.rows_by_ts(), 0 if alone else run.n)
        self._run = None


def collect_positions(
    warehouses: Mapping[str, MemberWarehouse],
    group: GroupOrder,
    member: str,
    ts: int,
    into: dict[str, set[int]],
) -> None:
    """Add the positions of bases that a member shows at a ts, through all levels of the group."""
    for name, position in warehouses[member].positions_at(ts).items():
        if name in group.facts:
            collect_positions(warehouses, group, name, position, into)
        else:
            into.setdefault(name, set()).add(position)
