"""Connecting to a MariaDB server, and turning what it says into our errors.

Every connection is set up alike: UTC, utf8mb4, no SQL mode that changes what values look like, and
limits on how long anything may take. Results come as the bytes that the server sent; whoever asked
knows how to read them, so no driver converts a decimal to a float or a date to None on the way.

The url is split before its `${NAME}` references are resolved, so that a password may contain any
character. A password is in no error: the server's messages do not repeat it.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, unquote

import pymysql
import pymysql.connections
import pymysql.converters
from pymysql.constants import CR

from viewkeeper.errors import GapError, ProjectError, SchemaError, SourceAwayError, SourceError
from viewkeeper.sources.settings import SourceSettings, environment

Connection: TypeAlias = "pymysql.connections.Connection[Any]"
Row: TypeAlias = tuple[str, ...]

CONNECT_SECONDS = 5.0
STATEMENT_SECONDS = 60.0
# How long a statement waits for somebody's ALTER TABLE.
_LOCK_SECONDS = 5
# How long the server may wait for us to take what it sends.
_TAKE_SECONDS = 600
_URL = re.compile(
    r"(?:mariadb|mysql)://(?:(?P<user>[^:@/]*)(?::(?P<password>[^@]*))?@)?"
    r"(?P<host>\[[^\]]+\]|[^:/?]+)(?::(?P<port>[^/?]+))?(?:/(?P<database>[^?]*))?(?:\?(?P<query>.*))?"
)
_REFERENCE = re.compile(r"(\$\{[A-Za-z_][A-Za-z0-9_]*\})")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_FLAGS = {"ssl_verify_cert", "ssl_verify_identity"}
_PATHS = {"ssl_ca", "ssl_cert", "ssl_key"}


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is and as whom we come; `tls` are the driver's own options."""

    host: str
    port: int
    user: str
    password: str
    database: str
    tls: tuple[tuple[str, str | bool], ...]


@dataclass(frozen=True, slots=True)
class Server:
    """One server, as one source sees it; may be sent to other processes, and holds no secret."""

    settings: SourceSettings

    @property
    def source(self) -> str:
        return self.settings.name

    @property
    def statement_seconds(self) -> float:
        return self.settings.number("statement_seconds", STATEMENT_SECONDS)

    def address(self) -> Address:
        raw = str(self.settings.options["url"])
        match = _URL.fullmatch(raw) or _URL.fullmatch(self.settings.text("url"))
        if match is None or not match["host"]:
            raise ProjectError(
                f'source "{self.source}": the url is not of the form '
                "mariadb://user:password@host:port/database?ssl_ca=file",
                hint="write the password as ${NAME} and export NAME",
            )
        part = {name: self._resolved(text or "") for name, text in match.groupdict().items()}
        return Address(
            host=part["host"].strip("[]"),
            port=self._port(part["port"]),
            user=part["user"],
            password=part["password"],
            database=part["database"],
            tls=tuple(self._tls(match["query"] or "")),
        )

    def _resolved(self, text: str) -> str:
        """References are taken as they are; what is written in the url may be percent-encoded."""
        parts = _REFERENCE.split(text)
        return "".join(
            environment(self.source, part[2:-1]) if number % 2 else unquote(part)
            for number, part in enumerate(parts)
        )

    def _port(self, text: str) -> int:
        if not text:
            return 3306
        if not text.isdigit():
            raise ProjectError(
                f'source "{self.source}": the port in the url is not a number',
                hint="the form is mariadb://user:password@host:port/database",
            )
        return int(text)

    def _tls(self, query: str) -> Iterator[tuple[str, str | bool]]:
        for name, value in parse_qsl(query, keep_blank_values=True):
            if name in _FLAGS:
                yield name, value.lower() in ("", "1", "true", "yes", "on")
            elif name in _PATHS:
                yield name, str(Path(self.settings.folder, self._resolved(value)))
            else:
                raise ProjectError(
                    f'source "{self.source}": unknown option "{name}" in the url',
                    hint=f"known are {', '.join(sorted(_FLAGS | _PATHS))}",
                )

    def where(self) -> str:
        """The server for people."""
        address = self.address()
        return f"{address.host}:{address.port}/{address.database}"

    def connect(self) -> Connection:
        """A connection in autocommit mode."""
        address = self.address()
        with self.errors():
            if address.tls or address.host not in _LOOPBACK:
                try:
                    return self._connect(address, _encryption(address.tls))
                except pymysql.err.OperationalError as error:
                    if address.tls or error.args[0] != CR.CR_SSL_CONNECTION_ERROR:
                        raise
            return self._connect(address, None)

    def _connect(self, address: Address, encryption: ssl.SSLContext | None) -> Connection:
        seconds = self.statement_seconds
        encoders: dict[Any, Any] = dict(pymysql.converters.encoders)
        connection: Any = pymysql.connections.Connection(
            host=address.host,
            port=address.port,
            user=address.user,
            password=address.password.encode(),
            charset="utf8mb4",
            use_unicode=False,
            conv=encoders,
            autocommit=True,
            connect_timeout=CONNECT_SECONDS,
            read_timeout=CONNECT_SECONDS,
            write_timeout=CONNECT_SECONDS,
            ssl=encryption,
            ssl_disabled=encryption is None,
            init_command=(
                "SET SESSION time_zone = '+00:00', sql_mode = '', sql_select_limit = DEFAULT,"
                f" lock_wait_timeout = {_LOCK_SECONDS}, max_statement_time = {seconds:g},"
                f" net_write_timeout = {_TAKE_SECONDS}"
            ),
        )
        # Only now: a server that says nothing at all is not waited for as long as a statement.
        connection._read_timeout = connection._write_timeout = seconds + CONNECT_SECONDS
        opened: Connection = connection
        return opened

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Inside, every error of the driver becomes one of ours."""
        try:
            yield
        except (pymysql.Error, OSError) as error:
            raise translate(self.source, error) from None


@lru_cache
def _encryption(options: tuple[tuple[str, str | bool], ...]) -> ssl.SSLContext:
    """How connections are encrypted; made once, because reading the system's certificates takes
    longer than to connect."""
    chosen = dict(options)
    authority = chosen.get("ssl_ca")
    context = ssl.create_default_context(cafile=None if authority is None else str(authority))
    # Certificates that MariaDB makes for itself do not pass the strictest check.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.check_hostname = bool(chosen.get("ssl_verify_identity"))
    verify = context.check_hostname or bool(chosen.get("ssl_verify_cert", authority is not None))
    context.verify_mode = ssl.CERT_REQUIRED if verify else ssl.CERT_NONE
    if "ssl_cert" in chosen:
        key = chosen.get("ssl_key")
        context.load_cert_chain(str(chosen["ssl_cert"]), None if key is None else str(key))
    return context


def texts(connection: Connection, query: str, arguments: Sequence[object] = ()) -> list[Row]:
    """All rows of a small result, as text; NULL is the empty text."""
    with connection.cursor() as cursor:
        cursor.execute(query, arguments or None)
        rows: Sequence[Sequence[bytes | None]] = cursor.fetchall()
    return [tuple("" if v is None else v.decode() for v in row) for row in rows]


def pairs(connection: Connection, query: str) -> dict[str, str]:
    """A small result of names and values."""
    return {row[0]: row[1] for row in texts(connection, query)}


def execute(connection: Connection, statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


@dataclass(frozen=True, slots=True)
class _Meaning:
    """What error numbers mean to the one who reads the error."""

    numbers: frozenset[int]
    kind: type[SourceError]
    message: str
    hint: str


_MEANINGS = (
    _Meaning(
        frozenset({1045, 1698}),
        SourceAwayError,
        "the server refuses the user or the password of the url",
        "check both; the environment variable that the url names may have another value here",
    ),
    _Meaning(
        frozenset({1044, 1142, 1143, 1227, 1370}),
        SchemaError,
        "the user of the url has no right to do this",
        "viewkeeper doctor prints the GRANT statements that are missing",
    ),
    _Meaning(frozenset({1049}), SchemaError, "there is no such database", "check the url"),
    _Meaning(
        frozenset({1054, 1146, 1051, 1932}),
        SchemaError,
        "a table or column that is followed is no longer there",
        "change the views that use it, or bring it back",
    ),
    _Meaning(
        frozenset({1412}),
        SourceAwayError,
        "a table is being altered all the time",
        "nothing to do: it is tried again",
    ),
    _Meaning(
        frozenset({1236, 1220}),
        GapError,
        "the server cannot send its binlog from where we stopped reading",
        "viewkeeper run --full-refresh VIEW loads its views anew; keep the binlog longer: "
        "SET GLOBAL binlog_expire_logs_seconds = 604800",
    ),
    _Meaning(
        frozenset({1969, 3024}),
        SourceAwayError,
        "a statement took longer than statement_seconds",
        "raise statement_seconds of this source, or add the index that `explain` asks for",
    ),
    _Meaning(
        frozenset({1205}),
        SourceAwayError,
        "a table stayed locked, by an ALTER TABLE perhaps",
        "nothing to do: it is tried again",
    ),
)


def translate(source: str, error: Exception) -> SourceError:
    """The one place where MariaDB's error numbers become typed errors."""
    number = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = str(error.args[1]) if len(error.args) > 1 else str(error)
    detail = f"{number} {text}" if isinstance(error, pymysql.Error) and number else text
    for meaning in _MEANINGS:
        if number in meaning.numbers:
            return meaning.kind(source, meaning.message, detail=detail, hint=meaning.hint)
    if isinstance(error, pymysql.err.OperationalError | pymysql.err.InterfaceError | OSError):
        return SourceAwayError(
            source,
            "the server does not answer",
            detail=detail,
            hint="check that it runs and that host and port of the url are right",
        )
    return SourceError(source, "MariaDB refused a statement", detail=detail)
