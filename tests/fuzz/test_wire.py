"""What a registry's service and its clients send each other, damaged.

Requests go through the service's own handler, and answers through the client's own reader, over a
pair of sockets in this process. A service answers every request with a status that blames the
request, and goes on; a client believes nothing, and never fails but by an error of ours.
"""

from __future__ import annotations

import http.client
import json
import socket
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.fuzz.mutation import fuzz
from tests.registry.order_places import FOREVER, SECRET, claimed, gather, ids
from viewkeeper.errors import RegistryError
from viewkeeper.order.registry_address import open_store
from viewkeeper.order.registry_protocol import MemberFacts, Registry, Reporter
from viewkeeper.order.service import wire_format
from viewkeeper.order.service.http_registry import HttpRegistry
from viewkeeper.order.service.http_server import (
    ConnectionLimits,
    RegistryHandler,
    RegistryServer,
    ServiceAccess,
)
from viewkeeper.order.service.service_calls import ServiceCalls
from viewkeeper.order.store.stored_registry import StoredRegistry

TOKEN = "token"
ALLOWED = {200, 400, 401, 403, 409, 411, 413, 414, 415, 421, 431, 501, 505}
FACTS = MemberFacts(
    {"shop": ("orders", "items"), "crm": ()}, ("north",), "sales", {"shop": 3}, "w1"
)
NORTH = MemberFacts({"shop": ("orders",)}, (), "sales")
WORDS = [b"\\ud800", b"\\u0000", b"9223372036854775808", b"NaN", b"null", b"1e999", b'{"a":', b"[["]


@pytest.fixture
def store(scratch: Path) -> Iterator[StoredRegistry]:
    with closing(open_store(str(scratch / "registry.db"))) as opened:
        group = gather(opened, {"north": NORTH, "mart": FACTS})
        opened.register_ids(group, ids("shop", 4, 7), claimed(opened, "shop", "north", group))
        yield opened


@pytest.fixture
def server(store: StoredRegistry) -> Iterator[RegistryServer]:
    access = ServiceAccess(TOKEN, "administrator")
    made = RegistryServer(("127.0.0.1", 0), ServiceCalls(store), access, ConnectionLimits())
    yield made
    made.server_close()


class Recorded(HttpRegistry):
    """A client that is answered by a handler in this process, and keeps what was said."""

    def __init__(self, server: RegistryServer) -> None:
        super().__init__("http://127.0.0.1", TOKEN, 0.0, SECRET)
        self._server = server
        self.requests: list[bytes] = []
        self.answers: list[bytes] = []

    def _send_request(self, call: str, body: bytes, seconds: float) -> object:
        headers = {"Host": "127.0.0.1", **self._headers, "Content-Length": str(len(body))}
        lines = [
            f"POST {wire_format.PREFIX}{call} HTTP/1.1",
            *(f"{n}: {v}" for n, v in headers.items()),
        ]
        self.requests.append("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        self.answers.append(handled(self._server, self.requests[-1]))
        return Canned(self.answers[-1])._send_request(call, body, seconds)


class Canned(HttpRegistry):
    """A client that gets one answer, whatever it asks."""

    def __init__(self, answer: bytes) -> None:
        super().__init__("http://127.0.0.1", TOKEN, 0.0, SECRET)
        self._answer = answer

    def _new_connection(self, seconds: float) -> http.client.HTTPConnection:
        return Answered(self._answer)


class Answered(http.client.HTTPConnection):
    """A connection whose other side has said what it says."""

    def __init__(self, answer: bytes) -> None:
        super().__init__("127.0.0.1", timeout=5)
        self.sock, self._other = socket.socketpair()
        self._other.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        self._other.sendall(answer)
        self._other.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        super().close()
        self._other.close()


def handled(server: RegistryServer, request: bytes) -> bytes:
    """What the service answers to some bytes."""
    here, there = socket.socketpair()
    with here, there:
        here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        here.sendall(request)
        here.shutdown(socket.SHUT_WR)
        server.gate.admit_connection(there, "127.0.0.1")
        try:
            RegistryHandler(there, ("127.0.0.1", 1), server)
        finally:
            server.gate.drop_connection(there)
        # What it has not read is no request; it would make the socket forget the answer.
        there.setblocking(False)
        with suppress(OSError):
            there.recv(4 << 20)
        there.close()
        return b"".join(iter(lambda: here.recv(1 << 20), b""))


ASKED: tuple[Callable[[Registry], object], ...] = (
    lambda registry: registry.join_registry("mart", FACTS),
    lambda registry: registry.join_registry("north", NORTH),
    lambda registry: registry.fetch_members("north"),
    lambda registry: registry.claim_source("north", "shop", "north", FOREVER),
    lambda registry: registry.fetch_order("north", 0, 10),
    lambda registry: registry.note_reached("north", "north", 0),
    lambda registry: registry.fetch_status(),
    lambda registry: registry.release_claim(Reporter("north", "shop", "north", 1, None)),
    lambda registry: registry.register_ids(
        "north", ids("shop", 5, 9), Reporter("north", "shop", "north", 1, None)
    ),
    lambda registry: registry.take_back("north", "shop", 9),
    lambda registry: registry.leave_registry("mart"),
)


def spoken(server: RegistryServer) -> Recorded:
    """A client that has asked for everything once, most of it with success."""
    client = Recorded(server)
    group = client.join_registry("north", NORTH).group
    reporter = client.claim_source(group, "shop", "north", FOREVER)
    assert reporter is not None
    client.register_ids(group, ids("shop", 8, 9), reporter)
    client.note_reached(group, "north", 2)
    client.fetch_order(group, 0, 10)
    client.fetch_members(group)
    client.join_registry("mart", FACTS)
    client.fetch_status()
    client.release_claim(reporter)
    assert asdict(client.fetch_status())
    return client


def test_requests(server: RegistryServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_format, "WAIT_SECONDS_MAX", 0.01)
    seen: set[int] = set()

    def read(data: bytes) -> None:
        answer = handled(server, data)
        if answer:
            head, _, body = answer.partition(b"\r\n\r\n")
            status = int(head.split(b" ")[1])
            assert status in ALLOWED, answer
            assert set(json.loads(body)) in ({"result"}, {"error"})
            seen.add(status)

    fuzz(read, spoken(server).requests, inputs=2000, words=WORDS)
    assert {200, 400, 401} <= seen


def test_answers(server: RegistryServer) -> None:
    """Each is read as the answer to any call."""

    def read(data: bytes) -> None:
        ASKED[zlib.crc32(data) % len(ASKED)](Canned(data))

    fuzz(read, spoken(server).answers, words=WORDS)


@pytest.mark.parametrize(
    "body",
    [
        *(b'{"result": %s}' % each for each in (b"NaN", b"1e999", b"-1", b'"x"', b"[[1]]", b"{}")),
        b'{"result": ' + b"[" * 100_000,
        b'{"result": ' + b"9" * 10_000 + b"}",
        b'{"result": [[1, "\\ud800", 2]]}',
        b'{"result": [[1, "shop", -2]]}',
        b'{"error": {"what": 7, "hint": [], "kind": {}}}',
        b'{"error": []}',
        b"[]",
        b"\xff\xfe",
    ],
)
def test_answers_that_no_service_gives(body: bytes) -> None:
    for kind in ("application/json", "text/html"):
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        canned = Canned(head.encode() + body)
        for ask in ASKED:
            with pytest.raises(RegistryError):
                ask(canned)
