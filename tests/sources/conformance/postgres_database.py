"""PostgreSQL databases of the suite: one on the run's server, emptied after every test.

The source comes as a user of its own, whose password has characters that a url must spell
otherwise, so that neither spelling may be found anywhere.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg

from tests.sources.conformance.changes import Word
from tests.sources.conformance.sql_database import SqlDatabase
from viewkeeper.testing.private_servers import PrivatePostgres

PASSWORD = "Pg7/wide@gate:open"
VARIABLE = "CONFORMANCE_POSTGRES"
DATABASE = "conformance"


def prepare(server: PrivatePostgres) -> None:
    """Once per server."""
    with psycopg.connect(server.url_of(), autocommit=True) as connection:
        connection.execute(f"CREATE ROLE keeper SUPERUSER LOGIN PASSWORD '{PASSWORD}'".encode())
        connection.execute(f"CREATE DATABASE {DATABASE}".encode())


class Postgres(SqlDatabase):
    kind = "postgres"
    limited = "viewkeeper.sources.postgres.decoding.source_stream"
    secrets = (PASSWORD, quote(PASSWORD, safe=""))
    one = "ctid = (SELECT ctid FROM {table} WHERE {condition} LIMIT 1)"
    types: Mapping[Word, str] = {
        "int": "bigint",
        "text": "text",
        "decimal": "numeric(15,2)",
        "date": "date",
        "timestamp": "timestamp",
        "double": "double precision",
        "bytes": "bytea",
        "bool": "boolean",
    }

    def __init__(self, folder: Path, server: PrivatePostgres, capture: str) -> None:
        super().__init__(folder)
        self.server = server
        self.capture = capture
        self.merges_commits = capture == "triggers"
        if self.merges_commits:
            self.limited = "viewkeeper.sources.postgres.triggers.log_reader"
        self.writer = psycopg.connect(server.url_of(DATABASE), autocommit=True)
        self.run("SET lock_timeout = '500ms'")

    def options(self) -> dict[str, object]:
        return {"url": self._url(self.server.port), "capture": self.capture}

    def plain_url(self) -> str:
        """As somebody writes it who does not mind the password in it."""
        return self.server.url_of(DATABASE)

    def absent(self) -> dict[str, object]:
        return {"url": self._url(1), "capture": self.capture}

    def _url(self, port: int) -> str:
        return f"postgresql://keeper:${{{VARIABLE}}}@127.0.0.1:{port}/{DATABASE}"

    def leftovers(self) -> Sequence[str]:
        query = """
            SELECT slot_name::text FROM pg_replication_slots WHERE database = current_database()
            UNION ALL SELECT pubname::text FROM pg_publication
            UNION ALL SELECT tgname::text FROM pg_trigger WHERE NOT tgisinternal
            UNION ALL SELECT nspname::text FROM pg_namespace WHERE nspname LIKE '%viewkeeper%'"""
        return [name for (name,) in self.writer.execute(query.encode()).fetchall()]

    def _create(
        self,
        name: str,
        columns: Mapping[str, Word],
        key: Sequence[str],
        indexes: Sequence[Sequence[str]],
    ) -> None:
        super()._create(name, columns, key, indexes)
        self.run(f"ALTER TABLE {name} REPLICA IDENTITY FULL")

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.writer.execute(statement.encode())

    def _begin(self) -> None:
        self.run("BEGIN")

    def _end(self, commit: bool) -> None:
        self.run("COMMIT" if commit else "ROLLBACK")

    def _execute(self, statement: str, values: Sequence[Any]) -> int:
        return self.writer.execute(statement.encode(), values).rowcount

    def _execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        with self.writer.cursor() as cursor:
            cursor.executemany(statement.encode(), rows)

    def close(self) -> None:
        super().close()
        end = time.monotonic() + 10
        while slots := self._slots():
            assert time.monotonic() < end, f"slots stay in use: {slots}"
            for slot, pid in slots:
                ended = (
                    "pg_drop_replication_slot(%s)" if pid is None else "pg_terminate_backend(%s)"
                )
                self.writer.execute(f"SELECT {ended}".encode(), [slot if pid is None else pid])
        schemas = "SELECT nspname FROM pg_namespace WHERE nspname LIKE '%viewkeeper%'"
        for (name,) in self.writer.execute(schemas.encode()).fetchall():
            self.run(f'DROP SCHEMA "{name}" CASCADE')
        for (name,) in self.writer.execute(b"SELECT pubname FROM pg_publication").fetchall():
            self.run(f'DROP PUBLICATION "{name}"')
        self.run("DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
        self.writer.close()

    def _slots(self) -> list[tuple[str, int | None]]:
        query = b"""SELECT slot_name::text, active_pid FROM pg_replication_slots
            WHERE database = current_database() AND NOT temporary"""
        return self.writer.execute(query).fetchall()
