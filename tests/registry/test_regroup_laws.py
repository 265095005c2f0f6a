"""The groups that follow from what members say: the same whoever came first, valid, none too many.

Random members read random sources and members with smaller names, some that never join; some have
labels. A store is played by `regroup_members` alone, one member after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.registry.graphs import is_valid, partitions
from viewkeeper.order.member_groups import (
    Regrouping,
    assign_groups,
    find_ambiguous_names,
    find_circle,
    member_graph,
    regroup_members,
)
from viewkeeper.order.registry_protocol import MemberFacts

SOURCES = ("b0", "b1", "b2")
Names = frozenset[str]


@st.composite
def environments(draw: st.DrawFn, members_max: int = 6) -> dict[str, MemberFacts]:
    """Any members that do not read each other in a circle."""
    found: dict[str, MemberFacts] = {}
    for number in range(draw(st.integers(1, members_max))):
        sources = draw(st.lists(st.sampled_from(SOURCES), max_size=2, unique=True))
        lower = [f"m{n}" for n in range(number)] + ["never"]
        parents = draw(st.lists(st.sampled_from(lower), max_size=2, unique=True))
        label = draw(st.sampled_from(["", "", "", "one", "two"]))
        found[f"m{number}"] = MemberFacts(dict.fromkeys(sources, ()), tuple(parents), label)
    return found


class Played:
    """Open groups by name, as a store has them."""

    def __init__(self) -> None:
        self.facts: dict[str, MemberFacts] = {}
        self.groups: dict[str, Names] = {}
        self._made = 0

    def change(self, after: Mapping[str, MemberFacts]) -> Regrouping:
        change = regroup_members(self.groups, self.facts, after)
        for name in change.closed:
            del self.groups[name]
        for members in change.opened:
            self._made += 1
            self.groups[f"group {self._made}"] = frozenset(members)
        self.facts = dict(after)
        return change

    def join(self, member: str, facts: MemberFacts) -> Regrouping:
        return self.change({**self.facts, member: facts})

    def leave(self, member: str) -> Regrouping:
        return self.change({n: f for n, f in self.facts.items() if n != member})


@given(environments(), st.data())
def test_groups_do_not_depend_on_who_came_first(
    facts: dict[str, MemberFacts], data: st.DataObject
) -> None:
    played = Played()
    for member in data.draw(st.permutations(sorted(facts))):
        played.join(member, facts[member])
        assert set(played.groups.values()) == assign_groups(played.facts)
        assert sorted(m for group in played.groups.values() for m in group) == sorted(played.facts)
    assert set(played.groups.values()) == assign_groups(facts)
    for member in data.draw(st.permutations(sorted(facts)))[1:]:
        played.leave(member)
        assert set(played.groups.values()) == assign_groups(played.facts)


@given(environments())
def test_groups_are_valid_keep_labels_and_are_the_finest_that_do(
    facts: dict[str, MemberFacts],
) -> None:
    groups = assign_groups(facts)
    graph = member_graph(facts)
    assert all(is_valid(graph, [f"member {name}" for name in group]) for group in groups)
    assert keeps_labels(facts, [sorted(group) for group in groups])
    for split in partitions(tuple(sorted(facts))):
        every = [frozenset(part) for part in split]
        if keeps_labels(facts, split) and all(
            is_valid(graph, [f"member {name}" for name in part]) for part in every
        ):
            assert all(any(group <= part for part in every) for group in groups)


def keeps_labels(facts: Mapping[str, MemberFacts], split: Sequence[Sequence[str]]) -> bool:
    parts: dict[str, set[int]] = {}
    for number, part in enumerate(split):
        for member in part:
            if facts[member].together:
                parts.setdefault(facts[member].together, set()).add(number)
    return all(len(numbers) == 1 for numbers in parts.values())


@given(environments(), environments())
def test_what_children_rely_on_stays_while_a_group_is_open(
    before: dict[str, MemberFacts], after: dict[str, MemberFacts]
) -> None:
    """Members of a group that stays, and what its parents read; saying it again changes nothing."""
    played = Played()
    played.change(before)
    old = dict(played.groups)
    change = played.change(after)
    for name in old.keys() & played.groups.keys():
        assert old[name] == played.groups[name]
        for member in old[name]:
            for parent in set(after[member].parents) & old[name]:
                assert before[parent].read_names == after[parent].read_names
    assert set(change.closed) == old.keys() - played.groups.keys()
    assert played.change(after) == Regrouping((), ())


SHOP, BOTH = MemberFacts({"shop": ()}), MemberFacts({"shop": (), "crm": ()})
MART = MemberFacts({"shop": ()}, parents=("north",))


@pytest.mark.parametrize(
    ("member", "facts", "closed"),
    [
        ("far", MemberFacts({"shop": (), "erp": ()}), False),
        ("far", MemberFacts({}, parents=("mart", "north")), True),
        ("far", MemberFacts({}, parents=("mart",)), False),
        ("north", MemberFacts({"shop": ("orders",)}), False),
        ("north", BOTH, True),
        ("mart", MemberFacts({"shop": (), "crm": ()}, parents=("north",)), False),
        ("mart", MemberFacts({"crm": ()}, parents=("north",)), True),
        ("mart", MemberFacts({"shop": ("items",)}, ("north",), "label"), False),
        ("far", MemberFacts({}, together="label"), False),
    ],
)
def test_when_the_group_of_a_member_and_its_parent_is_closed(
    member: str, facts: MemberFacts, closed: bool
) -> None:
    played = Played()
    played.join("north", SHOP)
    played.join("mart", MART)
    ((name, members),) = played.groups.items()
    assert members == {"north", "mart"}
    assert (name in played.join(member, facts).closed) is closed


def test_a_parent_that_comes_late_joins_its_children_only_if_it_must() -> None:
    played = Played()
    played.join("mart", MART)
    assert played.join("far", MemberFacts({}, parents=("north",))) == Regrouping((), (("far",),))
    assert played.join("north", BOTH) == Regrouping(("group 1",), (("mart", "north"),))
    assert played.leave("north").opened == (("mart",),)
    assert played.join("north", MemberFacts({"erp": ()})).opened == (("north",),)


def test_circles_and_names_for_two_things_are_found() -> None:
    facts = {
        "a": MemberFacts({}, parents=("c", "x")),
        "b": MemberFacts({"shop": ()}, parents=("a",)),
        "c": MemberFacts({}, parents=("b",)),
    }
    assert find_circle(facts, "a") == ("a", "c", "b", "a")
    assert find_circle({"a": MemberFacts({}, parents=("a",))}, "a") == ("a", "a")
    assert find_circle({**facts, "c": MemberFacts({})}, "a") == ()
    assert find_ambiguous_names(
        {**facts, "x": MemberFacts({"b": (), "y": ()}, parents=("y",))}
    ) == {
        "b",
        "y",
    }
    assert find_ambiguous_names(facts) == frozenset()
