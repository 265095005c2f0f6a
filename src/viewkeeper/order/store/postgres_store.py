"""A registry in a PostgreSQL database: for a fleet of machines.

The tables live in a schema of their own; making it needs CREATE on the database or a schema that
was made for us, and no more. Who changes a group locks its row, under READ COMMITTED: every later
statement then sees all that earlier holders committed, and PostgreSQL lets go of the lock only when
their commit is visible, so a reader never sees a number without those before it. No transaction
waits, or keeps others waiting, without a limit. Commits are synchronous, whatever the role's are.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from viewkeeper.errors import RegistryAwayError, RegistryError
from viewkeeper.order.store.group_rows import (
    SCHEMA,
    StatementRunner,
    check_format,
    is_old,
    upgrade_format,
)

DEFAULT_SCHEMA = "viewkeeper_registry"
OLDEST_VERSION = 140000
_REGISTRY = "SELECT 1 WHERE to_regclass('registry') IS NOT NULL"
_SETTINGS = {
    "statement_timeout": "15s",
    "lock_timeout": "10s",
    # One whose machine is gone lets go of its group.
    "idle_in_transaction_session_timeout": "15s",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}
_SOCKET: dict[str, str | int] = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "client_encoding": "UTF8",
    "application_name": "viewkeeper registry",
}


class PostgresStore:
    """One schema of one database; one connection, used by one thread at a time."""

    clock = "extract(epoch FROM clock_timestamp())::float8"
    for_update = " FOR UPDATE"
    for_share = " FOR SHARE"

    def __init__(self, url: str) -> None:
        """`url` may name the schema: `postgresql://.../fleet?schema=orders`."""
        plain, self._schema = split_schema(url)
        try:
            given = conninfo_to_dict(plain)
        except psycopg.Error:
            # What the driver says about it may repeat the password.
            raise RegistryError(
                "postgresql://...",
                "this address cannot be read",
                hint="it is written postgresql://user:password@host:port/database",
            ) from None
        place = given.get("host") or given.get("hostaddr") or "localhost"
        port = f":{given['port']}" if given.get("port") else ""
        self.name = f"postgresql://{place}{port}/{given.get('dbname') or ''}"
        options = " ".join(f"-c {name}={value}" for name, value in _SETTINGS.items())
        chosen = {k: v for k, v in _SOCKET.items() if k not in given}
        all_options = f"{given.get('options') or ''} {options}"
        self._conninfo = make_conninfo(plain, options=all_options, **chosen)
        self._secret = str(given.get("password") or "")
        self._lock = threading.RLock()
        self._connection: psycopg.Connection[Any] | None = None

    @contextmanager
    def write_transaction(self, create: bool = False) -> Iterator[StatementRunner]:
        with self._use_connection(create) as connection, connection.transaction():
            yield _statement_runner(connection)

    @contextmanager
    def read_transaction(self) -> Iterator[StatementRunner]:
        with self._use_connection(create=False) as connection, connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield _statement_runner(connection)

    @contextmanager
    def _use_connection(self, create: bool) -> Iterator[psycopg.Connection[Any]]:
        with self._lock, self._translate_errors():
            if self._connection is None or self._connection.closed:
                self._connection = self._open_connection(create)
            yield self._connection

    def _open_connection(self, create: bool) -> psycopg.Connection[Any]:
        connection = psycopg.connect(self._conninfo, autocommit=True, prepare_threshold=None)
        try:
            self._prepare_store(connection, create)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare_store(self, connection: psycopg.Connection[Any], create: bool) -> None:
        rows = _statement_runner(connection)
        self._check_server(connection, rows)
        if rows("SELECT 1 WHERE current_setting('synchronous_commit') = 'off'"):
            connection.execute("SET synchronous_commit = on")
        schema = sql.Identifier(self._schema)
        connection.execute(sql.SQL("SET search_path = {}").format(schema))
        if create:
            with self._table_transaction(connection, rows):
                self._make_tables(connection, rows)
        if rows(_REGISTRY) and is_old(rows):
            with self._table_transaction(connection, rows):
                upgrade_format(rows)
        if not rows(_REGISTRY):
            raise RegistryError(
                self.name,
                f"schema {self._schema} holds no registry",
                hint="check the address; the first member that joins makes it",
            )
        check_format(self.name, rows)

    @contextmanager
    def _table_transaction(
        self, connection: psycopg.Connection[Any], rows: StatementRunner
    ) -> Iterator[None]:
        """A transaction for tables: two that made the same ones at once would fail on it."""
        with connection.transaction():
            rows("SELECT pg_advisory_xact_lock(hashtextextended(?, 0))", self._schema)
            yield

    def _check_server(self, connection: psycopg.Connection[Any], rows: StatementRunner) -> None:
        if connection.info.server_version < OLDEST_VERSION:
            raise RegistryError(self.name, "PostgreSQL is too old", hint="use 14 or newer")
        if rows("SELECT 1 WHERE pg_is_in_recovery()"):
            raise RegistryAwayError(
                self.name,
                "this is a standby server",
                hint="name the primary, or add target_session_attrs=read-write to the address",
            )

    def _make_tables(self, connection: psycopg.Connection[Any], rows: StatementRunner) -> None:
        # Even with IF NOT EXISTS, PostgreSQL asks for the right to create what is there.
        if not rows("SELECT 1 FROM pg_namespace WHERE nspname = ?", self._schema):
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(self._schema)))
        if not rows(_REGISTRY):
            for statement in SCHEMA:
                rows(statement)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Inside, every error of psycopg becomes one of ours; the password is in none."""
        try:
            yield
        except psycopg.Error as error:
            text = " ".join(str(error).split())
            if self._secret:
                text = text.replace(self._secret, "***")
            if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
                self._disconnect()
                raise RegistryAwayError(
                    self.name,
                    "it cannot be reached, or does not answer in time",
                    detail=text,
                    hint="check that the server runs and that the address is right",
                ) from None
            raise RegistryError(
                self.name,
                "PostgreSQL failed",
                detail=text,
                hint=f"the role needs the schema {self._schema} and all rights on its tables",
            ) from None

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def close(self) -> None:
        with self._lock:
            self._disconnect()


def split_schema(url: str) -> tuple[str, str]:
    """The address without the schema, which only we understand, and the schema.

    >>> split_schema("postgresql://h/fleet?sslmode=require&schema=orders")
    ('postgresql://h/fleet?sslmode=require', 'orders')
    """
    parts = urlsplit(url)
    given = parse_qsl(parts.query, keep_blank_values=True)
    schema = dict(given).get("schema") or DEFAULT_SCHEMA
    rest = [(name, value) for name, value in given if name != "schema"]
    return urlunsplit(parts._replace(query=urlencode(rest))), schema


def _statement_runner(connection: psycopg.Connection[Any]) -> StatementRunner:
    def rows(statement: str, *values: object) -> list[tuple[Any, ...]]:
        cursor = connection.execute(statement.replace("?", "%s").encode(), values)
        return cursor.fetchall() if cursor.description else []

    return rows
