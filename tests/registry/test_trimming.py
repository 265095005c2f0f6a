"""What a registry forgets: ids that all have committed, groups that all have left behind.

On both stores, with small windows; and by processes that are killed while they do it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest

from tests.faults.processes import Process
from tests.registry.order_places import Place, claimed, gather, ids, reading
from viewkeeper.errors import IdentityError, OrderError, TrimmedError
from viewkeeper.order.registry_protocol import MemberFacts
from viewkeeper.order.retention_rule import RetentionWindows
from viewkeeper.order.store.stored_registry import StoredRegistry

SMALL = RetentionWindows(order=5, groups=2, step=3)
BOTH = {"a": reading("shop", "crm"), "b": reading("shop")}
NORTH, MART = MemberFacts({"shop": ()}), MemberFacts({"shop": ()}, ("north",))
PAIR = {"north": NORTH, "mart": MART}


@pytest.fixture
def registry(store: Place) -> Iterator[StoredRegistry]:
    opened = StoredRegistry(store.open_store().database, SMALL)
    yield opened
    opened.close()


def kept_from(registry: StoredRegistry, group: str) -> int:
    """The number after which the order of a group is kept."""
    with registry.database.read_transaction() as rows:
        return int(rows("SELECT trimmed FROM registry_group WHERE name = ?", group)[0][0])


def stored(registry: StoredRegistry, group: str) -> list[int]:
    with registry.database.read_transaction() as rows:
        found = rows("SELECT n FROM registry_id WHERE grp = ? ORDER BY n", group)
        return [int(n) for (n,) in found]


def test_ids_go_when_all_members_have_committed_them(registry: StoredRegistry) -> None:
    group = gather(registry, BOTH)
    registry.register_ids(group, ids("crm", 1), claimed(registry, "crm", "a", group))
    shop = claimed(registry, "shop", "a", group)
    registry.register_ids(group, ids("shop", *range(1, 20)), shop)
    registry.note_reached(group, "a", 20)
    assert stored(registry, group) == list(range(1, 21)), "b has not committed anything"
    registry.note_reached(group, "b", 9)
    # The last id of every source stays: what is reported next must lie behind it.
    assert stored(registry, group) == [1, *range(10, 21)]
    registry.note_reached(group, "b", 20)
    assert stored(registry, group) == [1, *range(16, 21)]
    assert [each.n for each in registry.fetch_order(group, 15, 100)] == list(range(16, 21))
    assert registry.register_ids(group, ids("shop", 19, 20), shop) == 21
    assert claimed(registry, "crm", "a", group).position == 1


def test_who_comes_from_before_what_is_kept_is_told(registry: StoredRegistry) -> None:
    group = gather(registry, BOTH)
    shop = claimed(registry, "shop", "a", group)
    registry.register_ids(group, ids("shop", *range(1, 21)), shop)
    for member in BOTH:
        registry.note_reached(group, member, 20)
    with pytest.raises(TrimmedError, match="kept from after number 15") as told:
        registry.fetch_order(group, 14, 10, wait_seconds=60)
    assert "viewkeeper refresh" in (told.value.hint or "")
    with pytest.raises(OrderError, match="or long ago"):
        registry.register_ids(group, ids("shop", 3), shop)


def test_a_closed_group_goes_when_its_members_have_gone_on(registry: StoredRegistry) -> None:
    first = gather(registry, {"north": NORTH, "mart": MART})
    registry.register_ids(first, ids("shop", 1), claimed(registry, "shop", "north", first))
    identity = {
        m: registry.join_registry(m, f).identity for m, f in (("north", NORTH), ("mart", MART))
    }
    for turn in range(6):
        # A guest comes and goes: every turn closes a group and opens another.
        registry.join_registry("guest", MemberFacts({}, ("north", "mart")))
        registry.leave_registry("guest")
        found = registry.join_registry("north", NORTH, identity["north"])
        identity["north"] = found.identity
        assert first in {group.name for group in registry.fetch_status().groups}, turn
    # Mart has been away, and takes every order in turn.
    found = registry.join_registry("mart", MART, identity["mart"])
    while found.closed:
        found = registry.join_registry("mart", MART, found.identity)
    registry.join_registry("mart", MART, found.identity)
    registry.join_registry("north", NORTH, found.identity)
    left = {group.name: group.closed for group in registry.fetch_status().groups}
    assert first not in left
    assert sum(left.values()) <= 2 * SMALL.groups
    with pytest.raises(IdentityError, match="is not the one") as told:
        registry.join_registry("mart", MART, identity["mart"])
    assert "not kept any more" in (told.value.detail or "")
    assert "viewkeeper refresh" in (told.value.hint or "")


def test_a_name_that_was_forgotten_is_not_given_again(registry: StoredRegistry) -> None:
    """Whoever was in the first of two groups of one name would ask the second for too much."""
    names = [gather(registry, {"north": NORTH, "mart": MART})]
    identity = {m: registry.join_registry(m, f).identity for m, f in PAIR.items()}
    while names[0] in {group.name for group in registry.fetch_status().groups}:
        registry.join_registry("guest", MemberFacts({}, ("north", "mart")))
        registry.leave_registry("guest")
        for member, facts in PAIR.items():
            found = registry.join_registry(member, facts, identity[member])
            identity[member] = found.identity
        names.append(found.group)
        assert len(names) < 20, "nothing was forgotten"
    names.append(gather_again(registry))
    assert len(set(names)) == len(names)


def gather_again(registry: StoredRegistry) -> str:
    """The same two in a group once more, after others."""
    registry.join_registry("guest", MemberFacts({}, ("north", "mart")))
    registry.leave_registry("guest")
    return registry.join_registry("north", NORTH).group


def test_who_left_may_come_back_for_a_while(registry: StoredRegistry) -> None:
    gather(registry, {"north": NORTH, "mart": MART})
    mart = registry.join_registry("mart", MART)
    registry.leave_registry("mart")
    registry.join_registry("north", NORTH)
    assert registry.join_registry("mart", MART, mart.identity).group != mart.group


def test_kills_while_it_is_trimmed(store: Place, registry: StoredRegistry) -> None:
    """Whoever is killed in the middle leaves an order that is whole from some number on."""
    rng = random.Random(8)
    group = gather(registry, BOTH)
    told = 0
    for _ in range(3):
        with Process("tests.registry.trim_writer", [store.url]) as writer:
            writer.wait_for("ack")
            time.sleep(rng.uniform(0, 0.3))
            writer.kill()
        acknowledged = [line.split() for line in writer.lines if line.startswith("ack")]
        told = max(told, *(int(words[1]) for words in acknowledged if len(words) == 3))
        start = kept_from(registry, group)
        found = registry.fetch_order(group, start, 10_000)
        assert [each.n for each in found] == list(range(start + 1, start + len(found) + 1))
        assert found[-1].n >= told
        assert [each.id.position for each in found] == [each.n for each in found]
    assert kept_from(registry, group) > 0
    assert len(stored(registry, group)) < told
