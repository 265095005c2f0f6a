"""What every registry promises, one suite over all places where it can be."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.registry.order_places import (
    FOREVER,
    GROUP,
    LABEL,
    Place,
    claimed,
    gather,
    ids,
    reading,
    reporting,
    whole_order,
)
from viewkeeper.errors import (
    IdentityError,
    OrderError,
    RegistryError,
    StaleReporterError,
)
from viewkeeper.order.registry_protocol import MemberFacts, OrderedId, Registry, Reporter
from viewkeeper.order.service.wire_format import IDS_MAX


def test_ids_get_numbers_without_gaps_that_every_member_reads(place: Place) -> None:
    one, other = place.open(), place.open()
    group = gather(one, {"north": reading("shop"), "south": reading("crm")})
    shop, crm = claimed(one, "shop", "north", group), reporting(other, "crm", "south")
    assert one.register_ids(group, ids("shop", 3, 7), shop) == 2
    assert other.register_ids(group, ids("crm", 5), crm) == 3
    assert one.register_ids(group, ids("shop", 8), shop) == 4
    expected = [(1, "shop@3"), (2, "shop@7"), (3, "crm@5"), (4, "shop@8")]
    for registry in (one, other, place.open()):
        assert whole_order(registry, group) == expected


def test_the_order_is_read_from_any_number(place: Place) -> None:
    registry = place.open()
    registry.register_ids(GROUP, ids("shop", *range(10, 20)), reporting(registry, "shop"))
    every = registry.fetch_order(GROUP, 0, 100)
    assert [each.n for each in every] == list(range(1, 11))
    assert registry.fetch_order(GROUP, 4, 3) == every[4:7]
    assert registry.fetch_order(GROUP, 10, 3) == ()


def test_an_id_is_accepted_once_however_often_it_is_sent(place: Place) -> None:
    registry = place.open()
    reporter = reporting(registry, "shop")
    registry.register_ids(GROUP, ids("shop", 1, 2, 3), reporter)
    assert registry.register_ids(GROUP, ids("shop", 1, 2), reporter) == 2
    assert registry.register_ids(GROUP, ids("shop", 2, 3, 4, 4), reporter) == 4
    assert registry.register_ids(GROUP, [], reporter) == 0
    assert whole_order(registry) == [(n, f"shop@{n}") for n in (1, 2, 3, 4)]


@pytest.mark.parametrize("sent", [[6], [5, 9, 6], [12, 11], [1]])
def test_nothing_is_ordered_before_what_is_registered(place: Place, sent: list[int]) -> None:
    registry = place.open()
    reporter = reporting(registry, "shop")
    registry.register_ids(GROUP, ids("shop", 5, 8), reporter)
    with pytest.raises(OrderError, match="was never registered") as refused:
        registry.register_ids(GROUP, ids("shop", *sent), reporter)
    assert refused.value.hint
    assert whole_order(registry) == [(1, "shop@5"), (2, "shop@8")]


def test_a_reporter_reports_its_own_source_only(place: Place) -> None:
    registry = place.open()
    reporter = reporting(registry, "shop")
    registry.join_registry("other", MemberFacts({"shop": ()}))
    with pytest.raises(OrderError, match="crm@1 is not for the reporter"):
        registry.register_ids(GROUP, ids("crm", 1), reporter)
    with pytest.raises(OrderError, match='group "other" is not for'):
        registry.register_ids("other", ids("shop", 1), reporter)
    assert whole_order(registry) == []


def test_groups_have_orders_of_their_own(place: Place) -> None:
    registry = place.open()
    first = reporting(registry, "shop")
    other = registry.join_registry("other", MemberFacts({"shop": ()}))
    assert other.identity != registry.join_registry("north", reading("shop")).identity
    second = claimed(registry, "shop", "other", "other")
    assert registry.register_ids(GROUP, ids("shop", 1, 2), first) == 2
    assert registry.register_ids("other", ids("shop", 2), second) == 1


def test_more_ids_than_one_request_holds(place: Place) -> None:
    registry = place.open()
    count = IDS_MAX + 5
    assert (
        registry.register_ids(GROUP, ids("shop", *range(1, count + 1)), reporting(registry, "shop"))
        == count
    )
    assert whole_order(registry)[-1] == (count, f"shop@{count}")


def test_one_member_reports_a_source_until_its_lease_ends(place: Place) -> None:
    one, other = place.open(), place.open()
    group = gather(one, {"north": reading("shop"), "south": reading("shop")})
    first = one.claim_source(group, "shop", "north", FOREVER)
    assert first == Reporter(group, "shop", "north", 1, None)
    assert other.claim_source(group, "shop", "south", FOREVER) is None
    one.register_ids(group, ids("shop", 1, 2), first)
    short = one.claim_source(group, "shop", "north", 0.01)
    assert short == Reporter(group, "shop", "north", 2, 2)
    second = soon_granted(other, group, "south")
    assert second == Reporter(group, "shop", "south", 3, 2)


def soon_granted(registry: Registry, group: str, member: str) -> Reporter:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if reporter := registry.claim_source(group, "shop", member, FOREVER):
            return reporter
        time.sleep(0.02)
    raise AssertionError("the lease has ended, and still nobody else may report")


def test_who_was_taken_over_is_refused_whenever_it_wakes_up(place: Place) -> None:
    one, other = place.open(), place.open()
    group = gather(one, {"north": reading("shop"), "south": reading("shop")})
    first = one.claim_source(group, "shop", "north", 0.01)
    assert first is not None
    # Its lease may have ended; as long as nobody else has claimed, it is the reporter.
    one.register_ids(group, ids("shop", 1), first)
    second = soon_granted(other, group, "south")
    other.register_ids(group, ids("shop", 2), second)
    for sent in ([2], [3], [1], []):
        with pytest.raises(StaleReporterError, match="does not report") as refused:
            one.register_ids(group, ids("shop", *sent), first)
        assert '"south" by token 2' in str(refused.value)
    one.release_claim(first)
    assert one.claim_source(group, "shop", "north", 1) is None
    assert whole_order(one, group) == [(1, "shop@1"), (2, "shop@2")]


def test_a_restarted_reporter_fences_what_it_was_before(place: Place) -> None:
    registry = place.open()
    before = reporting(registry, "shop")
    after = reporting(place.open(), "shop")
    assert after.token > before.token
    with pytest.raises(StaleReporterError):
        registry.register_ids(GROUP, ids("shop", 1), before)
    assert registry.register_ids(GROUP, ids("shop", 1), after) == 1


def test_a_released_source_is_free_at_once(place: Place) -> None:
    registry = place.open()
    group = gather(registry, {"north": reading("shop"), "south": reading("shop")})
    registry.release_claim(claimed(registry, "shop", "north", group))
    claimed(registry, "shop", "south", group)


def test_a_group_has_one_identity_that_members_remember(place: Place) -> None:
    gather(place.open(), {"north": reading("shop"), "south": reading("shop")})
    identity = place.open().join_registry("north", reading("shop")).identity
    assert len(identity) == 32
    south = place.open().join_registry("south", reading("shop"), remembered=identity)
    assert south.identity == identity
    assert [member.name for member in south.members] == ["north", "south"]
    for member in ("south", "unknown"):
        with pytest.raises(IdentityError, match="not the one that was joined") as refused:
            place.open().join_registry(member, reading("shop"), remembered="0" * 32)
        assert "viewkeeper refresh" in (refused.value.hint or "")
    assert [group.name for group in place.open().fetch_status().groups if not group.closed] == [
        south.group
    ]


def test_a_member_that_knows_more_than_the_registry_is_told(place: Place) -> None:
    registry = place.open()
    registry.register_ids(GROUP, ids("shop", 1, 2), reporting(registry, "shop"))
    with pytest.raises(IdentityError, match="order of 2 ids, and a member knows of 3"):
        registry.fetch_order(GROUP, 3, 10)
    with pytest.raises(IdentityError, match="order of 2 ids, and a member knows of 3"):
        registry.note_reached(GROUP, "north", 3)


def test_who_has_not_joined_is_told_to(place: Place) -> None:
    registry = place.open()
    registry.join_registry("north", reading("shop"))
    with pytest.raises(RegistryError, match='no group "unknown"'):
        registry.fetch_order("unknown", 0, 1)
    with pytest.raises(RegistryError, match='no group "unknown"'):
        registry.fetch_members("unknown")
    with pytest.raises(RegistryError, match='has no member "south"'):
        registry.claim_source(GROUP, "shop", "south", 1)
    with pytest.raises(RegistryError, match='has no member "south"'):
        registry.note_reached(GROUP, "south", 0)


def test_status_says_who_is_how_far_and_waits_for_whom(place: Place) -> None:
    registry = place.open()
    parents = ("far", "north", "south")
    members = {
        "mart": reading("crm", parents=parents),
        "north": MemberFacts({"shop": ("items",)}, together=LABEL),
        "south": reading("crm"),
    }
    name = gather(registry, members)
    registry.register_ids(name, ids("shop", 1, 2, 3), claimed(registry, "shop", "north", name))
    for member, n in (("north", 3), ("south", 1), ("south", 0), ("mart", 1)):
        registry.note_reached(name, member, n)
    (group,) = (each for each in registry.fetch_status().groups if not each.closed)
    assert (group.name, group.last, group.is_alone) == (name, 3, False)
    assert [(m.name, m.facts, m.reached) for m in registry.fetch_members(name)] == [
        ("mart", members["mart"], 1),
        ("north", members["north"], 3),
        ("south", members["south"], 1),
    ]
    assert group.waiting_members == {"mart": ("south",), "south": ()}
    assert group.unreported_sources == ("crm", "far")
    (reports,) = group.reports
    assert (reports.source, reports.member, reports.position) == ("shop", "north", 3)
    assert 0 < reports.lease <= FOREVER


def test_a_reader_that_waits_learns_of_a_new_id(place: Place) -> None:
    registry = place.open()
    reporter = reporting(registry, "shop")
    assert registry.fetch_order(GROUP, 0, 10, wait_seconds=0.05) == ()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(place.open().fetch_order, GROUP, 0, 10, 60.0)
        time.sleep(0.1)
        assert not waiting.done()
        registry.register_ids(GROUP, ids("shop", 4), reporter)
        (found,) = waiting.result(timeout=50)
    assert (found.n, str(found.id)) == (1, "shop@4")


def test_reporters_and_readers_at_once(place: Place) -> None:
    """Four report a source each, in pieces and with repetitions; two read along."""
    sources = [f"s{i}" for i in range(4)]
    done = threading.Event()
    members = {f"member of {source}": reading(source) for source in sources}
    group = gather(place.open(), members)

    def report(source: str) -> None:
        registry = place.open()
        reporter = reporting(registry, source, f"member of {source}")
        assert reporter.group == group
        for start in range(1, 40, 3):
            registry.register_ids(group, ids(source, *range(start, start + 3)), reporter)
            registry.register_ids(group, ids(source, start + 1, start + 2), reporter)

    def read() -> list[OrderedId]:
        registry = place.open()
        found: list[OrderedId] = []
        while True:
            ended = done.is_set()
            page = registry.fetch_order(group, len(found), 7, wait_seconds=0.05)
            found += page
            if ended and not page:
                return found

    with ThreadPoolExecutor(6) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        try:
            for each in [pool.submit(report, source) for source in sources]:
                each.result(timeout=120)
        finally:
            done.set()
        one, other = (reader.result(timeout=60) for reader in readers)
    assert one == other
    assert [each.n for each in one] == list(range(1, len(one) + 1))
    for source in sources:
        assert [e.id.position for e in one if e.id.source == source] == list(range(1, 40))
