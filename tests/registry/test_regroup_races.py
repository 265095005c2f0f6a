"""Members that take orders while others come and go, in threads and in processes that are killed.

Each member reports its own source and takes every order that it is given to its end. Afterwards,
nothing that was acknowledged is missing from the order in which it was, nobody has missed an id of
an order that it was in, nothing came into an order after somebody had seen its end, and the
positions of a source grow over all orders that a member took, one after the other.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tests.faults.processes import Process
from tests.registry.order_places import FOREVER, Place, gather, ids, whole_order
from viewkeeper.errors import ClosedGroupError
from viewkeeper.order.member_groups import assign_groups
from viewkeeper.order.registry_protocol import Assignment, MemberFacts, OrderedId, Registry

MEMBERS = {
    "a": MemberFacts({"s": (), "s of a": ()}),
    "b": MemberFacts({"s of b": ()}, parents=("a",)),
    "c": MemberFacts({"s": (), "s of c": ()}, parents=("b",)),
}
"""A chain whose ends share a source, so all of them are one group; each has a source of its own."""
KILLS = 3


@dataclass
class Taken:
    """What one member saw: by group, in the order in which it was given them."""

    orders: dict[str, list[OrderedId]] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    told: dict[str, dict[int, str]] = field(default_factory=dict)


def test_members_move_on_while_others_come_and_go(place: Place) -> None:
    rng = random.Random(3)

    def churn(_: threading.Event) -> None:
        registry = place.open()
        for turn in range(12):
            match turn % 4:
                case 0:
                    registry.join_registry("guest", MemberFacts({}, parents=("a", "c")))
                case 1:
                    registry.join_registry(
                        "a", MemberFacts({**MEMBERS["a"].sources, f"t{turn}": ()})
                    )
                case 2:
                    registry.leave_registry("guest")
                case _:
                    registry.join_registry("apart", MemberFacts({"s": ()}))
            time.sleep(rng.uniform(0, 0.05))

    check(place.open(), run(place, churn))


def test_killed_guests_leave_groups_that_follow_from_the_facts(store: Place) -> None:
    """Whenever one is killed, it has joined or not, left or not, and never by half."""
    rng = random.Random(4)
    turns: list[str] = []

    def churn(failed: threading.Event) -> None:
        registry = store.open()
        for _ in range(KILLS):
            with Process("tests.registry.regroup_guest", [store.url, "guest", "a", "c"]) as guest:
                guest.wait_for("turn 2")
                time.sleep(rng.uniform(0, 0.2))
                guest.kill()
            turns.extend(line for line in guest.lines if line.startswith("turn"))
            assert_consistent(registry)
            if failed.is_set():
                return

    taken = run(store, churn)
    assert len(turns) >= 2 * KILLS
    check(store.open(), taken)


def assert_consistent(registry: Registry) -> None:
    """Every member is in one open group, and the groups are those that the facts ask for."""
    groups = [group for group in registry.fetch_status().groups if not group.closed]
    facts = {member.name: member.facts for group in groups for member in group.members}
    assert sum(len(group.members) for group in groups) == len(facts)
    assert {frozenset(m.name for m in group.members) for group in groups} == assign_groups(facts)


def run(place: Place, churn: Callable[[threading.Event], None]) -> dict[str, Taken]:
    """All members at work, in threads, until groups have changed for a while."""
    registry = place.open()
    gather(registry, MEMBERS)
    first = {member: registry.join_registry(member, facts) for member, facts in MEMBERS.items()}
    quiet, failed = threading.Event(), threading.Event()

    def work(member: str) -> Taken:
        try:
            return take(place.open(), member, first[member], quiet)
        except BaseException:
            failed.set()
            raise

    with ThreadPoolExecutor(len(MEMBERS)) as pool:
        works = {member: pool.submit(work, member) for member in MEMBERS}
        try:
            churn(failed)
        finally:
            quiet.set()
        return {member: each.result(timeout=120) for member, each in works.items()}


def take(registry: Registry, member: str, found: Assignment, quiet: threading.Event) -> Taken:
    """Report and take, order after order, until things are quiet and the last one is taken."""
    taken = Taken()
    position = 0
    while True:
        group = found.group
        order, told = taken.orders.setdefault(group, []), taken.told.setdefault(group, {})
        try:
            reporter = registry.claim_source(group, f"s of {member}", member, FOREVER)
            assert reporter is not None
            while True:
                done = quiet.is_set()
                if not done:
                    n = registry.register_ids(group, ids(reporter.source, position + 1), reporter)
                    position += 1
                    told[n] = f"{reporter.source}@{position}"
                page = registry.fetch_order(group, len(order), 5)
                order += page
                if done and not page:
                    return taken
        except ClosedGroupError:
            to_the_end(registry, group, order)
            taken.ends[group] = len(order)
        found = registry.join_registry(member, current(registry, member), found.identity)


def to_the_end(registry: Registry, group: str, order: list[OrderedId]) -> None:
    try:
        while True:
            order += registry.fetch_order(group, len(order), 5)
    except ClosedGroupError:
        return


def current(registry: Registry, member: str) -> MemberFacts:
    """What the member said last: others change what it reads in these tests."""
    for group in registry.fetch_status().groups:
        for each in group.members:
            if not group.closed and each.name == member:
                return each.facts
    return MEMBERS[member]


def check(registry: Registry, all_taken: dict[str, Taken]) -> None:
    status = {group.name: group for group in registry.fetch_status().groups}
    for member, taken in all_taken.items():
        was_in = [g for g in status.values() if member in {m.name for m in g.members}]
        missed = {group.name for group in was_in if group.last} - taken.orders.keys()
        assert not missed, f"{member} was not given all its orders"
        for group, order in taken.orders.items():
            whole = whole_order(registry, group)
            assert [(each.n, str(each.id)) for each in order] == whole[: len(order)]
            end = taken.ends.get(group, len(whole))
            assert end == len(whole), "the order went on after its end"
            told = taken.told[group]
            assert told.items() <= dict(whole).items(), "acknowledged, and not in the order"
        positions = [each.id for order in taken.orders.values() for each in order]
        for source in {each.source for each in positions}:
            found = [each.position for each in positions if each.source == source]
            assert found == sorted(set(found)), f"{member} saw {source} go back"
        own = [each.position for each in positions if each.source == f"s of {member}"]
        assert own == list(range(1, len(own) + 1)), "an id of its own was lost"
    assert sum(group.closed for group in status.values()) > len(MEMBERS), "groups did not change"
