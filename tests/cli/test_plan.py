"""`viewkeeper plan` says what the files would change, and changes nothing."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.cli.conftest import call

VIEW = "CREATE MATERIALIZED VIEW {} AS SELECT c.id, c.name FROM crm.customer c"


def planned(folder: Path, spark: SparkSession) -> tuple[int, dict[str, dict[str, Any]]]:
    result = call("-p", str(folder), "plan", "--json", spark=spark)
    body = json.loads(result.stdout)
    assert body["is_empty"] == (result.exit_code == 0)
    return result.exit_code, {view["name"]: view for view in body["views"]}


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(file): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and not file.name.endswith(("-shm", "-wal"))
    }


def test_nothing_to_do(loaded: Path, spark: SparkSession) -> None:
    result = call("-p", str(loaded), "plan", spark=spark)
    assert result.exit_code == 0, result.output
    assert "unchanged  3 views" in result.stdout
    assert "nothing to do" in result.stdout


def test_a_fresh_project_is_all_loads_and_no_warehouse_is_made(
    shop: Path, spark: SparkSession
) -> None:
    before = contents(shop)
    code, views = planned(shop, spark)
    assert code == 1
    assert {view["work"] for view in views.values()} == {"load"}
    reads = {(each["source"], each["table"]): each for each in views["order_lines"]["reads"]}
    assert reads["crm", "customer"]["rows"] == 4
    assert not (shop / "warehouse").exists()
    assert contents(shop) == before


def test_each_view_has_a_fate(copy: Path, spark: SparkSession) -> None:
    views = copy / "views"
    (views / "added.sql").write_text(VIEW.format("added"))
    (views / "bad.sql").write_text("CREATE MATERIALIZED VIEW bad AS SELCT")
    (views / "lost.sql").write_text(VIEW.format("lost").replace("c.name", "c.nme"))
    (views / "child.sql").write_text("CREATE MATERIALIZED VIEW child AS SELECT b.id FROM bad b")
    (views / "customer_totals.sql").unlink()
    bulk, lines = views / "berlin_bulk.sql", views / "order_lines.sql"
    bulk.write_text(bulk.read_text().replace("Berlin'", "London'"))
    lines.write_text("-- another word\n" + lines.read_text())
    before = contents(copy)
    code, found = planned(copy, spark)
    assert code == 1
    fates = {name: (view["fate"], view["work"]) for name, view in found.items()}
    assert fates == {
        "added": ("added", "load"),
        "bad": ("refused", "none"),
        "berlin_bulk": ("edited", "full refresh"),
        "child": ("refused", "none"),
        "customer_totals": ("dropped", "drop"),
        "lost": ("refused", "none"),
        "order_lines": ("edited", "adapt"),
    }
    assert "nme" in found["lost"]["reason"]
    assert "viewkeeper refresh berlin_bulk" in found["berlin_bulk"]["hint"]
    assert contents(copy) == before
    text = call("-p", str(copy), "plan", spark=spark).stdout
    assert "dropped    customer_totals: drop its rows (4 rows stored)" in text
    assert "reads crm.customer: about 4 rows" in text


def test_what_a_source_must_grant_and_one_that_is_away(copy: Path, spark: SparkSession) -> None:
    (copy / "views" / "added.sql").write_text(VIEW.format("added"))
    with closing(sqlite3.connect(copy / "crm.db")) as database:
        database.execute("PRAGMA journal_mode = DELETE")
    text = call("-p", str(copy), "plan", spark=spark).stdout
    assert "source crm must grant or mend" in text
    assert "journal_mode" in text
    os.rename(copy / "crm.db", copy / "gone.db")
    code, views = planned(copy, spark)
    assert code == 1
    assert (views["added"]["fate"], views["added"]["work"]) == ("added", "wait")


def test_a_wrong_project_file_is_an_error(copy: Path) -> None:
    (copy / "viewkeeper.yml").write_text("a: [")
    assert call("-p", str(copy), "plan").exit_code == 2
