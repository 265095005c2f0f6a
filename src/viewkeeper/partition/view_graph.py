"""The view graph: which views are built on which bases and on which other views.

A base is a source, a whole database: one transaction may change several of its relations, and no
view may show half of it. A view's parents are bases and views. Everything that the partitioner asks
is answered by two sets per name, kept as bits of an integer, so that ten thousand views are quick:
the bases that it derives from, and all its ancestors. Both contain the name itself.

A group's bases are what its views read from outside: bases and views of other groups. The group is
valid when no two of them have a common ancestor (Definition 8): then one order over them is an
order over the bases behind them, and no view of the group can meet two states of one base.

The paper's symbols (Ding, Zhang, Rundensteiner 2000, section 4.4): `parents` is VPL, `levels` is
Definition 11, `group_bases` is GB.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from viewkeeper.errors import ProjectError

N = TypeVar("N", bound=Hashable)


@dataclass(frozen=True, slots=True)
class ViewGraph:
    """Views with their direct parents; a name that is no view is a base.

    >>> graph = ViewGraph({"lines": ("shop", "crm"), "totals": ("lines", "shop")})
    >>> graph.bases, graph.views, graph.levels["totals"]
    (('crm', 'shop'), ('lines', 'totals'), 2)
    >>> graph.common_bases("lines", "shop"), graph.is_ancestor("crm", "totals")
    (('shop',), True)
    """

    parents: Mapping[str, tuple[str, ...]]
    """The view parent lists (VPL)."""
    bases: tuple[str, ...] = field(init=False, compare=False, repr=False)
    views: tuple[str, ...] = field(init=False, compare=False, repr=False)
    """By level, then by name: parents come before their children."""
    levels: Mapping[str, int] = field(init=False, compare=False, repr=False)
    """Definition 11: 0 for a base, else one more than the highest parent."""
    numbers: Mapping[str, int] = field(init=False, compare=False, repr=False)
    """The bit of each name in the sets below; bases come first."""
    base_bits: tuple[int, ...] = field(init=False, compare=False, repr=False)
    ancestor_bits: tuple[int, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        own = {view: tuple(dict.fromkeys(parents)) for view, parents in self.parents.items()}
        for view, parents in own.items():
            if not parents:
                raise ProjectError(f'view "{view}": it reads nothing, so nothing orders it')
        levels = _find_levels(own)
        bases = tuple(sorted(name for name, level in levels.items() if level == 0))
        views = tuple(sorted(own, key=lambda view: (levels[view], view)))
        names = (*bases, *views)
        numbers = {name: number for number, name in enumerate(names)}
        of, above = _ancestor_bits(names, own, numbers)
        derived: dict[str, object] = {
            "parents": own,
            "bases": bases,
            "views": views,
            "levels": levels,
        }
        derived |= {"numbers": numbers, "base_bits": of, "ancestor_bits": above}
        for attribute, value in derived.items():
            object.__setattr__(self, attribute, value)

    def bases_of(self, name: str) -> tuple[str, ...]:
        """The base-ancestors of a view; of a base, itself."""
        return tuple(self.bases[bit] for bit in bits_of(self.base_bits[self.numbers[name]]))

    def common_bases(self, one: str, other: str) -> tuple[str, ...]:
        """The bases that both derive from."""
        shared = self.base_bits[self.numbers[one]] & self.base_bits[self.numbers[other]]
        return tuple(self.bases[bit] for bit in bits_of(shared))

    def is_ancestor(self, one: str, other: str) -> bool:
        """Whether `other` is `one` or derives from it."""
        return bool(self.ancestor_bits[self.numbers[other]] >> self.numbers[one] & 1)


def bits_of(bits: int) -> Iterator[int]:
    """The positions of the bits that are set, from the lowest on.

    >>> list(bits_of(0b10110))
    [1, 2, 4]
    """
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def _find_levels(parents: Mapping[str, tuple[str, ...]]) -> dict[str, int]:
    """Level by level: a view is ready when all its parents are."""
    levels = {name: 0 for listed in parents.values() for name in listed if name not in parents}
    missing = {view: sum(p in parents for p in listed) for view, listed in parents.items()}
    children: dict[str, list[str]] = {view: [] for view in parents}
    for view, listed in parents.items():
        for parent in listed:
            if parent in parents:
                children[parent].append(view)
    ready = [view for view, count in missing.items() if not count]
    while ready:
        view = ready.pop()
        levels[view] = 1 + max(levels[parent] for parent in parents[view])
        for child in children[view]:
            missing[child] -= 1
            if not missing[child]:
                ready.append(child)
    if stuck := {view for view, count in missing.items() if count}:
        raise ProjectError(
            f"views read each other in a circle: {' <- '.join(_find_circle(parents, stuck))}",
            hint="build one of them on the bases instead",
        )
    return levels


def _find_circle(parents: Mapping[str, tuple[str, ...]], stuck: set[str]) -> list[str]:
    """One circle among views of which each has a parent among them."""
    path = [min(stuck)]
    while path[-1] not in path[:-1]:
        path.append(next(parent for parent in parents[path[-1]] if parent in stuck))
    return path[path.index(path[-1]) :]


def _ancestor_bits(
    names: tuple[str, ...], parents: Mapping[str, tuple[str, ...]], numbers: Mapping[str, int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The bases of each name, and its ancestors, itself included."""
    of: list[int] = []
    above: list[int] = []
    for number, name in enumerate(names):
        bases, ancestors = (0 if name in parents else 1 << number), 1 << number
        for parent in parents.get(name, ()):
            bases |= of[numbers[parent]]
            ancestors |= above[numbers[parent]]
        of.append(bases)
        above.append(ancestors)
    return tuple(of), tuple(above)


@dataclass(frozen=True, slots=True)
class ViewGroup:
    """Views with one order, by level and then by name, and the bases that the order is over.

    A base that several groups read is internal to the largest of them and external to the others.
    Virtual bases are views of other groups; they are external, and listed there too.
    """

    name: str
    views: tuple[str, ...]
    internal: tuple[str, ...]
    external: tuple[str, ...]
    virtual: tuple[str, ...]

    @property
    def bases(self) -> tuple[str, ...]:
        """All group bases (GB)."""
        return (*self.internal, *self.external)

    @property
    def needs_registry(self) -> bool:
        """One view alone keeps any order consistent with itself."""
        return len(self.views) > 1


def group_bases(graph: ViewGraph, views: Collection[str]) -> tuple[str, ...]:
    """GB: the parents of a group's views that are not in it, in order of first use."""
    inside = frozenset(views)
    read = (parent for view in views for parent in graph.parents[view] if parent not in inside)
    return tuple(dict.fromkeys(read))


def group_name_of(views: Iterable[str]) -> str:
    """A name that says which views these are, and nothing else: others may come and go.

    >>> group_name_of(["lines"])
    'lines'
    >>> group_name_of(["lines", "totals"]) == group_name_of(["totals", "lines"])
    True
    """
    names = sorted(views)
    if len(names) == 1:
        return names[0]
    digest = hashlib.sha256("\n".join(names).encode()).hexdigest()
    return f"{names[0]}-{digest[:8]}"


def find_knots(reads: Mapping[N, Iterable[N]]) -> Iterator[frozenset[N]]:
    """Names that read each other, directly or by others; what a knot reads comes before it.

    Tarjan's strongly connected components, with a stack of our own: chains may be long.

    >>> [sorted(knot) for knot in find_knots({"a": ("b",), "b": ("c",), "c": ("b", "d"), "d": ()})]
    [['d'], ['b', 'c'], ['a']]
    """
    number: dict[N, int] = {}
    lowest: dict[N, int] = {}
    open_names: list[N] = []
    closed: set[N] = set()
    for start in reads:
        steps = [] if start in number else [(start, iter(reads[start]))]
        while steps:
            name, rest = steps[-1]
            if name not in number:
                number[name] = lowest[name] = len(number)
                open_names.append(name)
            read = next((each for each in rest if each not in closed), None)
            if read is None:
                steps.pop()
                if steps:
                    above = steps[-1][0]
                    lowest[above] = min(lowest[above], lowest[name])
                if lowest[name] == number[name]:
                    knot = {open_names.pop()}
                    while name not in knot:
                        knot.add(open_names.pop())
                    closed |= knot
                    yield frozenset(knot)
            elif read in number:
                lowest[name] = min(lowest[name], number[read])
            else:
                steps.append((read, iter(reads[read])))
