"""`viewkeeper status` of a member: its group, whom it waits for, and a registry that is away.

The registry is real; how far members are is told to it as their own runs do.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.conftest import call
from viewkeeper.cli.commands.status_command import group_lines
from viewkeeper.engine.group.group_status import gather_group
from viewkeeper.engine.settings.project_file import Settings, read_settings
from viewkeeper.order.global_id import GlobalId
from viewkeeper.order.registry_protocol import MemberFacts
from viewkeeper.order.store.sqlite_store import SqliteStore
from viewkeeper.order.store.stored_registry import StoredRegistry

SHOP = MemberFacts({"shop": ("t",)})


@pytest.fixture
def registry(tmp_path: Path) -> StoredRegistry:
    return StoredRegistry(SqliteStore(tmp_path / "registry.db"))


@pytest.fixture
def report(tmp_path: Path) -> Settings:
    """A project over the views of another one, and over the base of these."""
    folder = tmp_path / "report"
    (folder / "views").mkdir(parents=True)
    sources = "sources: {shop: {kind: sqlite, path: shop.db}}"
    (folder / "viewkeeper.yml").write_text(f"warehouse: ./w\nregistry: ../registry.db\n{sources}\n")
    return read_settings(folder)


def test_a_project_without_a_registry_has_no_group(report: Settings) -> None:
    assert gather_group(replace(report, registry=None)) is None
    assert group_lines(None) == []


def test_who_waits_for_whom(registry: StoredRegistry, report: Settings) -> None:
    missing = group_lines(gather_group(report))
    assert missing[0].startswith("\nregistry "), "it has no store yet, and says so"
    registry.join_registry("sales", SHOP)
    assert group_lines(gather_group(report))[0].endswith('"report" has not joined it yet')
    registry.join_registry("report", MemberFacts({"crm": ("t",)}))
    assert group_lines(gather_group(report))[0].endswith('"report" has nobody to agree with')
    group = registry.join_registry("report", replace(SHOP, parents=("sales",))).group
    reporter = registry.claim_source(group, "shop", "sales", 10.0)
    assert reporter is not None
    registry.register_ids(group, [GlobalId("shop", 3), GlobalId("shop", 5)], reporter)
    registry.note_reached(group, "report", 1)
    registry.note_reached(group, "sales", 1)
    assert group_lines(gather_group(report))[0].endswith("1 of 2 ids committed")
    assert group_lines(gather_group(report))[1:] == ["  waits for sales"]
    registry.note_reached(group, "sales", 2)
    assert group_lines(gather_group(report))[1:] == [], "now it has work of its own"
    registry.release_claim(reporter)
    assert group_lines(gather_group(report))[1:] == ['  nobody reports source "shop" now']


def test_leaving(registry: StoredRegistry, tmp_path: Path) -> None:
    for member in ("one", "two"):
        registry.join_registry(member, replace(SHOP, together="x"))
    url = str(tmp_path / "registry.db")
    wrong = call("registry", "leave", url, "tow", "--yes")
    assert wrong.exit_code == 2
    assert 'did you mean "two"' in wrong.output
    done = call("registry", "leave", url, "two", "--yes")
    assert done.exit_code == 0, done.output
    assert [m.name for g in registry.fetch_status().groups if not g.closed for m in g.members] == [
        "one"
    ]
