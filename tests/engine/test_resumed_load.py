"""A load that is killed goes on with the parts that it has, exactly; or begins again, and says so.

Processes are killed by SIGKILL when some parts are done. Then rows of finished and of unfinished
ranges change, also from one range to another, and another process goes on. What SQLite computes
from the same databases is what must be there.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.borrowed_spark import gateway_environment
from tests.engine.shop import LINES, Shop, rows_of
from tests.samples import keep_some
from viewkeeper.engine.load import load_job, loader, scan_parts, view_recomputation
from viewkeeper.engine.report import SilentObserver
from viewkeeper.updates.source_protocol import KeyRange
from viewkeeper.warehouse.metadata.unfinished_load import FOLDER, list_unfinished

ORDERS = "SELECT o.id, o.customer_id + 1 AS customer FROM shop.orders o WHERE o.id <> 7"
SUMS = (
    "SELECT c.city, count(*) AS n, sum(o.id) AS ids FROM shop.orders o "
    "JOIN crm.customer c ON c.id = o.customer_id GROUP BY c.city"
)
SETTINGS = "batch: {inline_rows: 0}\n"


class Listener(SilentObserver):
    """Keeps what is said of loads, and of trouble."""

    def __init__(self) -> None:
        self.stages: list[tuple[str, str]] = []
        self.troubles: list[str] = []

    def on_load_progress(self, view: str, stage: str) -> None:
        self.stages.append((view, stage))

    def on_trouble(self, error: viewkeeper.ViewkeeperError) -> None:
        self.troubles.append(str(error))


def kill_load(shop: Shop, spark: SparkSession, parts: int) -> int:
    """Load in another process, which dies when so many parts are done; how many there are."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.killed_load", str(shop.folder), str(parts)],
        env={**os.environ, **gateway_environment(spark)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    return int(done.stdout.split()[-1])


def change_rows(shop: Shop) -> None:
    """Changes in all ranges, some of them from one to another; several of some rows."""
    shop.execute(
        "shop",
        "UPDATE orders SET customer_id = customer_id + 1 WHERE id % 3 = 0",
        "DELETE FROM orders WHERE id % 10 = 4",
        "UPDATE orders SET id = id + 100 WHERE id IN (1, 22)",
        "INSERT OR REPLACE INTO orders VALUES (4, 2, NULL), (200, 3, NULL)",
        "UPDATE orders SET customer_id = 5 WHERE id = 4",
    )
    shop.execute("crm", "UPDATE customer SET city = 'moved' WHERE id < 3")


def go_on(shop: Shop, spark: SparkSession) -> Listener:
    """Refresh until everything is there; what was said."""
    listener = Listener()
    with viewkeeper.open(shop.folder, spark=spark) as project:
        assert project.refresh(listener).waiting == {}
        for name, sql in shop.views.items():
            assert rows_of(project.view(name)) == shop.recomputed(sql), name
    assert list_unfinished(shop.folder / "warehouse") == []
    assert not [*(shop.folder / "warehouse" / FOLDER).glob("*")]
    return listener


def files_of(shop: Shop, folder: str) -> dict[str, int]:
    """The data files below a folder of the warehouse, and when they were written."""
    found = (shop.folder / "warehouse" / folder).glob("*/*.parquet")
    return {path.name: path.stat().st_mtime_ns for path in found}


PARTS = [(ORDERS, 3), (LINES, 2), (SUMS, 5), (ORDERS, 0), (ORDERS, 99), (LINES, 99)]


@pytest.mark.parametrize(
    ("sql", "parts"),
    keep_some(PARTS, range(3)),
    ids=["direct-3", "join-2", "report-5", "direct-0", "direct-all", "join-all"],
)
def test_a_killed_load_goes_on(tmp_path: Path, spark: SparkSession, sql: str, parts: int) -> None:
    shop = Shop(tmp_path, {"v": sql}, SETTINGS)
    shop.fill()
    there = min(kill_load(shop, spark, parts), parts)
    kept = files_of(shop, "views") if sql == ORDERS else files_of(shop, FOLDER)
    assert len(kept) >= there > 0 or parts == 0
    change_rows(shop)
    stages = go_on(shop, spark).stages
    said = f"scanning and joining, {there} parts of a load that was interrupted are there"
    assert stages[0] == ("v", said if parts else "scanning and joining")
    if sql == ORDERS:
        # What was done is part of the table, as it was written.
        assert kept.items() <= files_of(shop, "views").items()
    change_rows(shop)
    go_on(shop, spark)


def test_it_is_killed_again_and_again(tmp_path: Path, spark: SparkSession) -> None:
    shop = Shop(tmp_path, {"v": ORDERS}, SETTINGS)
    shop.fill()
    for parts in (1, 2, 4):
        kill_load(shop, spark, parts)
        change_rows(shop)
    assert "4 parts" in go_on(shop, spark).stages[0][1]


def test_other_views_are_maintained_meanwhile(tmp_path: Path, spark: SparkSession) -> None:
    """They would let go of what the load still needs."""
    shop = Shop(tmp_path, {"others": "SELECT o.id FROM shop.orders o"}, SETTINGS)
    shop.fill()
    go_on(shop, spark)
    shop.define("v", ORDERS)
    kill_load(shop, spark, 3)
    change_rows(shop)
    assert "3 parts" in go_on(shop, spark).stages[0][1]


def test_a_source_that_cannot_answer_any_more_is_read_again(
    tmp_path: Path, spark: SparkSession
) -> None:
    shop = Shop(tmp_path, {"v": ORDERS}, SETTINGS)
    shop.fill()
    kill_load(shop, spark, 3)
    change_rows(shop)
    shop.execute(
        "shop",
        "UPDATE _viewkeeper_database SET trimmed = (SELECT max(seq) - 1 FROM _viewkeeper_log)",
        "DELETE FROM _viewkeeper_log WHERE seq <= (SELECT trimmed FROM _viewkeeper_database)",
    )
    stages = [stage for _, stage in go_on(shop, spark).stages]
    assert any("begins again" in stage and "trimmed" in stage for stage in stages), stages


def test_a_database_that_was_replaced_is_read_again(tmp_path: Path, spark: SparkSession) -> None:
    shop = Shop(tmp_path, {"v": ORDERS}, SETTINGS)
    shop.fill()
    kill_load(shop, spark, 3)
    (tmp_path / "other").mkdir()
    other = Shop(tmp_path / "other", {}, SETTINGS)
    other.fill(orders=11)
    for path in tmp_path.glob("shop.db*"):
        path.unlink()
    (tmp_path / "other" / "shop.db").rename(tmp_path / "shop.db")
    assert any("begins again" in stage for _, stage in go_on(shop, spark).stages)


def test_a_part_that_was_lost_is_read_again(tmp_path: Path, spark: SparkSession) -> None:
    shop = Shop(tmp_path, {"v": ORDERS, "w": SUMS}, SETTINGS)
    shop.fill()
    kill_load(shop, spark, 4)
    files = [*(tmp_path / "warehouse").glob("views/v-*/*.parquet")]
    files += (tmp_path / "warehouse").glob(f"{FOLDER}/*/rows-*.parquet")
    assert files
    files[0].unlink()
    files[-1].write_bytes(b"short")
    change_rows(shop)
    go_on(shop, spark)


def test_another_definition_begins_again(tmp_path: Path, spark: SparkSession) -> None:
    shop = Shop(tmp_path, {"v": ORDERS}, SETTINGS)
    shop.fill()
    kill_load(shop, spark, 3)
    shop.define("v", ORDERS.replace("+ 1", "+ 2"))
    assert go_on(shop, spark).stages[0] == ("v", "scanning and joining")


def test_a_view_that_is_gone_leaves_nothing(tmp_path: Path, spark: SparkSession) -> None:
    shop = Shop(tmp_path, {"v": ORDERS, "w": "SELECT c.id FROM crm.customer c"}, SETTINGS)
    shop.fill()
    kill_load(shop, spark, 1)
    (tmp_path / "views" / "v.sql").unlink()
    del shop.views["v"]
    go_on(shop, spark)
    assert not [*(tmp_path / "warehouse" / "views").glob("v-*")]


def test_a_log_is_not_held_for_ever(tmp_path: Path, spark: SparkSession) -> None:
    """A load that might go on gives way once more changes wait for it than for any view."""
    shop = Shop(tmp_path, {"v": ORDERS}, "batch: {inline_rows: 0, wait_rows: 20}\n")
    shop.fill()
    kill_load(shop, spark, 3)
    change_rows(shop)
    (before,) = list_unfinished(tmp_path / "warehouse")
    with viewkeeper.open(shop.folder, spark=spark) as project:
        with project.open_maintainer("test", SilentObserver()) as maintainer:
            maintainer.start_run()
            maintainer.see_commits()
            assert maintainer.loader.held_positions("shop") == [before.positions["shop"]]
            maintainer._advance_views()
            assert maintainer.loader.held_positions("shop") == []
        assert project.refresh().waiting == {}
        assert rows_of(project.view("v")) == shop.recomputed(ORDERS)


def test_a_key_that_is_none_is_left_to_spark(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database need not enforce what it declares; then rows are summed."""
    given = view_recomputation.divide_scan

    def by_customer(relation: Any, fields: Any, opener: Any, slots: int) -> Any:
        return tuple(
            KeyRange("customer_id", part.low, part.high) if part else None
            for part in given(relation, fields, opener, slots)
        )

    monkeypatch.setattr(scan_parts, "divide_scan", by_customer)
    sql = "SELECT o.customer_id FROM shop.orders o WHERE o.id >= 0"
    shop = Shop(tmp_path, {"v": sql}, SETTINGS)
    shop.fill()
    go_on(shop, spark)


def test_loads_run_side_by_side_and_one_that_fails_is_alone(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    views = {
        "orders": ORDERS,
        "lines": LINES,
        "odd": "SELECT p.id, p.cents FROM catalogue.product p",
    }
    shop = Shop(tmp_path, views, SETTINGS)
    shop.fill()
    shop.execute("catalogue", "UPDATE product SET cents = 'much' WHERE id = 3")
    together = threading.Barrier(3)

    def meets(*arguments: Any) -> load_job.LoadedTables:
        together.wait(60)
        return load_job.load_view(*arguments)

    monkeypatch.setattr(loader, "load_view", meets)
    listener = Listener()
    with viewkeeper.open(shop.folder, spark=spark) as project:
        report = project.refresh(listener, strict=False)
        # The lines read the product too.
        assert report.waiting.keys() == {"odd", "lines"}
        assert all("much" in reason for reason in report.waiting.values())
        assert rows_of(project.view("orders")) == shop.recomputed(ORDERS)
        assert listener.troubles
    shop.execute("catalogue", "UPDATE product SET cents = 30 WHERE id = 3")
    monkeypatch.undo()
    go_on(shop, spark)
