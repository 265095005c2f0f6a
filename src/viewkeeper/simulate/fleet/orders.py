"""The registry of a simulated fleet: the real rules, over lists instead of tables.

Who is in which group follows from `viewkeeper.registry.assign`, which positions get a number from
`viewkeeper.registry.admission`; leases are measured in steps of the world. It keeps what it
answered. An answer may be lost on its way, and while it is down nobody gets one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from viewkeeper.registry.admission import Refusal, admit
from viewkeeper.registry.assign import Names, regroup
from viewkeeper.registry.ids import GlobalId
from viewkeeper.registry.order import Facts, Ordered, Reporter

LEASE = 60
"""How many steps a claim lasts."""


@dataclass(slots=True)
class GroupOrder:
    """One group: its members with what they read, and its order."""

    name: str
    facts: dict[str, Facts]
    closed: bool = False
    order: list[Ordered] = field(default_factory=list)
    reporters: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    """Per source the member, its token, and the step at which its lease ends."""
    numbers: dict[str, dict[int, int]] = field(default_factory=dict)

    @property
    def alone(self) -> bool:
        return len(self.facts) == 1

    @property
    def last(self) -> int:
        return len(self.order)

    @property
    def bases(self) -> set[str]:
        """What the group reads from outside."""
        return {name for facts in self.facts.values() for name in facts.reads} - set(self.facts)

    def behind(self, member: str) -> frozenset[str]:
        """The bases of the group from which a member of it derives."""
        found: set[str] = set()
        for name in self.facts[member].reads:
            found |= self.behind(name) if name in self.facts else {name}
        return frozenset(found)


class FleetRegistry:
    """Groups in the order in which they were opened."""

    def __init__(self) -> None:
        self.facts: dict[str, Facts] = {}
        self.groups: list[GroupOrder] = []

    def change(self, joins: dict[str, Facts], leaves: Sequence[str] = ()) -> None:
        """Members come or go: groups are closed and opened, in one step."""
        after = {name: said for name, said in self.facts.items() if name not in leaves} | joins
        is_open = {group.name: frozenset(group.facts) for group in self.groups if not group.closed}
        found = regroup(is_open, self.facts, after)
        for group in self.groups:
            group.closed = group.closed or group.name in found.closed
        for members in found.opened:
            self._open(frozenset(members), after)
        self.facts = after

    def _open(self, members: Names, facts: dict[str, Facts]) -> None:
        name = f"G{len(self.groups) + 1}"
        self.groups.append(GroupOrder(name, {m: facts[m] for m in sorted(members)}))

    def next_group(self, member: str, after: str | None) -> GroupOrder | None:
        """The group that a member is in after another one, or first of all."""
        mine = [group for group in self.groups if member in group.facts]
        if after is None:
            return mine[-1] if mine else None
        at = next(i for i, group in enumerate(mine) if group.name == after)
        return mine[at + 1] if at + 1 < len(mine) else None

    def claim(self, group: GroupOrder, source: str, member: str, now: int) -> Reporter | None:
        """The right to report a source, unless another one's lease lasts."""
        holder, token, until = group.reporters.get(source, (member, 0, 0))
        if group.closed or (holder != member and until > now):
            return None
        group.reporters[source] = (member, token + 1, now + LEASE)
        registered = max(group.numbers.get(source, {}), default=None)
        return Reporter(group.name, source, member, token + 1, registered)

    def renew(self, group: GroupOrder, reporter: Reporter, now: int) -> None:
        """Keep a claim, unless another one came later."""
        member, token, _ = group.reporters[reporter.source]
        if token == reporter.token:
            group.reporters[reporter.source] = (member, token, now + LEASE)

    def register(self, group: GroupOrder, positions: Sequence[int], reporter: Reporter) -> bool:
        """Order these positions; False if the group is closed, or another claim came later."""
        token = group.reporters[reporter.source][1]
        if group.closed or token != reporter.token:
            return False
        numbers = group.numbers.setdefault(reporter.source, {})
        found = admit(positions, numbers, max(numbers, default=None), group.last)
        assert not isinstance(found, Refusal), "a reporter goes on after what is registered"
        for position in found.new:
            group.order.append(Ordered(group.last + 1, GlobalId(reporter.source, position)))
            numbers[position] = group.last
        return True
