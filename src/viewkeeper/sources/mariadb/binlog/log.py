"""The binlog as a sequence of events, read as a replica reads it.

A replica that comes says that it understands checksums and GTID events, how often it wants to hear
something while nothing happens, and where to begin. `event_frames` makes events of what the server
sends then, `stream` makes transactions of the events.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from typing import Any
from zlib import crc32

import pymysql
from pymysql.constants import COMMAND, CR

from viewkeeper.sources.mariadb.binlog.event_frames import OFFSET_MAX, BinlogEvent, EventFramer
from viewkeeper.sources.mariadb.byte_codes import LARGEST_BYTES
from viewkeeper.sources.mariadb.position import (
    FIRST_OFFSET,
    file_name_of,
    file_number_of,
    file_of,
    offset_of,
    position_of,
)
from viewkeeper.sources.mariadb.server_connection import (
    Connection,
    MariadbServer,
    fetch_pairs,
    fetch_texts,
    refuse_nonsense,
    run_statement,
    translate_error,
)
from viewkeeper.sources.stream.socket_hint import NO_STREAM, count_waiting

_NUMBERS = count()
_HEARTBEAT_SECONDS = 5
_NON_BLOCK = 0x01
_EOF, _ERROR = b"\xfe", b"\xff"
_EOF_BYTES = 9
_PACKET_HEADER, _LARGEST_PACKET = 4, 0xFFFFFF


class BinlogReader:
    """The events from a position on; `blocking` waits for more at the end, else it ends there."""

    def __init__(
        self, server: MariadbServer, server_id: int, position: int, *, blocking: bool
    ) -> None:
        self._server = server
        self._connection = server.open_connection()
        self._frame = EventFramer(server.source, "", position)
        self._file: Any = None
        self._number = 0
        try:
            with server.translate_errors():
                self._request_dump(server_id, position, blocking)
        except BaseException:
            self.close()
            raise

    def _request_dump(self, server_id: int, position: int, blocking: bool) -> None:
        connection: Any = self._connection
        run_statement(connection, "SET @master_binlog_checksum = @@global.binlog_checksum")
        run_statement(connection, "SET @mariadb_slave_capability = 4")
        run_statement(connection, f"SET @master_heartbeat_period = {_HEARTBEAT_SECONDS * 10**9}")
        number, offset = file_of(position), offset_of(position)
        if offset > OFFSET_MAX:
            # Nothing but the end of its file can be there.
            number, offset = number + 1, FIRST_OFFSET
        start = struct.pack("<IHI", offset, 0 if blocking else _NON_BLOCK, server_id)
        base = read_log_base(connection)
        self._frame = EventFramer(self._server.source, base, position)
        name = file_name_of(base, number)
        # The driver has no public call for the commands of a replica.
        connection._execute_command(COMMAND.COM_BINLOG_DUMP, start + name.encode())
        connection._sock.settimeout(connection._read_timeout)
        self._file, self._number = connection._rfile, 1

    def read_events(self) -> Iterator[BinlogEvent]:
        """Events as they come; those that only frame the others are not shown."""
        while True:
            try:
                data = self._read_packet()
            except (pymysql.Error, OSError) as error:
                raise translate_error(self._server.source, error) from None
            if len(data) < _EOF_BYTES and data[:1] == _EOF:
                return
            event = self._frame.read_event(data)
            if event is not None:
                yield event

    def _read_packet(self) -> bytes:
        """The next packet; as the driver reads it, which does much more for each."""
        data, length = b"", _LARGEST_PACKET
        while length == _LARGEST_PACKET:
            header = self._read_bytes(_PACKET_HEADER)
            length = header[0] | header[1] << 8 | header[2] << 16
            if header[3] != self._number or len(data) > LARGEST_BYTES:
                raise pymysql.err.OperationalError(CR.CR_MALFORMED_PACKET, "packets are missing")
            self._number = self._number + 1 & 0xFF
            more = self._read_bytes(length)
            data = data + more if data else more
        if data[:1] == _ERROR:
            with refuse_nonsense(self._connection):
                pymysql.err.raise_mysql_exception(data)
        return data

    def _read_bytes(self, size: int) -> bytes:
        found: bytes = self._file.read(size)
        if len(found) < size:
            raise pymysql.err.OperationalError(CR.CR_SERVER_LOST, "the connection was lost")
        return found

    @property
    def thread_id(self) -> int:
        """What the server calls the connection."""
        connection: Any = self._connection
        return int(connection.thread_id())

    @property
    def waiting_bytes(self) -> int:
        """How many bytes the server has sent that were not read from the socket yet."""
        connection: Any = self._connection
        socket = connection._sock
        return NO_STREAM if socket is None else count_waiting(socket.fileno())

    def close(self) -> None:
        if self._connection.open:
            self._connection.close()


def make_server_id(reader: str) -> int:
    """A number that no other reader of the binlog has: the server knows its replicas by it."""
    text = f"{reader} {os.uname().nodename} {os.getpid()} {next(_NUMBERS)}"
    return crc32(text.encode()) | 1 << 31


def read_event_after(server: MariadbServer, server_id: int, start: int) -> BinlogEvent | None:
    """The event that begins at a position."""
    with closing(BinlogReader(server, server_id, start, blocking=False)) as log:
        return next((event for event in log.read_events() if event.position > start), None)


def read_log_base(connection: Connection) -> str:
    """What the names of the binlog's files begin with."""
    return fetch_texts(connection, "SELECT @@global.log_bin_basename")[0][0].rpartition("/")[2]


def read_newest_position(connection: Connection) -> int:
    """The newest position that every snapshot from now on includes; that of a snapshot inside one.

    Not `SHOW MASTER STATUS`, which is ahead of it: a transaction is in the log a little before
    it is visible.
    """
    status = fetch_pairs(connection, "SHOW STATUS LIKE 'binlog_snapshot%'")
    name = status["Binlog_snapshot_file"]
    return position_of(file_number_of(name), int(status["Binlog_snapshot_position"])) if name else 0


def read_log_end(connection: Connection) -> int:
    """Where the log ends now; what comes later lies behind it."""
    status = fetch_texts(connection, "SHOW MASTER STATUS")
    return position_of(file_number_of(status[0][0]), int(status[0][1])) if status else 0


def read_log_files(connection: Connection) -> dict[int, int]:
    """The sizes of the binlog's files, by their numbers."""
    return {
        file_number_of(name): int(size)
        for name, size, *_ in fetch_texts(connection, "SHOW BINARY LOGS")
    }
