"""What a live test needs of each real database: a server, tables, connections, a log of its own.

The log is read without Viewkeeper and by other means than it uses: PostgreSQL's through a slot of
the judge's own with another plugin, MariaDB's with the binlog library's own decoding. It gives the
committed transactions in commit order, each as signed rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import psycopg
import pymysql
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import GtidEvent, MariadbGtidEvent, XidEvent
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from viewkeeper.testing.private_servers import PrivateMariadb, PrivatePostgres, PrivateServer

Row = tuple[Any, ...]
Logged = list[tuple[str, int, Row]]
"""A transaction: table, sign, whole row."""

TABLES = {
    "orders": ("id", "customer_id", "note"),
    "item": ("order_id", "product", "quantity"),
    "ledger": ("n",),
}


class Kind(Protocol):
    """A real database under test."""

    @property
    def server(self) -> PrivateServer: ...

    def create(self) -> None: ...
    def source(self) -> str: ...
    def connect(self) -> Any: ...
    def log(self) -> list[Logged]: ...


class Postgres:
    """PostgreSQL; the judge's slot uses `test_decoding`."""

    def __init__(self, folder: Path, capture: str = "decoding") -> None:
        self.server = PrivatePostgres(folder)
        self._capture = capture

    def create(self) -> None:
        with psycopg.connect(self.server.url_of(), autocommit=True) as connection:
            connection.execute(
                "CREATE TABLE orders (id bigint PRIMARY KEY, customer_id int, note text)"
            )
            connection.execute("CREATE TABLE item (order_id bigint, product text, quantity int)")
            connection.execute("CREATE INDEX ON item (order_id)")
            connection.execute("CREATE TABLE ledger (n bigint PRIMARY KEY)")
            connection.execute("CREATE TABLE counter (n bigint)")
            connection.execute("INSERT INTO counter VALUES (0)")
            for table in TABLES:
                connection.execute(f"ALTER TABLE {table} REPLICA IDENTITY FULL")
            connection.execute(
                "SELECT pg_create_logical_replication_slot('judge', 'test_decoding')"
            )

    def source(self) -> str:
        return f"{{kind: postgres, url: '{self.server.url_of()}', capture: {self._capture}}}"

    def connect(self) -> Any:
        return psycopg.connect(self.server.url_of(), connect_timeout=2)

    def log(self) -> list[Logged]:
        with psycopg.connect(self.server.url_of(), autocommit=True) as connection:
            lines = connection.execute(
                "SELECT data FROM pg_logical_slot_get_changes('judge', NULL, NULL,"
                " 'include-xids', 'false', 'skip-empty-xacts', 'true')"
            ).fetchall()
        return list(_decoded(line for (line,) in lines))


_TABLE = re.compile(r"table public\.(\w+): (\w+): (.*)", re.DOTALL)
_VALUE = re.compile(r"(\w+)\[[^]]*\]:(?:'((?:[^']|'')*)'|(\S+))")


def _decoded(lines: Iterator[str]) -> Iterator[Logged]:
    found: Logged = []
    for line in lines:
        if line == "BEGIN":
            found = []
        elif line == "COMMIT":
            yield found
        elif match := _TABLE.match(line):
            table, verb, text = match.groups()
            if table in TABLES:
                found += _rows(table, verb, text)


def _rows(table: str, verb: str, text: str) -> Logged:
    if verb == "UPDATE":
        old, _, new = text.removeprefix("old-key: ").partition(" new-tuple: ")
        return [(table, -1, _row(table, old)), (table, 1, _row(table, new))]
    return [(table, 1 if verb == "INSERT" else -1, _row(table, text))]


def _row(table: str, text: str) -> Row:
    values = {
        name: plain if quoted is None else quoted.replace("''", "'")
        for name, quoted, plain in ((m[1], m[2], m[3]) for m in _VALUE.finditer(text))
    }
    return tuple(_typed(values.get(column)) for column in TABLES[table])


def _typed(value: str | None) -> Any:
    if value is None or value == "null":
        return None
    return int(value) if re.fullmatch(r"-?\d+", value) else value


class Mariadb:
    """MariaDB; the judge reads the binlog from its beginning, decoded by the library."""

    def __init__(self, folder: Path) -> None:
        self.server = PrivateMariadb(folder)

    def create(self) -> None:
        with self._connection(None) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE DATABASE shop")
            cursor.execute("USE shop")
            cursor.execute(
                "CREATE TABLE orders (id bigint PRIMARY KEY, customer_id int, note text)"
            )
            cursor.execute(
                "CREATE TABLE item (order_id bigint, product varchar(40), quantity int,"
                " KEY (order_id))"
            )
            cursor.execute("CREATE TABLE ledger (n bigint PRIMARY KEY)")
            cursor.execute("CREATE TABLE counter (n bigint)")
            cursor.execute("INSERT INTO counter VALUES (0)")
            connection.commit()

    def source(self) -> str:
        return f"{{kind: mariadb, url: '{self.server.url_of('shop')}'}}"

    def connect(self) -> Any:
        return pymysql.connect(**self._address(), database="shop", connect_timeout=2)

    def log(self) -> list[Logged]:
        reader = BinLogStreamReader(
            connection_settings=self._address(),
            server_id=999_999,
            log_file="binlog.000001",
            log_pos=4,
            resume_stream=True,
            only_schemas=["shop"],
            pymysql_wrapper=_connected,
        )
        try:
            return list(_transactions(reader))
        finally:
            reader.close()

    def _address(self) -> dict[str, Any]:
        parts = urlsplit(self.server.url_of())
        return {
            "host": parts.hostname,
            "port": parts.port,
            "user": parts.username,
            "password": parts.password,
        }

    @contextmanager
    def _connection(self, database: str | None) -> Iterator[Any]:
        connection = pymysql.connect(**self._address(), database=database)
        try:
            yield connection
        finally:
            connection.close()


def _connected(**settings: Any) -> Any:
    """The library calls the database `db`, which the driver no longer likes."""
    return pymysql.connect(**{"database" if k == "db" else k: v for k, v in settings.items()})


_ROWS = (WriteRowsEvent, DeleteRowsEvent, UpdateRowsEvent)


def _transactions(reader: BinLogStreamReader) -> Iterator[Logged]:
    found: Logged = []
    for event in reader:
        if isinstance(event, GtidEvent | MariadbGtidEvent):
            found = []
        elif isinstance(event, XidEvent):
            if found:
                yield found
            found = []
        elif isinstance(event, _ROWS) and event.table in TABLES:
            found += _changes(event)


def _changes(event: Any) -> Logged:
    table, columns = event.table, TABLES[event.table]
    found: Logged = []
    for row in event.rows:
        if "values" in row:
            sign = 1 if isinstance(event, WriteRowsEvent) else -1
            found.append((table, sign, tuple(row["values"][c] for c in columns)))
        else:
            found.append((table, -1, tuple(row["before_values"][c] for c in columns)))
            found.append((table, 1, tuple(row["after_values"][c] for c in columns)))
    return found
