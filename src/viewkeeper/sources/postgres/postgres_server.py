"""Connecting to a PostgreSQL server, and turning what it says into our errors.

`PostgresServer` says where the server is; it can be pickled, and every task makes its own
connections with it. `PostgresConnections` are those of the source itself: one for control, under
one lock, and those that export snapshots.

All connections have the same session settings, so that text is one-to-one with values (UTC, ISO
dates, hexadecimal bytes), nothing is filtered silently (`row_security = off` makes a policy that
would hide rows an error), and nothing waits without a limit. A password never appears in an error:
whatever the driver says is scrubbed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from viewkeeper.errors import (
    DOCTOR_HINT,
    SchemaError,
    SourceAwayError,
    SourceError,
    ViewkeeperError,
)
from viewkeeper.sources.postgres.connection_state import read_connection_state
from viewkeeper.sources.postgres.idle_connections import close_idle_connections
from viewkeeper.sources.postgres.shape_query import prepare_shapes
from viewkeeper.sources.postgres.types import PgConnection, quote_name, read_row
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.storage.local_lock import LockHolder

T = TypeVar("T")

CONNECT_SECONDS = 10
LOCK_SECONDS = 2
OLDEST_VERSION = 140000
STATEMENT_SECONDS = 60.0
SENDER_SECONDS = 60.0
"""After so long without a word from us the server ends a change stream."""

NAME_BYTES = 63
"""The server cuts the names of connections off after so many bytes."""

_SESSION = {
    "TimeZone": "UTC",
    "DateStyle": "ISO",
    "IntervalStyle": "postgres",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "standard_conforming_strings": "on",
    "row_security": "off",
    # Compiling a query takes longer than our queries do.
    "jit": "off",
    # Our marks in the log need no standby; without one, a commit of ours would wait for ever.
    "synchronous_commit": "local",
    # Lookups by index are what we do; the default is for disks that turn.
    "random_page_cost": "1.1",
    "idle_in_transaction_session_timeout": "0",
    # A server that we died on notices soon, and lets go of the slot.
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
}
_SOCKET: dict[str, str | int] = {
    "connect_timeout": CONNECT_SECONDS,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
    "client_encoding": "UTF8",
    "application_name": "viewkeeper",
}


class LimitedConnection(psycopg.Connection[Any]):
    """A connection that does not wait for ever for a server that says nothing any more."""

    silence_seconds = float(CONNECT_SECONDS)

    def limit_silence(self, seconds: float) -> None:
        """Wait so long at most for the server's next word."""
        self.silence_seconds = seconds

    def wait(self, gen: PQGen[T], *arguments: Any, **options: Any) -> T:
        """Consume a generator of psycopg; an OperationalError after too long a silence."""
        return super().wait(self._watch_silence(gen), *arguments, **options)

    def _watch_silence(self, gen: PQGen[T]) -> PQGen[T]:
        """Pass on what the generator waits for; psycopg says now and then that nothing came."""
        end = time.monotonic() + self.silence_seconds
        try:
            waits = next(gen)
            while True:
                ready = yield waits
                if ready:
                    end = time.monotonic() + self.silence_seconds
                elif time.monotonic() > end:
                    raise psycopg.OperationalError(f"no answer in {self.silence_seconds:g} s")
                waits = gen.send(ready)
        except StopIteration as ended:
            result: T = ended.value
            return result


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """One database of one server, as one source sees it; holds no secret."""

    settings: SourceSettings

    @property
    def source(self) -> str:
        return self.settings.name

    @property
    def statement_seconds(self) -> float:
        return self.settings.read_number("statement_seconds", STATEMENT_SECONDS)

    def describe_location(self) -> str:
        """Where it is, without connecting."""
        with self.translate_errors():
            parts = conninfo_to_dict(self.settings.read_url())
        host = parts.get("host") or parts.get("hostaddr") or "localhost"
        port = f":{parts['port']}" if parts.get("port") else ""
        return f"PostgreSQL database {parts.get('dbname') or parts.get('user')} at {host}{port}"

    def open_connection(self) -> PgConnection:
        """A connection in autocommit mode, for control and small answers."""
        with self.translate_errors():
            conninfo = self.connection_string()
        return self._connect(conninfo, prepare_threshold=None)

    def open_replication(self) -> PgConnection:
        """A connection that can be streamed from."""
        patience = f"{int(SENDER_SECONDS * 1000)}ms"
        limits = {"statement_timeout": "0", "lock_timeout": "0", "wal_sender_timeout": patience}
        with self.translate_errors():
            string = self.connection_string(limits)
            given = conninfo_to_dict(self.settings.read_url()).get("application_name")
            # Whoever takes the warehouse over from this process knows its stream by that.
            name = given or LockHolder.this_process("", 0.0).connection_name[:NAME_BYTES]
            conninfo = make_conninfo(string, replication="database", application_name=name)
        return self._connect(conninfo)

    def _connect(self, conninfo: str, **options: Any) -> LimitedConnection:
        try:
            connection = LimitedConnection.connect(conninfo, autocommit=True, **options)
        except psycopg.Error as error:
            state = self._state_of_refusal(conninfo, error)
            if state == "42501":
                raise self._connect_grant_error(error) from None
            raise self.to_source_error(error, state, is_connection=True) from None
        # The server itself ends a statement before that, if it can.
        connection.limit_silence(self.statement_seconds + CONNECT_SECONDS)
        return connection

    def _connect_grant_error(self, error: psycopg.Error) -> SourceError:
        parts = conninfo_to_dict(self.settings.read_url())
        role = str(parts.get("user") or _default_user())
        database = str(parts.get("dbname") or role)
        return SourceAwayError(
            self.source,
            "the role may not connect to the database",
            detail=self.scrub_password(str(error)),
            hint=f"GRANT CONNECT ON DATABASE {quote_name(database)} TO {quote_name(role)};",
        )

    def _state_of_refusal(self, conninfo: str, error: psycopg.Error) -> str:
        """The state of an error of opening a connection, which comes without one."""
        state = error.sqlstate or _state_of_text(str(error))
        if state or isinstance(error, psycopg.errors.ConnectionTimeout):
            return state
        return read_connection_state(conninfo, CONNECT_SECONDS)

    def connection_string(self, limits: dict[str, str] | None = None) -> str:
        """With the password; for drivers only."""
        url = self.settings.read_url()
        given = conninfo_to_dict(url)
        seconds = self.statement_seconds
        settings = {
            **_SESSION,
            "statement_timeout": str(int(seconds * 1000)),
            "lock_timeout": str(LOCK_SECONDS * 1000),
            **(limits or {}),
        }
        options = " ".join(f"-c {name}={value}" for name, value in settings.items())
        chosen = {k: v for k, v in _SOCKET.items() if k not in given or k == "client_encoding"}
        return make_conninfo(url, options=f"{given.get('options') or ''} {options}", **chosen)

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Inside, every error of psycopg becomes one of ours."""
        try:
            yield
        except psycopg.Error as error:
            is_connection = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
            raise self.to_source_error(error, error.sqlstate, is_connection) from None

    def to_source_error(
        self, error: Exception, state: str | None, is_connection: bool
    ) -> SourceError:
        return error_of_state(
            self.source, state or "", self.scrub_password(str(error)), is_connection
        )

    def scrub_password(self, text: str) -> str:
        """The text without the password, in whichever spelling the settings have it."""
        try:
            url = self.settings.read_url()
            secrets = {url, str(conninfo_to_dict(url).get("password") or "")}
        except (ViewkeeperError, psycopg.Error):
            # The settings themselves are wrong, and so is what the driver says about them.
            return "the url cannot be read"
        for secret in sorted(filter(None, secrets), key=len, reverse=True):
            text = text.replace(secret, "***")
        return " ".join(text.split())


class PostgresConnections:
    """The connections of one source to its server; may be used from several threads.

    The control connection is opened when it is first needed, and again after it broke. A server can
    end only when all connections to it are closed, so `close_stream` is called together with them.
    """

    def __init__(
        self, server: PostgresServer, close_stream: Callable[[], None] = lambda: None
    ) -> None:
        self.server = server
        self.lock = threading.RLock()
        self.search_path: tuple[str, ...] = ()
        """The schemas whose tables are called by their name alone."""
        self._close_stream = close_stream
        self._control: PgConnection | None = None
        self._free: list[PgConnection] = []

    @contextmanager
    def use_control(self) -> Iterator[PgConnection]:
        """The control connection, under the lock; a broken one is replaced the next time."""
        with self.lock:
            if self._control is None or self._control.closed:
                self._control = self._connect_control()
            try:
                with self.server.translate_errors():
                    yield self._control
            except SourceAwayError:
                # The server can end only when we let go of it.
                self._close_all()
                raise

    @contextmanager
    def use_coordinator(self) -> Iterator[PgConnection]:
        """A connection for one shared snapshot; one that is free again is kept for the next."""
        with self.lock:
            free = self._free.pop() if self._free else None
        connection = free if free and not free.closed else self.server.open_connection()
        try:
            if connection is not free:
                with self.server.translate_errors():
                    prepare_shapes(connection)
            yield connection
            with self.server.translate_errors():
                connection.execute("ROLLBACK")
        except BaseException:
            connection.close()
            raise
        with self.lock:
            self._free.append(connection)

    def _connect_control(self) -> PgConnection:
        control = self.server.open_connection()
        try:
            with self.server.translate_errors():
                self._check_server(control)
                prepare_shapes(control)
        except BaseException:
            control.close()
            raise
        return control

    def _check_server(self, control: PgConnection) -> None:
        if control.info.server_version < OLDEST_VERSION:
            raise SourceError(
                self.server.source,
                f"PostgreSQL {control.info.server_version // 10000} is too old",
                hint="Viewkeeper needs PostgreSQL 14 or newer",
            )
        query = "SELECT pg_is_in_recovery(), current_schemas(false)::text[]"
        is_standby, path = read_row(control, query)
        self.search_path = tuple(path)
        if is_standby:
            raise SourceAwayError(
                self.server.source,
                "this is a standby server",
                detail="the changes and the queries of a source must come from one server",
                hint="let the url name the primary, or add target_session_attrs=read-write",
            )

    def _close_all(self) -> None:
        if self._control is not None:
            self._control.close()
        self._control = None
        while self._free:
            self._free.pop().close()
        close_idle_connections(self.server.settings)
        self._close_stream()

    def close(self) -> None:
        with self.lock:
            self._close_all()


_AWAY = {
    "57014": ("a statement took too long", "raise statement_seconds, or look what the server does"),
    "55P03": ("a table stays locked", "find the session that holds a lock on it"),
    "53300": ("it takes no more connections", "raise max_connections, or close other sessions"),
    "28P01": (
        "wrong password, or no such user",
        "check both in the url; the environment variable that it names may have another value here",
    ),
    "28000": ("it does not let us in", "check the url and pg_hba.conf"),
    "3D000": ("the database does not exist", "check the url"),
}
_SCHEMA = {
    "42501": ("a privilege is missing", DOCTOR_HINT),
    "42P01": ("a table is not there any more", "change the views that use it, or bring it back"),
    "42703": ("a column is not there any more", "change the views that use it, or bring it back"),
    "42704": ("something that is needed is not there", DOCTOR_HINT),
}


_REFUSALS = {
    "password authentication failed": "28P01",
    "no password supplied": "28P01",
    "no pg_hba.conf entry": "28000",
    "too many clients": "53300",
}


def _default_user() -> str:
    """Whom libpq takes for a url that names nobody."""
    found = {option.keyword: option.val for option in psycopg.pq.Conninfo.get_defaults()}
    return (found[b"user"] or b"").decode()


def _state_of_text(text: str) -> str:
    """The state of an error that comes without one, as those of opening a connection do.

    Only what the server says in English is known; what else it says is asked for once more
    (`read_connection_state`).

    >>> _state_of_text('FATAL: password authentication failed for user "keeper"')
    '28P01'
    """
    found = (state for words, state in _REFUSALS.items() if words in text)
    return next(found, "")


def error_of_state(source: str, state: str, text: str, is_connection: bool) -> SourceError:
    """The one place where states of PostgreSQL become typed errors."""
    state = state or _state_of_text(text)
    detail = f"{text} ({state})" if state else text
    if state in _AWAY:
        message, hint = _AWAY[state]
        return SourceAwayError(source, message, detail=detail, hint=hint)
    if state in _SCHEMA:
        message, hint = _SCHEMA[state]
        return SchemaError(source, message, detail=detail, hint=hint)
    if state[:2] in ("08", "57", "53") or (not state and is_connection):
        hint = "check that the server runs and that the url is right"
        return SourceAwayError(source, "it cannot be reached", detail=detail, hint=hint)
    return SourceError(source, "PostgreSQL failed", detail=detail)
