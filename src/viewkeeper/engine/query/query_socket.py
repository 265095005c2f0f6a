"""The local socket of a running maintainer: `viewkeeper query` uses its warm session by it, and
other commands ask the maintainer itself.

A socket in the warehouse's local folder, which only its user can open (0600), and on which only the
same user is answered. One connection is one request: a length and JSON, each way. A request names
its `kind`, and whoever opens the socket gives a handler for each kind but `query`. An error of a
handler is the answer.

The answer to a query has at most 100,000 rows and takes at most a minute; whoever wants more, or
finds nobody, starts Spark.

Values travel as `exact_values` writes them to JSON, but for timestamps, which are written in two
ways later: their columns are named. So an answer reads the same, whichever way it came.

Paths of sockets have at most some hundred characters, and folders more: the folder is opened, and
the socket named by that.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from viewkeeper.engine.event_log import LOGGER
from viewkeeper.engine.query.bounded_query import TEXT_MAX, BoundedQueries, QueryBounds
from viewkeeper.engine.query.exact_values import json_value
from viewkeeper.errors import SparkUnavailableError, ViewkeeperError, WarehouseError, place_of
from viewkeeper.storage.typed_json import read_typed

NAME = "query.socket"
BOUNDS = QueryBounds(rows=100_000, seconds=60.0)
REQUEST_SECONDS = 10.0
"""How long a question may take to arrive, and an answer to be taken."""

ANSWER_SECONDS = 120.0
REQUEST_MAX, ANSWER_MAX = 1 << 20, 1 << 30
CALLERS_MAX = 8
PAUSE_SECONDS, JOIN_SECONDS = 0.2, 2.0
_LENGTH = struct.Struct(">Q")
_OWNER = struct.Struct("3i")


Request = Mapping[str, Any]
Answer = Mapping[str, Any]
Handler = Callable[[Request], Answer]
"""Answers requests of one kind; called in a thread of the socket."""

QUERY = "query"
T = TypeVar("T")


class SocketAnswer:
    """The rows that a maintainer has answered with, and whether there are more."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self.names: tuple[str, ...] = tuple(facts["names"])
        self.has_more = bool(facts["has_more"])
        zones = set(facts["datetimes"])
        self.rows: list[tuple[object, ...]] = [
            tuple(
                datetime.fromisoformat(value) if place in zones and value is not None else value
                for place, value in enumerate(row)
            )
            for row in facts["rows"]
        ]


@contextmanager
def serving_queries(
    folder: Path, queries: BoundedQueries, handlers: Mapping[str, Handler]
) -> Iterator[None]:
    """Answer requests for as long as the block lasts; who holds the warehouse's lock does that.

    Not every file system has sockets: without one, queries start a Spark of their own.
    """
    try:
        server = QueryServer(folder, queries, handlers)
    except OSError as error:
        text = f"queries cannot use this session: no socket in {folder}: {error.strerror}"
        logging.getLogger(LOGGER).warning("%s", text, extra={"event": "note", "facts": {}})
        yield
        return
    try:
        yield
    finally:
        server.close()


class QueryServer:
    """Takes questions in a thread, and answers each in its own."""

    def __init__(
        self, folder: Path, queries: BoundedQueries, handlers: Mapping[str, Handler]
    ) -> None:
        self._folder = folder
        self._queries = queries
        self._handlers = {**handlers, QUERY: self._answer_query}
        self._callers = threading.Semaphore(CALLERS_MAX)
        self._is_closing = threading.Event()
        # Whoever was here before has gone: the lock is ours.
        with suppress(FileNotFoundError):
            (folder / NAME).unlink()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with short_path(folder) as path:
                self._socket.bind(path)
                os.chmod(path, 0o600)
            self._socket.listen(CALLERS_MAX)
        except BaseException:
            self._socket.close()
            raise
        self._thread = threading.Thread(
            target=self._take_calls, name="viewkeeper-query", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Take no more questions, and remove the socket."""
        self._is_closing.set()
        with suppress(FileNotFoundError):
            (self._folder / NAME).unlink()
        # A thread that waits in accept is woken by this, and not by closing.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(JOIN_SECONDS)
        self._socket.close()

    def _take_calls(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                # This process may have too many files open for a moment.
                if self._is_closing.wait(PAUSE_SECONDS):
                    return
                continue
            if not self._callers.acquire(blocking=False):
                connection.close()
                continue
            threading.Thread(
                target=self._answer_call, args=(connection,), name="viewkeeper-answer", daemon=True
            ).start()

    def _answer_call(self, connection: socket.socket) -> None:
        try:
            with connection, suppress(OSError, ValueError, RecursionError):
                connection.settimeout(REQUEST_SECONDS)
                if owner_of_peer(connection) in (0, os.getuid()):
                    asked = json.loads(read_message(connection, REQUEST_MAX))
                    send_message(connection, json.dumps(self._answer(asked)).encode())
        finally:
            self._callers.release()

    def _answer(self, asked: object) -> Answer:
        kind = asked.get("kind", QUERY) if isinstance(asked, dict) else None
        handler = self._handlers.get(kind) if isinstance(kind, str) else None
        if not isinstance(asked, dict) or handler is None:
            return _error_answer("this is not a request that the maintainer knows")
        try:
            return handler(asked)
        except ViewkeeperError as error:
            return _error_answer(error.message, error.detail, error.hint)
        except Exception as error:  # noqa: BLE001 - it is logged, and who asks need not wait
            # Its text may quote a row.
            text = f"a request of the kind {kind} met an unexpected {type(error).__name__}"
            extra = {"event": "note", "facts": {"place": place_of(error)}}
            logging.getLogger(LOGGER).error("%s", text, extra=extra)
            # Another way may answer a query, or shows all of this.
            return {} if kind == QUERY else _error_answer(text, place_of(error))

    def _answer_query(self, asked: Request) -> Answer:
        match asked:
            case {"sql": str() as text, "as_of": int() | None as as_of, "rows": int() as rows}:
                bounds = QueryBounds(min(rows, BOUNDS.rows), BOUNDS.seconds)
            case _:
                return _error_answer("this is not a question")
        began = time.monotonic()
        try:
            found = self._queries.answer_query(text, bounds, as_of)
        except ViewkeeperError as error:
            # Another way may be longer than this one, or free.
            is_late = time.monotonic() - began >= BOUNDS.seconds
            if is_late or isinstance(error, WarehouseError | SparkUnavailableError):
                return {}
            raise
        columns = list(zip(*found.rows, strict=True)) if found.rows else []
        return {
            "names": found.names,
            "datetimes": [
                place
                for place, values in enumerate(columns)
                if any(isinstance(value, datetime) for value in values)
            ],
            "rows": [[json_value(value) for value in row] for row in found.rows],
            "has_more": found.has_more,
        }


def ask_maintainer(
    folder: Path, text: str, as_of: int | None, most_rows: int | None
) -> SocketAnswer | None:
    """The answer of the maintainer that runs here; None if none runs, or it cannot give all of it.

    If it says that the query is wrong, or fails, that is an error here.
    """
    wanted = BOUNDS.rows if most_rows is None else most_rows
    if len(text) > TEXT_MAX or wanted > BOUNDS.rows:
        return None
    facts = send_request(folder, {"kind": QUERY, "sql": text, "as_of": as_of, "rows": wanted})
    try:
        found = SocketAnswer(facts) if facts is not None and "names" in facts else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return None if found is None or (most_rows is None and found.has_more) else found


def send_request(folder: Path, request: Request) -> dict[str, Any] | None:
    """The answer of the maintainer that runs here; None if none runs, or it does not answer.

    If it answers with an error, that is an error here.
    """
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(ANSWER_SECONDS)
            with short_path(folder) as path:
                connection.connect(path)
            if owner_of_peer(connection) not in (0, os.getuid()):
                return None
            send_message(connection, json.dumps(request).encode())
            facts = json.loads(read_message(connection, ANSWER_MAX))
    except (OSError, ValueError):
        return None
    if not isinstance(facts, dict):
        return None
    if "error" in facts:
        told = (facts.get("detail"), facts.get("hint"))
        detail, hint = (None if each is None else str(each) for each in told)
        raise ViewkeeperError(str(facts["error"]), detail=detail, hint=hint)
    return facts


def read_request(kind: type[T], asked: Request) -> T:
    """What is asked for, as a class declares it; an error for who asks if it is something else."""
    try:
        return read_typed(kind, {key: value for key, value in asked.items() if key != "kind"})
    except ValueError as error:
        raise ViewkeeperError(f"this is not a whole request: {error}") from error


def _error_answer(message: str, detail: str | None = None, hint: str | None = None) -> Answer:
    return {"error": message, "detail": detail, "hint": hint}


@contextmanager
def short_path(folder: Path) -> Iterator[str]:
    """A path of the socket in a folder that is short enough, while the block lasts."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{opened}/{NAME}"
    finally:
        os.close(opened)


def owner_of_peer(connection: socket.socket) -> int:
    """The user of the process at the other end."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _OWNER.size)
    return int(_OWNER.unpack(found)[1])


def send_message(connection: socket.socket, body: bytes) -> None:
    connection.sendall(_LENGTH.pack(len(body)) + body)


def read_message(connection: socket.socket, most_bytes: int) -> bytes:
    """A whole message; a ValueError if it is too long or ends too early."""
    (length,) = _LENGTH.unpack(_read_exactly(connection, _LENGTH.size))
    if length > most_bytes:
        raise ValueError(f"a message of {length} bytes")
    return _read_exactly(connection, length)


def _read_exactly(connection: socket.socket, count: int) -> bytes:
    body = bytearray()
    while len(body) < count:
        piece = connection.recv(min(count - len(body), 1 << 20))
        if not piece:
            raise ValueError("the connection ended")
        body += piece
    return bytes(body)
