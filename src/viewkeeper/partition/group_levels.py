"""Levels of groups: how many groups stand between a group and its bases (Definition 12).

A group that reads no view of another group has level 0; else its level is one more than the highest
level of a group that it reads a view of. Two things are not as printed. Definition 12 speaks of all
external bases, but a real one sends its ids to the registry of every group that reads it, and no
other group delays them: only virtual bases count. And groups can read each other in a circle, which
the paper holds impossible and for which it has no level: such a knot counts as one group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from viewkeeper.partition.pyco import Partition


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


def find_knots(reads: Mapping[str, tuple[str, ...]]) -> Iterator[frozenset[str]]:
    """Groups that read each other, directly or by others; what a knot reads comes before it.

    Tarjan's strongly connected components, with a stack of our own: chains may be long.

    >>> [sorted(knot) for knot in find_knots({"a": ("b",), "b": ("c",), "c": ("b", "d"), "d": ()})]
    [['d'], ['b', 'c'], ['a']]
    """
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_names: list[str] = []
    closed: set[str] = set()
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
