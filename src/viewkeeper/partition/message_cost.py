"""What coordination costs in messages: with one registry, with groups, with none.

Ding, Zhang, Rundensteiner, Scalable Maintenance in Distributed Data Warehousing Environment (2000),
section 5. RyCo is one registry for all bases and views, PyCo one for each group, *uncoordinated* is
neither, for comparison.

Symbols: m bases, n views, K updates in all, k_i at base i (all k: even updates). `registered` is
M_r, `ordered` is M_v, `deltas` is M_d, `asked` is M_q. A group has m_i real bases, n_i views, and
f_i updates that reach it through virtual bases.

Not as printed:

1. The formulas give every group a registry. One view alone needs none, and then costs no message:
   `singles` says which is counted.
2. M_d is not the same in RyCo and PyCo: a view passes ids that do not concern it as empty deltas,
   in RyCo all of them, in PyCo those of its own group. They are counted apart, as `empty`.
3. The level of a group (Definition 12) is 0 if it reads no view of another group, else one above
   the highest that it reads. The paper counts all external bases; but a real one
   sends its ids to every group that reads it, and nobody delays them: only virtual ones count.
4. Groups can read each other in a circle, which the paper holds impossible and for which it has no
   level: such a knot counts as one group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from viewkeeper.partition.pyco import Partition
from viewkeeper.partition.view_graph import ViewGraph, bits_of, find_knots


def group_levels(found: Partition) -> dict[str, int]:
    """The level of every group, by the group's name."""
    reads = {
        group.name: tuple(dict.fromkeys(found.group_of(view).name for view in group.virtual))
        for group in found.groups
    }
    levels: dict[str, int] = {}
    for knot in find_knots(reads):
        outside = [levels[read] for name in knot for read in reads[name] if read not in knot]
        level = 1 + max(outside, default=0) if any(reads[name] for name in knot) else 0
        levels |= dict.fromkeys(knot, level)
    return levels


Updates = Mapping[str, int]
"""How many updates each base has (k_i); a base that is missing has none."""


@dataclass(frozen=True, slots=True)
class MessageCounts:
    """How many messages updates cause, by their kind."""

    registered: float
    """Ids from bases, real and virtual, to registries (M_r)."""
    ordered: float
    """Ids in order, from registries to views (M_v)."""
    deltas: float
    """Deltas from bases and views to those that read them (M_d), without the empty ones."""
    asked: float
    """Questions and answers between views and their parents (M_q), by sweeps."""
    empty: float
    """Empty deltas: ids that concern the order and not the view."""

    @property
    def coordination(self) -> float:
        """What the registries cause: all but the maintenance itself."""
        return self.registered + self.ordered + self.empty

    @property
    def total(self) -> float:
        """M, and the empty deltas."""
        return self.coordination + self.deltas + self.asked

    def per_update(self, updates: int) -> MessageCounts:
        """The mean over so many updates."""
        kinds = (self.registered, self.ordered, self.deltas, self.asked, self.empty)
        return MessageCounts(*(kind / updates for kind in kinds))


def even_updates(graph: ViewGraph, each: int = 1) -> dict[str, int]:
    """The same number of updates at every base."""
    return dict.fromkeys(graph.bases, each)


def uncoordinated_messages(graph: ViewGraph, updates: Updates) -> MessageCounts:
    """Maintenance alone."""
    weigh = _update_weights(graph, updates)
    read = {view: sum(map(weigh, parents)) for view, parents in graph.parents.items()}
    # A sweep asks every other parent once for each delta: a question and an answer.
    asked = sum(2 * (len(graph.parents[view]) - 1) * weight for view, weight in read.items())
    return MessageCounts(0, 0, sum(read.values()), asked, 0)


def ryco_messages(graph: ViewGraph, updates: Updates) -> MessageCounts:
    """One registry: every id is sent to every view, and every view passes every id on."""
    weigh = _update_weights(graph, updates)
    count = sum(updates.values())
    empty = sum(
        count - weigh(parent)
        for parents in graph.parents.values()
        for parent in parents
        if parent in graph.parents
    )
    plain = uncoordinated_messages(graph, updates)
    return MessageCounts(count, count * len(graph.views), plain.deltas, plain.asked, empty)


def pyco_messages(found: Partition, updates: Updates, singles: bool = False) -> MessageCounts:
    """A registry for each group; with `singles` for those of one view too, as printed."""
    graph = found.graph
    weigh = _update_weights(graph, updates)
    registered = ordered = empty = 0
    for group in found.groups:
        if not (singles or group.needs_registry):
            continue
        ids = sum(map(weigh, group.bases))
        registered += ids
        ordered += ids * len(group.views)
        inside = frozenset(group.views)
        for view in group.views:
            empty += sum(ids - weigh(p) for p in graph.parents[view] if p in inside)
    plain = uncoordinated_messages(graph, updates)
    return MessageCounts(registered, ordered, plain.deltas, plain.asked, empty)


def _update_weights(graph: ViewGraph, updates: Updates) -> Callable[[str], int]:
    """How many updates concern a name: those of the bases behind it."""
    counts = [updates.get(base, 0) for base in graph.bases]
    known: dict[int, int] = {}

    def weigh(name: str) -> int:
        bits = graph.base_bits[graph.numbers[name]]
        if bits not in known:
            known[bits] = sum(counts[bit] for bit in bits_of(bits))
        return known[bits]

    return weigh
