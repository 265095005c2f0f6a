"""Views on views whose parent cannot go on, or gets other columns: the rest of the project does.

A parent whose changes cannot be read takes nobody along but its children, which wait. One whose
column is widened, or dropped, has another schema under the same table, and what was known of its
rows by key is found again.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.engine.shop import Shop, rows_of
from viewkeeper.delta.algebra import COUNT
from viewkeeper.engine.batch.state_indexes import StateIndexes

PARENT = "SELECT c.* FROM crm.customer c"
CHILD = "SELECT city, count(*) AS n, max(id) AS newest FROM parent GROUP BY city"
TOP = "SELECT n, count(*) AS cities FROM child GROUP BY n"
BESIDE = "SELECT c.city FROM crm.customer c"


@pytest.fixture
def shop(tmp_path: Path, spark: SparkSession) -> Shop:
    """A shop with three levels of views, and a view of the same table, all loaded."""
    shop = Shop(tmp_path, {"parent": PARENT, "child": CHILD, "top": TOP, "beside": BESIDE})
    shop.fill()
    with viewkeeper.open(shop.folder, spark=spark) as project:
        assert not project.refresh().waiting
    return shop


def test_children_of_a_view_that_cannot_be_read_wait_and_the_others_go_on(
    shop: Shop, spark: SparkSession
) -> None:
    with viewkeeper.open(shop.folder, spark=spark) as project:
        below = ("parent", "child", "top")
        shop.execute("crm", "ALTER TABLE customer ADD COLUMN born INTEGER")
        shop.execute("crm", "UPDATE customer SET city = 'q' WHERE id = 1")
        assert not project.refresh().waiting
        before = {name: rows_of(project.view(name)) for name in below}
        shop.execute("crm", "UPDATE customer SET born = 'x', city = 'r' WHERE id = 2")
        waiting = project.refresh(strict=False).waiting
        assert waiting.keys() == {*below}
        assert rows_of(project.view("beside")) == shop.recomputed(BESIDE)
        assert {name: rows_of(project.view(name)) for name in below} == before


def test_rows_are_found_by_key_with_the_columns_that_a_table_has_now(
    shop: Shop, spark: SparkSession
) -> None:
    """A parent's column was widened, or dropped, and its table stayed the same one."""
    with viewkeeper.open(shop.folder, spark=spark) as project:
        was = project.newest_head().views["parent"]
        keys = project.view("parent").arrow().select(["city"]).slice(0, 1)
    indexes = StateIndexes(shop.folder / "warehouse", shop.folder / "local")
    place = was.schema.get_field_index("id")
    wider = was.schema.set(place, pa.field("id", pa.decimal128(20, 0)))
    for schema in (was.schema, wider, was.schema.remove(place)):
        now = replace(was, schema=schema)
        found = indexes.find_stored(now, keys, now.ts)
        assert found is not None
        assert found.num_rows
        assert found.drop_columns([COUNT]).schema.equals(schema)
