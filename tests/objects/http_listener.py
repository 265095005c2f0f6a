"""A server in threads of this process, which can be stopped while clients keep connections."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Listener(ThreadingHTTPServer):
    """A server that can be stopped while clients keep their connections."""

    daemon_threads = False
    block_on_close = True

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        self._opened: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self.serve_forever)
        self._thread.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def get_request(self) -> tuple[socket.socket, object]:
        made, address = super().get_request()
        self._opened.add(made)
        return made, address

    def stop_serving(self) -> None:
        self.shutdown()
        for each in self._opened:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self.server_close()
