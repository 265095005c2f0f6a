"""What strangers send to a service: none of it is answered as a call, and none shuts members out.

Real sockets, real bytes. After every attack, and during those that last, a member is served.
"""

from __future__ import annotations

import json
import resource
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.faults.processes import Process
from tests.registry.order_places import SECRET
from viewkeeper.errors import RegistryAwayError, RegistryError
from viewkeeper.order.registry_address import open_store
from viewkeeper.order.registry_protocol import MemberFacts
from viewkeeper.order.service import wire_format
from viewkeeper.order.service.http_registry import HttpRegistry
from viewkeeper.order.service.http_server import HEAD_BYTES_MAX, ConnectionLimits, ServiceAccess
from viewkeeper.order.service.registry_service import RegistryService

TOKEN = "a-token-that-nobody-must-see"
PLAIN = {
    "Host": "127.0.0.1",
    "Authorization": f"Bearer {TOKEN}",
    "Content-Type": "application/json",
    "Content-Length": "2",
    wire_format.SECRET_HEADER: SECRET,
}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[RegistryService]:
    with serving(tmp_path, ServiceAccess(TOKEN)) as made:
        yield made


@contextmanager
def serving(
    folder: Path, access: ServiceAccess, limits: ConnectionLimits | None = None
) -> Iterator[RegistryService]:
    with closing(open_store(str(folder / "registry.db"))) as store:
        made = RegistryService(store, ("127.0.0.1", 0), access, limits=limits or ConnectionLimits())
        made.start()
        try:
            yield made
        finally:
            made.stop()


def connect(url: str) -> socket.socket:
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname or "", parts.port or 0), timeout=30)


def raw(url: str, sent: bytes) -> bytes:
    """What is answered to some bytes, to the end."""
    with connect(url) as connection:
        connection.sendall(sent)
        answer = b""
        while found := connection.recv(65_536):
            answer += found
        return answer


def request(headers: dict[str, str | None], body: bytes = b"{}", line: str = "") -> bytes:
    """A request for the status, with some headers changed, or left out."""
    kept = {name: value for name, value in {**PLAIN, **headers}.items() if value is not None}
    lines = [line or "POST /v1/status HTTP/1.1", *(f"{n}: {v}" for n, v in kept.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0


def is_served(url: str) -> None:
    assert HttpRegistry(url, TOKEN, patience_seconds=30, secret=SECRET).fetch_status().groups == ()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Content-Type": "application/json; charset=utf-8"}, 200),
        ({"Host": "localhost:8765"}, 200),
        ({"Host": "[::1]:8765"}, 200),
        # What a page can have a browser send without asking.
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Type": None}, 415),
        ({"Origin": "http://127.0.0.1:8765"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        # A name of the attacker that has come to mean our address.
        ({"Host": "attacker.example"}, 421),
        ({"Host": "127.0.0.1.attacker.example"}, 421),
        ({"Host": "localhost.attacker.example:8765"}, 421),
        ({"Host": ""}, 421),
        ({"Host": None}, 421),
        # Lengths that two parsers could understand differently.
        ({"Transfer-Encoding": "chunked"}, 411),
        ({"Transfer-Encoding": "chunked", "Content-Length": None}, 411),
        ({"Content-Length": None}, 413),
        ({"Content-Length": "+2"}, 413),
        ({"Content-Length": "2_0"}, 413),
        ({"Content-Length": "٢"}, 413),
        ({"Content-Length": "-1"}, 413),
        ({"Content-Length": "99999999999999999999"}, 413),
        ({"Content-Length": str(wire_format.BODY_BYTES_MAX + 1)}, 413),
        # Tokens.
        ({"Authorization": None}, 401),
        ({"Authorization": "Bearer "}, 401),
        ({"Authorization": f"Bearer {TOKEN}x"}, 401),
        ({"Authorization": TOKEN}, 401),
        ({"Authorization": f"Basic {TOKEN}"}, 401),
    ],
)
def test_what_no_member_sends(
    service: RegistryService, headers: dict[str, str | None], status: int
) -> None:
    answer = raw(service.url, request(headers))
    assert status_of(answer) == status
    assert TOKEN.encode() not in answer
    assert b"Access-Control" not in answer
    assert json.loads(answer.partition(b"\r\n\r\n")[2])
    is_served(service.url)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\r\n\r\n", 0),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 501),
        (b"OPTIONS /v1/join HTTP/1.1\r\nOrigin: http://a\r\n\r\n", 501),
        (b"CONNECT a:1 HTTP/1.1\r\n\r\n", 501),
        (b"POST /v1/status\r\n\r\n", 400),
        (b"POST /v1/status HTTP/9.9\r\n\r\n", 505),
        (b"POST /v1/status HTTP/1.x\r\n\r\n", 400),
        (b"POST /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\n" + b"A: b\r\n" * 10_000 + b"\r\n", 431),
        (b"POST / HTTP/1.1\r\nA: " + b"b" * (2 * HEAD_BYTES_MAX) + b"\r\n\r\n", 431),
        (b"POST / HTTP/1.1\r\n" + b" folded\r\n" * 1_000 + b"\r\n", 431),
        (b"\xff" * 70_000 + b"\r\n\r\n", 400),
        (b"\0" * 1_000 + b"\r\n\r\n", 400),
    ],
)
def test_what_is_no_request(service: RegistryService, sent: bytes, status: int) -> None:
    assert status_of(raw(service.url, sent)) == status
    is_served(service.url)


def test_headers_that_come_twice_are_refused(service: RegistryService) -> None:
    for name in ("Content-Length", "Host", "Content-Type", "Authorization"):
        twice = request({}).replace(b"\r\n\r\n", f"\r\n{name}: {PLAIN[name]}\r\n\r\n".encode(), 1)
        assert status_of(raw(service.url, twice)) == 400


def test_a_second_request_on_a_connection_is_not_read(service: RegistryService) -> None:
    """Behind a proxy it could be one that the proxy has not seen."""
    leave = request({}, b'{"member": "north"}', "POST /v1/leave HTTP/1.1")
    member = HttpRegistry(service.url, TOKEN, secret=SECRET)
    member.join_registry("north", MemberFacts({"shop": ()}))
    answer = raw(service.url, request({"Connection": "keep-alive"}) + leave)
    assert answer.count(b"HTTP/1.") == 1
    assert [group.closed for group in member.fetch_status().groups] == [False]


@pytest.mark.parametrize(
    "body",
    [
        b'{"group": "\\ud800"}',
        b'{"group": "a\\u0000b"}',
        b'{"group": "' + b"a" * 900_000 + b'"}',
        b'{"group": NaN}',
        b'{"group": {"a": ' * 20_000,
        b'{"group": ' + b"9" * 100_000 + b"}",
        b'{"group": "\xff"}',
        b"\xff\xfe{\0}\0",
        b"",
    ],
)
@pytest.mark.parametrize("named", ["members", "order", "join", "claim", "register", "leave"])
def test_texts_that_nobody_can_store(service: RegistryService, named: str, body: bytes) -> None:
    line = f"POST /v1/{named} HTTP/1.1"
    for each in (body, body.replace(b'"group"', b'"member"')):
        answer = raw(service.url, request({"Content-Length": str(len(each))}, each, line))
        assert status_of(answer) == 400, answer
    is_served(service.url)


def test_half_open_connections_shut_nobody_out(tmp_path: Path) -> None:
    """Many more than there are places, silent or in the middle of a request, from our own address:
    it could not be worse."""
    limits = ConnectionLimits(reading=40, reading_per_address=20)
    starts = (
        b"",
        b"POST /v1/status HTTP/1.1\r\n",
        request({}, b"{"),
        request({"Content-Length": "9"}),
    )
    with serving(tmp_path, ServiceAccess(), limits) as service, ExitStack() as stack:
        for number in range(200):
            connection = stack.enter_context(connect(service.url))
            connection.sendall(starts[number % len(starts)])
        for _ in range(20):
            assert HttpRegistry(service.url, patience_seconds=2).fetch_status().groups == ()


def test_strangers_make_room_for_those_with_the_token(tmp_path: Path) -> None:
    with (
        serving(tmp_path, ServiceAccess(TOKEN), ConnectionLimits(reading=4)) as service,
        ExitStack() as stack,
    ):
        slow = stack.enter_context(connect(service.url))
        slow.sendall(request({}, b"{"))
        time.sleep(0.5)
        for _ in range(50):
            stack.enter_context(connect(service.url)).sendall(b"POST /")
        slow.sendall(b"}")
        assert status_of(slow.recv(65_536)) == 200


def test_a_client_that_takes_no_answer_is_cut_off(tmp_path: Path) -> None:
    """An answer that fits into no buffer, and nobody who reads it."""
    names = {f"s{number}" * 50: ("t" * 400,) for number in range(900)}
    with serving(
        tmp_path, ServiceAccess(), ConnectionLimits(reading_seconds=1, answer_seconds=1)
    ) as service:
        for member in ("a", "b", "c", "d"):
            HttpRegistry(service.url, secret=member).join_registry(member, MemberFacts(names))
        with ExitStack() as stack:
            for _ in range(10):
                connection = stack.enter_context(connect(service.url))
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                connection.sendall(request({"Authorization": None}))
            time.sleep(0.2)
            start = time.monotonic()
            service.stop()
            assert time.monotonic() - start < 60, "it waits for those who do not read"


@pytest.mark.campaign
def test_more_sockets_than_there_are_files(tmp_path: Path) -> None:
    """A service that may have few files open, and hundreds who knock."""
    store = str(tmp_path / "registry.db")
    words = ["registry", "serve", "--store", store, "--listen", "127.0.0.1:0"]
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Process("viewkeeper.cli.main", words) as process, ExitStack() as stack:
        url = process.wait_for("serving").rpartition(" ")[2]
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (64, limit[1]))
        for _ in range(400):
            try:
                stack.enter_context(connect(url)).sendall(b"POST")
            except OSError:
                break
        registry = HttpRegistry(url, patience_seconds=60)
        for _ in range(5):
            assert registry.fetch_status().groups == ()
        process.kill()
        assert "Traceback" not in process.output
    with Process("viewkeeper.cli.main", words) as again:
        url = again.wait_for("serving").rpartition(" ")[2]
        assert HttpRegistry(url).fetch_status().groups == ()


# TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """One for 127.0.0.1, signed by itself."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
    words = ["-subj", "/CN=registry", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *words]
    subprocess.run([*command, "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key


def test_tls_is_verified_always(tmp_path: Path, certificate: tuple[str, str]) -> None:
    cert, key = certificate
    with serving(tmp_path, ServiceAccess(TOKEN, certificate=cert, key=key)) as service:
        assert service.url.startswith("https://")
        trusting = HttpRegistry(service.url, TOKEN, secret=SECRET, ca=Path(cert))
        assert trusting.join_registry("north", MemberFacts({"shop": ()})).group == "north"
        with pytest.raises(RegistryError, match="certificate cannot be verified") as refused:
            HttpRegistry(service.url, TOKEN, secret=SECRET).fetch_status()
        assert "ca:" in (refused.value.hint or "")
        another = service.url.replace("127.0.0.1", "localhost")
        with pytest.raises(RegistryError, match="certificate cannot be verified"):
            HttpRegistry(another, TOKEN, ca=Path(cert)).fetch_status()
        with pytest.raises(RegistryAwayError):
            HttpRegistry(
                service.url.replace("https", "http"), TOKEN, patience_seconds=0.1
            ).fetch_status()


def test_handshakes_that_never_end_shut_nobody_out(
    tmp_path: Path, certificate: tuple[str, str]
) -> None:
    cert, key = certificate
    limits = ConnectionLimits(reading=20, reading_per_address=10)
    access = ServiceAccess(TOKEN, certificate=cert, key=key)
    with serving(tmp_path, access, limits) as service, ExitStack() as stack:
        for number in range(50):
            connection = stack.enter_context(connect(service.url))
            connection.sendall(b"\x16\x03\x01" if number % 2 else b"")
        registry = HttpRegistry(service.url, TOKEN, ca=Path(cert), patience_seconds=5)
        for _ in range(5):
            assert registry.fetch_status().groups == ()


def test_a_certificate_that_cannot_be_used(tmp_path: Path, certificate: tuple[str, str]) -> None:
    for cert, key in (
        (str(tmp_path / "missing"), None),
        (certificate[1], None),
        (certificate[0], certificate[0]),
    ):
        with (
            pytest.raises(RegistryError, match="certificate or its key cannot be used"),
            serving(tmp_path, ServiceAccess(certificate=cert, key=key)),
        ):
            pass
    with pytest.raises(RegistryError, match="cannot be read"):
        HttpRegistry("https://127.0.0.1:1", ca=tmp_path / "missing")
