"""Databases to measure sources on: one table `orders` with six columns, in every kind.

    id (bigint, the key), quantity (int), name, city (texts), price (decimal), placed (timestamp)

Rows are made inside the databases where that is possible. A transaction of n changes inserts n / 2
new rows and updates n / 2 others, next to each other and elsewhere each time; so it has 1.5 n
signed rows. Servers are private, without syncing to disk: what is measured is us, not the disk.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pymysql.connections

from viewkeeper.sources.kinds import check_settings, open_source
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.testing.private_servers import PrivateMariadb, PrivatePostgres
from viewkeeper.updates.source_protocol import Source

NAME = "shop"
TABLE = "orders"
COLUMNS = ("id", "quantity", "name", "city", "price", "placed")
# A prime, so that the updated rows are spread over the table.
_STEP = 7919


class Servers:
    """The two servers, running until they are closed; PostgreSQL's log says who asked."""

    def __init__(self, folder: Path) -> None:
        self.postgres = PrivatePostgres(folder / "postgres", {"log_line_prefix": "%a|"})
        self.mariadb = PrivateMariadb(folder / "mariadb")
        try:
            self.postgres.start()
            self.mariadb.start()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.postgres.stop()
        self.mariadb.stop()


class SourceWorld(ABC):
    """One database with the table in it, and the source over it."""

    kind: str

    def __init__(self, folder: Path, rows: int) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.rows = rows
        self._next = rows + 1
        self._round = 0

    @property
    def label(self) -> str:
        """What the figures call it."""
        return self.kind

    @abstractmethod
    def options(self) -> dict[str, object]:
        """The source's entry in a project file, without its kind."""

    @abstractmethod
    def create(self) -> None:
        """Make the table and fill it."""

    def open(self) -> Source:
        """The source as a project opens it; every time the same reader."""
        home = str(self.folder / "home")
        settings = SourceSettings(NAME, self.kind, self.options(), str(self.folder), home)
        check_settings(settings)
        return open_source(settings, "benchmark")

    def write(self, changes: int, size: int) -> int:
        """Commit changes in transactions of a size; how many signed rows that are."""
        half, transactions = size // 2, changes // size
        for _ in self._commit(transactions, half):
            pass
        self._next += transactions * half
        self._round += transactions
        return transactions * half * 3

    @abstractmethod
    def _commit(self, transactions: int, half: int) -> Iterator[None]:
        """The transactions; may yield after each."""

    def _updated(self, number: int, half: int) -> int:
        """The first id that a transaction updates."""
        return 1 + (self._round + number) * _STEP % max(1, self.rows - half)


class SqliteWorld(SourceWorld):
    kind = "sqlite"
    _VALUES = (
        "{i}, {i} % 100, 'customer number ' || {i}, 'city ' || ({i} % 500),"
        " ({i} % 100000) / 100.0, datetime(1700000000 + {i}, 'unixepoch')"
    )

    def options(self) -> dict[str, object]:
        return {"path": "shop.db"}

    def connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.folder / "shop.db", isolation_level=None)
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection

    def create(self) -> None:
        with closing(self.connect()) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(
                f"CREATE TABLE {TABLE} (id INTEGER PRIMARY KEY, quantity INTEGER, name TEXT,"
                " city TEXT, price DECIMAL(12,2), placed TIMESTAMP)"
            )
            connection.execute(
                f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n"
                f" LIMIT {self.rows}) INSERT INTO {TABLE} SELECT {self._VALUES.format(i='i')}"
                " FROM n"
            )

    def _commit(self, transactions: int, half: int) -> Iterator[None]:
        insert = f"INSERT INTO {TABLE} VALUES ({self._VALUES.format(i='?1')})"
        update = f"UPDATE {TABLE} SET quantity = quantity + 1, city = 'moved' WHERE id = ?1"
        with closing(self.connect()) as connection:
            for number in range(transactions):
                new, old = self._next + number * half, self._updated(number, half)
                connection.execute("BEGIN IMMEDIATE")
                connection.executemany(insert, [(new + i,) for i in range(half)])
                connection.executemany(update, [(old + i,) for i in range(half)])
                connection.execute("COMMIT")
                yield


class PostgresWorld(SourceWorld):
    kind = "postgres"
    _VALUES = (
        "i, i % 100, 'customer number ' || i, 'city ' || (i % 500),"
        " (i % 100000) / 100.0, timestamp '2024-01-01' + i * interval '1 second'"
    )

    def __init__(self, folder: Path, rows: int, server: PrivatePostgres, capture: str) -> None:
        super().__init__(folder, rows)
        self.server = server
        self.capture = capture
        self.database = f"shop_{capture}"

    @property
    def label(self) -> str:
        return "postgres" if self.capture == "decoding" else f"postgres, {self.capture}"

    def options(self) -> dict[str, object]:
        return {"url": self.server.url_of(self.database), "capture": self.capture}

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.server.url_of(self.database), autocommit=True)

    def create(self) -> None:
        with psycopg.connect(self.server.url_of(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {self.database}".encode())
        with self.connect() as connection:
            for statement in (
                f"CREATE TABLE {TABLE} (id bigint PRIMARY KEY, quantity int, name text, city text,"
                " price numeric(12,2), placed timestamp)",
                f"ALTER TABLE {TABLE} REPLICA IDENTITY FULL",
                f"INSERT INTO {TABLE} SELECT {self._VALUES}"
                f" FROM generate_series(1::bigint, {self.rows}) AS s(i)",
                f"VACUUM ANALYZE {TABLE}",
            ):
                connection.execute(statement.encode())

    def _commit(self, transactions: int, half: int) -> Iterator[None]:
        """One block of PL/pgSQL, which may commit: a round trip per transaction would cost more."""
        old = f"1 + ({self._round} + n) * {_STEP} % {max(1, self.rows - half)}"
        block = f"""DO $$ BEGIN FOR n IN 0..{transactions - 1} LOOP
            INSERT INTO {TABLE} SELECT {self._VALUES} FROM generate_series(
                {self._next}::bigint + n * {half}, {self._next} + n * {half} + {half - 1}) AS s(i);
            UPDATE {TABLE} SET quantity = quantity + 1, city = 'moved'
                WHERE id BETWEEN {old} AND {old} + {half - 1};
            COMMIT;
        END LOOP; END $$"""
        with self.connect() as connection:
            connection.execute(block.encode())
        yield


class MariadbWorld(SourceWorld):
    kind = "mariadb"
    _VALUES = (
        "{i}, {i} % 100, CONCAT('customer number ', {i}), CONCAT('city ', {i} % 500),"
        " ({i} % 100000) / 100, TIMESTAMPADD(SECOND, {i}, '2024-01-01')"
    )

    def __init__(self, folder: Path, rows: int, server: PrivateMariadb) -> None:
        super().__init__(folder, rows)
        self.server = server

    def options(self) -> dict[str, object]:
        return {"url": self.server.url_of("shop")}

    def connect(self, database: str | None = "shop") -> pymysql.connections.Connection[Any]:
        return pymysql.connections.Connection(
            host="127.0.0.1",
            port=self.server.port,
            user="root",
            password=b"secret",
            database=database,
            charset="utf8mb4",
            autocommit=True,
            ssl_disabled=True,
        )

    def create(self) -> None:
        with self.connect(None) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE DATABASE shop")
        self._run(
            f"CREATE TABLE {TABLE} (id BIGINT PRIMARY KEY, quantity INT, name VARCHAR(80),"
            " city VARCHAR(80), price DECIMAL(12,2), placed DATETIME(6))",
            f"INSERT INTO {TABLE} SELECT {self._VALUES.format(i='seq')} FROM seq_1_to_{self.rows}",
            f"ANALYZE TABLE {TABLE}",
        )

    def _run(self, *statements: str) -> None:
        with self.connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def _commit(self, transactions: int, half: int) -> Iterator[None]:
        """One compound statement, for the same reason as in PostgreSQL."""
        new = f"({self._next} + n * {half} + seq)"
        old = f"1 + ({self._round} + n) * {_STEP} % {max(1, self.rows - half)}"
        self._run(
            f"""BEGIN NOT ATOMIC
            DECLARE n BIGINT DEFAULT 0;
            WHILE n < {transactions} DO
                START TRANSACTION;
                INSERT INTO {TABLE} SELECT {self._VALUES.format(i=new)} FROM seq_0_to_{half - 1};
                UPDATE {TABLE} SET quantity = quantity + 1, city = 'moved'
                    WHERE id BETWEEN {old} AND {old} + {half - 1};
                COMMIT;
                SET n = n + 1;
            END WHILE; END"""
        )
        yield
