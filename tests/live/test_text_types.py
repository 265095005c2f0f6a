"""Types of PostgreSQL that are kept as their text, in every way to follow them, at random.

Rows come, change and go, with values of all these types, NULL among them; one view shows them, one
joins two tables by some of them. Each state must be the database's own text, and what Spark
recomputes. An enum whose value is renamed has other text in rows that nobody has written.
"""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.live.judge import arrow_rows
from viewkeeper.engine.project import Project
from viewkeeper.testing.private_servers import PrivatePostgres

VALUES = {
    "tags": ("text[]", ["'{}'", "'{a,NULL,\"\"}'", "ARRAY['x y', '\"', 'é']", "'{{a},{b}}'"]),
    "nums": ("integer[]", ["'{1,2}'", "'{1,NULL}'", "'[0:1]={3,4}'"]),
    "price": ("numeric", ["1.5", "1.50", "'NaN'", "1e40", "-0.000001"]),
    "spent": ("interval", ["'1 month'", "'30 days'", "'-1.5 s'", "'0'"]),
    "at": ("time", ["'24:00'", "'00:00:00.5'", "'12:00'"]),
    "host": ("inet", ["'10.0.0.1'", "'10.0.0.1/8'", "'::1'", "'::ffff:1.2.3.4'"]),
    "bits": ("bit varying", ["B''", "B'01'", "B'1'"]),
    "span": ("int4range", ["'[1,5]'", "'empty'", "'(,3)'"]),
    "doc": ("jsonb", ['\'{"b": 1, "a": [1.50, "é"]}\'', "'null'", "'\"x\"'"]),
    "feel": ("mood", ["'fine'", "'sad'"]),
    "feels": ("mood[]", ["'{fine,sad}'", "'{}'"]),
}
NAMES = ", ".join(VALUES)
WAYS = ("watched", "unwatched", "triggers")
SETTINGS = "-c TimeZone=UTC -c DateStyle=ISO -c IntervalStyle=postgres -c extra_float_digits=1"


class World:
    """Two tables with all the types in a database of their own, and two views over them."""

    def __init__(self, server: PrivatePostgres, folder: Path, way: str) -> None:
        self.folder = folder
        name = f"texts_{way}_{uuid.uuid4().hex[:8]}"
        with psycopg.connect(server.url_of(), autocommit=True) as admin:
            admin.execute(f"CREATE ROLE {name} LOGIN REPLICATION PASSWORD 'secret'".encode())
            admin.execute(f"CREATE DATABASE {name} OWNER {name}".encode())
        self.url = server.url_of(name, "postgres" if way == "watched" else name)
        columns = ", ".join(f"{column} {kind}" for column, (kind, _) in VALUES.items())
        self.execute(
            "CREATE TYPE mood AS ENUM ('fine', 'sad')",
            *(
                f"CREATE TABLE {table} (id int PRIMARY KEY, {columns})"
                if part == 0
                else f"ALTER TABLE {table} REPLICA IDENTITY FULL"
                for table in ("t", "u")
                for part in (0, 1)
            ),
        )
        (folder / "views").mkdir()
        views = {
            "shown": f"SELECT id, {NAMES} FROM shop.t",
            "pairs": "SELECT t.id, u.id AS other, u.feel FROM shop.t t JOIN shop.u u"
            " ON t.host = u.host AND t.tags = u.tags AND t.spent <=> u.spent",
        }
        for view, sql in views.items():
            text = f"CREATE MATERIALIZED VIEW {view} AS {sql}"
            (folder / "views" / f"{view}.sql").write_text(text)
        capture = ", capture: triggers" if way == "triggers" else ""
        (folder / "viewkeeper.yml").write_text(
            "warehouse: ./warehouse\nsources:\n"
            f"  shop: {{kind: postgres, url: '{self.url}'{capture}}}\n"
        )

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        with psycopg.connect(self.url, autocommit=True, options=SETTINGS) as connection:
            for statement in statements:
                cursor = connection.execute(statement.encode())
                found = cursor.fetchall() if cursor.description else []
        return found

    def write(self, rng: random.Random, many: int) -> None:
        """Random rows come, change and go; the writer's own session has other settings."""
        options = "-c IntervalStyle=iso_8601 -c DateStyle=German -c TimeZone=Asia/Kolkata"
        with psycopg.connect(self.url, options=options) as connection:
            for _ in range(many):
                table, number = rng.choice(("t", "u")), rng.randrange(12)
                picked = ", ".join(rng.choice([*values, "NULL"]) for _, values in VALUES.values())
                connection.execute(f"DELETE FROM {table} WHERE id = {number}".encode())
                if rng.random() < 0.8:
                    connection.execute(f"INSERT INTO {table} VALUES ({number}, {picked})".encode())
                column = rng.choice(list(VALUES))
                value = rng.choice([*VALUES[column][1], "NULL"])
                connection.execute(
                    f"UPDATE {table} SET {column} = {value} WHERE id = {rng.randrange(12)}".encode()
                )
                if rng.random() < 0.3:
                    connection.commit()

    def expected(self) -> dict[str, Counter[tuple[Any, ...]]]:
        def text(column: str) -> str:
            return f"CASE WHEN {column} IS NOT NULL THEN concat({column}) END"

        shown = ", ".join(map(text, VALUES))
        pairs = (
            f"SELECT t.id, u.id, {text('u.feel')} FROM t JOIN u ON {text('t.host')} ="
            f" {text('u.host')} AND {text('t.tags')} = {text('u.tags')}"
            f" AND {text('t.spent')} IS NOT DISTINCT FROM {text('u.spent')}"
        )
        return {
            "shown": Counter(self.execute(f"SELECT id, {shown} FROM t")),
            "pairs": Counter(self.execute(pairs)),
        }


@pytest.fixture(params=WAYS)
def world(
    postgres_server: PrivatePostgres, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[World]:
    yield World(postgres_server, tmp_path, request.param)
    with viewkeeper.open(tmp_path) as project, closing(project.open_connections()) as connections:
        connections.get_source("shop").detach_source()


def check(project: Project, world: World) -> None:
    assert project.refresh().waiting == {}
    for view, rows in world.expected().items():
        assert arrow_rows(project.view(view).arrow()) == rows, view


def test_every_state_is_the_databases_own_text(world: World, spark: SparkSession) -> None:
    rng = random.Random(7)
    world.write(rng, 30)
    with viewkeeper.open(world.folder, spark=spark) as project:
        for _ in range(6):
            check(project, world)
            world.write(rng, 10)
        check(project, world)
        assert all(verdict.ok for verdict in project.verify())


def test_a_value_of_an_enum_is_renamed(world: World, spark: SparkSession) -> None:
    rng = random.Random(11)
    world.write(rng, 30)
    with viewkeeper.open(world.folder, spark=spark) as project:
        check(project, world)
        world.execute("ALTER TYPE mood ADD VALUE 'odd' BEFORE 'sad'")
        world.execute("INSERT INTO t (id, feel) VALUES (20, 'odd')")
        check(project, world)
        world.execute(
            "UPDATE t SET feel = 'fine' WHERE id < 3",
            "ALTER TYPE mood RENAME VALUE 'fine' TO 'it''s'",
            "DELETE FROM t WHERE id = 1",
            "INSERT INTO t (id, feel) VALUES (21, 'it''s')",
        )
        project.refresh()
        check(project, world)
        world.execute("ALTER TYPE mood RENAME VALUE 'it''s' TO 'fine'")
        project.refresh()
        world.write(rng, 10)
        check(project, world)
        assert all(verdict.ok for verdict in project.verify())
