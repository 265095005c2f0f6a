"""MariaDB databases of the suite: one on the run's server, made anew for every test.

Text columns have the server's usual collation, which ignores case and trailing blanks: what a
lookup finds must not depend on that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pymysql.connections

from tests.sources.conformance.changes import Word
from tests.sources.conformance.sql_database import SqlDatabase
from viewkeeper.testing.private_servers import PrivateMariadb

PASSWORD = "Ma9/wide@gate:open"
VARIABLE = "CONFORMANCE_MARIADB"
DATABASE = "conformance"


def connect(server: PrivateMariadb, database: str | None) -> pymysql.connections.Connection[Any]:
    return pymysql.connections.Connection(
        host="127.0.0.1",
        port=server.port,
        user="root",
        password=b"secret",
        database=database,
        charset="utf8mb4",
        autocommit=True,
        ssl_disabled=True,
    )


def prepare(server: PrivateMariadb) -> None:
    """Once per server."""
    connection = connect(server, None)
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE USER keeper@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'")
        cursor.execute("GRANT ALL ON *.* TO keeper@'127.0.0.1'")
    connection.close()


class Mariadb(SqlDatabase):
    kind = "mariadb"
    limited = "viewkeeper.sources.mariadb.binlog.spooled_changes"
    secrets = (PASSWORD,)
    trims = False
    same = "{column} <=> {mark}"
    one = "{condition} LIMIT 1"
    types: Mapping[Word, str] = {
        "int": "BIGINT",
        "text": "VARCHAR(200)",
        "decimal": "DECIMAL(15,2)",
        "date": "DATE",
        "timestamp": "DATETIME(6)",
        "double": "DOUBLE",
        "bytes": "VARBINARY(200)",
        "bool": "BIT(1)",
    }

    def __init__(self, folder: Path, server: PrivateMariadb) -> None:
        super().__init__(folder)
        self.server = server
        self.writer = connect(server, None)
        self.run(
            f"DROP DATABASE IF EXISTS {DATABASE}",
            f"CREATE DATABASE {DATABASE}",
            f"USE {DATABASE}",
            "SET lock_wait_timeout = 1, innodb_lock_wait_timeout = 1, time_zone = '+00:00'",
        )

    def options(self) -> dict[str, object]:
        return {"url": self._url(self.server.port)}

    def plain_url(self) -> str:
        """As somebody writes it who does not mind the password in it."""
        return self.server.url_of(DATABASE)

    def absent(self) -> dict[str, object]:
        return {"url": self._url(1)}

    def _url(self, port: int) -> str:
        return f"mariadb://keeper:${{{VARIABLE}}}@127.0.0.1:{port}/{DATABASE}"

    def _same(self, column: str, word: Word) -> str:
        return super()._same(f"BINARY {column}" if word == "text" else column, word)

    def run(self, *statements: str) -> None:
        with self.writer.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def _begin(self) -> None:
        self.run("START TRANSACTION")

    def _end(self, commit: bool) -> None:
        self.run("COMMIT" if commit else "ROLLBACK")

    def _execute(self, statement: str, values: Sequence[Any]) -> int:
        with self.writer.cursor() as cursor:
            changed: int = cursor.execute(statement, values)
            return changed

    def _execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        with self.writer.cursor() as cursor:
            cursor.executemany(statement, rows)

    def close(self) -> None:
        super().close()
        self.writer.close()
