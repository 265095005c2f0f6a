"""Joins across kinds whose key columns differ in type: the engine's answer is Spark's own.

Text against numbers, dates against timestamps, decimals against integers: Spark brings both sides
to one type, which no database does the same way. A view over two kinds must have the rows that
Spark finds when it is given the same tables, when it is loaded and after changes on both sides.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

import viewkeeper
from tests.sources.conformance.changes import Delete, Insert, Row, Update, Word, inserts
from tests.sources.conformance.database import Database
from tests.sources.conformance.mariadb_database import Mariadb
from tests.sources.conformance.postgres_database import Postgres
from viewkeeper.engine.project import Project
from viewkeeper.testing.private_servers import PrivateMariadb, PrivatePostgres

COLUMNS: dict[str, Word] = {
    "id": "int",
    "number": "int",
    "code": "text",
    "day": "date",
    "moment": "timestamp",
    "price": "decimal",
    "ratio": "double",
}
SPARK = "id bigint, number bigint, code string, day date, moment timestamp_ntz, "
SPARK += "price decimal(15,2), ratio double"
CONDITIONS = {
    "text_number": "a.code = b.number",
    "date_moment": "a.day = b.moment",
    "moment_date": "a.moment = b.day AND a.ratio = b.number",
    "text_or_null": "a.code <=> b.code",
}


def row(number: int, code: str | None, time: str | None = None) -> Row:
    moment = datetime.datetime.fromisoformat(time) if time else None
    day = moment.date() if moment else None
    return number, number % 4, code, day, moment, Decimal(number % 4), float(number % 4)


LEFT = [
    row(1, "1", "2024-02-29"),
    row(2, "01", "2024-02-29 00:00:01"),
    row(3, " 1 ", "2024-03-31 02:30"),
    row(4, "+2"),
    row(5, "-0", "1969-12-31 23:59:59.999999"),
    row(6, None, "0001-01-01"),
    row(7, "3", "9999-12-31"),
]
RIGHT = [
    row(1, "1", "2024-02-29"),
    row(2, "2", "2024-02-29 12:00"),
    row(3, "03", "2024-03-31"),
    row(4, "1 ", "2024-03-31 02:30"),
    row(5, None, "1970-01-01"),
    row(6, "1", "0001-01-01"),
    row(6, "1", "0001-01-01"),
]


@pytest.fixture
def world(
    prepared_postgres: PrivatePostgres, prepared_mariadb: PrivateMariadb, tmp_path: Path
) -> Iterator[tuple[Postgres, Mariadb]]:
    """PostgreSQL and MariaDB, which agree on the least."""
    one = Postgres(tmp_path, prepared_postgres, "decoding")
    two = Mariadb(tmp_path, prepared_mariadb)
    for database, rows in ((one, LEFT), (two, RIGHT)):
        database.table("t", COLUMNS, indexes=[["code"], ["number"], ["day"], ["moment"]])
        database.commit(*inserts("t", rows))
    write_project(tmp_path, {"one": one, "two": two})
    yield one, two
    one.close()
    two.close()


def write_project(folder: Path, databases: dict[str, Postgres | Mariadb]) -> None:
    # Spark's workers have the environment that they were started with, so no references here.
    sources = {
        name: {"kind": database.kind, "url": database.plain_url()}
        for name, database in databases.items()
    }
    settings = {"warehouse": "./warehouse", "sources": sources}
    (folder / "viewkeeper.yml").write_text(yaml.safe_dump(settings, allow_unicode=True))
    (folder / "views").mkdir()
    for name in CONDITIONS:
        text = f"CREATE MATERIALIZED VIEW {name} AS {select(name, 'one.t', 'two.t')}"
        (folder / "views" / f"{name}.sql").write_text(text)


def select(name: str, left: str, right: str) -> str:
    columns = "a.id AS one, b.id AS two, a.code AS code, b.moment AS moment"
    return f"SELECT {columns} FROM {left} a JOIN {right} b ON {CONDITIONS[name]}"


def rows_by_spark(spark: SparkSession, one: Database, two: Database) -> dict[str, Counter[Row]]:
    """What Spark finds over the same rows, for all conditions at once."""
    for view, database in (("left_t", one), ("right_t", two)):
        rows: list[Any] = [whole(each) for each in database.state["t"].elements()]
        spark.createDataFrame(rows, SPARK).createOrReplaceTempView(view)
    queries = (
        f"SELECT '{name}', * FROM ({select(name, 'left_t', 'right_t')})" for name in CONDITIONS
    )
    found: dict[str, Counter[Row]] = {name: Counter() for name in CONDITIONS}
    for name, *values in spark.sql(" UNION ALL ".join(queries)).collect():
        found[name][tuple(values)] += 1
    return found


def whole(state: Row) -> Row:
    """A row of a state, whose floating-point numbers are texts."""
    *values, ratio = state
    return (*values, float(ratio))


def check(project: Project, spark: SparkSession, one: Database, two: Database) -> None:
    report = project.refresh()
    assert report.waiting == {}
    for name, wanted in rows_by_spark(spark, one, two).items():
        table = project.view(name).arrow()
        found = Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))
        assert found == wanted, name
        assert wanted, f"{name}: nothing is joined, so nothing is tested"


def test_joins_of_different_types_are_spark_s(
    world: tuple[Postgres, Mariadb], tmp_path: Path, spark: SparkSession
) -> None:
    one, two = world
    with viewkeeper.open(tmp_path, spark=spark) as project:
        check(project, spark, one, two)
        one.commit(Update("t", LEFT[1], row(2, "03", "2024-02-29")), Insert("t", row(9, " 2")))
        two.commit(Delete("t", RIGHT[0]), Insert("t", row(7, "+2", "9999-12-31")))
        two.commit(Delete("t", RIGHT[6]), Update("t", RIGHT[3], row(4, None, "2024-02-29")))
        one.commit(Delete("t", LEFT[0]), Insert("t", row(8, "1", "2024-02-29")))
        check(project, spark, one, two)
