"""Explanations of small views over real databases: what is asked, how it is found, warnings."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from viewkeeper.engine.connections.open_sources import Connections
from viewkeeper.engine.operations.view_explanation import ViewExplanation, explain_view
from viewkeeper.engine.settings.algorithm_settings import AlgorithmSettings
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.view.sql.bind import bind_view
from viewkeeper.view.sql.view_statement import parse_view

TABLES = {
    "crm": "CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT, seen TIMESTAMP)",
    "shop": "CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER, at TIMESTAMP)",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, table in TABLES.items():
        with closing(sqlite3.connect(tmp_path / f"{name}.db")) as connection:
            connection.execute(table)
            connection.commit()
    return tmp_path


def explained(folder: Path, select: str, *others: SourceSettings) -> ViewExplanation:
    settings = {
        name: SourceSettings(name, "sqlite", {"path": f"{name}.db"}, str(folder)) for name in TABLES
    } | {other.name: other for other in others}
    connections = Connections(settings, "", lambda: 0.0)
    try:
        parsed = parse_view(f"CREATE MATERIALIZED VIEW v AS {select}")
        view = bind_view(
            parsed, lambda r: connections.get_source(r.source).describe_table(r.table).fields
        )
        return explain_view(view, connections, AlgorithmSettings())
    finally:
        connections.close()


JOIN = "FROM shop.orders o JOIN crm.customer c ON c.id = o.customer_id"


def test_lookups_and_how_they_are_served(folder: Path) -> None:
    found = explained(folder, f"SELECT c.name, o.id {JOIN}")
    asks = {
        change.alias: [(a.alias, a.key, a.cheap) for a in change.asks] for change in found.changes
    }
    assert asks == {"o": [("c", ("id",), True)], "c": [("o", ("customer_id",), False)]}
    assert found.lookups_max == 2
    (scan,) = [warning for warning in found.warnings if "no index" in warning]
    assert "CREATE INDEX orders_customer_id ON orders (customer_id) in shop" in scan
    with closing(sqlite3.connect(folder / "shop.db")) as connection:
        connection.execute("CREATE INDEX orders_customer_id ON orders (customer_id)")
    found = explained(folder, f"SELECT c.name, o.id {JOIN}")
    assert all(ask.cheap for change in found.changes for ask in change.asks)


def test_no_index_is_asked_for_where_there_can_be_none(folder: Path) -> None:
    (folder / "exports").mkdir()
    (folder / "exports" / "price.csv").write_text("sku,price\na,1\n")
    tables = {"price": {"columns": {"sku": "string", "price": "bigint"}}}
    options = {"path": "exports", "format": "csv", "tables": tables}
    files = SourceSettings("exports", "files", options, str(folder), str(folder / "home"))
    select = "SELECT p.price, c.id FROM exports.price p JOIN crm.customer c ON c.name = p.sku"
    scans = [w for w in explained(folder, select, files).warnings if "no index" in w]
    assert len(scans) == 2
    assert "CREATE INDEX customer_name ON customer (name) in crm" in scans[0]
    assert scans[1].endswith("there are none in a source of the kind files")


def test_values_with_several_spellings_and_cross_products_are_read_whole(folder: Path) -> None:
    by_time = explained(
        folder, "SELECT o.id FROM shop.orders o JOIN crm.customer c ON c.seen = o.at"
    )
    assert {ask.served.partition(":")[0] for c in by_time.changes for ask in c.asks} == {
        "reads the whole table"
    }
    crossed = explained(folder, "SELECT o.id FROM shop.orders o CROSS JOIN crm.customer c")
    assert [branch.condition for branch in crossed.tree] == [""]
    assert any("a scan" in warning for warning in crossed.warnings)


def test_conditions_and_outputs_say_where_they_run(folder: Path) -> None:
    found = explained(
        folder,
        f"SELECT reverse(c.name) AS back, upper(c.name) AS loud, o.id + 1 AS next {JOIN}"
        " WHERE o.id > 3 AND c.id < o.id AND length(c.name) > 1 AND soundex(c.name) <> 'A000'",
    )
    kinds = {condition.text: (condition.kind, condition.where) for condition in found.conditions}
    assert kinds["(o.id > 3)"] == ("local", "kernel")
    assert kinds["(c.id < o.id)"] == ("residual", "kernel")
    assert kinds["(length(c.name) > 1)"] == ("local", "kernel")
    assert kinds["soundex(c.name) <> 'A000'"][1].startswith("Spark")
    outputs = {shown.name: (shown.type, shown.where) for shown in found.outputs}
    assert outputs["next"] == ("BIGINT", "kernel")
    assert outputs["loud"] == ("STRING", "kernel")
    assert outputs["back"][0] is None
    assert "every batch ends in a Spark job" in found.runs


def test_the_level_and_the_journal_mode_are_named(folder: Path) -> None:
    found = explained(folder, f"SELECT o.id {JOIN}")
    assert found.level == "complete over reports, strong over commits"
    assert any("PRAGMA journal_mode = WAL" in warning for warning in found.warnings)
    assert all("journal mode delete" in source.description for source in found.sources)
