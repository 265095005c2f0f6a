"""Loads without Spark store what loads on Spark store, and leave to Spark what is too much."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.engine.shop import LINES, Shop
from viewkeeper.engine.load import load_job, scan_parts, view_recomputation
from viewkeeper.engine.load.inline_load import pairs_bound
from viewkeeper.engine.project import Project
from viewkeeper.view.definition import Equality, Field, Place, Relation, ViewDefinition
from viewkeeper.view.expression import Column
from viewkeeper.view.sweep_plan import sweep_plan_of
from viewkeeper.warehouse.metadata.head import read_head
from viewkeeper.warehouse.rows.view_state import read_stored

VIEWS = {
    "lines": LINES,
    "pairs": "SELECT a.id, b.id AS other FROM crm.customer a, crm.customer b WHERE a.city = b.city",
    "bought": "SELECT c.id, i.quantity FROM crm.customer c "
    "LEFT JOIN shop.orders o ON o.customer_id = c.id AND o.id > 5 "
    "LEFT JOIN shop.item i ON i.order_id = o.id",
    "idle": "SELECT c.id FROM crm.customer c "
    "WHERE NOT EXISTS (SELECT 1 FROM shop.orders o WHERE o.customer_id = c.id AND o.id < 3)",
    "sums": "SELECT c.city, count(*) AS n, sum(i.quantity) AS total, avg(i.quantity / 3) AS mean, "
    "max(o.placed) AS last, count(DISTINCT i.product_id) AS products FROM shop.orders o "
    "JOIN crm.customer c ON c.id = o.customer_id JOIN shop.item i ON i.order_id = o.id "
    "GROUP BY c.city",
    "nothing": "SELECT count(*) AS n, sum(p.cents) AS cents FROM catalogue.product p "
    "WHERE p.cents < 0",
    "counted": "SELECT count(*) AS n FROM shop.item",
    "distinct_constant": "SELECT count(DISTINCT t.two) AS n, count(*) AS m "
    "FROM (SELECT 2 AS two, i.quantity FROM shop.item i) t WHERE t.quantity > 0",
    "distinct_of_none": "SELECT count(DISTINCT t.two) AS n, count(*) AS m "
    "FROM (SELECT 2 AS two, p.cents FROM catalogue.product p) t WHERE t.cents < 0",
    "one_group": "SELECT max(i.quantity) AS most FROM shop.item i GROUP BY 'a'",
    "cities": "SELECT city FROM crm.customer EXCEPT ALL SELECT title FROM catalogue.product",
    "labelled": "SELECT k.label, c.id FROM (VALUES ('x', 'first'), ('q', 'none')) AS k(city, label)"
    " LEFT JOIN crm.customer c ON c.city = k.city",
    "rolled": "SELECT c.city, o.placed, count(*) AS n FROM crm.customer c "
    "JOIN shop.orders o ON o.customer_id = c.id GROUP BY ROLLUP (c.city, o.placed)",
    "above": "SELECT s.city, s.n, l.order_id FROM sums s LEFT JOIN lines l ON l.cents = s.n",
}


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The views that Spark loads from now on."""
    seen: list[str] = []
    given = load_job._load_on_spark

    def noted(spark: Any, view: ViewDefinition, *others: Any) -> load_job.LoadedTables:
        seen.append(view.name)
        return given(spark, view, *others)

    monkeypatch.setattr(load_job, "_load_on_spark", noted)
    return seen


def stored_tables(project: Project) -> dict[str, tuple[pa.Schema, Counter[tuple[Any, ...]]]]:
    """Everything that is stored of all views, hidden columns and folds too."""
    root = project.settings.warehouse
    found = {}
    for name, head in read_head(root).views.items():
        rows = read_stored(root, head)
        bag = Counter(zip(*(map(repr, column.to_pylist()) for column in rows.columns), strict=True))
        found[name] = (rows.schema, bag)
    return found


@pytest.fixture
def divided(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The tables whose scans several tasks share from now on, however few rows they have."""
    seen: set[str] = set()
    given = view_recomputation.divide_scan

    def noted(relation: Relation, *others: Any) -> Any:
        parts = given(relation, *others)
        if len(parts) > 1:
            seen.add(relation.table)
        return parts

    monkeypatch.setattr(scan_parts, "divide_scan", noted)
    monkeypatch.setattr(view_recomputation, "ROWS_PER_TASK", 2)
    return seen


def test_both_ways_store_the_same(
    tmp_path: Path, spark: SparkSession, loads: list[str], divided: set[str]
) -> None:
    stored = {}
    for where, limit in (("inline", 1000), ("spark", 0)):
        (tmp_path / where).mkdir()
        shop = Shop(tmp_path / where, VIEWS, f"batch: {{inline_rows: {limit}}}\n")
        shop.fill()
        shop.execute("crm", "INSERT INTO customer VALUES (90, NULL, NULL), (91, 'c1', 'x')")
        with viewkeeper.open(shop.folder, spark=spark) as project:
            assert set(project.refresh().loaded) == set(VIEWS)
            stored[where] = stored_tables(project)
        assert set(loads) == (set() if where == "inline" else set(VIEWS))
        assert ("orders" in divided) == (where == "spark")
    assert stored["inline"].keys() == stored["spark"].keys()
    for name, (schema, rows) in stored["inline"].items():
        assert schema.equals(stored["spark"][name][0]), name
        assert rows == stored["spark"][name][1], name


def test_what_is_too_much_is_left_to_spark(
    tmp_path: Path, spark: SparkSession, loads: list[str]
) -> None:
    """More rows than the limit, or a join that may make more than ten times as many."""
    views = {
        "few": "SELECT p.id FROM catalogue.product p",
        "many": "SELECT i.order_id FROM shop.item i",
        "joined": "SELECT a.id, b.id AS other, c.id AS third FROM crm.customer a, crm.customer b, "
        "crm.customer c WHERE a.city = b.city AND b.city = c.city",
    }
    shop = Shop(tmp_path, views, "batch: {inline_rows: 2}\n")
    shop.fill(customers=18, orders=40, products=5)
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
        assert sorted(loads) == ["joined", "many"]
        for name, sql in views.items():
            view = project.view(name)
            assert view.arrow().num_rows == sum(shop.recomputed(sql).values())


def bound_of(rows: Iterable[tuple[list[int], list[int]]]) -> int:
    """The bound of a chain a - b - c, joined by `right` of one with `left` of the next."""
    fields = (Field("left", pa.int64()), Field("right", pa.int64()))
    places = tuple(Place(i, n, Relation("s", n), fields) for i, n in enumerate("abc"))
    equalities = tuple(
        Equality(Column(i, "right", pa.int64()), Column(i + 1, "left", pa.int64()), False)
        for i in range(2)
    )
    view = ViewDefinition("v", places, equalities, (), (), "", "")
    tables = {i: pa.table({"left": left, "right": right}) for i, (left, right) in enumerate(rows)}
    return pairs_bound(sweep_plan_of(view), tables)


def test_a_bound_is_that_of_the_best_place_to_begin() -> None:
    # From the rows of b, each of which finds one of a and at most three of c.
    assert bound_of([([0], [1]), ([1, 1], [7, 8]), ([7, 7, 7, 8], [0] * 4)]) == 4
    assert bound_of([([0], [1]), ([1] * 50, [7] * 50), ([7] * 20, [0] * 20)]) == 1_000
    assert bound_of([([], []), ([1], [7]), ([7], [0])]) == 0
