"""Which members must take one order: the groups, and what becomes of them when members change.

Pure functions over what the members say (`MemberFacts`). A member is a node of the view graph of
PyCo (Ding, Zhang, Rundensteiner 2000, section 4): its parents are the sources and the members that
it reads, as a whole, because one warehouse commits all its views as one. The groups are the atomic
ones of that graph (`atomic_groups`), with members of one label kept together; they follow from the
facts alone, whoever came first. A member that reads nothing, or that was only named as a parent so
far, stands on something of its own that nobody else reads, so it depends on nobody.

A group is one order, and who reads the order relies on three things while it lasts:

1. *Its members stay.* A group that gains or loses one is closed, and the members go on in others.
2. *What is behind a parent stays.* A member takes an id when the parents behind which the id's
   source lies have committed it. If a parent began to read another source in the middle of an
   order, a child that had not heard of it yet would go ahead; if it ceased to read one, a child
   that had heard of it would, over the ids before. So a group is also closed, and opened again with
   the same members, when a member that others of the group read changes the names of what it reads.
3. *Numbers stay.* A closed order ends at one number for everybody, before anything is registered in
   the groups that follow.

Anything else may change in an open group: the tables that are read of a source, labels that change
no group, and what is read by a member that nobody in the group reads. Ids of a source that is new
in the group concern only who reads it.

A member passes ids of bases that are not behind it without a word, so whoever reads its views does
not wait for it to take them. A parent in another group is a base of this one, by its member's name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from viewkeeper.order.registry_protocol import GroupMember, MemberFacts
from viewkeeper.partition.atomic_groups import atomic_groups
from viewkeeper.partition.view_graph import ViewGraph

Names = frozenset[str]
_SOURCE, _MEMBER, _OWN = "source ", "member ", "own "


@dataclass(frozen=True, slots=True)
class Regrouping:
    """The groups that end, by name, and the sets of members that begin; all others stay."""

    closed: tuple[str, ...]
    opened: tuple[tuple[str, ...], ...]


def assign_groups(facts: Mapping[str, MemberFacts]) -> frozenset[Names]:
    """The members of each group; they must not read each other in a circle.

    >>> north, south = MemberFacts({"shop": ()}), MemberFacts({"shop": (), "crm": ()})
    >>> mart = MemberFacts({"shop": ()}, parents=("north",))
    >>> groups = assign_groups({"north": north, "south": south, "mart": mart})
    >>> sorted(sorted(group) for group in groups)
    [['mart', 'north'], ['south']]
    """
    labels: dict[str, list[str]] = defaultdict(list)
    for member, said in facts.items():
        if said.together:
            labels[said.together].append(_MEMBER + member)
    groups = atomic_groups(member_graph(facts), labels.values()).groups
    found = (frozenset(node.removeprefix(_MEMBER) for node in group) for group in groups)
    return frozenset(group for group in found if not group.isdisjoint(facts))


def member_graph(facts: Mapping[str, MemberFacts]) -> ViewGraph:
    """The view graph of the members, and of those that were only named; kinds are kept apart."""
    named = {parent for said in facts.values() for parent in said.parents}
    parents: dict[str, tuple[str, ...]] = {}
    for member in sorted(named.union(facts)):
        said = facts.get(member, MemberFacts({}))
        read = [*(_SOURCE + name for name in said.sources), *(_MEMBER + p for p in said.parents)]
        parents[_MEMBER + member] = tuple(read) or (_OWN + member,)
    return ViewGraph(parents)


def regroup_members(
    groups: Mapping[str, Names], before: Mapping[str, MemberFacts], after: Mapping[str, MemberFacts]
) -> Regrouping:
    """What becomes of the open groups when the facts change."""
    wanted = assign_groups(after)
    kept = {
        name: members
        for name, members in groups.items()
        if members in wanted and not _children_are_concerned(members, before, after)
    }
    opened = wanted - set(kept.values())
    return Regrouping(
        tuple(sorted(groups.keys() - kept.keys())),
        tuple(sorted(tuple(sorted(members)) for members in opened)),
    )


def _children_are_concerned(
    members: Names, before: Mapping[str, MemberFacts], after: Mapping[str, MemberFacts]
) -> bool:
    """Whether a member that others of the group read does not read the same names any more."""
    read = {parent for member in members for parent in after[member].parents}
    return any(before[member].read_names != after[member].read_names for member in members & read)


def find_circle(facts: Mapping[str, MemberFacts], member: str) -> tuple[str, ...]:
    """How a member reads itself, from it to it; nothing if it does not.

    >>> find_circle({"a": MemberFacts({}, ("b",)), "b": MemberFacts({}, ("c", "a"))}, "a")
    ('a', 'b', 'a')
    """
    came: dict[str, str] = {}
    waiting = [member]
    while waiting:
        child = waiting.pop()
        for parent in facts[child].parents if child in facts else ():
            if parent not in came:
                came[parent] = child
                waiting.append(parent)
    if member not in came:
        return ()
    path = [member, came[member]]
    while path[-1] != member:
        path.append(came[path[-1]])
    return tuple(reversed(path))


def find_ambiguous_names(facts: Mapping[str, MemberFacts]) -> Names:
    """Names that a source and a member have both: their ids could not be distinguished."""
    sources = {name for said in facts.values() for name in said.sources}
    return frozenset(sources & {*facts, *(p for said in facts.values() for p in said.parents)})


def bases_behind(name: str, members: Iterable[GroupMember]) -> frozenset[str]:
    """The bases of a group that a member's views are ultimately made from.

    >>> from viewkeeper.order.registry_protocol import MemberFacts, GroupMember
    >>> low = GroupMember("low", MemberFacts({"shop": ("orders",)}, ("far",)), 0, 0.0)
    >>> high = GroupMember("high", MemberFacts({"crm": ("customers",)}, ("low",)), 0, 0.0)
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
