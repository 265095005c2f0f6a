"""`viewkeeper explain --sql`: what a query would become, before there is a view."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import SparkSession

from tests.cli.conftest import call

REPORT = """\
-- one row per city
SELECT c.city, count(*) AS customers, max(l.cents) AS largest
FROM crm.customer c LEFT JOIN order_lines l ON l.customer = c.name
GROUP BY c.city
"""
REFUSED = """\
WITH a AS (
  SELECT c.id, rand() AS r FROM crm.customer c)
SELECT a.id FROM a
ORDER BY 1
LIMIT 3
"""


def files_of(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_plain_query_is_explained_without_spark_and_without_any_view(shop: Path) -> None:
    for file in (shop / "views").iterdir():
        file.unlink()
    before = files_of(shop)
    text = "SELECT c.name, o.id FROM crm.customer c JOIN shop.orders o ON o.customer_id = c.id"
    result = call("explain", "--sql", "-", typed=text)
    assert result.exit_code == 0, result.output
    assert "view query  (None)" not in result.stdout
    assert "a change of c asks" in result.stdout
    assert "stored       the view, and besides it nothing" in result.stdout
    assert files_of(shop) == before, "nothing is stored or followed"


def test_a_report_is_explained_with_its_stages(shop: Path, spark: SparkSession) -> None:
    (shop / "by_city.sql").write_text(REPORT)
    result = call("explain", "--sql", "by_city.sql", "--json", spark=spark)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["view"], found["incremental"]) == ("by_city", True)
    assert [stage["kind"] for stage in found["stages"]] == ["core", "fold"]
    assert found["lookups_max"] > 0
    assert [column["name"] for column in found["outputs"]] == ["city", "customers", "largest"]


def test_refused_parts_are_listed_with_places_and_ways_out(shop: Path) -> None:
    (shop / "refused.sql").write_text(REFUSED)
    result = call("explain", "--sql", "refused.sql", "--json")
    assert result.exit_code == 1, result.output
    found = json.loads(result.stdout)
    assert found["incremental"] is False
    places = [(part["line"], part["column"]) for part in found["refused"]]
    assert places[0] == (2, 16)
    assert "rand()" in found["refused"][0]["message"]
    assert all(part["hint"] for part in found["refused"])
    text = call("explain", "--sql", "refused.sql").stdout
    assert "line 2, column 16: the non-deterministic function rand() cannot be" in text
    assert "instead: compute it when reading the view" in text


def test_what_is_no_query_is_an_error(shop: Path) -> None:
    cases = {
        "SELECT * FROM {{ ref('orders') }}": "dbt compile",
        "SELECT c.id FROM customer c": "does not say its source",
        "SELECT c.id FROM crm.customers c": "customers",
        "DELETE FROM crm.customer": "DELETE",
        "": "no statement",
    }
    for text, words in cases.items():
        result = call("explain", "--sql", "-", typed=text)
        assert result.exit_code in (1, 2), text
        assert words in result.stderr + result.stdout, (text, result.output)
    assert call("explain").exit_code == 2
    assert call("explain", "order_lines", "--sql", "-", typed="SELECT 1").exit_code == 2


def test_a_wrong_type_is_found_before_anything_is_loaded(shop: Path, spark: SparkSession) -> None:
    """Spark alone knows that the types do not fit: nothing but a join of tables is asked for."""
    text = "SELECT c.name\nFROM crm.customer c\nWHERE c.id > 0 AND c.id + true = 1\n"
    (shop / "wrong.sql").write_text(text)
    (shop / "views" / "wrong.sql").write_text(f"CREATE MATERIALIZED VIEW wrong AS\n{text}")
    for words, place in (
        (("explain", "--sql", "wrong.sql"), "wrong.sql:3:20: "),
        (("explain", "wrong"), "wrong.sql:4:20: "),
        (("plan",), "wrong.sql:4:20: "),
    ):
        told = call(*words, spark=spark).output
        assert place in told, told
        assert 'Cannot resolve "(id + true)"' in told
        assert 'incompatible types ("BIGINT" and "BOOLEAN")' in told.replace("\n  ", " ")


def test_doctor_says_who_checks_the_types(shop: Path) -> None:
    text = "CREATE MATERIALIZED VIEW loud AS SELECT initcap(c.name) AS name FROM crm.customer c"
    (shop / "views" / "loud.sql").write_text(text)
    found = " ".join(call("doctor").output.split())
    said = "types of its expressions are not checked yet: `viewkeeper explain loud` checks it"
    assert said in found, found
