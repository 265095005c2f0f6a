"""`history`, `changes`, `approve` and `reject` on a sample project whose sources change shape."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.cli.conftest import call
from tests.cli.test_commands import execute

HELD = "\nevolution: {policy: approve}\n"


def run(project: Path, spark: SparkSession, code: int = 0) -> str:
    result = call("--project", str(project), "run", "--once", spark=spark)
    assert result.exit_code == code, result.output
    return result.output


def test_history_shows_each_version_and_its_cause(copy: Path, spark: SparkSession) -> None:
    execute(copy / "crm.db", "ALTER TABLE customer RENAME COLUMN name TO full_name")
    assert "full_name" in run(copy, spark)
    result = call("--project", str(copy), "history", "order_lines")
    assert result.exit_code == 0
    assert "version 2" in result.stdout
    assert "crm.customer: column name is called full_name now" in result.stdout
    added = [line for line in result.stdout.splitlines() if line.strip().startswith("+")]
    assert any("full_name" in line for line in added)
    found = json.loads(call("--project", str(copy), "history", "order_lines", "--json").stdout)
    assert [version["extent"] for version in found] == ["equal", "equal"]
    assert found[0]["columns"] == found[1]["columns"], "the view's own names stay"


def test_history_of_what_is_not_there(shop: Path) -> None:
    assert call("history", "nothing").exit_code == 2
    result = call("history", "order_lines")
    assert result.exit_code == 2
    assert "not loaded yet" in result.stderr


def test_nothing_waits(copy: Path) -> None:
    result = call("--project", str(copy), "changes")
    assert (result.exit_code, result.stdout) == (0, "nothing waits for approval\n")
    for word in ("approve", "reject"):
        refused = call("--project", str(copy), word, "order_lines")
        assert refused.exit_code == 2
        assert "nothing waits" in refused.stderr


@pytest.mark.parametrize("word", ["approve", "reject"])
def test_a_change_is_shown_and_decided(copy: Path, spark: SparkSession, word: str) -> None:
    with (copy / "viewkeeper.yml").open("a") as file:
        file.write(HELD)
    execute(
        copy / "crm.db",
        "CREATE TABLE fresh AS SELECT * FROM customer",
        "DROP TABLE customer",
        "CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT NOT NULL, city TEXT)",
        "INSERT INTO customer SELECT id, upper(name), city FROM fresh",
        "DROP TABLE fresh",
    )
    assert "viewkeeper changes" in run(copy, spark, 1)
    shown = call("--project", str(copy), "changes", "order_lines", spark=spark)
    assert shown.exit_code == 1, shown.output
    assert "another table is called so now" in shown.stdout
    assert "6 rows would come, 6 rows would go" in shown.stdout
    assert "ADA" in shown.stdout
    status = call("--project", str(copy), "status")
    assert "viewkeeper approve order_lines" in status.output
    quick = json.loads(call("--project", str(copy), "changes", "--no-rows", "--json").stdout)
    held = {"order_lines", "berlin_bulk", "customer_totals"}
    assert {each["view"] for each in quick} == held
    for view in held:
        assert call("--project", str(copy), word, view).exit_code == 0
    output = run(copy, spark, 0 if word == "approve" else 1)
    assert ("rejected" in output) == (word == "reject")
    words = ["query", "SELECT customer FROM order_lines", "--format", "json"]
    customers = call("--project", str(copy), *words, spark=spark).stdout
    assert ("ADA" in customers) == (word == "approve")
