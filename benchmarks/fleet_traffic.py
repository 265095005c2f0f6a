"""Messages and delays of large fleets, counted as they are sent, in simulated time.

One warehouse for each view of a graph, and no rows: what is run is the partition, the registry's
rule of admission and the mediator of every view, as in production. Bases send ids to registries
and deltas to views, registries send ids in order, views ask their other parents, commit, and pass
on; what does not concern a view it passes as empty. The sums are those of the cost model
(`viewkeeper.partition.message_cost`), which knows nothing of any of this.

Every message takes one unit of time; a view works on one id at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import count

from viewkeeper.order.admission import Admission, admit_positions
from viewkeeper.order.global_id import GlobalId
from viewkeeper.order.mediator import Mediator, OrderMark, ParentView, RegisteredBase, TakenIds
from viewkeeper.order.registry_protocol import OrderedId
from viewkeeper.partition.message_cost import MessageCounts
from viewkeeper.partition.pyco import Partition
from viewkeeper.partition.view_graph import ViewGraph, group_bases
from viewkeeper.simulate.fleet.simulated_member import ArrivalQueue

TRANSMISSION = 1.0
Update = GlobalId
"""A transaction of a base, and so what everything that follows from it is called."""


@dataclass(slots=True)
class Orderer:
    """The registry of one group."""

    views: tuple[str, ...]
    numbers: dict[str, dict[int, int]] = field(default_factory=dict)
    last: int = 0

    def order_id(self, id: GlobalId) -> OrderedId:
        numbers = self.numbers.setdefault(id.source, {})
        found = admit_positions([id.position], numbers, max(numbers, default=None), self.last)
        assert isinstance(found, Admission), "positions come in order"
        self.last += 1
        numbers.clear()
        numbers[id.position] = self.last
        return OrderedId(self.last, id)


@dataclass(slots=True)
class Site:
    """The warehouse of one view."""

    name: str
    parents: tuple[str, ...]
    queue: Mediator | ArrivalQueue
    inside: list[str] = field(default_factory=list)
    """Children in the same group, where that has a registry."""
    outside: list[str] = field(default_factory=list)
    registries: list[Orderer] = field(default_factory=list)
    """Those of the groups that this view is a virtual base of."""
    ts: int = 0
    busy: bool = False


class Traffic:
    """One fleet at work; `groups` are the sets of views that have a registry."""

    def __init__(self, graph: ViewGraph, groups: Iterable[Sequence[str]], change: float) -> None:
        """`change` is the time of one view change."""
        self._graph = graph
        self._change = change
        self.sent: Counter[str] = Counter()
        self.delays: list[float] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._now = 0.0
        self._began: dict[Update, float] = {}
        self._causes: dict[GlobalId, Update] = {}
        """The update that an id comes from; ids of views are their name and ts."""
        self._orderers: dict[str, list[Orderer]] = {}
        self._sites: dict[str, Site] = {}
        self._group: dict[str, int] = {}
        self._build_sites([tuple(views) for views in groups])

    # -- building ----------------------------------------------------------------------------------

    def _build_sites(self, groups: list[tuple[str, ...]]) -> None:
        for number, views in enumerate(groups):
            orderer = Orderer(views)
            self._group |= dict.fromkeys(views, number)
            for base in group_bases(self._graph, views):
                self._orderers.setdefault(base, []).append(orderer)
        behind: dict[str, frozenset[str]] = {}
        for view in self._graph.views:
            behind[view] = frozenset(
                name
                for parent in self._graph.parents[view]
                for name in (behind[parent] if self._share_group(parent, view) else (parent,))
            )
            self._sites[view] = self._make_site(view, behind)
        for view, parents in self._graph.parents.items():
            for parent in parents:
                if parent in self._sites:
                    site, together = self._sites[parent], self._share_group(parent, view)
                    (site.inside if together else site.outside).append(view)
        self._children: dict[str, list[str]] = {base: [] for base in self._graph.bases}
        for view, parents in self._graph.parents.items():
            for parent in parents:
                if parent in self._children:
                    self._children[parent].append(view)

    def _share_group(self, one: str, other: str) -> bool:
        return one in self._group and self._group[one] == self._group.get(other)

    def _make_site(self, view: str, behind: Mapping[str, frozenset[str]]) -> Site:
        parents = self._graph.parents[view]
        if view not in self._group:
            bases = {parent: frozenset(self._graph.bases_of(parent)) for parent in parents}
            queue: Mediator | ArrivalQueue = ArrivalQueue(dict.fromkeys(parents, 0), bases)
        else:
            queue = Mediator()
            for parent in parents:
                inside = self._share_group(parent, view)
                upstream = ParentView(behind[parent]) if inside else RegisteredBase(parent)
                queue.follow_source(parent, upstream, 0)
        return Site(view, parents, queue, registries=self._orderers.get(view, []))

    # -- running -----------------------------------------------------------------------------------

    def run_updates(self, updates: Sequence[tuple[float, str]]) -> None:
        """Commit updates at these times and bases, and go on until nothing is under way."""
        positions: Counter[str] = Counter()
        for when, base in updates:
            positions[base] += 1
            id = GlobalId(base, positions[base])
            self._schedule_at(when, partial(self._commit_base, id))
        while self._events:
            self._now, _, happen = heappop(self._events)
            happen()
        assert not any(site.busy for site in self._sites.values())

    @property
    def message_sums(self) -> MessageCounts:
        kinds = ("registered", "ordered", "deltas", "asked", "empty")
        return MessageCounts(*(self.sent[kind] for kind in kinds))

    def _schedule_at(self, when: float, happen: Callable[[], None]) -> None:
        heappush(self._events, (when, next(self._numbers), happen))

    def _send_copies(self, kind: str, copies: int, happen: Callable[[], None]) -> None:
        """Messages that are sent now and arrive together."""
        if copies:
            self.sent[kind] += copies
            self._schedule_at(self._now + TRANSMISSION, happen)

    def _commit_base(self, id: GlobalId) -> None:
        self._began[id] = self._now
        self._causes[id] = id
        self._register_id(id, self._orderers.get(id.source, []))
        children = self._children[id.source]
        self._send_copies("deltas", len(children), lambda: self._deliver_delta(id, children))

    def _register_id(self, id: GlobalId, orderers: list[Orderer]) -> None:
        for orderer in orderers:
            self._send_copies("registered", 1, partial(self._order_id, orderer, id))

    def _order_id(self, orderer: Orderer, id: GlobalId) -> None:
        each = orderer.order_id(id)
        self._send_copies(
            "ordered", len(orderer.views), lambda: self._hear_order(orderer.views, each)
        )

    def _hear_order(self, views: tuple[str, ...], each: OrderedId) -> None:
        for view in views:
            site = self._sites[view]
            assert isinstance(site.queue, Mediator), "it is in the group"
            site.queue.add_ordered((each,))
            self._take_next(site)

    def _deliver_delta(self, id: GlobalId, views: list[str]) -> None:
        """The delta of a base, or of a view of another group, comes in."""
        for view in views:
            site = self._sites[view]
            if isinstance(site.queue, ArrivalQueue):
                site.queue.note_delta(id.source, self._causes[id], id.position)
            else:
                site.queue.note_received(id.source, id.position)
            self._take_next(site)

    def _pass_on(self, parent: str, views: list[str], marks: tuple[OrderMark, ...], n: int) -> None:
        """The delta of a view of our group comes in, or an empty one."""
        for view in views:
            site = self._sites[view]
            assert isinstance(site.queue, Mediator), "it is in the group"
            site.queue.note_committed(parent, marks, n)
            self._take_next(site)

    # -- a view ------------------------------------------------------------------------------------

    def _take_next(self, site: Site) -> None:
        """Take the next id, if it can be taken; what concerns nothing here is passed on."""
        if site.busy:
            return
        before = site.queue.n
        taken = site.queue.take_ids(1)
        passed = site.queue.n - before - sum(len(each.ids) for each in taken)
        if passed and site.inside:
            n = taken[0].n - 1 if taken else site.queue.n
            children = site.inside
            self._send_copies(
                "empty", passed * len(children), lambda: self._pass_on(site.name, children, (), n)
            )
        for each in taken:
            site.busy = True
            self._count_asks(site, each)
            self._schedule_at(self._now + self._change, partial(self._commit_taken, site, each))

    def _count_asks(self, site: Site, taken: TakenIds) -> None:
        """Every delta asks all other parents; the answers' time is part of the view change."""
        base = self._causes[taken.ids[-1]].source
        bit = self._graph.numbers[base]
        bits = (self._graph.base_bits[self._graph.numbers[p]] for p in site.parents)
        deltas = sum(each >> bit & 1 for each in bits)
        self.sent["asked"] += 2 * (len(site.parents) - 1) * deltas

    def _commit_taken(self, site: Site, taken: TakenIds) -> None:
        site.busy = False
        site.ts += 1
        cause = self._causes[taken.ids[-1]]
        self.delays.append(self._now - self._began[cause])
        id = GlobalId(site.name, site.ts)
        self._causes[id] = cause
        mark, inside, outside = (OrderMark(taken.n, site.ts),), site.inside, site.outside
        self._send_copies(
            "deltas", len(inside), lambda: self._pass_on(site.name, inside, mark, taken.n)
        )
        self._send_copies("deltas", len(outside), lambda: self._deliver_delta(id, outside))
        self._register_id(id, site.registries)
        self._take_next(site)


def ryco_traffic(graph: ViewGraph, change: float = 0.0) -> Traffic:
    """One registry for all views."""
    return Traffic(graph, [graph.views], change)


def pyco_traffic(found: Partition, change: float = 0.0) -> Traffic:
    """A registry for each group that needs one."""
    groups = [group.views for group in found.groups if group.needs_registry]
    return Traffic(found.graph, groups, change)


def uncoordinated_traffic(graph: ViewGraph, change: float = 0.0) -> Traffic:
    """No registry at all."""
    return Traffic(graph, [], change)
