"""A proxy between the library and a server, in which requests and answers come to harm.

`FaultyRequests` stands above the library, so that its own repetitions are never met there. Here it
sees what a network and a busy service do to it: answers of 503, silence beyond its limits, and
connections that end. A `Chance` says what becomes of a request, from its method and path.

| fate | the request | the answer |
| --- | --- | --- |
| `refused`, `cut` | never gets there | 503; the connection ends |
| `doubted`, `lost` | is carried out | 503 all the same; the connection ends |
| `slow` | is carried out | comes when nobody waits for it any more |
| `late` | is carried out when nobody waits for it any more | nobody reads it |
| `half` | is carried out | the connection ends within it |
"""

from __future__ import annotations

import http.client
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from typing import Literal

import pytest

from tests.objects.http_listener import Listener
from tests.objects.s3_server import PrivateS3, yaml_of
from viewkeeper.storage.objects import object_requests

HttpFate = Literal["fine", "refused", "doubted", "cut", "lost", "slow", "late", "half"]
HttpChance = Callable[[str, str], HttpFate]

BEFORE: tuple[HttpFate, ...] = ("refused", "cut")
AFTER: tuple[HttpFate, ...] = ("doubted", "lost", "half")
SLOW: tuple[HttpFate, ...] = ("slow", "late")

REQUEST_SECONDS = 1.0
DELAY_SECONDS = 1.5
"""Beyond the patience of who asks."""

SETTLE_SECONDS = 60.0
_HOP = {"connection", "transfer-encoding", "content-length", "keep-alive", "server", "date"}


def limit_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the library give up on a request after a second, and on its repetitions after three."""
    monkeypatch.setattr(object_requests, "REQUEST_SECONDS", f"{REQUEST_SECONDS:g}s")
    monkeypatch.setattr(object_requests, "RETRY_SECONDS_MAX", 3 * REQUEST_SECONDS)


class FaultProxy:
    """In front of an S3 server; warehouses are reached through it."""

    def __init__(self, server: PrivateS3) -> None:
        self._server = server
        self.chance: HttpChance = lambda *_: "fine"
        self.met: Counter[HttpFate] = Counter()
        self.asked: list[tuple[str, str, HttpFate]] = []
        self._pending = 0
        self._changed = threading.Condition()
        self._listener = Listener(type("Bound", (ProxyHandler,), {"proxy": self}))

    @property
    def upstream(self) -> int:
        return self._server.port

    @property
    def options(self) -> dict[str, str]:
        return {**self._server.options, "endpoint": self._listener.endpoint}

    @property
    def yaml(self) -> str:
        return yaml_of(self.options)

    @property
    def lake_options(self) -> dict[str, str]:
        """Others look at the server itself."""
        return self._server.lake_options

    def new_url(self) -> str:
        return self._server.new_url()

    def choose_fate(self, method: str, path: str) -> HttpFate:
        with self._changed:
            fate = self.chance(method, path)
            self.met[fate] += 1
            self.asked.append((method, path, fate))
            return fate

    def seed(self, generator: random.Random, share: float, *, slow_share: float = 0.0) -> None:
        """Harm some requests, a few of them by delays, which take long."""

        def choose(*_: str) -> HttpFate:
            found = generator.random()
            if found < slow_share:
                return generator.choice(SLOW)
            return generator.choice((*BEFORE, *AFTER)) if found < share else "fine"

        self.chance = choose

    def harm_once(self, fate: HttpFate, method: str, part: str = "") -> None:
        """Let this happen to the next request of a method whose path has `part`, and no other."""
        left = [fate]

        def choose(asked: str, path: str) -> HttpFate:
            return left.pop() if left and asked == method and part in path else "fine"

        self.chance = choose

    def end(self) -> None:
        """All is fine again, but for what is on its way."""
        self.chance = lambda *_: "fine"

    def settle(self) -> None:
        """Wait until nothing is on its way any more."""
        self.end()
        with self._changed:
            assert self._changed.wait_for(lambda: not self._pending, SETTLE_SECONDS)

    def note_pending(self, change: int) -> None:
        with self._changed:
            self._pending += change
            self._changed.notify_all()

    def stop(self) -> None:
        self._listener.stop_serving()


class ProxyHandler(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    proxy: FaultProxy

    def log_message(self, *_: object) -> None: ...

    def pass_on(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fate = self.proxy.choose_fate(self.command, self.path)
        self.proxy.note_pending(1)
        try:
            with suppress(ConnectionError, TimeoutError):
                self._meet_fate(fate, data)
        finally:
            self.proxy.note_pending(-1)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = pass_on  # noqa: N815  # the library's names

    def _meet_fate(self, fate: HttpFate, data: bytes) -> None:
        if fate == "refused":
            self._refuse()
            return
        if fate == "cut":
            self._end_connection()
            return
        if fate == "late":
            time.sleep(DELAY_SECONDS)
        status, headers, body = self._forward(data)
        if fate == "slow":
            time.sleep(DELAY_SECONDS)
        if fate == "doubted":
            self._refuse()
        elif fate == "lost":
            self._end_connection()
        else:
            self._answer(status, headers, body, is_whole=fate != "half")

    def _forward(self, data: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        inner = http.client.HTTPConnection("127.0.0.1", self.proxy.upstream, timeout=60)
        try:
            headers = {k: v for k, v in self.headers.items() if k.lower() != "connection"}
            inner.request(self.command, self.path, data, headers)
            found = inner.getresponse()
            return found.status, found.getheaders(), found.read()
        finally:
            inner.close()

    def _answer(
        self, status: int, headers: list[tuple[str, str]], body: bytes, is_whole: bool
    ) -> None:
        known = {name.lower(): value for name, value in headers}
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in _HOP:
                self.send_header(name, value)
        is_head = self.command == "HEAD"
        size = known.get("content-length", "0") if is_head else str(len(body))
        self.send_header("Content-Length", size)
        if not is_whole and not (body and not is_head):
            # There is nothing to be cut but the headers.
            self._end_connection()
            return
        self.end_headers()
        self.wfile.write(b"" if is_head else body if is_whole else body[: len(body) // 2])
        self.wfile.flush()
        if not is_whole:
            self._end_connection()

    def _refuse(self) -> None:
        body = b"<Error><Code>SlowDown</Code></Error>"
        self.send_response_only(503)
        self.send_header("Content-Length", str(0 if self.command == "HEAD" else len(body)))
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else body)
        self.wfile.flush()

    def _end_connection(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
