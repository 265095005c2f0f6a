"""What a task of Spark raises is shown by `verify` as the error that it is, not as it travels."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
from pyspark.sql import SparkSession

import viewkeeper
from tests.faults.processes import command
from viewkeeper.testing.private_servers import PrivatePostgres

pytest_plugins = ("tests.servers",)


def test_a_value_that_cannot_be_kept_is_named(
    postgres_server: PrivatePostgres, tmp_path: Path, spark: SparkSession
) -> None:
    with psycopg.connect(postgres_server.url_of(), autocommit=True) as admin:
        admin.execute("CREATE DATABASE shown_errors")
    url = postgres_server.url_of("shown_errors")
    with psycopg.connect(url, autocommit=True) as shop:
        shop.execute("CREATE TABLE t (id int PRIMARY KEY, day date)")
        shop.execute("ALTER TABLE t REPLICA IDENTITY FULL")
        shop.execute("INSERT INTO t VALUES (1, '2024-01-01')")
        (tmp_path / "views").mkdir()
        text = "CREATE MATERIALIZED VIEW v AS SELECT t.id, t.day FROM shop.t t"
        (tmp_path / "views" / "v.sql").write_text(text)
        (tmp_path / "viewkeeper.yml").write_text(
            f"warehouse: ./warehouse\nsources:\n  shop: {{kind: postgres, url: '{url}'}}\n"
        )
        with viewkeeper.open(tmp_path, spark=spark) as project:
            project.refresh()
        shop.execute("INSERT INTO t VALUES (2, 'infinity')")
    with command(tmp_path, "verify") as process:
        assert process.ended() == 2
        process.listened()
        said = process.output
    assert "column \"day\": 'infinity' is not a date" in said
    assert "viewkeeper-error" not in said
    assert not re.search(r"[A-Za-z0-9+/]{60,}", said), said
