"""Members that come, change and go: which groups are closed, and how members move on.

One suite over all places where a registry can be.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.registry.order_places import (
    FOREVER,
    Place,
    claimed,
    gather,
    ids,
    reading,
    whole_order,
)
from viewkeeper.errors import ClosedGroupError, IdentityError, RegistryError
from viewkeeper.order.registry_protocol import Assignment, MemberFacts, Registry, RegistryStatus

NORTH = MemberFacts({"shop": ("orders",)})
MART = MemberFacts({"shop": ("items",)}, parents=("north",))


def names(assignment: Assignment) -> list[str]:
    return [member.name for member in assignment.members]


def open_groups(status: RegistryStatus) -> dict[str, list[str]]:
    return {g.name: [m.name for m in g.members] for g in status.groups if not g.closed}


def test_members_are_together_only_if_they_must_be(place: Place) -> None:
    registry = place.open()
    north = registry.join_registry("north", NORTH)
    assert (north.group, north.is_alone, north.closed) == ("north", True, False)
    far = registry.join_registry("far", MemberFacts({"shop": ("orders",)}))
    assert (far.group, far.is_alone) == ("far", True)
    mart = registry.join_registry("mart", MART)
    assert (names(mart), mart.is_alone) == (["mart", "north"], False)
    assert [member.facts for member in mart.members] == [MART, NORTH]
    moved = registry.join_registry("north", NORTH, remembered=north.identity)
    assert (moved.group, moved.identity) == (mart.group, mart.identity)
    assert (
        registry.join_registry("far", MemberFacts({"shop": ("orders",)})).identity == far.identity
    )


def test_joining_again_with_the_same_facts_changes_nothing(place: Place) -> None:
    registry = place.open()
    group = gather(registry, {"north": NORTH, "mart": MART})
    reporter = claimed(registry, "shop", "north", group)
    before = open_groups(registry.fetch_status())
    for member, facts in (("north", NORTH), ("mart", MART)):
        assert place.open().join_registry(member, facts).group == group
    assert open_groups(registry.fetch_status()) == before
    assert registry.register_ids(group, ids("shop", 1), reporter) == 1


def test_what_a_group_does_not_rely_on_changes_while_it_is_open(place: Place) -> None:
    registry = place.open()
    group = gather(registry, {"north": NORTH, "mart": MART})
    registry.register_ids(group, ids("shop", 1), claimed(registry, "shop", "north", group))
    more = MemberFacts({"shop": ("orders", "notes"), "crm": ("people",)}, parents=("north",))
    assert registry.join_registry("mart", more).group == group
    assert (
        registry.join_registry("north", MemberFacts({"shop": ("orders", "notes")})).group == group
    )
    found = {member.name: member.facts for member in registry.fetch_members(group)}
    assert found == {"mart": more, "north": MemberFacts({"shop": ("notes", "orders")})}
    assert whole_order(registry, group) == [(1, "shop@1")]


def test_a_closed_group_ends_where_it_is_and_can_be_read_on(place: Place) -> None:
    registry, other = place.open(), place.open()
    group = gather(registry, {"north": NORTH, "mart": MART})
    reporter = claimed(registry, "shop", "north", group)
    registry.register_ids(group, ids("shop", 1, 2), reporter)
    new = other.join_registry("cube", MemberFacts({"shop": ()}, parents=("mart", "north")))
    assert names(new) == ["cube", "mart", "north"]
    for refused in (
        lambda: registry.register_ids(group, ids("shop", 3), reporter),
        lambda: registry.register_ids(group, ids("shop", 1), reporter),
        lambda: registry.claim_source(group, "shop", "north", FOREVER),
        lambda: registry.fetch_order(group, 2, 10, wait_seconds=60),
    ):
        with pytest.raises(ClosedGroupError, match="has ended with number 2") as error:
            refused()
        assert "joins again" in (error.value.hint or "")
    registry.release_claim(reporter)
    assert whole_order(registry, group) == [(1, "shop@1"), (2, "shop@2")]
    registry.note_reached(group, "mart", 2)
    (old,) = (each for each in registry.fetch_status().groups if each.name == group)
    assert (old.closed, old.last, old.unreported_sources) == (True, 2, ())
    assert [(member.name, member.reached) for member in old.members] == [("mart", 2), ("north", 0)]
    assert all(each.lease < 0 for each in old.reports)
    with pytest.raises(IdentityError, match="a member knows of 3"):
        registry.fetch_order(group, 3, 1)
    assert (
        other.register_ids(new.group, ids("shop", 3), claimed(other, "shop", "cube", new.group))
        == 1
    )


def test_who_waits_for_the_order_learns_that_it_has_ended(place: Place) -> None:
    registry = place.open()
    group = gather(registry, {"north": NORTH, "mart": MART})
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(place.open().fetch_order, group, 0, 10, 60.0)
        time.sleep(0.1)
        assert not waiting.done()
        start = time.monotonic()
        registry.leave_registry("mart")
        with pytest.raises(ClosedGroupError):
            waiting.result(timeout=50)
        assert time.monotonic() - start < 15, "it was not woken"


def test_a_member_that_was_away_takes_every_order_in_turn(place: Place) -> None:
    """It meets no parent beyond an order that it has not taken; empty ones are passed over."""
    registry = place.open()
    members = {"north": NORTH, "mart": MART}
    first = gather(registry, members)
    remembered = registry.join_registry("mart", MART).identity
    followed = [first]
    for n in range(1, 4):
        cube = MemberFacts({}, parents=("mart", "north") if n % 2 else ("mart",))
        group = registry.join_registry("cube", cube).group
        if n != 2:
            group = registry.join_registry("north", NORTH).group
            registry.register_ids(group, ids("shop", n), claimed(registry, "shop", "north", group))
            followed.append(group)
    taken = [first]
    while True:
        found = place.open().join_registry("mart", MART, remembered)
        taken.append(found.group)
        remembered = found.identity
        if not found.closed:
            break
        assert len(whole_order(registry, found.group)) == 1
        assert [m.facts for m in found.members if m.name == "north"] == [NORTH]
    assert taken == followed
    assert place.open().join_registry("mart", MART).group == taken[-1], (
        "who begins anew takes the newest"
    )


def test_names_of_groups_are_not_used_twice(place: Place) -> None:
    registry = place.open()
    groups = [registry.join_registry("north", NORTH)]
    for _ in range(2):
        registry.join_registry("mart", MART)
        registry.leave_registry("mart")
        groups.append(registry.join_registry("north", NORTH))
    assert [each.group for each in groups] == ["north", "north.2", "north.3"]
    assert len({each.identity for each in groups}) == 3


def test_what_is_behind_a_parent_stays_while_an_order_lasts(place: Place) -> None:
    registry = place.open()
    before = gather(registry, {"north": NORTH, "mart": MART})
    after = registry.join_registry("north", MemberFacts({"shop": ("orders",), "crm": ()}))
    assert names(after) == ["mart", "north"]
    assert after.group == f"{before}.2"
    frozen = {member.name: member.facts for member in registry.fetch_members(before)}
    assert frozen == {"mart": MART, "north": NORTH}


def test_a_parent_may_join_later_than_its_children(place: Place) -> None:
    registry = place.open()
    mart = registry.join_registry("mart", MART)
    assert mart.is_alone
    assert registry.join_registry("other", MemberFacts({}, parents=("north",))).is_alone
    north = registry.join_registry("north", NORTH)
    assert names(north) == ["mart", "north"]
    assert registry.join_registry("mart", MART, mart.identity).group == north.group


def test_who_leaves_is_gone_but_stays_a_parent(place: Place) -> None:
    registry = place.open()
    group = gather(registry, {"north": NORTH, "mart": MART})
    reporter = claimed(registry, "shop", "north", group)
    registry.register_ids(group, ids("shop", 1), reporter)
    registry.leave_registry("north")
    assert open_groups(registry.fetch_status()) == {"mart": ["mart"]}
    with pytest.raises(ClosedGroupError):
        registry.register_ids(group, ids("shop", 2), reporter)
    with pytest.raises(RegistryError, match='has no member "north"'):
        registry.claim_source("mart", "shop", "north", FOREVER)
    # What it began it may end: its children wait for it.
    registry.note_reached(group, "north", 1)
    assert registry.join_registry("mart", MART).is_alone
    with pytest.raises(RegistryError, match='"north" would be the name of a source'):
        registry.join_registry("new", MemberFacts({"north": ()}))
    for _ in range(2):
        registry.leave_registry("north")
    place.open_administration().leave_registry("nobody")
    assert names(registry.join_registry("north", NORTH)) == ["mart", "north"]


@pytest.mark.parametrize(
    ("member", "facts", "words"),
    [
        (
            "north",
            MemberFacts({"shop": ()}, parents=("cube",)),
            "circle: north <- cube <- mart <- north",
        ),
        ("mart", MemberFacts({}, parents=("mart",)), "circle: mart <- mart"),
        ("new", MemberFacts({"mart": ()}), '"mart" would be the name of a source and of a member'),
        ("new", MemberFacts({}, parents=("shop",)), '"shop" would be the name of a source'),
        ("shop", MemberFacts({}), '"shop" would be the name of a source'),
        ("new", MemberFacts({"new": ()}), '"new" would be the name of a source'),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    place: Place, member: str, facts: MemberFacts, words: str
) -> None:
    registry = place.open()
    registry.join_registry("cube", MemberFacts({}, parents=("mart",)))
    group = gather_two(registry)
    before = open_groups(registry.fetch_status())
    with pytest.raises(RegistryError, match=words) as refused:
        registry.join_registry(member, facts)
    assert refused.value.hint
    assert open_groups(registry.fetch_status()) == before
    assert {m.name: m.facts for m in registry.fetch_members(group)} == {
        "mart": MART,
        "north": NORTH,
    }


def gather_two(registry: Registry) -> str:
    registry.join_registry("north", NORTH)
    return registry.join_registry("mart", MART).group


def test_a_label_keeps_members_together_whatever_they_read(place: Place) -> None:
    """RyCo: one order for all."""
    registry = place.open()
    members = {"a": reading("x"), "b": reading("y"), "c": reading(parents=("a",))}
    gather(registry, members)
    assert names(registry.join_registry("a", MemberFacts({"x": ()}))) == ["a"]
    assert names(registry.join_registry("b", reading("y"))) == ["b", "c"]
