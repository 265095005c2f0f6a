"""Atomic groups: the finest partition of a view graph in which every group is valid.

Ding, Zhang, Rundensteiner, Scalable Maintenance in Distributed Data Warehousing Environment (2000),
section 4: check and merge (figure 12), by Definitions 7, 8 and 10. `docs/registry-partition.md`
says where the printed algorithm differs from the definitions, and proves what follows.

Every view begins as a group of its own. Two bases of one group that have a common ancestor make it
invalid, and of such a pair *whichever is not an ancestor of the other must join the group*: any
valid group that contains this one contains it. So every merge is forced, their order does not
matter, and when none is left the groups are valid, hence the finest.

What must hold between two merges:

1. the noted bases of a group are pairwise independent: `covered` has a bit for every base behind
   them, `owner` says for each such bit which noted base it is behind;
2. a base of the group that is not noted waits to join it;
3. two groups are merged by moving the smaller one, so a view moves at most log2(n) times.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from viewkeeper.errors import ProjectError
from viewkeeper.partition.view_graph import ViewGraph, bits_of


@dataclass(frozen=True, slots=True)
class Dependent:
    """`child` is with its parent, because that and another base of the group derive from `base`.

    The other base is a parent of `other_child`, which is the child itself or together with it.
    """

    child: str
    parent: str
    other_child: str
    other: str
    base: str

    @property
    def ends(self) -> tuple[str, str]:
        return self.child, self.parent


@dataclass(frozen=True, slots=True)
class WantedTogether:
    """Two views are together because the project says so."""

    one: str
    other: str

    @property
    def ends(self) -> tuple[str, str]:
        return self.one, self.other


Reason = Dependent | WantedTogether


@dataclass(frozen=True, slots=True)
class AtomicGroups:
    """The views of each group, and the reasons that joined them: a spanning forest over views."""

    groups: tuple[tuple[str, ...], ...]
    reasons: tuple[Reason, ...]


def atomic_groups(graph: ViewGraph, together: Iterable[Collection[str]] = ()) -> AtomicGroups:
    """The finest valid partition that keeps these sets of views together."""
    merging = _Merging(graph)
    for chosen in together:
        merging.want_together(chosen)
    merging.merge_waiting()
    order = graph.numbers.__getitem__
    groups = (
        sorted(map(merging.node_name, group.views), key=order) for group in merging.merged_groups()
    )
    return AtomicGroups(tuple(sorted(map(tuple, groups))), tuple(merging.reasons))


@dataclass(slots=True)
class _Group:
    """A group under way; names are numbers of the graph."""

    views: list[int]
    bases: dict[int, int] = field(default_factory=dict)
    """Noted bases (part of GB), each with a view of the group that reads it."""
    covered: int = 0
    owner: dict[int, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return len(self.views) + len(self.bases)


class _Merging:
    """Check and merge, until nothing waits."""

    def __init__(self, graph: ViewGraph) -> None:
        self._names = (*graph.bases, *graph.views)
        self._of = graph.base_bits
        self._above = graph.ancestor_bits
        self._numbers = graph.numbers
        self._waiting: deque[tuple[int, int, Reason]] = deque()
        self.reasons: list[Reason] = []
        self._group: dict[int, _Group] = {
            graph.numbers[view]: _Group([graph.numbers[view]]) for view in graph.views
        }
        for view in graph.views:
            number = graph.numbers[view]
            for parent in graph.parents[view]:
                self._note_base(self._group[number], graph.numbers[parent], number)

    def node_name(self, number: int) -> str:
        return self._names[number]

    def merged_groups(self) -> Iterable[_Group]:
        return {id(group): group for group in self._group.values()}.values()

    def want_together(self, views: Collection[str]) -> None:
        """Put views together whatever they derive from."""
        for view in views:
            if self._numbers.get(view) not in self._group:
                raise ProjectError(
                    f'"{view}" is to be kept together with others, but there is no such view'
                )
        first, *rest = sorted(views) if views else [""]
        for view in rest:
            ends = self._numbers[first], self._numbers[view]
            self._waiting.append((*ends, WantedTogether(first, view)))

    def merge_waiting(self) -> None:
        """Merge what must be merged (MergeGroup)."""
        while self._waiting:
            one, other, reason = self._waiting.popleft()
            if self._group[one] is not self._group[other]:
                self.reasons.append(reason)
                self._merge_groups(self._group[one], self._group[other])

    def _merge_groups(self, one: _Group, other: _Group) -> None:
        large, small = (one, other) if one.size >= other.size else (other, one)
        for view in small.views:
            self._group[view] = large
            if view in large.bases:
                self._forget_base(large, view)
        large.views += small.views
        for base, child in small.bases.items():
            if self._group.get(base) is not large:
                self._note_base(large, base, child)

    def _note_base(self, group: _Group, base: int, child: int) -> None:
        """Add a base to a group, or find what it depends on there (CheckGroup)."""
        if base in group.bases:
            return
        while overlap := group.covered & self._of[base]:
            bit = (overlap & -overlap).bit_length() - 1
            other = group.owner[bit]
            joins = not self._above[other] >> base & 1
            if joins:
                self._queue_merge(child, base, group.bases[other], other, bit)
            if not self._above[base] >> other & 1:
                self._queue_merge(group.bases[other], other, child, base, bit)
                self._forget_base(group, other)
            if joins:
                return
        group.bases[base] = child
        group.covered |= self._of[base]
        group.owner.update(dict.fromkeys(bits_of(self._of[base]), base))

    def _forget_base(self, group: _Group, base: int) -> None:
        """A base that is inside, or waits to be, covers nothing any more."""
        del group.bases[base]
        group.covered &= ~self._of[base]

    def _queue_merge(self, child: int, base: int, other_child: int, other: int, bit: int) -> None:
        names = map(self.node_name, (child, base, other_child, other, bit))
        self._waiting.append((child, base, Dependent(*names)))
