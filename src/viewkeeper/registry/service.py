"""The service behind `viewkeeper registry serve`: a store that one process owns, over HTTP.

The service keeps nothing but the store, so a kill at any moment loses nothing that was answered. It
owns the store under an epoch: a second service is refused while the first lives, and the first
cannot write after the second took over. A reader that waits for new ids is woken by the register
that brings them, or by the join that closes its group. Requests are bounded in size, time and
number; nothing of a request is logged.
"""

from __future__ import annotations

import hmac
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Any

from viewkeeper.errors import RegistryAwayError, RegistryError
from viewkeeper.registry import wire
from viewkeeper.registry.ids import GlobalId
from viewkeeper.registry.stored_order import StoredRegistry
from viewkeeper.registry.wire import Arguments, MalformedError

LEASE_SECONDS = 15.0
CONNECTIONS_MAX = 256
REQUEST_SECONDS = 10.0


class Calls:
    """What can be asked, each call a method of its name, and who waits for news."""

    def __init__(self, store: StoredRegistry) -> None:
        self._store = store
        self._news = threading.Condition()
        self._count = 0
        self._grouping = store.grouping
        self._ends = False
        self._known: dict[str, Callable[[Arguments], object]] = {
            "join": self._join,
            "leave": self._leave,
            "members": self._members,
            "claim": self._claim,
            "release": self._release,
            "register": self._register,
            "order": self._order,
            "reached": self._reached,
            "status": self._status,
        }

    def answer(self, call: str, arguments: Arguments) -> object:
        """What is answered, as JSON can have it."""
        if call not in self._known:
            raise MalformedError(f"there is no call {call[:40]!r}")
        identity = arguments.optional("identity")
        if identity is not None:
            self._store.check_identity(arguments.text("group"), identity)
        return self._known[call](arguments)

    def end(self) -> None:
        """Let nobody wait any more."""
        with self._news:
            self._ends = True
            self._news.notify_all()

    def _join(self, given: Arguments) -> object:
        member, remembered = given.text("member"), given.optional("remembered")
        found = self._store.join(member, given.facts(), remembered)
        self._tell_grouping()
        return asdict(found)

    def _leave(self, given: Arguments) -> object:
        self._store.leave(given.text("member"))
        self._tell_grouping()
        return None

    def _members(self, given: Arguments) -> object:
        return [asdict(member) for member in self._store.members(given.text("group"))]

    def _claim(self, given: Arguments) -> object:
        seconds = given.seconds("seconds", wire.LEASE_SECONDS_MAX)
        names = (given.text("group"), given.text("source"), given.text("member"))
        reporter = self._store.claim(*names, seconds)
        return None if reporter is None else wire.write_reporter(reporter)

    def _release(self, given: Arguments) -> object:
        self._store.release(given.reporter())
        return None

    def _register(self, given: Arguments) -> object:
        reporter = given.reporter()
        ids = [GlobalId(reporter.source, position) for position in given.integers("positions")]
        n = self._store.register(given.text("group"), ids, reporter)
        self._tell()
        return n

    def _order(self, given: Arguments) -> object:
        end = time.monotonic() + given.seconds("wait", wire.WAIT_SECONDS_MAX)
        group, after = given.text("group"), given.integer("after")
        limit = min(given.integer("limit"), wire.IDS_MAX)
        while True:
            # Read before looking: what comes between a look and the wait ends the wait.
            seen = self._count
            found = self._store.order(group, after, limit)
            left = end - time.monotonic()
            if found or left <= 0 or self._ends:
                return wire.write_order(found)
            self._wait(seen, left)

    def _tell_grouping(self) -> None:
        """Members join every few seconds, mostly with what they said before: no news."""
        now = self._store.grouping
        if now is not self._grouping:
            self._grouping = now
            self._tell()

    def _tell(self) -> None:
        """There may be new ids, or a group may have been closed."""
        with self._news:
            self._count += 1
            self._news.notify_all()

    def _wait(self, seen: int, seconds: float) -> None:
        """Until there is news after `seen` pieces of it, or the time is over."""
        with self._news:
            self._news.wait_for(lambda: self._count != seen or self._ends, seconds)

    def _reached(self, given: Arguments) -> object:
        names = (given.text("group"), given.text("member"))
        self._store.reached(*names, given.integer("n"))
        return None

    def _status(self, given: Arguments) -> object:
        return asdict(self._store.status())


class Server(ThreadingMixIn, TCPServer):
    """Listens, with a thread for every connection; ended threads are waited for."""

    allow_reuse_address = True
    daemon_threads = False
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], calls: Calls, token: str | None) -> None:
        self.calls = calls
        self.authorization = f"Bearer {token}".encode() if token else None
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._free = threading.BoundedSemaphore(CONNECTIONS_MAX)
        super().__init__(address, Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            # The client sees a closed connection and tries again a little later.
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away in the middle is no event; a defect of ours is told."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Server
    timeout = REQUEST_SECONDS
    server_version = "viewkeeper-registry"
    sys_version = ""

    def handle(self) -> None:
        """A request that is not read whole in time is cut off, however slowly it drips."""
        self._limit = threading.Timer(REQUEST_SECONDS, self._cut_off)
        self._limit.start()
        try:
            super().handle()
        finally:
            self._limit.cancel()
            self._limit.join()

    def _cut_off(self) -> None:
        # The client may have gone by itself.
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RD)

    def do_POST(self) -> None:
        if not self._is_allowed():
            self._refuse(401, "this service wants a token, and another one than was sent")
            return
        try:
            size = int(self.headers.get("Content-Length") or -1)
        except ValueError:
            size = -1
        if not 0 <= size <= wire.BODY_BYTES_MAX:
            self._refuse(413, f"a request has a length, of at most {wire.BODY_BYTES_MAX} bytes")
            return
        body = self.rfile.read(size)
        self._limit.cancel()
        self._answer(body)

    def _answer(self, body: bytes) -> None:
        call = self.path.removeprefix(wire.PREFIX)
        try:
            result = self.server.calls.answer(call, Arguments(_parsed(body)))
        except MalformedError as error:
            self._refuse(400, str(error))
        except RegistryAwayError as error:
            self._send(503, wire.write_error(error))
        except RegistryError as error:
            self._send(409, wire.write_error(error))
        else:
            self._send(200, {"result": result})

    def _is_allowed(self) -> bool:
        wanted = self.server.authorization
        sent = self.headers.get("Authorization", "").encode("utf-8", "replace")
        return wanted is None or hmac.compare_digest(sent, wanted)

    def _refuse(self, status: int, what: str) -> None:
        self.close_connection = True
        self._send(status, wire.write_error(RegistryError("", what)))

    def _send(self, status: int, data: object) -> None:
        text = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing of a request is logged."""


def _parsed(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise MalformedError("the body must be JSON") from error


class Service:
    """A store that is owned and served, from `start` to `stop`."""

    def __init__(
        self,
        store: StoredRegistry,
        address: tuple[str, int],
        token: str | None = None,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self._store = store
        self._calls = Calls(store)
        self._address = address
        self._token = token
        self._lease_seconds = lease_seconds
        self._server: Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        assert self._server is not None, "not started"
        host, port = self._server.server_address[:2]
        return f"http://[{host!s}]:{port}" if ":" in str(host) else f"http://{host!s}:{port}"

    def start(self) -> None:
        """Own the store and answer; a FencedError if another service owns it."""
        try:
            self._server = Server(self._address, self._calls, self._token)
        except (OSError, OverflowError) as error:
            host, port = self._address
            raise RegistryError(
                self._store.name,
                f"cannot listen at {host}:{port}",
                detail=str(error),
                hint="choose another address with --listen, or end what listens there",
            ) from error
        try:
            self._store.own(this_process(), self._lease_seconds, is_gone)
        except BaseException:
            self._server.server_close()
            raise
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,))
        self._thread.start()

    def serve_until(self, stop: threading.Event) -> None:
        """Keep the store ours until told to stop; a FencedError if somebody took it over."""
        while not stop.wait(self._lease_seconds / 4):
            try:
                self._store.keep(self._lease_seconds)
            except RegistryAwayError:
                # The store may be back at the next turn; callers are told meanwhile.
                continue

    def stop(self) -> None:
        """Answer what was asked, then let go of address and store."""
        if self._server is None or self._thread is None:
            return
        self._calls.end()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._server = self._thread = None
        self._store.disown()


def this_process() -> str:
    """Who we are to other services: they must be able to tell whether we still live."""
    return f"process {os.getpid()} on {_machine()}"


def is_gone(holder: str) -> bool:
    """Whether a holder is known to have died: a process of this machine that does not exist."""
    process, _, machine = holder.removeprefix("process ").partition(" on ")
    if machine != _machine() or not process.isdecimal():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def _machine() -> str:
    """The host; containers on one host may have one name, and number their processes apart."""
    try:
        numbering = os.readlink("/proc/self/ns/pid")
    except OSError:
        return socket.gethostname()
    return f"{socket.gethostname()} ({numbering})"
