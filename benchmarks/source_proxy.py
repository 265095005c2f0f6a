"""A proxy on loopback that counts what passes between us and a database server.

Every connection is counted by itself, each way, and told apart: one that reads the server's change
stream is a *stream*, which shows in what the client says on it; one that was there before a batch
*stands* (looks, acknowledgements, answers where connections are kept); all others were *opened* by
the batch, to ask in snapshots.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

_CHUNK = 1 << 16
Role = Literal["stream", "standing", "opened"]


@dataclass(slots=True)
class Passed:
    """One connection: what the client has sent and received, in bytes."""

    is_stream: bool = False
    sent: int = 0
    received: int = 0


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes by direction and by what the connections were for."""

    sent: dict[Role, int]
    received: dict[Role, int]
    connections: int
    """How many were opened."""

    @property
    def bytes(self) -> int:
        return sum(self.sent.values()) + sum(self.received.values())


def is_postgres_stream(chunk: bytes) -> bool:
    """The first thing a client says names its parameters."""
    return b"replication\0database\0" in chunk


def is_mariadb_stream(chunk: bytes) -> bool:
    """A whole packet, the first of a command, which asks for the binlog."""
    is_command = len(chunk) > 4 and chunk[3] == 0
    return is_command and chunk[4] == 0x12 and int.from_bytes(chunk[:3], "little") == len(chunk) - 4


@dataclass(slots=True)
class Proxy:
    """Passes connections on to a port of this machine until it is closed."""

    target: int
    is_stream: Callable[[bytes], bool]
    port: int = 0
    _passed: list[Passed] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)
    _sockets: list[socket.socket] = field(default_factory=list)
    _listener: socket.socket = field(default_factory=socket.socket)

    def start(self) -> None:
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen()
        self.port = int(self._listener.getsockname()[1])
        self._spawn(self._accept)

    def mark(self) -> list[tuple[int, int]]:
        """What has passed up to now, by connection."""
        return [(each.sent, each.received) for each in tuple(self._passed)]

    def since(self, mark: list[tuple[int, int]]) -> Traffic:
        """What has passed since a mark."""
        sent: dict[Role, int] = {"stream": 0, "standing": 0, "opened": 0}
        received = dict(sent)
        for number, each in enumerate(tuple(self._passed)):
            standing = number < len(mark)
            before = mark[number] if standing else (0, 0)
            role: Role = "stream" if each.is_stream else "standing" if standing else "opened"
            sent[role] += each.sent - before[0]
            received[role] += each.received - before[1]
        return Traffic(sent, received, len(self._passed) - len(mark))

    def close(self) -> None:
        # A blocked accept does not notice that its socket was closed, only that it was shut down.
        for each in (self._listener, *self._sockets):
            # The other end may have gone before.
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in tuple(self._threads):
            thread.join()

    def _spawn(self, run: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=run, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                # The proxy was closed.
                return
            server = socket.create_connection(("127.0.0.1", self.target))
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sockets += [client, server]
            passed = Passed()
            self._passed.append(passed)
            self._spawn(self._pass_on, client, server, passed, True)
            self._spawn(self._pass_on, server, client, passed, False)

    def _pass_on(
        self, source: socket.socket, target: socket.socket, passed: Passed, from_client: bool
    ) -> None:
        try:
            while chunk := source.recv(_CHUNK):
                if from_client:
                    passed.sent += len(chunk)
                    passed.is_stream = passed.is_stream or self.is_stream(chunk)
                else:
                    passed.received += len(chunk)
                target.sendall(chunk)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            # One of the two has broken off, which the other learns by this.
            target.close()
