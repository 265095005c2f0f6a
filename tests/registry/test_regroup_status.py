"""`viewkeeper registry status`: open groups first, closed ones only where somebody is behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import call
from tests.registry.order_places import claimed, gather, ids
from viewkeeper.order.registry_address import open_store
from viewkeeper.order.registry_protocol import MemberFacts
from viewkeeper.order.store.stored_registry import StoredRegistry

NORTH = MemberFacts({"shop": ("items", "orders")})
MART = MemberFacts({"shop": (), "crm": ()}, parents=("north",), together="sales")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoredRegistry]:
    """Two members that have taken one of two ids, and a member for itself."""
    made = open_store(str(tmp_path / "registry.db"))
    group = gather(made, {"mart": MART, "north": NORTH})
    made.register_ids(group, ids("shop", 4, 7), claimed(made, "shop", "north", group))
    for member in ("mart", "north"):
        made.note_reached(group, member, 1)
    made.join_registry("far", MemberFacts({"erp": ()}))
    yield made
    made.close()


def words(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_status_in_words(store: StoredRegistry) -> None:
    shown = call("registry", "status", store.name)
    assert shown.exit_code == 1
    assert "not served" in shown.stdout
    assert ": 2 ids\n" in shown.stdout
    assert 'source "crm": nobody reports it now' in shown.stdout
    assert "group far: one member, which needs no order\n" in shown.stdout
    assert "erp" in shown.stdout
    assert 'source "erp"' not in shown.stdout
    lines = words(shown.stdout)
    assert ["mart", "1", "1", "north"] in [line[:4] for line in lines]
    assert ["north", "1", "1"] in [line[:3] for line in lines]
    assert ["shop", "7", "north"] in [line[:3] for line in lines]


def test_status_says_what_members_read(
    store: StoredRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = call("registry", "status", store.name).stdout
    assert "crm, shop, views of north, together as sales" in shown
    assert "shop (items, orders)" in shown


def test_closed_groups_are_shown_as_long_as_a_member_is_behind(store: StoredRegistry) -> None:
    group = store.join_registry("north", NORTH).group
    store.leave_registry("mart")
    assert closed_groups(store) == [group]
    assert f"group {group}: closed after 2 ids" in call("registry", "status", store.name).stdout
    # The one that left has not come to the end either, and never will.
    store.note_reached(group, "north", 2)
    assert closed_groups(store) == []
    assert group in closed_groups(store, "--all")
    assert group not in call("registry", "status", store.name).stdout
    assert f"group {group}: closed" in call("registry", "status", store.name, "--all").stdout


def closed_groups(store: StoredRegistry, *options: str) -> list[str]:
    groups = json.loads(call("registry", "status", store.name, "--json", *options).stdout)["groups"]
    closed = [group["closed"] for group in groups]
    assert closed == sorted(closed), "open groups come first"
    return [group["name"] for group in groups if group["closed"]]


def test_members_for_themselves_need_no_reporter(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "registry.db"))
    store.join_registry("far", MemberFacts({"erp": ()}))
    store.close()
    shown = call("registry", "status", store.name, "--json")
    assert shown.exit_code == 0
    (group,) = json.loads(shown.stdout)["groups"]
    assert (group["alone"], group["unreported"]) == (True, [])
    assert group["members"][0]["facts"] == {
        "sources": {"erp": []},
        "parents": [],
        "together": "",
        "awaits": {},
        "warehouse": "",
    }
