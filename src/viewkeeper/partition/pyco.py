"""PyCo: which views need one order, and over which bases; pure, quick, and with reasons.

Ding, Zhang, Rundensteiner, Scalable Maintenance in Distributed Data Warehousing Environment (2000),
section 4.

Assumes: nothing but the view graph; what a view computes from its parents does not matter.

Guarantees: the partition into atomic groups (Definition 10), which is valid, unique and has the
most groups (Theorem 2). If every group has one order over its bases, every view is base consistent,
and the views of one group are view consistent with each other.

What must hold:

1. every view is in exactly one group, and no two bases of a group have a common ancestor;
2. no group can be split into valid groups, unless the project wants its views together;
3. neither the order of the views nor views that are unrelated change a group or its name.

Symbols: a partition is GS when UGS is empty; Group has GB, `viewkeeper.partition.view_graph` the
lists.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from viewkeeper.errors import ProjectError, suggest_nearest
from viewkeeper.partition.atomic_groups import Reason, atomic_groups
from viewkeeper.partition.group_reasons import why_apart, why_together
from viewkeeper.partition.view_graph import ViewGraph
from viewkeeper.partition.view_group import ViewGroup, group_bases, group_name_of


@dataclass(frozen=True, slots=True)
class Partition:
    """The groups of a view graph, by name.

    >>> diamond = ViewGraph({"v1": ("b1", "b2"), "v2": ("b1", "b2"), "v0": ("v1", "v2")})
    >>> [group.views for group in partition_graph(diamond).groups]
    [('v1', 'v2', 'v0')]
    >>> partition_graph(diamond).explain_pair("v1", "v2")[0]
    'v0 reads v1 and v2, which both derive from b1.'
    """

    graph: ViewGraph
    groups: tuple[ViewGroup, ...]
    reasons: tuple[Reason, ...]
    _of: Mapping[str, ViewGroup] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        found = {view: group for group in self.groups for view in group.views}
        object.__setattr__(self, "_of", found)

    def group_of(self, view: str) -> ViewGroup:
        """The group of a view."""
        if view not in self._of:
            known = self.graph.views
            raise ProjectError(f'there is no view "{view}"', hint=_suggest_views(view, known))
        return self._of[view]

    def explain_pair(self, one: str, other: str) -> tuple[str, ...]:
        """Sentences: why two views are together, or why it is fine that they are not."""
        groups = self.group_of(one), self.group_of(other)
        if groups[0] is groups[1]:
            return why_together(self.graph, groups[0], self.reasons, one, other)
        return why_apart(self.graph, one, other, groups)


def partition_graph(graph: ViewGraph, together: Iterable[Collection[str]] = ()) -> Partition:
    """The atomic groups of a graph; of those that keep these sets together, the finest."""
    found = atomic_groups(graph, together)
    bases = {group_name_of(views): group_bases(graph, views) for views in found.groups}
    homes = _find_homes(graph, {group_name_of(views): views for views in found.groups}, bases)
    groups = (
        _make_group(graph, group_name_of(views), views, bases[group_name_of(views)], homes)
        for views in found.groups
    )
    return Partition(graph, tuple(sorted(groups, key=lambda group: group.name)), found.reasons)


def _make_group(
    graph: ViewGraph,
    name: str,
    views: tuple[str, ...],
    bases: Iterable[str],
    homes: Mapping[str, str],
) -> ViewGroup:
    ordered = sorted(bases, key=graph.numbers.__getitem__)
    external = tuple(base for base in ordered if homes.get(base) != name)
    return ViewGroup(
        name,
        views,
        internal=tuple(base for base in ordered if homes.get(base) == name),
        external=external,
        virtual=tuple(base for base in external if base in graph.parents),
    )


def _find_homes(
    graph: ViewGraph,
    views: Mapping[str, tuple[str, ...]],
    bases: Mapping[str, tuple[str, ...]],
) -> dict[str, str]:
    """The group that each base is internal to: the largest that reads it, then the first."""
    homes: dict[str, str] = {}
    for name in sorted(views, key=lambda name: (-len(views[name]), name)):
        for base in bases[name]:
            if base not in graph.parents:
                homes.setdefault(base, name)
    return homes


def _suggest_views(view: str, known: tuple[str, ...]) -> str:
    some = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
    return f"views: {some}{suggest_nearest(view, known)}"
