"""Where the bases of a group stand in what is read: whether several sources show one state of each.

While a group is young its members may stand apart: they come from different groups, or were alone.
Whoever has been among them before is in step with what it reads. A view that is new must not be
loaded over parents that stand apart: it would show two states of a base. The next id of that base
brings all of them to one position.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from viewkeeper.upstream.parent_project import ParentProject


def base_positions(
    parent: ParentProject, ts: int, members: Collection[str]
) -> Iterator[tuple[str, int]]:
    """The bases of a group that a parent shows as of a ts, through all its members, each with its
    position; a base that is read in several ways comes several times."""
    for source, position in parent.positions_at(ts).items():
        above = parent.parent_of(source)
        if above is None:
            yield parent.base_name(source), position
        elif above.member_name in members:
            yield from base_positions(above, position, members)
        else:
            yield above.member_name, position


def find_diverged_bases(stands: Iterable[tuple[str, int]]) -> Mapping[str, int]:
    """The bases that are shown at several positions, with the greatest of them.

    >>> find_diverged_bases([("shop", 4), ("crm", 2), ("shop", 7), ("crm", 2)])
    {'shop': 7}
    """
    found: dict[str, set[int]] = {}
    for base, position in stands:
        found.setdefault(base, set()).add(position)
    return {base: max(at) for base, at in found.items() if len(at) > 1}
