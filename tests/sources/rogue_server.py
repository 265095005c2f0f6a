"""A server that only pretends to be MariaDB: it says what a script tells it, and keeps what it
hears.

A script is a list of packets. The first is sent when somebody connects, each of the others when the
one before was answered. Whoever keeps asking hears that all is well.
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from types import TracebackType

SALT = b"abcdefghijklmnopqrst"
OK = b"\x00\x00\x00\x02\x00\x00\x00"
# Encryption is bit 11; authentication by plugins, long answers and so on are offered always.
_SSL = 0x800
# Whoever wants encryption begins its answer, and stops there.
_TLS_REQUEST_BYTES = 32
_CAPABILITIES = 0x00A8F7DF


def greeting(plugin: str = "mysql_native_password", *, tls: bool = False) -> bytes:
    """What a server says first: who it is, what it can do, and its random bytes."""
    offered = _CAPABILITIES | _SSL if tls else _CAPABILITIES & ~_SSL
    return (
        b"\x0a5.5.5-10.11.6-MariaDB\0"
        + struct.pack("<I", 7)
        + SALT[:8]
        + b"\0"
        + struct.pack("<HBHHB", offered & 0xFFFF, 45, 2, offered >> 16, 21)
        + bytes(10)
        + SALT[8:]
        + b"\0"
        + plugin.encode()
        + b"\0"
    )


def switch(plugin: str, data: bytes = SALT + b"\0") -> bytes:
    """What a server says that wants the password in another way."""
    return b"\xfe" + plugin.encode() + b"\0" + data


class RogueServer:
    """Listens on loopback; `heard` is all that anybody has sent, decrypted."""

    def __init__(
        self, script: Sequence[bytes], certificate: str | None = None, key: str | None = None
    ) -> None:
        self._script = script
        self._context: ssl.SSLContext | None = None
        if certificate is not None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(certificate, key)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self.port = int(self._listener.getsockname()[1])
        self.heard = b""

    def __enter__(self) -> RogueServer:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # To wake the thread that waits for a caller.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)

    def _serve(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            caller.settimeout(10)
            with ExitStack() as opened, suppress(OSError):
                self._talk(opened.enter_context(caller), opened)

    def _talk(self, caller: socket.socket, opened: ExitStack) -> None:
        number, context = 0, self._context
        for packet in self._script:
            _send(caller, number, packet)
            number, told = self._hear(caller)
            if context is not None and len(told) == _TLS_REQUEST_BYTES:
                caller = opened.enter_context(context.wrap_socket(caller, server_side=True))
                context = None
                number, told = self._hear(caller)
            number += 1
        while True:
            _send(caller, number, OK)
            number = self._hear(caller)[0] + 1

    def _hear(self, caller: socket.socket) -> tuple[int, bytes]:
        header = _exactly(caller, 4)
        told = _exactly(caller, int.from_bytes(header[:3], "little"))
        self.heard += told
        return header[3], told


def _send(caller: socket.socket, number: int, packet: bytes) -> None:
    caller.sendall(len(packet).to_bytes(3, "little") + bytes([number & 255]) + packet)


def _exactly(caller: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        more = caller.recv(size - len(found))
        if not more:
            raise ConnectionError("the caller has gone")
        found += more
    return found
