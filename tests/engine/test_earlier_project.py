"""A project, its capture tables and a registry that version 0.1 made: they open and go on.

The archive was written by the last code before modules, classes and functions got new names and
homes. Nothing of it may depend on those: a name of a class in a file would be found here.
"""

from __future__ import annotations

import sqlite3
import tarfile
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.engine.shop import rows_of
from tests.registry.order_places import claimed, ids, whole_order
from viewkeeper.order.store.sqlite_store import SqliteStore
from viewkeeper.order.store.stored_registry import StoredRegistry

ARCHIVE = Path(__file__).parent.parent / "fixtures" / "project-of-0.1.tar.gz"
ORDER = [(1, "shop@3"), (2, "shop@7"), (3, "crm@5"), (4, "shop@8")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def execute(database: Path, *statements: str) -> None:
    with sqlite3.connect(database) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def test_a_project_of_an_earlier_version_goes_on(folder: Path, spark: SparkSession) -> None:
    with viewkeeper.open(folder, spark=spark) as project:
        before = {name: rows_of(project.view(name)) for name in ("lines", "stocked", "regions")}
        assert [sum(rows.values()) for rows in before.values()] == [30, 30, 9]
        execute(folder / "crm.db", "UPDATE customer SET name = 'new', city = 'c1' WHERE id = 3")
        execute(folder / "shop.db", "INSERT INTO orders VALUES (40, 3, 's2', 1.5)")
        (folder / "exports" / "stock.csv").write_text("sku,stock\ns0,1\ns1,2\ns2,3\n")
        more = pa.table({"city": ["c9"], "region": ["west"]})
        deltalake.write_deltalake(str(folder / "lake" / "region"), more, mode="append")
        execute(folder / "crm.db", "INSERT INTO customer VALUES (10, 'n10', 'c9')")
        project.refresh()
        assert all(found.ok for found in project.verify(every_state=True))
        assert (10, "n10", "west") in rows_of(project.view("regions"))
        assert {row[2] for row in rows_of(project.view("stocked"))} == {1, 2, 3}


def test_a_registry_of_an_earlier_version_goes_on(folder: Path) -> None:
    registry = StoredRegistry(SqliteStore(folder / "registry.db"))
    group = "north-2d642500"
    assert whole_order(registry, group) == ORDER
    crm = claimed(registry, "crm", "south", group)
    registry.register_ids(group, ids("crm", 9), crm)
    assert whole_order(registry, group) == [*ORDER, (5, "crm@9")]
