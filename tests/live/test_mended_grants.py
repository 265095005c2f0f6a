"""Rights that a run lacks at its start, and that an administrator gives while it goes on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from tests.engine.running_project import running, wait_until
from tests.live.judge import arrow_rows
from tests.sources.mariadb_database import Database
from viewkeeper.engine.project import Project
from viewkeeper.testing.private_servers import PrivateMariadb, PrivatePostgres

ITEM_SUMS = "SELECT i.order_id, sum(i.amount) AS amount FROM shop.item i GROUP BY i.order_id"
ITEMS = "SELECT o.id, i.amount FROM shop.orders o JOIN shop.item i ON i.order_id = o.id"
TABLES = (
    "CREATE TABLE orders (id int PRIMARY KEY, day date)",
    "CREATE TABLE item (id int PRIMARY KEY, order_id int, amount int)",
    "INSERT INTO orders VALUES (1, '2024-01-01'), (2, '2024-01-02')",
    "INSERT INTO item VALUES (1, 1, 10), (2, 2, 20), (3, 2, 30)",
)
CHANGES = (
    "UPDATE item SET amount = 11 WHERE id = 1",
    "INSERT INTO item VALUES (4, 1, 5)",
    "DELETE FROM item WHERE id = 3",
)
BEFORE = {"items": [(1, 10), (2, 20), (2, 30)], "item_sums": [(1, 10), (2, 50)]}
AFTER = {"items": [(1, 11), (1, 5), (2, 20)], "item_sums": [(1, 16), (2, 20)]}


def make_project(folder: Path, source: str, views: dict[str, str]) -> None:
    (folder / "views").mkdir()
    for name, text in views.items():
        text = f"CREATE MATERIALIZED VIEW {name} AS {text}"
        (folder / "views" / f"{name}.sql").write_text(text)
    (folder / "viewkeeper.yml").write_text(f"warehouse: ./warehouse\nsources:\n  shop: {source}\n")


def has_rows(project: Project, expected: dict[str, list[tuple[Any, ...]]]) -> bool:
    views = project.newest_head().views
    return all(
        name in views and Counter(arrow_rows(project.view(name).arrow())) == Counter(rows)
        for name, rows in expected.items()
    )


@pytest.mark.parametrize("is_alone", [False, True])
def test_mariadb_shows_a_table_once_it_is_granted(
    mariadb_server: PrivateMariadb, tmp_path: Path, spark: SparkSession, is_alone: bool
) -> None:
    name = f"granted_{'alone' if is_alone else 'beside'}"
    database = Database(mariadb_server, name, tmp_path)
    grants = "BINLOG MONITOR, REPLICATION SLAVE"
    database.run(
        *TABLES,
        f"CREATE USER {name}@'%' IDENTIFIED BY 'secret'",
        f"GRANT {grants} ON *.* TO {name}@'%'",
        f"GRANT SELECT ON {name}.orders TO {name}@'%'",
    )
    views = {"items": ITEMS, "item_sums": ITEM_SUMS}
    others = {} if is_alone else {"days": "SELECT o.id, o.day FROM shop.orders o"}
    make_project(
        tmp_path,
        f"{{kind: mariadb, url: '{mariadb_server.url_of(name, name)}'}}",
        {**views, **others},
    )
    with running(tmp_path, spark) as project:
        reasons = tmp_path / "warehouse" / "waiting.json"
        wait_until(lambda: reasons.exists() and "item" in reasons.read_text())
        wait_until(lambda: others.keys() <= project.newest_head().views.keys())
        assert not views.keys() & project.newest_head().views.keys()
        database.run(f"GRANT SELECT ON {name}.* TO {name}@'%'")
        wait_until(lambda: has_rows(project, BEFORE))
        database.run(*CHANGES)
        wait_until(lambda: has_rows(project, AFTER))


@pytest.mark.parametrize("capture", ["decoding", "triggers"])
def test_postgres_is_followed_once_that_is_granted(
    postgres_server: PrivatePostgres, tmp_path: Path, spark: SparkSession, capture: str
) -> None:
    name = f"granted_{capture}"
    with psycopg.connect(postgres_server.url_of(), autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret'".encode())
        admin.execute(f"CREATE ROLE {name}_owner".encode())
        admin.execute(f"CREATE DATABASE {name}".encode())
    settings = f"{{kind: postgres, capture: {capture}, publication: changes, "
    if capture == "triggers":
        settings = f"{{kind: postgres, capture: {capture}, "
    make_project(
        tmp_path,
        f"{settings}url: '{postgres_server.url_of(name, name)}'}}",
        {"items": ITEMS, "item_sums": ITEM_SUMS},
    )
    with psycopg.connect(postgres_server.url_of(name), autocommit=True) as owner:

        def execute(*statements: str) -> None:
            for statement in statements:
                owner.execute(statement.encode())

        with running(tmp_path, spark) as project:
            reasons = tmp_path / "warehouse" / "waiting.json"
            wait_until(lambda: reasons.exists() and "item" in reasons.read_text())
            execute(*TABLES)
            for table in ("orders", "item"):
                execute(f"ALTER TABLE {table} REPLICA IDENTITY FULL")
                execute(f"ALTER TABLE {table} OWNER TO {name}_owner")
            wait_until(lambda: "there is no table" not in reasons.read_text())
            execute(f"GRANT SELECT ON orders, item TO {name}")
            if capture == "decoding":
                execute(f"ALTER ROLE {name} REPLICATION")
                execute("CREATE PUBLICATION changes FOR TABLE orders, item")
            else:
                execute(f"GRANT CREATE ON DATABASE {name} TO {name}")
                execute(f"GRANT {name}_owner TO {name}")
            wait_until(lambda: has_rows(project, BEFORE))
            execute(*CHANGES)
            wait_until(lambda: has_rows(project, AFTER))
