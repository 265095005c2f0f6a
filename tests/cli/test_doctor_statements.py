"""What `doctor` prints is enough, in one round.

A user that has nothing at all asks doctor once. An administrator runs the printed statements as
they are. Then doctor finds nothing wrong, and a run loads.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
from pyspark.sql import SparkSession

from tests.cli.conftest import call
from viewkeeper.testing.private_servers import PrivateMariadb, PrivatePostgres

Run = Callable[[str], None]


def run_postgres(server: PrivatePostgres, database: str, *statements: str) -> None:
    with psycopg.connect(server.url_of(database), autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def run_mariadb(server: PrivateMariadb, *statements: str) -> None:
    connection = pymysql.connect(
        host="127.0.0.1", port=server.port, user="root", password="secret", autocommit=True
    )
    with connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def make_project(folder: Path, source: str) -> None:
    (folder / "views").mkdir()
    (folder / "views" / "v.sql").write_text(
        "CREATE MATERIALIZED VIEW v AS SELECT o.id, i.amount FROM shop.orders o"
        " JOIN shop.item i ON i.order_id = o.id"
    )
    (folder / "views" / "n.sql").write_text(
        "CREATE MATERIALIZED VIEW n AS SELECT order_id, count(*) AS n FROM shop.item"
        " GROUP BY order_id"
    )
    (folder / "viewkeeper.yml").write_text(f"warehouse: ./warehouse\nsources:\n  shop: {source}\n")


def examine(folder: Path) -> tuple[int, dict[str, Any]]:
    result = call("--project", str(folder), "doctor", "--json")
    assert "viewkeeper doctor" not in result.stdout
    return result.exit_code, {each["name"]: each for each in json.loads(result.stdout)}


def mend_in_one_round(folder: Path, run: Run, spark: SparkSession) -> list[str]:
    """Ask doctor once, run what it printed, and load; the statements."""
    code, found = examine(folder)
    assert code == 1
    printed = [f["mend"] for f in found["shop"]["findings"] if f["state"] == "bad"]
    for mend in printed:
        run(mend)
    code, found = examine(folder)
    assert code == 0, found
    loaded = call("--project", str(folder), "run", "--once", spark=spark)
    assert loaded.exit_code == 0, loaded.output
    assert examine(folder)[0] == 0
    for view in ("v", "n"):
        query = f"SELECT count(*) AS many FROM {view}"
        shown = call("--project", str(folder), "query", query, "--format", "json", spark=spark)
        assert shown.exit_code == 0, shown.output
        assert json.loads(shown.stdout) == [{"many": 2}]
    return printed


@pytest.mark.parametrize("capture", ["decoding", "triggers"])
def test_a_role_of_postgres_that_has_nothing(
    postgres_server: PrivatePostgres, tmp_path: Path, spark: SparkSession, capture: str
) -> None:
    name, run = f"nothing_{capture}", run_postgres
    run(
        postgres_server,
        "postgres",
        f"CREATE ROLE {name} LOGIN PASSWORD 'secret'",
        f"CREATE ROLE {name}_owner",
        f"CREATE DATABASE {name}",
    )
    run(
        postgres_server,
        name,
        "REVOKE ALL ON SCHEMA public FROM public",
        "CREATE SCHEMA deep",
        "CREATE TABLE public.orders (id int PRIMARY KEY, day date)",
        "CREATE TABLE deep.item (order_id int, amount numeric(10, 2))",
        f"ALTER TABLE public.orders OWNER TO {name}_owner",
        f"ALTER TABLE deep.item OWNER TO {name}_owner",
        "INSERT INTO public.orders VALUES (1, '2024-01-01'), (2, '2024-01-02')",
        "INSERT INTO deep.item VALUES (1, 10), (2, 20)",
    )
    make_project(
        tmp_path,
        f"{{kind: postgres, capture: {capture}, url: '{postgres_server.url_of(name, name)}'}}",
    )
    for view in (tmp_path / "views").glob("*.sql"):
        view.write_text(view.read_text().replace("shop.item", "shop.deep.item"))
    printed = mend_in_one_round(tmp_path, lambda sql: run(postgres_server, name, sql), spark)
    assert any("GRANT USAGE ON SCHEMA" in mend for mend in printed)
    if capture == "decoding":
        with psycopg.connect(postgres_server.url_of(name)) as connection:
            (made,) = connection.execute("SELECT pubname FROM pg_publication").fetchall()
        assert any(f'PUBLICATION "{made[0]}"' in mend for mend in printed)


def test_a_user_of_mariadb_that_has_nothing(
    mariadb_server: PrivateMariadb, tmp_path: Path, spark: SparkSession
) -> None:
    run_mariadb(
        mariadb_server,
        "CREATE DATABASE noth_ing",
        "CREATE TABLE noth_ing.orders (id int PRIMARY KEY, day date)",
        "CREATE TABLE noth_ing.item (order_id int, amount decimal(10, 2))",
        "INSERT INTO noth_ing.orders VALUES (1, '2024-01-01'), (2, '2024-01-02')",
        "INSERT INTO noth_ing.item VALUES (1, 10), (2, 20)",
        "CREATE USER nothing@'%' IDENTIFIED BY 'secret'",
    )
    make_project(
        tmp_path, f"{{kind: mariadb, url: '{mariadb_server.url_of('noth_ing', 'nothing')}'}}"
    )

    def run(mend: str) -> None:
        run_mariadb(mariadb_server, *(line for line in mend.splitlines() if line[:2] != "--"))

    printed = mend_in_one_round(tmp_path, run, spark)
    assert any("ON `noth\\_ing`.*" in mend for mend in printed)
    run_mariadb(mariadb_server, "RENAME TABLE noth_ing.item TO noth_ing.line")
    result = call("--project", str(tmp_path), "run", "--once", spark=spark)
    assert result.exit_code == 0, result.output
    assert examine(tmp_path)[0] == 0


def test_one_source_away_hides_no_other(shop: Path) -> None:
    settings = shop / "viewkeeper.yml"
    away = "  away: {kind: postgres, url: 'postgresql://nobody:x@127.0.0.1:1/nothing'}\n"
    settings.write_text(settings.read_text().replace("sources:\n", f"sources:\n{away}"))
    code, found = examine(shop)
    assert code == 1
    assert not found["away"]["ok"]
    assert found["crm"]["ok"]
    assert len(found["crm"]["findings"]) > 3
