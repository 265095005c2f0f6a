"""Answers of the JVM that are longer than a few thousand characters, without a wait in the middle.

Java writes an answer in pieces of 8,192 bytes and, as TCP does by itself, sends the last piece only
when the one before is acknowledged; Linux acknowledges what it has received after 40 ms, unless it
is told to do so at once. So every plan that Spark shows us as text took 40 ms of waiting, two or
three times for each report that is compiled. PySpark has one connection for each thread; here the
reader of this thread's connection becomes one that acknowledges whatever it reads.
"""

from __future__ import annotations

import io
import socket
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_AT_ONCE: int | None = getattr(socket, "TCP_QUICKACK", None)
"""The option, which only Linux has and needs."""


class _PromptReader(io.RawIOBase):
    """The bytes of a socket, acknowledged as they are read."""

    def __init__(self, connected: socket.socket, option: int) -> None:
        super().__init__()
        self._socket = connected
        self._option = option

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._socket.recv_into(buffer)
        # Not a state of the socket: it acknowledges what waits for that now.
        self._socket.setsockopt(socket.IPPROTO_TCP, self._option, 1)
        return count


def hasten_answers(session: SparkSession) -> None:
    """Have this thread wait for no answer of the JVM longer than it takes to make it."""
    gateway: Any = session.sparkContext._gateway
    client = gateway._gateway_client
    find = getattr(client, "get_thread_connection", None)
    connection = find() if find is not None else None
    if _AT_ONCE is None or connection is None or not hasattr(connection.stream, "raw"):
        # Another system, or threads that share connections: answers take as long as they take.
        return
    if not isinstance(connection.stream.raw, _PromptReader):
        # py4j makes the reader itself, and takes none.
        vars(connection)["stream"] = io.BufferedReader(_PromptReader(connection.socket, _AT_ONCE))
