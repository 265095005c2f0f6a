"""A network that can be cut: a proxy in front of a server, which goes silent or resets.

Silent is what a dead router does: nothing comes through any more, and nobody is told, neither those
who are connected nor those who try to. Connections from before stay silent when the network is
mended. A reset ends all connections at once.
"""

from __future__ import annotations

import selectors
import socket
import struct
import threading
from contextlib import suppress
from types import TracebackType

RESET = struct.pack("ii", 1, 0)


class Proxy:
    """Forwards connections to a port of this machine; use as a context manager."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._peers: dict[socket.socket, socket.socket | None] = {}
        self._lock = threading.Lock()
        self._is_silent = False
        self._ends = False
        self._thread = threading.Thread(target=self._forward, name="proxy")

    def go_silent(self) -> None:
        """From now on nothing comes through; whoever connects gets no answer."""
        with self._lock:
            self._is_silent = True
            for one in self._peers:
                with suppress(KeyError):
                    self._selector.unregister(one)

    def mend(self) -> None:
        """New connections work; those from before stay as they are."""
        with self._lock:
            self._is_silent = False

    def reset(self) -> None:
        """End all connections, as a firewall does that has forgotten them."""
        with self._lock:
            for one in list(self._peers):
                self._end(one, reset=True)

    @property
    def waiting(self) -> int:
        """How many connections are open that nobody answers."""
        with self._lock:
            return sum(other is None for other in self._peers.values())

    def _forward(self) -> None:
        while not self._ends:
            events = self._selector.select(timeout=0.05)
            with self._lock:
                for key, _ in events:
                    one = key.fileobj
                    assert isinstance(one, socket.socket)
                    if one is self._listener:
                        self._accept()
                    elif one in self._peers and not self._is_silent:
                        self._pass_on(one)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        if self._is_silent:
            self._peers[client] = None
            return
        try:
            server = socket.create_connection(("127.0.0.1", self._target), timeout=5)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        for one, other in ((client, server), (server, client)):
            self._peers[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _pass_on(self, one: socket.socket) -> None:
        other = self._peers[one]
        try:
            data = one.recv(1 << 16)
            if data and other is not None:
                other.sendall(data)
                return
        except OSError:
            pass
        self._end(one)

    def _end(self, one: socket.socket, reset: bool = False) -> None:
        for each in (one, self._peers.get(one)):
            if each is None or each not in self._peers:
                continue
            del self._peers[each]
            with suppress(KeyError):
                self._selector.unregister(each)
            if reset:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            each.close()

    def __enter__(self) -> Proxy:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ends = True
        self._thread.join()
        for one in list(self._peers):
            self._end(one)
        self._listener.close()
        self._selector.close()
