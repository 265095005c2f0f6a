"""The service's HTTP: one request per connection, refused as early as it can be.

What is looked at, in this order, each before more is read: the token; that no browser sends it, so
that no web page can use somebody's reach (no `Origin`, a `Host` that we are called, JSON as its
type); that its length is told, plainly, and fits. Nothing of a request is logged, and nothing of
it but names is in an answer.

A connection goes through three stages. While its request is *read* it costs little and is worth
little: it must be complete within seconds, one address has only so many, and where there are too
many, the oldest make room for the newest. A member's request is complete at once, so it is never
the oldest for long, however many connections others leave half open. Only a request that is whole
and has the right token gets one of the places for *work*. The answer must be *taken* within seconds
too.

Cutting off means shutting the socket down: the thread that waits for it wakes up and ends.
"""

from __future__ import annotations

import hmac
import http.client
import ipaddress
import json
import socket
import ssl
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler
from io import BufferedIOBase
from socketserver import TCPServer, ThreadingMixIn
from typing import Any

from viewkeeper.errors import AccessError, RegistryAwayError, RegistryError
from viewkeeper.order.service import wire_format
from viewkeeper.order.service.service_calls import ServiceCaller, ServiceCalls
from viewkeeper.order.service.wire_format import CallArguments, MalformedMessageError, read_json

SWEEP_SECONDS = 0.1


class ConnectionStage(Enum):
    """What a connection is waiting for."""

    READ = "a request of anybody"
    TRUSTED = "the rest of a request with the right token"
    WORK = "an answer"
    TAKEN = "a client that takes its answer"
    CUT = "nothing any more"


_READING = (ConnectionStage.READ, ConnectionStage.TRUSTED)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """How many connections there may be, and how long each stage may take."""

    reading: int = 256
    reading_per_address: int = 64
    working: int = 256
    working_per_address: int = 128
    reading_seconds: float = 10.0
    answer_seconds: float = 30.0


@dataclass(slots=True, eq=False)
class _Visit:
    """One connection."""

    connection: socket.socket
    address: str
    stage: ConnectionStage = ConnectionStage.READ
    since: float = field(default_factory=time.monotonic)


class ConnectionGate:
    """All connections of a service; used by the thread that accepts and by those that answer."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._visits: dict[int, _Visit] = {}
        """By the identity of the socket, in the order in which they came."""
        self._lock = threading.Lock()
        self._swept = 0.0

    def admit_connection(self, connection: socket.socket, host: str) -> bool:
        """Begin to read a request; whether there is room for it, made if need be."""
        with self._lock:
            if len(self._visits) >= 2 * (self.limits.reading + self.limits.working):
                return False
            address = network_of(host)
            near = [visit for visit in self._reading_visits() if visit.address == address]
            if len(near) >= self.limits.reading_per_address:
                _cut_off(_first_to_cut(near))
            elif len(reading := self._reading_visits()) >= self.limits.reading:
                _cut_off(_first_to_cut(reading))
            self._visits[id(connection)] = _Visit(connection, address)
            return True

    def trust_connection(self, connection: socket.socket) -> None:
        """Its token was right: others go first, where somebody has to."""
        with self._lock:
            self._move_stage(connection, ConnectionStage.READ, ConnectionStage.TRUSTED)

    def begin_work(self, connection: socket.socket) -> bool:
        """Its request is read; whether there is a place to work on it."""
        with self._lock:
            working = Counter(
                v.address for v in self._visits.values() if v.stage is ConnectionStage.WORK
            )
            address = self._visits[id(connection)].address
            if (
                working.total() >= self.limits.working
                or working[address] >= self.limits.working_per_address
            ):
                return False
            self._move_stage(connection, ConnectionStage.TRUSTED, ConnectionStage.WORK)
            return True

    def begin_answer(self, connection: socket.socket) -> None:
        """Its answer is being sent."""
        with self._lock:
            for stage in (*_READING, ConnectionStage.WORK):
                self._move_stage(connection, stage, ConnectionStage.TAKEN)

    def drop_connection(self, connection: socket.socket) -> None:
        with self._lock:
            self._visits.pop(id(connection), None)

    def cut_off_slow(self) -> None:
        """Cut off visits that took too long; called all the time."""
        now = time.monotonic()
        if now - self._swept < SWEEP_SECONDS:
            return
        self._swept = now
        with self._lock:
            for visit in self._visits.values():
                if now - visit.since > self._stage_seconds(visit.stage):
                    _cut_off(visit)

    def make_room(self) -> None:
        """The system has no room for another connection: cut off the oldest that is read."""
        with self._lock:
            if reading := self._reading_visits():
                _cut_off(_first_to_cut(reading))

    def close(self) -> None:
        """Cut off all visits that have not sent a whole request."""
        with self._lock:
            for visit in self._reading_visits():
                _cut_off(visit)

    def _stage_seconds(self, stage: ConnectionStage) -> float:
        if stage in _READING:
            return self.limits.reading_seconds
        return self.limits.answer_seconds if stage is ConnectionStage.TAKEN else float("inf")

    def _reading_visits(self) -> list[_Visit]:
        return [visit for visit in self._visits.values() if visit.stage in _READING]

    def _move_stage(
        self, connection: socket.socket, before: ConnectionStage, after: ConnectionStage
    ) -> None:
        visit = self._visits[id(connection)]
        if visit.stage is before:
            visit.stage = after
            if after is not ConnectionStage.TRUSTED:
                visit.since = time.monotonic()


def network_of(host: str) -> str:
    """Addresses that one machine can have as many of as it likes count as one.

    >>> network_of("192.0.2.7"), network_of("2001:db8:1:2:3:4:5:6")
    ('192.0.2.7', '2001:db8:1:2::/64')
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))


def _first_to_cut(visits: list[_Visit]) -> _Visit:
    """The one to go: the oldest, and strangers first."""
    return min(visits, key=lambda visit: (visit.stage is ConnectionStage.TRUSTED, visit.since))


def _cut_off(visit: _Visit) -> None:
    visit.stage = ConnectionStage.CUT
    with suppress(OSError):
        # Of a TLS connection only the socket below is shut down: its reader may be in the middle.
        socket.socket.shutdown(visit.connection, socket.SHUT_RDWR)


HEAD_BYTES_MAX = 16 << 10
_DRAIN_BYTES_MAX = 2 << 20
_DRAIN_SECONDS = 1.0
_FULL_SECONDS = 0.05
_BEARER = "Bearer "


@dataclass(frozen=True, slots=True)
class ServiceAccess:
    """Who is let in: callers that have the token, if there is one, and the administrator.

    `names` are what the service is called besides its addresses; `certificate` and `key` are files.
    """

    token: str | None = None
    administrator: str | None = None
    names: tuple[str, ...] = ()
    certificate: str | None = None
    key: str | None = None

    def identify_caller(self, authorization: str, secret: str | None) -> ServiceCaller | None:
        """Who sent this; None if it must not be answered."""
        sent = authorization.removeprefix(_BEARER).encode("utf-8", "replace")
        rules = authorization.startswith(_BEARER)
        is_administrator, is_member = (
            hmac.compare_digest(sent, (token or "").encode()) and bool(token) and rules
            for token in (self.administrator, self.token)
        )
        nobody = self.administrator is None or not authorization
        if is_administrator or is_member or (self.token is None and nobody):
            return ServiceCaller(secret, is_administrator)
        return None

    def is_called(self, host: str) -> bool:
        """Whether a Host header names us. A page of somebody else has a name, never an address."""
        name = _without_port(host).lower()
        if name in ("localhost", socket.gethostname().lower(), *map(str.lower, self.names)):
            return True
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return True


def _without_port(host: str) -> str:
    """
    >>> [_without_port(host) for host in ("a:1", "[::1]:8765", "[::1]", "a")]
    ['a', '[::1]', '[::1]', 'a']
    """
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host


class RegistryServer(ThreadingMixIn, TCPServer):
    """Listens, with a thread for every connection; ended threads are waited for."""

    allow_reuse_address = True
    daemon_threads = False
    request_queue_size = 256

    def __init__(
        self,
        address: tuple[str, int],
        calls: ServiceCalls,
        access: ServiceAccess,
        limits: ConnectionLimits,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.calls = calls
        self.access = access
        self.gate = ConnectionGate(limits)
        self.tls = tls
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, RegistryHandler)

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            connection, address = super().get_request()
        except OSError:
            # No file is left for it. It stays in line, and is asked for again at once.
            self.gate.make_room()
            time.sleep(_FULL_SECONDS)
            raise
        if self.tls is not None:
            connection = self.tls.wrap_socket(
                connection, server_side=True, do_handshake_on_connect=False
            )
        return connection, address

    def process_request(self, request: Any, client_address: Any) -> None:
        if self.gate.admit_connection(request, client_address[0]):
            super().process_request(request, client_address)
        else:
            # The client sees a closed connection and tries again a little later.
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.gate.drop_connection(request)

    def service_actions(self) -> None:
        self.gate.cut_off_slow()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report a defect of ours; a client that went away in the middle is no event."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Head(BufferedIOBase):
    """The beginning of a request, of which only so much is read."""

    def __init__(self, stream: BufferedIOBase) -> None:
        self._stream = stream
        self._left = HEAD_BYTES_MAX

    def readline(self, size: int | None = -1) -> bytes:
        if self._left <= 0:
            raise http.client.LineTooLong("head")
        line = self._stream.readline(min(size or 0, self._left))
        self._left -= len(line)
        return line

    def close(self) -> None:
        self._stream.close()


class RegistryHandler(BaseHTTPRequestHandler):
    """One request."""

    server: RegistryServer
    server_version = "viewkeeper-registry"
    sys_version = ""
    default_request_version = "HTTP/1.0"

    def setup(self) -> None:
        self.request.settimeout(self.server.gate.limits.reading_seconds)
        super().setup()
        if isinstance(self.connection, ssl.SSLSocket):
            self.connection.do_handshake()
        self._stream = self.rfile
        self.rfile = _Head(self.rfile)

    def do_POST(self) -> None:
        sent = self.headers.get(wire_format.SECRET_HEADER)
        caller = self.server.access.identify_caller(self.headers.get("Authorization", ""), sent)
        if caller is None:
            self._refuse_request(401, "this service wants a token, and another one than was sent")
            return
        self.server.gate.trust_connection(self.connection)
        if (refusal := self._check_headers()) is not None:
            self._refuse_request(*refusal)
            return
        size = self._body_size()
        if not 0 <= size <= wire_format.BODY_BYTES_MAX:
            self._refuse_request(
                413, f"a request has a length, of at most {wire_format.BODY_BYTES_MAX} bytes"
            )
            return
        body = self._stream.read(size)
        if len(body) < size:
            # Whoever sent it is gone, or was too slow.
            self.close_connection = True
        elif not self.server.gate.begin_work(self.connection):
            self._send_failure(503, RegistryAwayError("", "too much is asked at once"))
        else:
            self._answer_call(body, caller)

    def _check_headers(self) -> tuple[int, str] | None:
        """Why no member of ours can have sent this, if that is so."""
        for name in (
            "Host",
            "Content-Length",
            "Content-Type",
            "Authorization",
            wire_format.SECRET_HEADER,
        ):
            if len(self.headers.get_all(name, ())) > 1:
                return 400, f"the header {name} is there twice"
        if "Origin" in self.headers or "Sec-Fetch-Site" in self.headers:
            return 403, "this is no service for web pages"
        host = self.headers.get("Host", "")
        if not self.server.access.is_called(host):
            name = ascii(_without_port(host)[:80])
            return 421, f"this service is not called {name}; `registry serve --name` says how it is"
        if self.headers.get_content_type() != "application/json":
            return 415, "a request is of the type application/json"
        if "Transfer-Encoding" in self.headers:
            return 411, "a request tells its length, and comes in one piece"
        return None

    def _body_size(self) -> int:
        text = self.headers.get("Content-Length", "")
        return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else -1

    def _answer_call(self, body: bytes, caller: ServiceCaller) -> None:
        try:
            call = self.path.removeprefix(wire_format.PREFIX)
            result = self.server.calls.answer_call(call, CallArguments(read_json(body)), caller)
        except MalformedMessageError as error:
            self._refuse_request(400, str(error))
        except RegistryAwayError as error:
            self._send_failure(503, error)
        except AccessError as error:
            self._send_failure(403, error)
        except RegistryError as error:
            self._send_failure(409, error)
        except Exception:
            self._send_failure(500, RegistryError("", "the service failed at this"))
            raise
        else:
            self._send_answer(200, {"result": result})

    def _refuse_request(self, status: int, what: str) -> None:
        self.close_connection = True
        self._send_failure(status, RegistryError("", what))
        self._drain_connection()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the library finds wrong: in the same form, without repeating what was sent."""
        what = http.client.responses.get(code, "bad request").lower()
        self._refuse_request(code, f"the request is refused: {what}")

    def _drain_connection(self) -> None:
        """Wait a moment for the client to close: what is not read when a connection is closed
        would take the answer away with it."""
        # Of a TLS connection the socket below; nothing of what still comes is looked at.
        below, plain = socket.socket, self.connection
        end, left = time.monotonic() + _DRAIN_SECONDS, _DRAIN_BYTES_MAX
        with suppress(OSError):
            below.shutdown(plain, socket.SHUT_WR)
            while left > 0 and (seconds := end - time.monotonic()) > 0:
                plain.settimeout(seconds)
                if not (found := below.recv(plain, 4096)):
                    return
                left -= len(found)

    def _send_failure(self, status: int, error: RegistryError) -> None:
        self._send_answer(status, wire_format.write_error(error))

    def _send_answer(self, status: int, data: object) -> None:
        self.server.gate.begin_answer(self.connection)
        text = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing of a request is logged."""
