"""Reports between projects: a child project that reads the reports of another, with its lease, and
members of one registry whose reports agree at every number.

What they must show is computed by SQLite, with the SQL of the views below put in their places.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import viewkeeper
from tests.engine.chain import define, project, sqlite, warehouse
from tests.engine.fleet import BASES, SHARED, Fleet
from tests.engine.shop import Shop, rows_of
from viewkeeper.engine.operations.project_status import gather_status
from viewkeeper.engine.settings.project_file import read_settings

PARENT = {
    "placed": "SELECT o.customer_id, count(*) AS n, max(o.id) AS newest FROM shop.orders o "
    "GROUP BY o.customer_id",
    "sizes": "SELECT p.n, count(*) AS customers FROM placed p GROUP BY p.n",
}
CHILD = {
    "named": "SELECT c.name, p.n, p.newest FROM crm.customer c "
    "LEFT JOIN sales.placed p ON p.customer_id = c.id",
    "largest": "SELECT max(s.n) AS n, sum(s.n * s.customers) AS orders FROM sales.sizes s",
}


def as_sqlite(sql: str) -> str:
    """The text with views as derived tables."""
    for name, text in reversed(PARENT.items()):
        for spelling in (f"sales.{name}", f"FROM {name}"):
            sql = sql.replace(spelling, f"{spelling.split(name)[0].replace('sales.', '')}({text})")
    return sql


def check_project(folder: Path, views: dict[str, str], shop: Shop, spark: SparkSession) -> None:
    with viewkeeper.open(folder, spark=spark) as opened:
        assert not opened.refresh().waiting
        for name, sql in views.items():
            assert rows_of(opened.view(name)) == shop.recomputed(as_sqlite(sql)), name


def test_a_project_reads_the_reports_of_another_one(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "shop").mkdir()
    shop = Shop(tmp_path / "shop", {})
    shop.fill()
    low = project(tmp_path / "low", {"shop": sqlite("shop")}, PARENT, "history: 0\n")
    sources = {"sales": warehouse("low"), "crm": sqlite("crm")}
    high = project(tmp_path / "high", sources, CHILD)
    check_project(low, PARENT, shop, spark)
    check_project(high, CHILD, shop, spark)
    (lease,) = gather_status(read_settings(low), 0.0).leases
    for number in range(4):
        shop.execute("shop", f"DELETE FROM orders WHERE id = {39 - number}")
        shop.execute("shop", f"UPDATE orders SET customer_id = {number} WHERE id = {number + 10}")
        shop.execute("crm", f"UPDATE customer SET name = 'n{number}' WHERE id = {number}")
        check_project(low, PARENT, shop, spark)
    with viewkeeper.open(low, spark=spark) as opened:
        # What the child has not read yet is kept for it.
        opened.compact()
        assert opened.view("placed").head.horizon <= lease.ts
    check_project(high, CHILD, shop, spark)
    with viewkeeper.open(high, spark=spark) as opened:
        assert all(each.ok for each in opened.verify(every_state=True))
    define(low, "placed", PARENT["placed"].replace("GROUP", "WHERE o.id > 3 GROUP"))
    with viewkeeper.open(low, spark=spark) as opened:
        assert not opened.refresh(full_refresh=["placed"]).waiting
    with viewkeeper.open(high, spark=spark) as opened:
        opened.refresh(full_refresh=["named", "largest"])
        edited = CHILD["named"].replace(
            "sales.placed", f"({PARENT['placed'].replace('GROUP', 'WHERE o.id > 3 GROUP')})"
        )
        assert rows_of(opened.view("named")) == shop.recomputed(edited)


def folded(joined: Counter[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    """What `REPORT` must show of the join that it is over."""
    sums: dict[int, tuple[int, int]] = {}
    for (_, north, south), count in joined.items():
        n, total = sums.get(north, (0, 0))
        sums[north] = (n + count, total + south * count)
    return Counter((north, n, total) for north, (n, total) in sums.items())


REPORT = (
    "SELECT n.v AS nv, count(s.id) AS n, sum(s.v) AS total FROM north.t n "
    "JOIN south.t s ON n.id = s.id GROUP BY n.v"
)
ABOVE = (
    "SELECT l.nv, l.n, r.total, r.n AS again FROM left_.lines l "
    "LEFT JOIN right_.lines r ON l.nv = r.nv"
)


def test_members_with_reports_agree_at_every_number(fleet: Fleet) -> None:
    fleet.project("v1", BASES, REPORT)
    fleet.project("v2", BASES, REPORT)
    fleet.project("v0", SHARED, ABOVE)
    fleet.refresh("v1", "v2", "v0")
    assert not fleet.refresh("v1", "v2", "v0").waiting
    for value in range(1, 5):
        fleet.write("north", (0, value % 2), (1, value))
        fleet.refresh("v1")
        fleet.write("south", (1, value), (value, value))
        fleet.refresh("v2", "v1", "v2")
        assert fleet.state("v1") == fleet.state("v2") == folded(fleet.expected()["v1"])
    assert not fleet.refresh("v0").waiting
    numbers = {name: fleet.numbers(name) for name in ("v0", "v1", "v2")}
    assert numbers["v0"].keys() == numbers["v1"].keys() == numbers["v2"].keys()
    assert len(numbers["v0"]) >= 8
    for n in numbers["v0"]:
        parents = fleet.state("v1", numbers["v1"][n])
        assert parents == fleet.state("v2", numbers["v2"][n])
        above = Counter({(nv, k, total, k): c for (nv, k, total), c in parents.items()})
        assert fleet.state("v0", numbers["v0"][n]) == above
