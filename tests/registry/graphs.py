"""View graphs for the tests of the registry: the paper's figure 10, and random ones.

`figure_12` is the printed partitioning algorithm on plain sets, slow and short, with the repairs
that it needs to work at all; which dependent bases it merges is a parameter, because Lemma 6 and
the definitions do not say the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from random import Random

from hypothesis import strategies as st

from viewkeeper.partition.view_graph import ViewGraph, ViewGroup, group_bases

FIGURE_10 = ViewGraph(
    {
        "V1": ("B1", "B5"),
        "V2": ("B1", "B2"),
        "V3": ("B2", "B3", "B4"),
        "V4": ("B3", "B4"),
        "V5": ("V2", "V3"),
        "V6": ("V3", "V4", "V5"),
        "V7": ("B1", "B5", "V1"),
        "V8": ("B6", "V6"),
    }
)
SHORTCUT = ViewGraph({"q": ("b1",), "p": ("q", "b2"), "v": ("p", "q")})
"""v reads q directly and through p; nothing that p reads besides q depends on q."""
KNOT = ViewGraph(
    {
        "x": ("b1",),
        "p": ("b3",),
        "y": ("b1", "p"),
        "q": ("b3", "x"),
        "z": ("x", "y"),
        "r": ("p", "q"),
    }
)
"""Two atomic groups, {x, y, z} and {p, q, r}, of which each reads a view of the other."""

Views = frozenset[str]
Joins = Callable[[ViewGraph, Sequence[str]], Views]


def dependents_of(graph: ViewGraph, base: str) -> tuple[str, ...]:
    """The base dependency list (BDL): the base itself and every view that derives from it."""
    return (base, *(view for view in graph.views if base in graph.bases_of(view)))


def is_dependent(graph: ViewGraph, one: str, other: str) -> bool:
    """Whether two names have a common ancestor (Definition 7), themselves included."""
    return bool(graph.common_bases(one, other))


def real_bases(group: ViewGroup) -> tuple[str, ...]:
    """The group bases that are no views."""
    return tuple(base for base in group.bases if base not in group.virtual)


def dependent_group_bases(graph: ViewGraph, views: Collection[str]) -> tuple[str, ...]:
    """DGB: the group bases that have a common ancestor with another one; none if it is valid."""
    bases = group_bases(graph, views)
    return tuple(
        one
        for one in bases
        if any(one != other and is_dependent(graph, one, other) for other in bases)
    )


def is_valid(graph: ViewGraph, views: Collection[str]) -> bool:
    """Definition 8: all group bases are independent of each other."""
    return not dependent_group_bases(graph, views)


def as_lemma_6(graph: ViewGraph, dependent: Sequence[str]) -> Views:
    """Lemma 6: all dependent parents join."""
    return frozenset(base for base in dependent if base in graph.parents)


def as_defined(graph: ViewGraph, dependent: Sequence[str]) -> Views:
    """Of two dependent bases, whichever is not an ancestor of the other."""
    return frozenset(
        one
        for one in dependent
        for other in dependent
        if one != other and is_dependent(graph, one, other) and not graph.is_ancestor(one, other)
    )


def figure_12(graph: ViewGraph, joins: Joins) -> set[Views]:
    """PartitionGen: views from the lowest level up, each merged until its group is valid."""
    groups: list[Views] = []
    for view in graph.views:
        group: Views = frozenset({view})
        while dependent := dependent_group_bases(graph, sorted(group)):
            chosen = joins(graph, dependent)
            merged = [each for each in groups if each & chosen]
            groups = [each for each in groups if not each & chosen]
            group = group.union(*merged)
        groups.append(group)
    return set(groups)


def partitions(views: tuple[str, ...]) -> Iterator[list[list[str]]]:
    """Every way to split views into groups."""
    if not views:
        yield []
        return
    first, rest = views[0], views[1:]
    for smaller in partitions(rest):
        yield [[first], *smaller]
        for number in range(len(smaller)):
            joined = [first, *smaller[number]]
            yield [*smaller[:number], joined, *smaller[number + 1 :]]


@st.composite
def view_graphs(draw: st.DrawFn, views_max: int = 6, bases_max: int = 4) -> ViewGraph:
    """Any view graph with few names."""
    names = [f"b{number}" for number in range(draw(st.integers(1, bases_max)))]
    parents: dict[str, tuple[str, ...]] = {}
    for number in range(draw(st.integers(1, views_max))):
        chosen = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True))
        parents[f"v{number}"] = tuple(chosen)
        names.append(f"v{number}")
    return ViewGraph(parents)


def random_graph(random: Random, bases: int, views: int, parents_max: int) -> ViewGraph:
    """A larger graph: every view has some parents among all names before it."""
    names = [f"b{number}" for number in range(bases)]
    parents: dict[str, tuple[str, ...]] = {}
    for number in range(views):
        count = min(random.randint(1, parents_max), len(names))
        parents[f"v{number}"] = tuple(random.sample(names, count))
        names.append(f"v{number}")
    return ViewGraph(parents)
