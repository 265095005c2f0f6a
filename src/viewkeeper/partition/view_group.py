"""A group of views: its bases by their kinds, whether it is valid, and its name.

A group's bases are what its views read from outside: bases and views of other groups. The group is
valid when no two of them have a common ancestor (Definition 8 of Ding, Zhang, Rundensteiner 2000):
then one order over them is an order over the bases behind them, and no view of the group can meet
two states of one base. Symbols: `group_bases` is GB, `dependent_group_bases` is DGB.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from viewkeeper.partition.view_graph import ViewGraph


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
    def real_bases(self) -> tuple[str, ...]:
        """The group bases that are no views."""
        return tuple(base for base in self.bases if base not in self.virtual)

    @property
    def needs_registry(self) -> bool:
        """One view alone keeps any order consistent with itself."""
        return len(self.views) > 1


def group_bases(graph: ViewGraph, views: Collection[str]) -> tuple[str, ...]:
    """GB: the parents of a group's views that are not in it, in order of first use."""
    inside = frozenset(views)
    read = (parent for view in views for parent in graph.parents[view] if parent not in inside)
    return tuple(dict.fromkeys(read))


def dependent_group_bases(graph: ViewGraph, views: Collection[str]) -> tuple[str, ...]:
    """DGB: the group bases that have a common ancestor with another one; none if it is valid."""
    bases = group_bases(graph, views)
    bits = [graph.base_bits[graph.numbers[base]] for base in bases]
    once = twice = 0
    for each in bits:
        twice |= once & each
        once |= each
    return tuple(base for base, each in zip(bases, bits, strict=True) if each & twice)


def is_valid(graph: ViewGraph, views: Collection[str]) -> bool:
    """Definition 8: all group bases are independent of each other."""
    return not dependent_group_bases(graph, views)


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
