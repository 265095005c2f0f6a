"""A view with hidden keys is verified against the user's own query, state by state."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.cli.conftest import call
from tests.engine.shop import Shop, rows_of
from viewkeeper.engine.project import Project
from viewkeeper.updates.source_protocol import COUNT, TS
from viewkeeper.warehouse.lake.data_files import write_rows
from viewkeeper.warehouse.metadata.record import Advance, Create
from viewkeeper.warehouse.rows.view_state import read_view_changes
from viewkeeper.warehouse.store import Store

TITLES = (
    "SELECT p.title, o.placed FROM shop.orders o JOIN shop.item i ON i.order_id = o.id "
    "JOIN catalogue.product p ON p.id = i.product_id"
)
KEYED = TITLES.replace(" FROM", ", o.id AS of_order, p.id AS of_product FROM")
HIDDEN = ("of_order", "of_product")
CHANGES = (
    ("shop", "DELETE FROM item WHERE order_id = 5"),
    ("catalogue", "UPDATE product SET title = 'p1' WHERE id = 2"),
    ("shop", "INSERT INTO item VALUES (7, 2, 7), (8, 1, 1)"),
)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    shop = Shop(tmp_path, {"titles": TITLES, "keyed": KEYED})
    shop.fill()
    return shop


def hide_keys(project: Project, extra: pa.Table | None = None) -> None:
    """Store the view with its keys, as an algorithm that needs them would have done."""
    root = project.settings.warehouse
    with Store.open(root, "test", time.time) as store:
        rich, plain = store.head.require_view("keyed"), store.head.require_view("titles")
        rows = read_view_changes(root, rich, 0)
        table = store.new_table("titles")
        folder = store.table_folder(table)
        loaded = rows.filter(pc.field(TS) == plain.created_ts)
        later = rows.filter(pc.field(TS) > plain.created_ts)
        later = pa.concat_tables([later, *([extra] if extra else [])])
        begun = write_rows(folder, rich.schema, loaded, 1, 0)
        create = Create(
            "titles",
            table,
            plain.definition,
            rich.schema,
            plain.created_ts,
            plain.positions,
            (begun,),
            replaces=plain.table,
            hidden=HIDDEN,
        )
        store.commit([create])
        moved = write_rows(folder, rich.schema, later, 2, 0)
        store.commit([Advance("titles", plain.ts, plain.positions, (moved,))])


def test_what_is_shown_is_read_and_verified(shop: Shop, spark: SparkSession) -> None:
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
        for source, statement in CHANGES:
            shop.execute(source, statement)
            project.refresh()
        view = project.view("titles")
        expected, oldest = rows_of(view), view.head.created_ts
        per_ts = sorted(
            map(str, read_view_changes(project.settings.warehouse, view.head, 0).to_pylist())
        )
        hide_keys(project)
        assert view.head.hidden == HIDDEN
        assert view.arrow().column_names == view.df().columns == ["title", "placed"]
        assert rows_of(view) == expected
        assert view.df().count() == expected.total()
        found = view.changes(0).toArrow()
        assert sorted(map(str, found.to_pylist())) == per_ts
        answer = call("--project", str(shop.folder), "query", "SELECT * FROM titles", spark=spark)
        assert answer.stdout.split()[:2] == ["title", "placed"], answer.output
        assert "of_order" not in answer.output
        shop.execute("shop", "DELETE FROM item WHERE order_id = 8")
        [newest] = project.verify(["titles"])
        [every] = project.verify(["titles"], every_state=True)
        assert (newest.ok, every.ok, every.since, every.states) == (True, True, oldest, 4)


def test_one_wrong_row_under_another_key_is_found(shop: Shop, spark: SparkSession) -> None:
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
        shop.execute(*CHANGES[0])
        project.refresh()
        root, head = project.settings.warehouse, project.newest_head().require_view("keyed")
        one = read_view_changes(root, head, 0).slice(0, 1)
        wrong = one.set_column(one.schema.get_field_index(COUNT), COUNT, pa.array([1]))
        wrong = wrong.set_column(one.schema.get_field_index("of_order"), "of_order", [[999]])
        wrong = wrong.set_column(one.schema.get_field_index(TS), TS, [[head.ts]])
        hide_keys(project, wrong)
        for every_state in (False, True):
            [verdict] = project.verify(["titles"], every_state=every_state)
            [difference] = verdict.differences.to_pylist()
            assert difference[COUNT] == -1
            assert difference.keys() <= {"title", "placed", COUNT, TS}
