"""Which bases are behind a member of a group: whose ids can change what its views show.

A member passes ids of other bases without a word, so whoever reads its views does not wait for it
to take them. A parent in another group is a base of this one, by its member's name.
"""

from __future__ import annotations

from collections.abc import Iterable

from viewkeeper.registry.order import Member


def bases_behind(name: str, members: Iterable[Member]) -> frozenset[str]:
    """The bases of a group that a member's views are ultimately made from.

    >>> from viewkeeper.registry.order import Facts, Member
    >>> low = Member("low", Facts({"shop": ("orders",)}, ("far",)), 0, 0.0)
    >>> high = Member("high", Facts({"crm": ("customers",)}, ("low",)), 0, 0.0)
    >>> sorted(bases_behind("high", [low, high]))
    ['crm', 'far', 'shop']
    """
    inside = {member.name: member.facts for member in members}
    found: set[str] = set()
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        facts = inside[waiting.pop()]
        found.update(facts.sources)
        found.update(parent for parent in facts.parents if parent not in inside)
        near = {parent for parent in facts.parents if parent in inside}
        waiting += near - seen
        seen |= near
    return frozenset(found)
