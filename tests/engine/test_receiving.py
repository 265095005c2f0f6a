"""What has come from a source and waits for its turn: reports are split where ids were registered.

And reporting: one member at a time, none of whose reports is lost when another one takes over.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from viewkeeper.engine.group import order_client, received_sources
from viewkeeper.engine.group.order_client import ReporterClaims
from viewkeeper.engine.group.received_sources import Inbox
from viewkeeper.order.global_id import GlobalId
from viewkeeper.order.mediator import TakenIds
from viewkeeper.order.registry_protocol import MemberFacts
from viewkeeper.order.store.sqlite_store import SqliteStore
from viewkeeper.order.store.stored_registry import StoredRegistry
from viewkeeper.updates.schema_change import SchemaChange
from viewkeeper.updates.source_protocol import Boundary
from viewkeeper.warehouse.metadata.plan_files import LedgerEntry

DROPPED = SchemaChange("drop_column", "t", "c")


def taken(n: int, first: int | None = None) -> TakenIds:
    return TakenIds(n, (), {}, n if first is None else first)


def test_a_report_becomes_an_entry() -> None:
    source = Inbox(4, 4)
    source.add_reports(
        [Boundary(6, 1.0, 2, emptied=("t",)), Boundary(9, 2.0, 3, reshaped=(DROPPED,))]
    )
    assert source.read == 9
    first = source.take_entry("shop", 6, 2, taken(1), 50.0)
    assert first == LedgerEntry(2, "shop", 4, 6, 1.0, 2, ("t",), (), (), 1, 1)
    second = source.take_entry("shop", 9, 3, taken(4, 2), 50.0)
    assert second == LedgerEntry(3, "shop", 6, 9, 2.0, 3, (), (), (DROPPED,), 4, 2)
    assert (source.at, len(source.reports)) == (9, 0)


def test_reports_that_one_id_covers_are_one_entry() -> None:
    source = Inbox(0, 0)
    source.add_reports(
        [Boundary(2, 5.0, 1, emptied=("t",)), Boundary(3, 4.0, 1, emptied=("t", "u"))]
    )
    entry = source.take_entry("shop", 7, 2, taken(1), 50.0)
    assert entry == LedgerEntry(2, "shop", 0, 7, 4.0, 2, ("t", "u"), (), (), 1, 1)
    assert source.read == 7, "what lies before is not looked at again"


def test_a_report_beyond_an_id_stays() -> None:
    """SQLite reports what it committed between two looks as one; another reader cut it earlier."""
    source = Inbox(0, 0)
    source.add_reports([Boundary(9, 3.0, 5, reshaped=(DROPPED,))])
    first = source.take_entry("shop", 4, 2, taken(1), 50.0)
    assert first == LedgerEntry(2, "shop", 0, 4, 3.0, 0, (), (), (), 1, 1)
    rest = source.take_entry("shop", 9, 3, taken(2), 50.0)
    assert rest == LedgerEntry(3, "shop", 4, 9, 3.0, 5, (), (), (DROPPED,), 2, 2)


def test_an_id_over_nothing_that_was_reported_is_from_now() -> None:
    assert Inbox(0, 0).take_entry("shop", 4, 2, taken(1), 50.0).committed_at == 50.0


def test_a_view_waits_for_what_was_captured_with_too_few_columns() -> None:
    source = Inbox(0, 0)
    assert source.is_ready
    source.add_reports([Boundary(4, 1.0, 1), Boundary(6, 1.0, 1)])
    source.required, source.captured = 4, {"t": ["id"]}
    assert not source.is_ready
    assert source.has_captured({"t": ["id"]})
    assert not source.has_captured({"t": ["id", "v"]}), "that begins later"
    source.take_entry("shop", 3, 2, taken(1), 0.0)
    assert not source.is_ready
    source.take_entry("shop", 4, 3, taken(2), 0.0)
    assert source.is_ready


def test_a_report_that_nobody_registers_is_overdue(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Inbox(0, 0)
    source.add_reports([Boundary(4, 1.0, 1), Boundary(6, 1.0, 1)])
    assert source.overdue_position is None
    monkeypatch.setattr(received_sources, "OVERDUE_SECONDS", -1.0)
    assert source.overdue_position == 4
    source.take_entry("shop", 5, 2, taken(1), 0.0)
    assert source.overdue_position == 6
    source.take_entry("shop", 6, 3, taken(2), 0.0)
    assert source.overdue_position is None


@pytest.fixture
def registry(tmp_path: Path) -> StoredRegistry:
    made = StoredRegistry(SqliteStore(tmp_path / "registry.db"))
    for member in ("one", "two"):
        made.join_registry(member, MemberFacts({"shop": ("t",)}, together="x"))
    return made


def test_one_reports_and_the_next_goes_on_behind_it(
    registry: StoredRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order_client, "RENEW_SECONDS", 0.0)
    group = registry.join_registry("one", MemberFacts({"shop": ("t",)}, together="x")).group
    one, two = (ReporterClaims(registry, group, member) for member in ("one", "two"))
    assert one.claim_lease("shop")
    assert not one.claim_lease("shop"), "it is the reporter already"
    assert not two.claim_lease("shop")
    assert not two.register_new("shop", [3])
    assert one.register_new("shop", [3, 1, 3])
    assert not one.register_new("shop", [1, 3])
    one.release_claims()
    assert two.claim_lease("shop")
    assert two.register_new("shop", [1, 2, 3, 5])
    assert not one.register_new("shop", [7]), "it does not report any more"
    ids = [each.id for each in registry.fetch_order(group, 0, 10)]
    assert ids == [GlobalId("shop", position) for position in (1, 3, 5)]


def test_a_reporter_that_was_replaced_notices(
    registry: StoredRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order_client, "RENEW_SECONDS", 0.0)
    monkeypatch.setattr(order_client, "LEASE_SECONDS", 0.0)
    group = registry.join_registry("one", MemberFacts({"shop": ("t",)}, together="x")).group
    one, two = (ReporterClaims(registry, group, member) for member in ("one", "two"))
    assert one.claim_lease("shop")
    assert two.claim_lease("shop")
    assert not one.register_new("shop", [4])
    assert not one.is_reporting("shop")
    assert two.register_new("shop", [4])


def test_a_closed_group_takes_no_reports(
    registry: StoredRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order_client, "RENEW_SECONDS", 0.0)
    group = registry.join_registry("one", MemberFacts({"shop": ("t",)}, together="x")).group
    one = ReporterClaims(registry, group, "one")
    assert one.claim_lease("shop")
    registry.leave_registry("two")
    assert not one.register_new("shop", [4])
    assert not one.is_reporting("shop")
