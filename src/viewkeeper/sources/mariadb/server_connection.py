"""Connecting to a MariaDB server, and turning what it says into our errors.

Every connection is set up alike: UTC, utf8mb4, no SQL mode that changes what values look like, and
limits on how long anything may take. Results come as the bytes that the server sent; whoever asked
knows how to read them, so no driver converts a decimal to a float or a date to None on the way.

The url is split before its `${NAME}` references are resolved, so that a password may contain any
character. A password is in no error: the server's messages do not repeat it.

How much the server behind a channel is known is a word, the *mode*:

- `off`: nothing is encrypted;
- `required`: encrypted, but by whoever answered;
- `verify-ca`: the server has a certificate of an authority that we trust;
- `verify-full`: ... and the certificate is for the host of the url.

A mode is never given up: a server that cannot do what it asks for is refused. Without a word about
it, a server on another machine is `verify-full`, with the authorities of this machine; one on this
machine is `off`, because what passes there leaves it nowhere.

A server chooses how the password is proved to it, and some ways hand the password over: in clear,
encrypted by a key that the server has just sent, or hashed so weakly that it is nearly the same.
These are answered by `verify-full` channels only, whatever the url says: on this machine, too,
anybody may listen at the port of a server that is down. The others give whoever asks no more than
a hash over numbers that it has chosen.
"""

from __future__ import annotations

import re
import ssl
import struct
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args
from urllib.parse import parse_qsl, unquote

import pymysql
import pymysql.connections
import pymysql.converters
from pymysql.constants import CR

from viewkeeper.errors import (
    DOCTOR_HINT,
    GapError,
    ProjectError,
    SchemaError,
    SourceAwayError,
    SourceError,
    reload_hint,
)
from viewkeeper.sources.settings import SourceSettings, read_environment

if TYPE_CHECKING:
    _Connection = pymysql.connections.Connection[Any]
else:
    _Connection = pymysql.connections.Connection

Mode: TypeAlias = Literal["off", "required", "verify-ca", "verify-full"]
Option: TypeAlias = tuple[str, str | bool]

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_MODE = "ssl_mode"
_FLAGS = {"ssl_verify_cert", "ssl_verify_identity"}
_PATHS = {"ssl_ca", "ssl_cert", "ssl_key"}
_NATIVE = "mysql_native_password"
# What they send is a proof of the password, from which it cannot be read.
_PROOFS = ("", _NATIVE, "client_ed25519")
# MariaDB allows no packet to be larger.
_LARGEST_BYTES = 1 << 30


class UntrustedError(pymysql.err.OperationalError):
    """A server asks for what its channel is not trusted to carry."""


@dataclass(frozen=True, slots=True)
class Channel:
    """What the url says about encryption, for one host."""

    host: str
    options: tuple[Option, ...]

    @property
    def is_local(self) -> bool:
        """Whether the server is on this machine."""
        return self.host in _LOOPBACK

    @property
    def mode(self) -> Mode:
        chosen = dict(self.options)
        if _MODE in chosen:
            return _parse_mode(str(chosen[_MODE]))
        if chosen.get("ssl_verify_identity"):
            return "verify-full"
        if "ssl_verify_cert" in chosen:
            return "verify-ca" if chosen["ssl_verify_cert"] else "required"
        if "ssl_ca" in chosen or "ssl_verify_identity" in chosen:
            return "verify-ca"
        if not self.is_local:
            return "verify-full"
        return "required" if chosen else "off"

    def make_context(self) -> ssl.SSLContext | None:
        """How connections are encrypted; None if they are not."""
        return None if self.mode == "off" else _make_ssl_context(self.mode, self.options)


def _parse_mode(text: str) -> Mode:
    found: Mode = next(word for word in get_args(Mode) if word == text)
    return found


def parse_channel_options(
    source: str, query: Iterable[tuple[str, str]], folder: str
) -> tuple[Option, ...]:
    """The options behind the question mark of a url; a ProjectError if they make no sense."""
    found = dict(_parse_options(source, query, folder))
    _require_sense(source, found)
    return tuple(found.items())


def _parse_options(source: str, query: Iterable[tuple[str, str]], folder: str) -> Iterator[Option]:
    for name, value in query:
        if name in _FLAGS:
            yield name, value.lower() in ("", "1", "true", "yes", "on")
        elif name in _PATHS:
            yield name, str(Path(folder, value))
        elif name == _MODE and value.lower() in get_args(Mode):
            yield name, value.lower()
        elif name == _MODE:
            raise ProjectError(
                f'source "{source}": ssl_mode in the url cannot be "{value}"',
                hint=f"one of {', '.join(get_args(Mode))}",
            )
        else:
            raise ProjectError(
                f'source "{source}": unknown option "{name}" in the url',
                hint=f"known are {', '.join(sorted(_FLAGS | _PATHS | {_MODE}))}",
            )


def _require_sense(source: str, options: Mapping[str, str | bool]) -> None:
    """A ProjectError if options of one url contradict each other."""
    if _MODE not in options:
        return
    others = sorted(set(options) & (_FLAGS if options[_MODE] != "off" else _FLAGS | _PATHS))
    if others:
        raise ProjectError(
            f'source "{source}": the url has both ssl_mode={options[_MODE]} and {others[0]}',
            hint=f"ssl_mode says it all: remove {', '.join(others)}",
        )


@lru_cache
def _make_ssl_context(mode: Mode, options: tuple[Option, ...]) -> ssl.SSLContext:
    """Made once, because reading the system's certificates takes longer than to connect."""
    chosen = dict(options)
    authority = chosen.get("ssl_ca")
    context = ssl.create_default_context(cafile=None if authority is None else str(authority))
    # Certificates that MariaDB makes for itself do not pass the strictest check.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.check_hostname = mode == "verify-full"
    context.verify_mode = ssl.CERT_NONE if mode == "required" else ssl.CERT_REQUIRED
    if "ssl_cert" in chosen:
        key = chosen.get("ssl_key")
        context.load_cert_chain(str(chosen["ssl_cert"]), None if key is None else str(key))
    return context


class GuardedConnection(_Connection):
    """A connection of the driver that proves the password only in ways that its channel may
    carry, and that takes no packet without an end.

    The driver answers every way that the server asks for; there is no public call to change that.
    """

    ctx: ssl.SSLContext
    ssl: bool
    _secure: bool
    _auth_plugin_name: str
    _large = 0

    @property
    def _is_known(self) -> bool:
        """Whether the server is known to be the one of the url."""
        return self.ssl and self.ctx.check_hostname and self.ctx.verify_mode == ssl.CERT_REQUIRED

    def _request_authentication(self) -> None:
        if not self._is_known and self._auth_plugin_name not in _PROOFS:
            # What the server announces is only its guess; it asks again if it was wrong.
            self._auth_plugin_name = _NATIVE
        connection: Any = super()
        connection._request_authentication()

    def _get_auth_plugin_handler(self, plugin: str | bytes) -> None:
        """Called for each way that the server asks for, before it is gone."""
        name = plugin if isinstance(plugin, str) else plugin.decode("ascii", "replace")
        if name not in _PROOFS and not (self._is_known and self._secure):
            raise UntrustedError(
                CR.CR_AUTH_PLUGIN_CANNOT_LOAD,
                f"it asks for the password by {name!r}, which would hand it over",
            )
        if name == "client_ed25519" and find_spec("nacl") is None:
            raise pymysql.err.OperationalError(
                CR.CR_AUTH_PLUGIN_CANNOT_LOAD,
                "it asks for the password by client_ed25519: pip install 'pymysql[ed25519]'",
            )

    def _read_bytes(self, size: int) -> bytes:
        if size == pymysql.connections.MAX_PACKET_LEN:
            self._large += size
            if self._large > _LARGEST_BYTES:
                connection: Any = self
                connection._force_close()
                text = "a packet has more than 1 GB"
                raise pymysql.err.OperationalError(CR.CR_NET_PACKET_TOO_LARGE, text)
        elif size != 4:
            self._large = 0
        reader: Any = super()
        found: bytes = reader._read_bytes(size)
        return found


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
# What the driver, or whoever takes an answer apart, raises at one that makes no sense.
_NONSENSE = (LookupError, ValueError)
_DRIVER_NONSENSE = (
    *_NONSENSE,
    *(struct.error, TypeError, AttributeError, ArithmeticError, RuntimeError, AssertionError),
)


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where a server is and as whom we come; `tls` is what the url says about encryption."""

    host: str
    port: int
    user: str
    password: str
    database: str
    tls: tuple[Option, ...]

    @property
    def channel(self) -> Channel:
        return Channel(self.host, self.tls)


@dataclass(frozen=True, slots=True)
class MariadbServer:
    """One server, as one source sees it; may be sent to other processes, and holds no secret."""

    settings: SourceSettings

    @property
    def source(self) -> str:
        return self.settings.name

    @property
    def statement_seconds(self) -> float:
        return self.settings.read_number("statement_seconds", STATEMENT_SECONDS)

    def parse_address(self) -> ServerAddress:
        raw = str(self.settings.options["url"])
        match = _URL.fullmatch(raw) or _URL.fullmatch(self.settings.read_text("url"))
        if match is None or not match["host"]:
            raise ProjectError(
                f'source "{self.source}": the url is not of the form '
                "mariadb://user:password@host:port/database?ssl_mode=verify-full&ssl_ca=file",
                hint="write the password as ${NAME} and export NAME",
            )
        part = {
            name: self._resolve_references(text or "") for name, text in match.groupdict().items()
        }
        read = parse_qsl(match["query"] or "", keep_blank_values=True)
        query = [(name, self._resolve_references(value)) for name, value in read]
        return ServerAddress(
            host=part["host"].strip("[]"),
            port=self._parse_port(part["port"]),
            user=part["user"],
            password=part["password"],
            database=part["database"],
            tls=parse_channel_options(self.source, query, self.settings.folder),
        )

    def _resolve_references(self, text: str) -> str:
        """References are taken as they are; what is written in the url may be percent-encoded."""
        parts = _REFERENCE.split(text)
        return "".join(
            read_environment(self.source, part[2:-1]) if number % 2 else unquote(part)
            for number, part in enumerate(parts)
        )

    def _parse_port(self, text: str) -> int:
        if not text:
            return 3306
        if not text.isdigit():
            raise ProjectError(
                f'source "{self.source}": the port in the url is not a number',
                hint="the form is mariadb://user:password@host:port/database",
            )
        return int(text)

    def describe_address(self) -> str:
        """The server for people."""
        address = self.parse_address()
        return f"{address.host}:{address.port}/{address.database}"

    def open_connection(self) -> Connection:
        """A connection in autocommit mode."""
        address = self.parse_address()
        with self.translate_errors(), refuse_nonsense():
            return self._open_guarded(address, address.channel.make_context())

    def _open_guarded(
        self, address: ServerAddress, encryption: ssl.SSLContext | None
    ) -> Connection:
        seconds = self.statement_seconds
        encoders: dict[Any, Any] = dict(pymysql.converters.encoders)
        connection: Any = GuardedConnection(
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
            local_infile=False,
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
    def translate_errors(self) -> Iterator[None]:
        """Inside, every error of the driver becomes one of ours."""
        try:
            yield
        except (pymysql.Error, OSError) as error:
            raise translate_error(self.source, error) from None
        except _NONSENSE as error:
            raise _nonsense_error(self.source, f"{type(error).__name__}: {error}") from error


class MariadbSession:
    """The lasting connection of a source to its server; one thread at a time uses it.

    `openings` counts the connections that were made. Another server may answer the next one, so
    what was checked over an earlier connection has to be checked again.
    """

    def __init__(self, server: MariadbServer) -> None:
        self.server = server
        self.lock = threading.RLock()
        self.openings = 0
        self.connection: Connection | None = None

    @contextmanager
    def use_connection(self) -> Iterator[Connection]:
        """The connection, made again if it was lost."""
        with self.lock, self.server.translate_errors():
            if self.connection is None or not self.connection.open:
                self.connection = self.server.open_connection()
                self.openings += 1
            try:
                yield self.connection
            except (pymysql.err.OperationalError, pymysql.err.InterfaceError, OSError):
                self.connection = None
                raise

    def end_thread(self, thread: int) -> None:
        """End another connection at the server, if ours is open."""
        if self.connection is not None and self.connection.open:
            with suppress(pymysql.Error, OSError):
                run_statement(self.connection, f"KILL {thread}")

    def close(self) -> None:
        with self.lock:
            if self.connection is not None:
                with suppress(pymysql.Error, OSError):
                    self.connection.close()
            self.connection = None


@contextmanager
def refuse_nonsense(connection: Connection | None = None) -> Iterator[None]:
    """Inside, bytes that the driver stumbles over are an error of the driver, and end the
    connection: where its next answer begins is not known any more."""
    try:
        yield
    except _DRIVER_NONSENSE as error:
        if connection is not None:
            broken: Any = connection
            broken._force_close()
        text = f"{type(error).__name__}: {error}"
        raise pymysql.err.OperationalError(CR.CR_MALFORMED_PACKET, text) from error


def fetch_texts(connection: Connection, query: str, arguments: Sequence[object] = ()) -> list[Row]:
    """All rows of a small result, as text; NULL is the empty text."""
    with refuse_nonsense(connection), connection.cursor() as cursor:
        cursor.execute(query, arguments or None)
        rows: Sequence[Sequence[bytes | None]] = cursor.fetchall()
    return [tuple("" if v is None else v.decode() for v in row) for row in rows]


def fetch_pairs(connection: Connection, query: str) -> dict[str, str]:
    """A small result of names and values."""
    return {row[0]: row[1] for row in fetch_texts(connection, query)}


def run_statement(connection: Connection, statement: str) -> None:
    with refuse_nonsense(connection), connection.cursor() as cursor:
        cursor.execute(statement)


def quote_name(name: str) -> str:
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
        "wrong password, or no such user",
        "check both in the url; the environment variable that it names may have another value here",
    ),
    _Meaning(
        frozenset({1044, 1142, 1143, 1227, 1370}),
        SchemaError,
        "the user of the url has no right to do this",
        DOCTOR_HINT,
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
        f"{reload_hint()}; keep the binlog longer: SET GLOBAL binlog_expire_logs_seconds = 604800",
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


def translate_error(source: str, error: Exception) -> SourceError:
    """The one place where MariaDB's error numbers become typed errors."""
    number = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = str(error.args[1]) if len(error.args) > 1 else str(error)
    detail = f"{number} {text}" if isinstance(error, pymysql.Error) and number else text
    for meaning in _MEANINGS:
        if number in meaning.numbers:
            return meaning.kind(source, meaning.message, detail=detail, hint=meaning.hint)
    if isinstance(error, UntrustedError):
        return SourceAwayError(source, _UNTRUSTED, detail=text, hint=_UNTRUSTED_HINT)
    if number == CR.CR_MALFORMED_PACKET:
        return _nonsense_error(source, text)
    if isinstance(getattr(error, "original_exception", error), ssl.SSLError) or number == _NO_TLS:
        return SourceAwayError(source, _UNPROVED, detail=detail, hint=_UNPROVED_HINT)
    if isinstance(error, _AWAY):
        return SourceAwayError(
            source,
            "the server does not answer",
            detail=detail,
            hint="check that it runs and that host and port of the url are right",
        )
    return SourceError(source, "MariaDB refused a statement", detail=detail)


def _nonsense_error(source: str, detail: str) -> SourceAwayError:
    return SourceAwayError(
        source,
        "the server's answer cannot be understood",
        detail=detail,
        hint="check that a MariaDB server answers at host and port of the url, and no proxy alters "
        "what it says",
    )


_AWAY = (OSError, pymysql.err.OperationalError, pymysql.err.InterfaceError, pymysql.InternalError)
_NO_TLS = CR.CR_SSL_CONNECTION_ERROR
_UNTRUSTED = "the server wants the password in a form that only a server with a proven name may get"
_UNTRUSTED_HINT = (
    "add ssl_mode=verify-full, and ssl_ca=FILE with its authority, to the url; or give the user of "
    "the url the plugin mysql_native_password or ed25519"
)
_UNPROVED = "the server does not answer with the encryption and the certificate that it must have"
_UNPROVED_HINT = (
    "add ssl_ca=FILE with the authority of its certificate to the url, and use the host name that "
    "the certificate is for; ssl_mode=verify-ca takes any name, ssl_mode=required any certificate, "
    "ssl_mode=off sends everything in clear"
)
