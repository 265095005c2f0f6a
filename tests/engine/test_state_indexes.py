"""Indexes of folds can be lost, torn, stale or mixed up at any time: the tables are the truth."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.engine.shop import Shop, rows_of
from viewkeeper.cli.commands.status_command import stored_lines
from viewkeeper.engine.batch.state_indexes import StateIndexes
from viewkeeper.engine.operations.project_status import gather_status
from viewkeeper.engine.report import SilentObserver
from viewkeeper.stages import key_index

VIEWS = {
    "by_customer": "SELECT customer_id, count(*) AS n, max(id) AS newest FROM shop.orders "
    "GROUP BY customer_id",
    "by_product": "SELECT product_id, count(*) AS n, sum(quantity) AS total FROM shop.item "
    "GROUP BY product_id",
}


def lose_indexes(folder: Path, before: Path) -> None:
    shutil.rmtree(folder)


def tear_files(folder: Path, before: Path) -> None:
    for file in folder.rglob("*.arrow"):
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def flip_bytes(folder: Path, before: Path) -> None:
    for file in (path for path in folder.rglob("*") if path.is_file()):
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 0x55
        file.write_bytes(content)


def bring_back_old(folder: Path, before: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(before, folder)


def swap_tables(folder: Path, before: Path) -> None:
    one, other = sorted(folder.iterdir())
    one.rename(folder / "x")
    other.rename(one)
    (folder / "x").rename(other)


@pytest.mark.parametrize(
    "damage", [lose_indexes, tear_files, flip_bytes, bring_back_old, swap_tables]
)
def test_whatever_happens_to_an_index_the_view_is_right(
    damage: Callable[[Path, Path], None],
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(key_index, "OVERLAY_MIN", 0)
    (tmp_path / "project").mkdir()
    shop = Shop(tmp_path / "project", VIEWS)
    shop.fill()
    indexes, before = shop.folder / "warehouse" / "indexes", tmp_path / "before"
    for number in range(4):
        with viewkeeper.open(shop.folder, spark=spark) as project:
            project.refresh()
            shop.execute("shop", f"DELETE FROM orders WHERE id = {39 - number}")
            shop.execute("shop", f"UPDATE item SET quantity = {number} WHERE order_id < 20")
            project.refresh()
            for name, sql in VIEWS.items():
                assert rows_of(project.view(name)) == shop.recomputed(sql), (name, number)
        if number == 0:
            shutil.copytree(indexes, before)
        elif number < 3:
            damage(indexes, before)


def test_an_index_that_missed_a_commit_is_brought_up_from_the_table(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = "SELECT p.product_id, b.n FROM by_product p LEFT JOIN by_customer b ON b.n = p.n"
    views = {**VIEWS, "pairs": pairs}
    shop = Shop(tmp_path, views)
    shop.fill()
    derived = pairs.replace("by_product p", f"({VIEWS['by_product']}) p")
    derived = derived.replace("by_customer b", f"({VIEWS['by_customer']}) b")
    statements = (
        "DELETE FROM orders WHERE id = 39",
        "DELETE FROM orders WHERE id = 31",
        "UPDATE item SET quantity = 9 WHERE order_id = 7",
        "DELETE FROM orders WHERE id IN (23, 38)",
        "DELETE FROM item WHERE order_id IN (1, 2, 3)",
    )
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
        with project.open_maintainer("test", SilentObserver()) as keeper:
            keeper.start_run()
            for number, statement in enumerate(statements):
                shop.execute("shop", statement)
                with monkeypatch.context() as patch:
                    if number == 1:
                        # As where a commit was made by another way than a batch.
                        patch.setattr(StateIndexes, "note_rows", lambda *_: None)
                    keeper.see_commits()
                    keeper.maintain_views()
                for name, sql in {**VIEWS, "pairs": derived}.items():
                    assert rows_of(project.view(name)) == shop.recomputed(sql), (name, number)


def test_status_says_what_is_stored_what_was_asked_and_how_large_groups_are(
    tmp_path: Path, spark: SparkSession
) -> None:
    inner = (
        "SELECT q.n, count(*) AS customers FROM (SELECT c.id, count(o.id) AS n FROM crm.customer c "
        "LEFT JOIN shop.orders o ON o.customer_id = c.id GROUP BY c.id) q GROUP BY q.n"
    )
    shop = Shop(tmp_path, {**VIEWS, "inner": inner})
    shop.fill()
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
        before = {view.name: view for view in gather_status(project.settings, 0.0).views}
        assert (before["by_customer"].asked_rows, before["by_customer"].largest_key) == (None, None)
        shop.execute("shop", "DELETE FROM orders WHERE id = 39", "DELETE FROM item")
        shop.execute("crm", "DELETE FROM customer WHERE id = 3")
        project.refresh()
        found = {view.name: view for view in gather_status(project.settings, 0.0).views}
    # The newest order of customer 7 went, and the others of it are asked for.
    assert (found["by_customer"].asked_rows, found["by_customer"].largest_key) == (4, 5)
    assert found["by_product"].asked_rows == 0
    (node,) = found["inner"].stored
    assert (node.rows, node.largest_key) == (7, 5)
    assert found["inner"].asked_rows
    lines = stored_lines(gather_status(project.settings, 0.0))
    asked = "by_customer: its last batch asked the sources for 4 rows"
    assert f"{asked}; its largest group has 5 rows" in lines
