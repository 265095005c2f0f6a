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

The reasons that merged groups form a forest over views, so between two views of one group there is
exactly one path of reasons. A reason may rest on two views being together already; what put those
together is said first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from viewkeeper.errors import ProjectError, suggest_nearest
from viewkeeper.partition.atomic_groups import Dependent, Reason, WantedTogether, atomic_groups
from viewkeeper.partition.view_graph import ViewGraph, ViewGroup, group_bases, group_name_of

SHOWN = 6
"""Names in a list before the rest is counted."""


def why_together(
    graph: ViewGraph, group: ViewGroup, reasons: Iterable[Reason], one: str, other: str
) -> tuple[str, ...]:
    """What put two views of a group together, what it rests on first."""
    if one == other:
        return (f"{one} is one view.",)
    inside = frozenset(group.views)
    forest: dict[str, list[Reason]] = {view: [] for view in group.views}
    for reason in reasons:
        if reason.ends[0] in inside:
            for end in reason.ends:
                forest[end].append(reason)
    said: dict[str, None] = {}
    # A reason is said when all that it rests on has been.
    steps: list[tuple[Reason, bool]] = [
        (step, False) for step in _reason_path(forest, one, other)[::-1]
    ]
    begun: set[Reason] = set()
    while steps:
        reason, rested = steps.pop()
        if rested:
            said[_sentence_of(graph, reason)] = None
        elif reason not in begun:
            begun.add(reason)
            steps.append((reason, True))
            steps += [(step, False) for step in _ground_of(forest, reason)[::-1]]
    return (
        *said,
        f"One order over {join_names(group.bases)} keeps {join_names(group.views)} in step.",
    )


def why_apart(
    graph: ViewGraph, one: str, other: str, groups: tuple[ViewGroup, ViewGroup]
) -> tuple[str, ...]:
    """Why two views of different groups need no common order."""
    shared = graph.common_bases(one, other)
    if not shared:
        return (
            f"{one} and {other} are not together.",
            "They derive from no common base, so no order between them can be wrong.",
        )
    return (
        f"{one} and {other} are not together, though both derive from {join_names(shared)}.",
        *_explain_virtual(graph, one, other, groups[1]),
        *_explain_virtual(graph, other, one, groups[0]),
        *(
            _explain_independent(view, group)
            for view, group in zip((one, other), groups, strict=True)
        ),
        f"So each shows one state of {join_names(shared)} at any moment (base consistency); at one "
        "moment the two may show different ones.",
        "Where that is not enough, the project can keep them together.",
    )


def join_names(names: Sequence[str]) -> str:
    """Names as a clause.

    >>> join_names(["a"]), join_names(["a", "b", "c"]), join_names([f"v{n}" for n in range(9)])
    ('a', 'a, b and c', 'v0, v1, v2, v3, v4, v5 and 3 more')
    """
    if len(names) > SHOWN:
        return f"{', '.join(names[:SHOWN])} and {len(names) - SHOWN} more"
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _ground_of(forest: dict[str, list[Reason]], reason: Reason) -> list[Reason]:
    """The path between the two children of a reason; empty if they are one view."""
    match reason:
        case Dependent(child=child, other_child=other):
            return _reason_path(forest, child, other)
        case WantedTogether():
            return []
        case _:
            assert_never(reason)


def _reason_path(forest: dict[str, list[Reason]], start: str, goal: str) -> list[Reason]:
    """The reasons between two views of one group."""
    came: dict[str, tuple[str, Reason] | None] = {start: None}
    waiting = deque([start])
    while goal not in came:
        view = waiting.popleft()
        for reason in forest[view]:
            there = reason.ends[reason.ends[0] == view]
            if there not in came:
                came[there] = view, reason
                waiting.append(there)
    path: list[Reason] = []
    while step := came[goal]:
        goal = step[0]
        path.append(step[1])
    return path[::-1]


def _sentence_of(graph: ViewGraph, reason: Reason) -> str:
    match reason:
        case WantedTogether(one=one, other=other):
            return f"The project wants {one} and {other} together."
        case Dependent(child=child, parent=parent, other_child=reader, other=other, base=base):
            if graph.is_ancestor(other, parent):
                who = "reads" if reader == child else f"{reader} reads"
                return f"{child} reads {parent}, which derives from {other}, and {who} {other} too."
            (reader1, one), (reader2, two) = sorted([(child, parent), (reader, other)])
            if reader1 == reader2:
                return f"{reader1} reads {one} and {two}, which both derive from {base}."
            return f"{reader1} reads {one}, and {reader2} reads {two}: both derive from {base}."
        case _:
            assert_never(reason)


def _explain_virtual(graph: ViewGraph, above: str, below: str, group: ViewGroup) -> Iterator[str]:
    """If one derives from the other: by which virtual base of its group."""
    if graph.is_ancestor(above, below):
        by = next(base for base in group.virtual if graph.is_ancestor(above, base))
        via = "" if by == above else f", by {by},"
        yield f"{below} derives from {above}{via} as from a virtual base, and follows its order."


def _explain_independent(view: str, group: ViewGroup) -> str:
    if len(group.bases) == 1:
        return f"The group of {view} reads {group.bases[0]} alone."
    return (
        f"The group of {view} reads {join_names(group.bases)}, of which no two derive from a "
        "common "
        "base."
    )


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
    graph: ViewGraph, views: Mapping[str, tuple[str, ...]], bases: Mapping[str, tuple[str, ...]]
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
