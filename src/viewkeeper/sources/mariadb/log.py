"""The binlog as a sequence of events, read as a replica reads it.

This is the framing only: which event, where it ends, its body. What a replica says when it comes:
that it understands checksums and GTID events, how often it wants to hear something while nothing
happens, and from where to begin. `stream` makes transactions of the events.

A file may be larger than 4 GB, when its last transaction was large, and events tell only the lower
32 bits of their offset; the rest follows from the event before. An event that we do not know and
that the server does not mark as ignorable is an error: a change could be in it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

from pymysql.constants import COMMAND

from viewkeeper.errors import SourceError
from viewkeeper.sources.mariadb.open import Connection, Server, execute, pairs, texts
from viewkeeper.sources.mariadb.position import (
    FIRST_OFFSET,
    file_name,
    file_of,
    number_of,
    offset_of,
    position_of,
)

_HEADER = struct.Struct("<IBIIIH")
_HEARTBEAT_SECONDS = 5
_ARTIFICIAL, _IGNORABLE = 0x20, 0x80
_NON_BLOCK = 0x01
_OFFSET_MAX = (1 << 32) - 1
_CRC32 = 1
_EOF, _EOF_BYTES = 254, 9
_CRC_BYTES = 4


class Type(IntEnum):
    """The events that a binlog of MariaDB can have, as far as they concern us."""

    QUERY = 2
    STOP = 3
    ROTATE = 4
    INTVAR = 5
    LOAD_MORE = 9
    LOAD_FORGET = 11
    RAND = 13
    USER_VAR = 14
    FORMAT = 15
    XID = 16
    LOAD_BLOCK = 17
    LOAD_STATEMENT = 18
    TABLE_MAP = 19
    WRITE_V1 = 23
    UPDATE_V1 = 24
    DELETE_V1 = 25
    INCIDENT = 26
    HEARTBEAT = 27
    WRITE = 30
    UPDATE = 31
    DELETE = 32
    XA_PREPARE = 38
    ANNOTATE = 160
    CHECKPOINT = 161
    GTID = 162
    GTID_LIST = 163
    START_ENCRYPTION = 164
    QUERY_COMPRESSED = 165
    WRITE_COMPRESSED_V1 = 166
    UPDATE_COMPRESSED_V1 = 167
    DELETE_COMPRESSED_V1 = 168
    WRITE_COMPRESSED = 169
    UPDATE_COMPRESSED = 170
    DELETE_COMPRESSED = 171


_KNOWN = frozenset(int(kind) for kind in Type)


class Event(NamedTuple):
    """One event: its type, the time in its header, the position at which it ends, its body.

    A tuple, because hundreds of thousands are made in a second.
    """

    type: int
    time: int
    position: int
    body: bytes
    size: int

    def mark(self) -> Mark:
        return Mark(self.position - self.size, self.time, zlib.crc32(self.body))


@dataclass(frozen=True, slots=True)
class Mark:
    """What tells an event from one that another history of the server has at the same place:
    where it begins, when it was written, and a checksum of it."""

    start: int
    time: int
    checksum: int

    @property
    def can_be_read(self) -> bool:
        """Whether a reader can be told to begin with the event."""
        return offset_of(self.start) <= _OFFSET_MAX


class Log:
    """The events from a position on; `blocking` waits for more at the end, else it ends there."""

    def __init__(self, server: Server, server_id: int, position: int, *, blocking: bool) -> None:
        self._server = server
        self._connection = server.connect()
        self.position = position
        self._base = ""
        self._crc = 0
        try:
            with server.errors():
                self._begin(server_id, position, blocking)
        except BaseException:
            self.close()
            raise

    def _begin(self, server_id: int, position: int, blocking: bool) -> None:
        connection: Any = self._connection
        execute(connection, "SET @master_binlog_checksum = @@global.binlog_checksum")
        execute(connection, "SET @mariadb_slave_capability = 4")
        execute(connection, f"SET @master_heartbeat_period = {_HEARTBEAT_SECONDS * 10**9}")
        number, offset = file_of(position), offset_of(position)
        if offset > _OFFSET_MAX:
            # Nothing but the end of its file can be there.
            number, offset = number + 1, FIRST_OFFSET
        start = struct.pack("<IHI", offset, 0 if blocking else _NON_BLOCK, server_id)
        self._base = log_base(connection)
        name = file_name(self._base, number)
        # The driver has no public call for the commands of a replica.
        connection._execute_command(COMMAND.COM_BINLOG_DUMP, start + name.encode())

    def events(self) -> Iterator[Event]:
        """Events as they come; those that only frame the others are not shown."""
        connection: Any = self._connection
        read = connection._read_packet
        with self._server.errors():
            while True:
                data: bytes = read().get_all_data()
                if data[0] == _EOF and len(data) < _EOF_BYTES:
                    return
                event = self._event(data)
                if event is not None:
                    yield event

    def _event(self, data: bytes) -> Event | None:
        time, kind, _, size, end, flags = _HEADER.unpack_from(data, 1)
        if kind == Type.FORMAT:
            # The body ends with how the events of this file are checked, and its own checksum.
            self._crc = _CRC_BYTES if data[-1 - _CRC_BYTES] == _CRC32 else 0
        if kind == Type.ROTATE:
            # The server makes up such an event before each file; the one in the file is its end.
            if flags & _ARTIFICIAL or time == 0:
                self._rotate(data)
            return None
        if end and not flags & _ARTIFICIAL:
            ahead = (end - offset_of(self.position)) & _OFFSET_MAX
            # A heartbeat repeats where the event before it ended.
            self.position += 0 if kind == Type.HEARTBEAT and ahead > 1 << 31 else ahead
        if kind not in _KNOWN and not flags & _IGNORABLE:
            raise SourceError(
                self._server.source,
                f"the binlog has an event of the unknown type {kind}",
                detail="it is of a server that is newer than this version of Viewkeeper",
                hint="update Viewkeeper",
            )
        body = data[1 + _HEADER.size : len(data) - self._crc]
        return Event(kind, time, self.position, body, size)

    def _rotate(self, data: bytes) -> None:
        """The next event is of another file."""
        body = data[1 + _HEADER.size :]
        start = 8 + len(self._base) + 1
        # A number has 6 or 7 digits; what is longer has a checksum behind it.
        digits = body[start:] if len(body) - start < 10 else body[start:-_CRC_BYTES]
        self.position = position_of(int(digits), struct.unpack_from("<Q", body)[0])

    @property
    def thread(self) -> int:
        """What the server calls the connection."""
        connection: Any = self._connection
        return int(connection.thread_id())

    def close(self) -> None:
        if self._connection.open:
            self._connection.close()


def event_after(server: Server, server_id: int, start: int) -> Event | None:
    """The event that begins at a position."""
    log = Log(server, server_id, start, blocking=False)
    try:
        return next((event for event in log.events() if event.position > start), None)
    finally:
        log.close()


def log_base(connection: Connection) -> str:
    """What the names of the binlog's files begin with."""
    return texts(connection, "SELECT @@global.log_bin_basename")[0][0].rpartition("/")[2]


def newest(connection: Connection) -> int:
    """The newest position that every snapshot from now on includes; that of a snapshot inside one.

    Not `SHOW MASTER STATUS`, which is ahead of it: a transaction is in the log a little before
    it is visible.
    """
    status = pairs(connection, "SHOW STATUS LIKE 'binlog_snapshot%'")
    name = status["Binlog_snapshot_file"]
    return position_of(number_of(name), int(status["Binlog_snapshot_position"])) if name else 0


def log_end(connection: Connection) -> int:
    """Where the log ends now; what comes later lies behind it."""
    status = texts(connection, "SHOW MASTER STATUS")
    return position_of(number_of(status[0][0]), int(status[0][1])) if status else 0


def log_files(connection: Connection) -> dict[int, int]:
    """The sizes of the binlog's files, by their numbers."""
    return {number_of(name): int(size) for name, size, *_ in texts(connection, "SHOW BINARY LOGS")}


def uncompressed(data: bytes) -> bytes:
    """What `log_bin_compress` has compressed: a byte of lengths, the length, then zlib's bytes."""
    width = data[0] & 0x07
    return zlib.decompress(data[1 + width :])


def length_coded(data: bytes, at: int) -> tuple[int, int]:
    """A number in the protocol's form of 1 to 9 bytes, and where it ends.

    >>> length_coded(bytes([252, 1, 2]), 0)
    (513, 3)
    """
    first = data[at]
    if first < 251:
        return first, at + 1
    width = {252: 2, 253: 3, 254: 8}[first]
    return int.from_bytes(data[at + 1 : at + 1 + width], "little"), at + 1 + width
