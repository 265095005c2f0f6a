"""A view that names a column which is there and cannot be used: why, and what helps."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.conftest import call
from viewkeeper.view.definition import Relation
from viewkeeper.view.sql.stars import starred_relations
from viewkeeper.view.sql.view_statement import parse_view

PLAIN = "CREATE MATERIALIZED VIEW v AS\nSELECT c.id,\n  c.{column} AS x FROM crm.customer c"
REPORT = "CREATE MATERIALIZED VIEW v AS\nSELECT 1 AS n,\n  max({column}) AS x FROM crm.customer"


def explain(folder: Path, sql: str, request: pytest.FixtureRequest) -> str:
    """What is said of a view; only a report needs Spark."""
    with closing(sqlite3.connect(folder / "crm.db")) as connection:
        connection.execute("CREATE TABLE customer (id INTEGER PRIMARY KEY, extra JSON, name TEXT)")
    (folder / "views").mkdir()
    (folder / "views" / "v.sql").write_text(sql)
    (folder / "viewkeeper.yml").write_text(
        "warehouse: ./warehouse\nsources: {crm: {kind: sqlite, path: crm.db}}\n"
    )
    spark = request.getfixturevalue("spark") if "max" in sql else None
    result = call("--project", str(folder), "explain", "v", spark=spark)
    assert result.exit_code == 2, result.output
    return " ".join(result.output.split())


@pytest.mark.parametrize(("sql", "place"), [(PLAIN, "3:3"), (REPORT, "3:7")])
def test_a_column_that_is_refused(
    tmp_path: Path, request: pytest.FixtureRequest, sql: str, place: str
) -> None:
    said = explain(tmp_path, sql.format(column="extra"), request)
    assert 'column "extra" of crm.customer exists, but cannot be used' in said
    assert "detail: SQLite knows no type JSON" in said
    assert "hint: declare the column as INTEGER" in said
    assert f"v.sql:{place}: view" in said


@pytest.mark.parametrize("sql", [PLAIN, REPORT])
def test_a_column_that_is_not_there(
    tmp_path: Path, request: pytest.FixtureRequest, sql: str
) -> None:
    assert "exists" not in explain(tmp_path, sql.format(column="missing"), request)


STARS = [
    "SELECT * FROM crm.customer",
    "SELECT c.* FROM crm.customer c JOIN crm.customer d ON d.id = c.id",
    "SELECT * FROM (SELECT * FROM crm.customer) c LEFT JOIN crm.customer d ON d.id = c.id",
    "WITH c AS (SELECT * FROM crm.customer) SELECT c.* FROM c UNION ALL SELECT 1 AS id, 'max'",
]
PICKED = [
    "SELECT c.id FROM crm.customer c",
    "SELECT d.id, max(c.name) AS m FROM (SELECT * FROM crm.customer) c, crm.customer d GROUP BY 1",
    "SELECT id FROM crm.customer c WHERE EXISTS (SELECT * FROM crm.customer d WHERE d.id = c.id)",
]


@pytest.mark.parametrize("query", STARS)
def test_a_star_leaves_no_column_out(query: str) -> None:
    parsed = parse_view(f"CREATE MATERIALIZED VIEW v AS {query}")
    assert set(starred_relations(parsed)) == {Relation("crm", "customer")}


@pytest.mark.parametrize("query", PICKED)
def test_a_star_that_makes_no_columns_of_the_view_may_leave_some_out(query: str) -> None:
    assert list(starred_relations(parse_view(f"CREATE MATERIALIZED VIEW v AS {query}"))) == []


def test_a_star_over_a_refused_column_is_refused(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    said = explain(tmp_path, f"CREATE MATERIALIZED VIEW v AS {STARS[0]}", request)
    assert 'the star stands for column "extra" of crm.customer too, which cannot be used' in said
    assert "hint: name the columns that the view is to have: id, name" in said
