"""Re-anchoring: a source has lost changes, and its views get over that by a difference.

What was lost is never known, so what counts is that the view is right afterwards, that nobody ever
saw it empty or half repaired, that its past and its table stay, and that no view gets over a gap in
any other way, whatever dies meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.engine.by_hand import load_by_hand
from tests.engine.shop import LINES, Shop, rows_of
from viewkeeper.engine.capture.lookout import LocalLookout
from viewkeeper.engine.load import loader
from viewkeeper.errors import ProjectError
from viewkeeper.warehouse.store import Store

VIEWS = {
    "lines": LINES,
    "customers": "SELECT id, name, city FROM crm.customer",
    "products": "SELECT id, title, cents FROM catalogue.product",
}
LOST = ("lines", "customers")


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """A loaded shop whose customers changed while nobody captured that."""
    shop = Shop(tmp_path, VIEWS)
    shop.fill()
    load_by_hand(shop)
    shop.execute("crm", "UPDATE customer SET name = 'before' WHERE id = 1")
    with viewkeeper.open(shop.folder) as project:
        assert project.refresh().waiting == {}
    lose(shop)
    return shop


def lose(shop: Shop) -> None:
    with viewkeeper.open(shop.folder) as project:
        connections = project.open_connections()
        connections.get_source("crm").detach_source()
        connections.close()
    shop.execute("crm", "UPDATE customer SET name = name || ' unseen' WHERE id < 4")
    shop.execute("crm", "DELETE FROM customer WHERE id = 5")
    shop.execute("crm", "INSERT INTO customer VALUES (70, 'new', 'z')")


def right(shop: Shop, project: viewkeeper.Project) -> None:
    for name, sql in VIEWS.items():
        assert rows_of(project.view(name)) == shop.recomputed(sql), name


def test_a_view_gets_over_a_gap_by_its_difference(shop: Shop, spark: SparkSession) -> None:
    with viewkeeper.open(shop.folder, spark=spark) as project:
        before = {name: project.view(name).head for name in LOST}
        stood = {name: rows_of(project.view(name)) for name in LOST}
        waiting = project.refresh().waiting
        assert sorted(waiting) == sorted(LOST)
        assert "--reanchor lines" in waiting["lines"]
        report = project.refresh(reanchor=LOST)
        assert (sorted(report.loaded), report.waiting) == (sorted(LOST), {})
        right(shop, project)
        for name in LOST:
            head, old = project.view(name).head, before[name]
            assert (head.table, head.created_ts, head.horizon) == (
                old.table,
                old.created_ts,
                old.horizon,
            )
            assert head.exact_ts == head.ts > old.ts
            assert "re-anchored" in head.versions[-1].causes[0]
            assert rows_of(project.view(name), as_of=old.ts) == stood[name]
        shop.execute("crm", "UPDATE customer SET city = 'far' WHERE id = 2")
        shop.execute("shop", "INSERT INTO item VALUES (3, 1, 9)")
        assert project.refresh().waiting == {}
        right(shop, project)
        assert all(found.ok for found in project.verify(every_state=True))


def test_a_child_gets_the_difference_as_one_transaction(
    shop: Shop, tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> None:
    child = tmp_path_factory.mktemp("child")
    (child / "views").mkdir()
    text = f"warehouse: ./warehouse\nsources: {{up: {{kind: warehouse, path: {shop.folder}}}}}\n"
    (child / "viewkeeper.yml").write_text(text)
    sql = "CREATE MATERIALIZED VIEW copy AS SELECT c.id, c.name, c.city FROM up.customers c"
    (child / "views" / "copy.sql").write_text(sql)
    with viewkeeper.open(child, spark=spark) as below:
        assert list(below.refresh().loaded) == ["copy"]
        with viewkeeper.open(shop.folder, spark=spark) as project:
            assert project.refresh(reanchor=LOST).waiting == {}
        report = below.refresh()
        assert (report.loaded, report.waiting) == ({}, {})
        assert rows_of(below.view("copy")) == shop.recomputed(VIEWS["customers"])


def test_the_policy_decides_for_each_view(shop: Shop, spark: SparkSession) -> None:
    """One that may not be re-anchored stops before the gap, run after run, until it is told to."""
    file = shop.folder / "viewkeeper.yml"
    file.write_text(file.read_text() + "on_gap: reanchor\nviews: {customers: {on_gap: stop}}\n")
    with viewkeeper.open(shop.folder, spark=spark) as project:
        report = project.refresh()
        assert list(report.loaded) == ["lines"]
        assert list(report.waiting) == ["customers"]
        shop.execute("crm", "UPDATE customer SET city = 'far' WHERE id = 2")
        waiting = project.refresh().waiting
        assert list(waiting) == ["customers"]
        assert 'it has lost changes that view "customers" still needs' in waiting["customers"]
        assert rows_of(project.view("lines")) == shop.recomputed(LINES)
        assert project.refresh(reanchor=["customers"]).waiting == {}
        right(shop, project)


def test_views_of_a_group_are_not_anchored_on_their_own(shop: Shop) -> None:
    file = shop.folder / "viewkeeper.yml"
    text = file.read_text()
    file.write_text(text + "registry: sqlite:///registry.db\non_gap: reanchor\n")
    with pytest.raises(ProjectError, match="exclude each other"):
        viewkeeper.open(shop.folder)
    file.write_text(text + "registry: sqlite:///registry.db\n")
    with (
        viewkeeper.open(shop.folder) as project,
        pytest.raises(ProjectError, match="cannot re-anchor"),
    ):
        project.refresh(reanchor=["lines"])


STEPS: dict[str, tuple[Any, str]] = {
    "before the gap is written": (Store, "write_plan"),
    "before its record": (Store, "commit"),
    "before the source is followed anew": (LocalLookout, "begin_again"),
    "in the load": (loader, "load_difference"),
}


@pytest.mark.campaign
@pytest.mark.parametrize("step", STEPS)
def test_whatever_dies_meanwhile_the_old_state_stays_and_it_is_done_again(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    stood = {}
    with viewkeeper.open(shop.folder, spark=spark) as project:
        stood = {name: rows_of(project.view(name)) for name in LOST}
        place, method = STEPS[step]
        with monkeypatch.context() as patch:
            patch.setattr(place, method, dies(getattr(place, method)))
            with pytest.raises(SystemExit):
                project.refresh(reanchor=LOST)
    with viewkeeper.open(shop.folder, spark=spark) as project:
        assert sorted(project.refresh().waiting) == sorted(LOST), "nothing else gets over a gap"
        assert {name: rows_of(project.view(name)) for name in LOST} == stood
        assert project.refresh(reanchor=LOST).waiting == {}
        right(shop, project)


def dies(of: Callable[..., Any]) -> Callable[..., Any]:
    """The process ends here."""

    def ends(*_: Any, **__: Any) -> Any:
        raise SystemExit(of.__name__)

    return ends
