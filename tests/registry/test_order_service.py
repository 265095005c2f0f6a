"""The service: who may own a store, what it refuses, and how it ends."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.cli.conftest import call
from tests.faults.processes import Process
from tests.registry.order_places import (
    FOREVER,
    GROUP,
    SECRET,
    Place,
    ids,
    reading,
    reporting,
    whole_order,
)
from viewkeeper.errors import FencedError, IdentityError, RegistryAwayError, RegistryError
from viewkeeper.order.registry_address import open_store
from viewkeeper.order.service import wire_format
from viewkeeper.order.service.http_registry import HttpRegistry
from viewkeeper.order.service.http_server import ConnectionLimits, ServiceAccess
from viewkeeper.order.service.registry_service import RegistryService, is_gone, this_process
from viewkeeper.order.service.wire_format import BODY_BYTES_MAX, WAIT_SECONDS_MAX

LOCAL = ("127.0.0.1", 0)
TOKEN = "a-token-that-nobody-must-see"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[RegistryService]:
    """A service that wants a token."""
    store = open_store(str(tmp_path / "registry.db"))
    made = RegistryService(store, LOCAL, ServiceAccess(TOKEN))
    made.start()
    yield made
    made.stop()
    store.close()


def test_a_store_has_one_owner_and_the_next_fences_the_first(store: Place) -> None:
    first, second, direct = store.open_store(), store.open_store(), store.open_store()
    reporter = reporting(direct, "shop")
    first.ownership.take_ownership("one", FOREVER)
    with pytest.raises(FencedError, match="served by one") as refused:
        second.ownership.take_ownership("two", FOREVER)
    assert "wait until its lease has ended" in (refused.value.hint or "")
    with pytest.raises(FencedError, match="cannot be written past it") as past:
        direct.register_ids(GROUP, ids("shop", 1), reporter)
    assert "http://" in (past.value.hint or "")
    assert first.register_ids(GROUP, ids("shop", 1), reporter) == 1
    first.ownership.renew_ownership(0)
    assert second.ownership.take_ownership("two", FOREVER) == 2
    for write in (
        lambda: first.register_ids(GROUP, ids("shop", 2), reporter),
        lambda: first.join_registry("north", reading()),
        lambda: first.leave_registry("north"),
        lambda: first.note_reached(GROUP, "north", 1),
        lambda: first.ownership.renew_ownership(FOREVER),
    ):
        with pytest.raises(FencedError, match="taken over"):
            write()
    first.ownership.release_ownership()
    assert second.register_ids(GROUP, ids("shop", 2), reporter) == 2
    owner = direct.fetch_status().owner
    assert owner is not None
    assert (owner.holder, owner.epoch) == ("two", 2)
    second.ownership.release_ownership()
    assert direct.register_ids(GROUP, ids("shop", 3), reporter) == 3


def test_a_holder_that_died_is_not_waited_for(tmp_path: Path) -> None:
    me = this_process()
    assert not is_gone(me)
    dead = me.replace(f"process {me.split()[1]} ", "process 4194400 ")
    assert is_gone(dead)
    assert not is_gone(dead.replace(" on ", " on another-"))
    assert not is_gone("somebody")
    store = open_store(str(tmp_path / "registry.db"))
    store.ownership.take_ownership(dead, FOREVER, is_gone)
    assert store.ownership.take_ownership(me, FOREVER, is_gone) == 2
    store.close()


def test_a_second_service_over_a_store_is_refused(service: RegistryService, tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "registry.db"))
    second = RegistryService(store, LOCAL)
    with pytest.raises(FencedError, match="served by process"):
        second.start()
    second.stop()
    store.close()


def test_a_registry_of_other_members_is_noticed_in_every_call(
    service: RegistryService, tmp_path: Path
) -> None:
    """The address leads to another store than it did, after a restart that went wrong."""
    member = HttpRegistry(service.url, TOKEN, secret=SECRET)
    reporter = reporting(member, "shop")
    port = urlsplit(service.url).port
    service.stop()
    store = open_store(str(tmp_path / "another.db"))
    other = RegistryService(store, ("127.0.0.1", port or 0), ServiceAccess(TOKEN))
    other.start()
    try:
        reporting(HttpRegistry(other.url, TOKEN, secret=SECRET), "shop")
        with pytest.raises(IdentityError, match="two registries would order one group"):
            member.register_ids(GROUP, ids("shop", 1), reporter)
        with pytest.raises(IdentityError):
            member.fetch_order(GROUP, 0, 10)
        assert whole_order(HttpRegistry(other.url, TOKEN)) == []
    finally:
        other.stop()
        store.close()


@pytest.mark.parametrize("token", [None, "another"])
def test_without_the_token_nothing_is_answered(service: RegistryService, token: str | None) -> None:
    with pytest.raises(RegistryError, match="wants a token") as refused:
        HttpRegistry(service.url, token).fetch_status()
    assert TOKEN not in str(refused.value)
    assert HttpRegistry(service.url, TOKEN).fetch_status().groups == ()


def test_nothing_listens(tmp_path: Path) -> None:
    with socket.create_server(LOCAL) as free:
        port = free.getsockname()[1]
    registry = HttpRegistry(f"http://127.0.0.1:{port}", TOKEN, patience_seconds=0.2)
    with pytest.raises(RegistryAwayError, match=r"did not answer for 0\.2 seconds") as away:
        registry.fetch_order(GROUP, 0, 1)
    assert TOKEN not in str(away.value)
    assert "registry serve" in (away.value.hint or "")


@pytest.mark.parametrize("sent", ["", '{"result": 1'])
def test_a_service_that_dies_while_it_answers(sent: str) -> None:
    """It may have done what it was asked; whoever asked asks again."""
    answer = f"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{sent}".encode()

    with ThreadPoolExecutor(1) as pool, socket.create_server(LOCAL) as server:
        answered = pool.submit(reply, server, answer)
        registry = HttpRegistry(
            f"http://127.0.0.1:{server.getsockname()[1]}", patience_seconds=0.01
        )
        with pytest.raises(RegistryAwayError, match="breaks off"):
            registry.fetch_order(GROUP, 0, 1)
        answered.result()


def test_something_else_listens() -> None:
    with ThreadPoolExecutor(1) as pool, socket.create_server(LOCAL) as other:
        answered = pool.submit(reply, other, b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        registry = HttpRegistry(f"http://127.0.0.1:{other.getsockname()[1]}")
        with pytest.raises(RegistryError, match="is no registry"):
            registry.fetch_status()
        answered.result(timeout=30)


def reply(server: socket.socket, answer: bytes) -> None:
    """Answer one request so, whatever it is."""
    connection, _ = server.accept()
    with connection:
        connection.sendall(answer)
        connection.shutdown(socket.SHUT_WR)
        # What is not read when a connection is closed would reset it.
        while connection.recv(65_536):
            pass


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/order", b"{", 400),
        ("/v1/order", b"[]", 400),
        ("/v1/order", b"[" * 100_000, 400),
        ("/v1/order", b'{"group": "g", "after": -1, "limit": 1}', 400),
        ("/v1/order", b'{"group": "g", "after": 1e3, "limit": 1}', 400),
        ("/v1/order", b'{"group": "g", "after": 0, "limit": 1, "wait": 1e9}', 400),
        ("/v1/order", b'{"group": "", "after": 0, "limit": 1}', 400),
        ("/v1/members", b'{"group": "' + b"g" * 501 + b'"}', 400),
        ("/v1/register", b'{"group": "g", "positions": [true], "reporter": {}}', 400),
        ("/v1/claim", b'{"group": "g", "source": "s", "member": "m", "seconds": "x"}', 400),
        ("/v1/join", b'{"member": "m", "facts": {"sources": ["s"], "parents": []}}', 400),
        ("/v1/join", b'{"member": "m", "facts": {"sources": {"s": "t"}, "parents": []}}', 400),
        ("/v1/join", b'{"member": "m", "facts": {"sources": {"": []}, "parents": []}}', 400),
        ("/v1/join", b'{"member": "m", "facts": {"sources": {}}}', 400),
        ("/v1/join", b'{"member": "m"}', 400),
        ("/v1/leave", b"{}", 400),
        ("/v1/_store", b"{}", 400),
        ("/", b"{}", 400),
        ("/v1/members", b'{"group": "unknown"}', 409),
    ],
)
def test_what_no_client_sends_is_refused(
    service: RegistryService, path: str, body: bytes, status: int
) -> None:
    assert post(service, path, body) == status
    assert post(service, "/v1/status", b"{}") == 200


def test_requests_are_bounded(service: RegistryService) -> None:
    """Too long ones are refused before they are read."""
    for length in (str(BODY_BYTES_MAX + 1), "-1", "many"):
        assert post(service, "/v1/status", b"", length) == 413


def test_a_request_that_drips_is_cut_off(tmp_path: Path) -> None:
    with (
        serving(tmp_path, ConnectionLimits(reading_seconds=0.2)) as service,
        socket.create_connection(address_of(service), timeout=0.01) as slow,
    ):
        slow.sendall(b"POST /v1/status HTTP/1.0\r\n")
        end = time.monotonic() + 20
        while is_open(slow):
            assert time.monotonic() < end, "it is still being listened to"


@contextmanager
def serving(folder: Path, limits: ConnectionLimits) -> Iterator[RegistryService]:
    """A service without a token that has other limits."""
    store = open_store(str(folder / "small.db"))
    small = RegistryService(store, LOCAL, limits=limits)
    small.start()
    try:
        yield small
    finally:
        small.stop()
        store.close()


def is_open(slow: socket.socket) -> bool:
    """Send a little more of a request, and see whether the other side has had enough."""
    try:
        slow.sendall(b"x")
        return slow.recv(65536) != b""
    except TimeoutError:
        return True
    except ConnectionError:
        return False


def test_too_many_connections_wait_for_their_turn(tmp_path: Path) -> None:
    """A place for work is taken by a reader that waits; the next one comes when it is free."""
    with serving(tmp_path, ConnectionLimits(working=1)) as small, ThreadPoolExecutor(1) as pool:
        reporting(HttpRegistry(small.url, secret=SECRET), "shop")
        waiting = pool.submit(HttpRegistry(small.url).fetch_order, GROUP, 0, 1, 2.0)
        time.sleep(0.5)
        with pytest.raises(RegistryAwayError, match="did not answer") as away:
            HttpRegistry(small.url, patience_seconds=0.1).fetch_status()
        assert "too much is asked at once" in (away.value.detail or "")
        assert len(HttpRegistry(small.url, patience_seconds=60).fetch_status().groups) == 1
        assert waiting.result(timeout=60) == ()


def post(service: RegistryService, path: str, body: bytes, length: str | None = None) -> int:
    connection = http.client.HTTPConnection(*address_of(service), timeout=30)
    headers = {
        "Authorization": f"Bearer {TOKEN}",
        "Content-Type": "application/json",
        "Content-Length": length or str(len(body)),
        wire_format.SECRET_HEADER: SECRET,
    }
    try:
        connection.request("POST", path, body, headers)
        return connection.getresponse().status
    finally:
        connection.close()


def address_of(service: RegistryService) -> tuple[str, int]:
    parts = urlsplit(service.url)
    return parts.hostname or "", parts.port or 0


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
def test_a_service_that_is_told_to_stop_keeps_nobody_waiting(
    tmp_path: Path, by: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_TOKEN", TOKEN)
    store = str(tmp_path / "registry.db")
    words = ["--listen", "127.0.0.1:0", "--token-env", "REGISTRY_TOKEN"]
    command = Process("viewkeeper.cli.main", ["registry", "serve", "--store", store, *words])
    with command as serving, ThreadPoolExecutor(1) as pool:
        url = serving.wait_for("serving").rpartition(" ")[2]
        registry = HttpRegistry(url, TOKEN, patience_seconds=0.2, secret=SECRET)
        reporting(registry, "shop")
        shown = call("registry", "status", url, "--json", "--token-env", "REGISTRY_TOKEN")
        waiting = pool.submit(registry.fetch_order, GROUP, 0, 1, WAIT_SECONDS_MAX)
        time.sleep(0.2)
        start = time.monotonic()
        assert serving.stop(by) == 0
        with pytest.raises(RegistryAwayError):
            waiting.result(timeout=60)
        assert time.monotonic() - start < WAIT_SECONDS_MAX, "it waited for its reader"
        assert TOKEN not in serving.output
    (group,) = json.loads(shown.stdout)["groups"]
    assert (group["name"], group["unreported"], group["waiting"]) == (GROUP, [], {})
    # Its lease was given back, so that the next one need not wait.
    kept = open_store(store)
    assert kept.ownership.take_ownership("next", 1) == 2
    kept.close()


@pytest.mark.parametrize("listen", ["8765", "host:port", ":1", "host:70000"])
def test_where_to_listen_is_written_host_and_port(tmp_path: Path, listen: str) -> None:
    done = call("registry", "serve", "--store", str(tmp_path / "r.db"), "--listen", listen)
    assert done.exit_code == 2
    assert "HOST:PORT" in done.stderr
