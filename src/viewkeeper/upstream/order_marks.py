"""Which ts of a parent stands for which number of a group's order.

A warehouse in a group says in its ledger which number each ts has, and in a small file of its own
(`viewkeeper.warehouse.metadata.coordination`) from which ts on the numbers are those of which
group, and up to which number everything is in the ledger. A mediator reads marks from them: it
takes an id when all its parents have committed it.

While a group is young its members may stand apart: they come from different groups, or were alone.
Whoever has been among them before is in step with what it reads. A view that is new must not be
loaded over parents that stand apart: it would show two states of a base. The next id of that base
brings all of them to one position.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping

from viewkeeper.order.mediator import OrderMark
from viewkeeper.upstream.parent_project import ParentFiles, ParentProgress, ParentProject

EVERYTHING = sys.maxsize
"""The number up to which a group that has ended is committed, once all of its part is."""


def marks_of(
    files: ParentFiles,
    stands: ParentProgress,
    identity: str,
    beyond: OrderMark | None = None,
    needed: int = 0,
) -> tuple[list[OrderMark], int] | None:
    """The marks of a parent in a group, those `beyond` one only, and the number up to which
    everything is committed; None if it has not been in that group.

    `needed` says when the group was opened, if it is waited for: a parent that is beyond it and
    does not say any more what it took there is a GapError, or the wait would never end.
    """
    coordination = files.current_coordination()
    found = coordination.span_of(identity) if coordination else None
    if found is None:
        if needed and coordination and coordination.has_forgotten(identity, needed):
            raise files.forgotten_error(coordination)
        return None
    span, end = found
    until = stands.reach if end is None else min(end, stands.reach)
    first = OrderMark(0, span.since, span.since >= stands.exact)
    known = beyond or first
    marks = [] if beyond else [first]
    for entry in files.entries_between(known.position, until):
        # An id may have an entry for each of several sources.
        if entry.n > (marks[-1].n if marks else known.n):
            if 0 < entry.first < entry.n:
                marks.append(OrderMark(entry.first, entry.ts, False))
            marks.append(OrderMark(entry.n, entry.ts, entry.ts >= stands.exact))
    last = marks[-1].n if marks else known.n
    if end is not None:
        return marks, EVERYTHING if end <= stands.reach else last
    return marks, max(last, span.n) if span.ts <= stands.reach else last


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
