"""Indexes of folds can be lost, torn, stale or mixed up at any time: the tables are the truth."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.engine.shop import Shop, rows_of
from viewkeeper.cli.commands.status_command import stored_lines
from viewkeeper.delta.arrow_compute import pc
from viewkeeper.engine import upkeep
from viewkeeper.engine.batch.state_indexes import StateIndexes
from viewkeeper.engine.operations.project_status import gather_status
from viewkeeper.engine.report import SilentObserver
from viewkeeper.errors import ViewkeeperError
from viewkeeper.stages import key_index
from viewkeeper.stages.fold_layout import ROWS_COLUMN
from viewkeeper.stages.key_index import IndexOwner, KeyIndex, open_index, rebuild_index
from viewkeeper.warehouse.metadata.head import read_head
from viewkeeper.warehouse.rows.view_state import read_stored

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


class HeardTroubles(SilentObserver):
    """What was reported."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def on_trouble(self, error: ViewkeeperError) -> None:
        self.lines.append(str(error))


def test_an_index_that_differs_from_its_table_is_made_again_and_reported(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "ROUTINE_SECONDS", -1.0)
    shop = Shop(tmp_path, VIEWS)
    shop.fill()
    heard = HeardTroubles()
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
        with project.open_maintainer("test", heard) as keeper:
            keeper.start_run()
            chores = upkeep.Upkeep(keeper.workspace, keeper.plans.lanes.under_way)

            def go_on(*statements: str) -> None:
                shop.execute("shop", *statements)
                keeper.see_commits()
                keeper.maintain_views()

            def forge_rows(index: KeyIndex, rows: pa.Table, ts: int) -> None:
                """An overlay that says of every group that it has one row more."""
                more = pc.add(rows[ROWS_COLUMN], 1)
                at = rows.column_names.index(ROWS_COLUMN)
                genuine(index, rows.set_column(at, ROWS_COLUMN, more), ts)

            go_on("DELETE FROM orders WHERE id = 39")
            chores.run_due_steps()
            assert heard.lines == []
            genuine = KeyIndex.apply_rows
            with monkeypatch.context() as patch:
                patch.setattr(KeyIndex, "apply_rows", forge_rows)
                go_on(
                    "DELETE FROM orders WHERE id IN (31, 32)",
                    "DELETE FROM item WHERE order_id = 30",
                )
            chores.run_due_steps()
            assert len(heard.lines) == len(VIEWS)
            for name, line in zip(sorted(VIEWS), sorted(heard.lines), strict=True):
                assert f'view "{name}": the index of its table "{name}" by ' in line
                assert f"`viewkeeper verify {name}`" in line
            # The index is that of the table: nothing is reported again, and batches are right.
            chores.run_due_steps()
            go_on("DELETE FROM orders WHERE id IN (23, 38)", "DELETE FROM item WHERE order_id < 9")
            chores.run_due_steps()
            assert len(heard.lines) == len(VIEWS)
            for name, sql in VIEWS.items():
                assert rows_of(project.view(name)) == shop.recomputed(sql), name


def test_a_file_that_was_forged_with_its_checksums_is_found_by_upkeep(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "ROUTINE_SECONDS", -1.0)
    monkeypatch.setattr(key_index, "OVERLAY_MIN", 0)
    shop = Shop(tmp_path, {"by_customer": VIEWS["by_customer"]})
    shop.fill()
    heard = HeardTroubles()
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
        shop.execute("shop", "DELETE FROM orders WHERE id = 39")
        project.refresh()
        head = read_head(shop.folder / "warehouse").views["by_customer"]
        owner = IndexOwner(head.table, head.created_ts, head.schema, ("customer_id",))
        folder = shop.folder / "warehouse" / "indexes" / head.table
        stored = read_stored(shop.folder / "warehouse", head)
        rebuild_index(folder, owner, [stored.slice(1)], head.ts)
        with project.open_maintainer("test", heard) as keeper:
            keeper.start_run()
            chores = upkeep.Upkeep(keeper.workspace, keeper.plans.lanes.under_way)
            kept = stored["customer_id"][1].as_py()
            shop.execute("shop", f"DELETE FROM orders WHERE customer_id = {kept}")
            keeper.see_commits()
            keeper.maintain_views()
            chores.run_due_steps()
        (line,) = heard.lines
        count = stored.num_rows - 1
        assert f"it had {count - 1} rows where the table has {count}" in line
        found = open_index(folder, owner, 0, 1 << 40)
        assert found is not None
        assert found.digest.rows == count
        assert rows_of(project.view("by_customer")) == shop.recomputed(VIEWS["by_customer"])


def test_the_index_of_a_table_that_was_replaced_is_let_go(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run may replace tables for months, and a file that is mapped takes room when removed."""
    monkeypatch.setattr(upkeep, "ROUTINE_SECONDS", -1.0)
    shop = Shop(tmp_path, VIEWS)
    shop.fill()
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
        with project.open_maintainer("test", SilentObserver()) as keeper:
            keeper.start_run()
            lanes = keeper.plans.lanes.under_way
            chores = upkeep.Upkeep(keeper.workspace, lanes)
            shop.execute("shop", "DELETE FROM orders WHERE id = 39", "DELETE FROM item")
            keeper.see_commits()
            keeper.maintain_views()
            open_now = lanes._indexes._open
            tables = {name: keeper.store.head.views[name].table for name in VIEWS}
            assert open_now.keys() == {*tables.values()}
            chores.run_due_steps()
            assert open_now.keys() == {*tables.values()}
            keeper.service.refresh_views(["by_product"])
            keeper.see_commits()
            keeper.maintain_views()
            keeper.finish_loads()
            chores.run_due_steps()
            assert keeper.store.head.views["by_product"].table != tables["by_product"]
            assert open_now.keys() == {tables["by_customer"]}


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
