"""From which number on the members of a group stand together.

Members that meet in a new group come from different ones, or were alone, and may stand at different
positions of one base; nobody waits for them. Once every base of the group has an id at or beyond
where any of them began, all stand where that id says, and from then on they agree for ever. Before
that, view consistency is not promised. A group whose members began together has it from the start.
"""

from __future__ import annotations

from collections.abc import Mapping

from viewkeeper.simulate.fleet.fleet_registry import GroupOrder
from viewkeeper.simulate.fleet.member_warehouse import MemberWarehouse


def agreement_start(group: GroupOrder, warehouses: Mapping[str, MemberWarehouse]) -> int:
    """The number; beyond the end of the order if it has not come to that."""
    begun = {
        name: span
        for name in group.facts
        for span in warehouses[name].spans
        if span.group == group.name
    }
    starts: dict[str, set[int]] = {base: set() for base in group.outside_bases}
    together = True
    for name, span in begun.items():
        for source, position in warehouses[name].positions_at(span.since).items():
            if source in starts:
                starts[source].add(position)
            else:
                together &= source in begun and begun[source].since == position
    if together and all(len(positions) <= 1 for positions in starts.values()):
        return 0
    waiting = {base: max(positions) for base, positions in starts.items() if positions}
    for each in group.order:
        if each.id.position >= waiting.get(each.id.source, each.id.position + 1):
            del waiting[each.id.source]
        if not waiting:
            return each.n
    return group.last_number + 1
