"""The framing of the binlog: which event a packet has, where it ends, its body.

A file may be larger than 4 GB, when its last transaction was large, and events tell only the lower
32 bits of their offset; the rest follows from the event before. An event that we do not know and
that the server does not mark as ignorable is an error: a change could be in it.

What must hold: an event has the length and the checksum that it says, and ends behind the one
before; else it is a MalformedError, and nothing of it is used.

Row events come in two forms, plain or compressed; statements too. All of that is undone here, so
that the stream deals with groups, images and text. What is not as MariaDB writes it is a
MalformedBytesError.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from viewkeeper.errors import SourceError
from viewkeeper.sources.mariadb.byte_codes import (
    MalformedBytesError,
    decompress_bytes,
    read_length,
    read_piece,
)
from viewkeeper.sources.mariadb.ddl.statement import LoggedStatement
from viewkeeper.sources.mariadb.position import LARGEST_FILE, LARGEST_OFFSET, offset_of, position_of

OFFSET_MAX = (1 << 32) - 1
"""The last offset of a file that a reader can be told to begin at."""

_HEADER = struct.Struct("<IBIIIH")
_ARTIFICIAL, _IGNORABLE = 0x20, 0x80
_OK = b"\0"
_NO_CHECKSUM, _CRC32, _CRC_BYTES = 0, 1, 4


class BinlogEventType(IntEnum):
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


_KNOWN = frozenset(int(kind) for kind in BinlogEventType)


# The number of a file has at least so many.
_DIGITS = 6


class BinlogEvent(NamedTuple):
    """One event: its type, the time in its header, the position at which it ends, its body.

    A tuple, because hundreds of thousands are made in a second.
    """

    type: int
    time: int
    position: int
    body: bytes
    size: int

    def make_mark(self) -> EventMark:
        return EventMark(self.position - self.size, self.time, zlib.crc32(self.body))


@dataclass(frozen=True, slots=True)
class EventMark:
    """Where an event begins, when it was written, and a checksum of it: another history of the
    server has another event at the same place."""

    start: int
    time: int
    checksum: int

    @property
    def can_be_read(self) -> bool:
        """Whether a reader can begin with the event."""
        return offset_of(self.start) <= OFFSET_MAX


class EventFramer:
    """Makes events of packets; `base` is what the names of the binlog's files begin with."""

    def __init__(self, source: str, base: str, position: int) -> None:
        self._source = source
        self._base = base
        self._crc = 0
        self.position = position

    def read_event(self, data: bytes) -> BinlogEvent | None:
        """The event in a packet; None if it says only where the next ones are."""
        if len(data) <= _HEADER.size or data[:1] != _OK:
            raise MalformedBytesError("a packet has no event")
        time, kind, _, size, end, flags = _HEADER.unpack_from(data, 1)
        if size != len(data) - 1:
            raise MalformedBytesError(f"an event of {size} bytes came as {len(data) - 1}")
        if kind == BinlogEventType.ROTATE:
            # The server makes up such an event before each file; the one in the file is its end.
            if flags & _ARTIFICIAL or time == 0:
                self._rotate_file(data)
            return None
        if kind == BinlogEventType.FORMAT:
            self._crc = _checksum_bytes(data, is_altered=not end)
        elif self._crc:
            _check_sum(data)
        if end and not flags & _ARTIFICIAL:
            self._move_position(kind, size, end)
        if kind not in _KNOWN and not flags & _IGNORABLE:
            raise SourceError(
                self._source,
                f"the binlog has an event of the unknown type {kind}",
                detail="it is of a server that is newer than this version of Viewkeeper",
                hint="update Viewkeeper",
            )
        body = data[1 + _HEADER.size : len(data) - self._crc]
        return BinlogEvent(kind, time, self.position, body, size)

    def _move_position(self, kind: int, size: int, end: int) -> None:
        """An event ends at these lower bits of an offset."""
        ahead = (end - offset_of(self.position)) & OFFSET_MAX
        if kind == BinlogEventType.HEARTBEAT:
            # It repeats where the event before it ended.
            ahead = 0 if ahead > 1 << 31 else ahead
        elif ahead < size:
            raise MalformedBytesError(f"an event of {size} bytes ends {ahead} bytes after another")
        if offset_of(self.position) + ahead > LARGEST_OFFSET:
            raise MalformedBytesError("an event ends beyond what a file can have")
        self.position += ahead

    def _rotate_file(self, data: bytes) -> None:
        """The next event is of another file."""
        body = data[1 + _HEADER.size :]
        start = 8 + len(self._base) + 1
        # A number has 6 or 7 digits; what is longer has a checksum behind it.
        digits = body[start:]
        if len(digits) >= _DIGITS + _CRC_BYTES:
            _check_sum(data)
            digits = digits[:-_CRC_BYTES]
        offset = int.from_bytes(read_piece(body, 0, 8), "little")
        named = body[8:start] == self._base.encode() + b"." and digits.isdigit()
        if not named or int(digits) > LARGEST_FILE or offset > LARGEST_OFFSET:
            raise MalformedBytesError(f"the binlog goes on in a file that is none: {body[8:60]!r}")
        position = position_of(int(digits), offset)
        if position < self.position:
            raise MalformedBytesError("the binlog goes on before where it was")
        self.position = position


def _checksum_bytes(data: bytes, *, is_altered: bool) -> int:
    """How many bytes of a checksum the events have behind a format event: its body ends with how
    they are checked, and its own checksum.

    To whoever begins in the middle of a file it is sent altered, and without checksums in the file
    its own is then wrong.
    """
    how = data[-1 - _CRC_BYTES]
    if how not in (_NO_CHECKSUM, _CRC32):
        raise MalformedBytesError(f"events are checked by a way that is none: {how}")
    if how == _CRC32 or not is_altered:
        _check_sum(data)
    return _CRC_BYTES if how == _CRC32 else 0


def _check_sum(data: bytes) -> None:
    """A MalformedError unless an event has the checksum at its end."""
    if zlib.crc32(data[1:-_CRC_BYTES]) != int.from_bytes(data[-_CRC_BYTES:], "little"):
        raise MalformedBytesError("an event has another checksum than it says")


_INSERTED, _DELETED, _UPDATED = (1,), (-1,), (-1, 1)
_FORMS = {
    _INSERTED: (
        BinlogEventType.WRITE_V1,
        BinlogEventType.WRITE_COMPRESSED_V1,
        BinlogEventType.WRITE,
        BinlogEventType.WRITE_COMPRESSED,
    ),
    _UPDATED: (
        BinlogEventType.UPDATE_V1,
        BinlogEventType.UPDATE_COMPRESSED_V1,
        BinlogEventType.UPDATE,
        BinlogEventType.UPDATE_COMPRESSED,
    ),
    _DELETED: (
        BinlogEventType.DELETE_V1,
        BinlogEventType.DELETE_COMPRESSED_V1,
        BinlogEventType.DELETE,
        BinlogEventType.DELETE_COMPRESSED,
    ),
}
SIGNS: Mapping[int, Sequence[int]] = {
    int(kind): signs for signs, kinds in _FORMS.items() for kind in kinds
}
"""The events with rows, and what the row images of each stand for, in turn."""

_WITH_EXTRA = {int(kind) for kinds in _FORMS.values() for kind in kinds[2:]}
_STANDALONE, _GROUP_COMMIT, _PREPARED, _COMPLETED = 1, 2, 64, 128
_QUERY_HEADER, _LOAD_HEADER = 13, 26
# STRICT_TRANS_TABLES and STRICT_ALL_TABLES, in the SQL mode that a statement was run in.
_STRICT = 3 << 21


@dataclass(frozen=True, slots=True)
class TransactionGroup:
    """A transaction as its first event announces it.

    `alone` is one statement without an end; `prepared` and `completed` are the halves of an XA
    transaction, whose `xid` they share.
    """

    alone: bool
    prepared: bool
    completed: bool
    xid: bytes


def group_of(event: BinlogEvent) -> TransactionGroup:
    """What a GTID event announces."""
    body, flags = event.body, read_piece(event.body, 12, 1)[0]
    start = 13 + (8 if flags & _GROUP_COMMIT else 0)
    xid = b""
    if flags & (_PREPARED | _COMPLETED):
        *_, first, second = read_piece(body, start, 6)
        xid = read_piece(body, start, 6 + first + second)
    return TransactionGroup(
        bool(flags & _STANDALONE), bool(flags & _PREPARED), bool(flags & _COMPLETED), xid
    )


def images_of(event: BinlogEvent, images: int, columns: int) -> tuple[bytes, int] | None:
    """The bytes with the row images of an event of a table with so many columns, and where the
    first one begins; None if the images have not all columns."""
    body, at = event.body, 8
    if event.type in _WITH_EXTRA:
        at += int.from_bytes(read_piece(body, 8, 2), "little")
    width, at = read_length(body, at)
    if width != columns:
        raise MalformedBytesError(f"rows have {width} columns, their table has {columns}")
    size, every = (width + 7) // 8, (1 << width) - 1
    for _ in range(images):
        if int.from_bytes(read_piece(body, at, size), "little") & every != every:
            return None
        at += size
    if event.type >= BinlogEventType.WRITE_COMPRESSED_V1:
        return decompress_bytes(body[at:]), 0
    return body, at


def statement_of(event: BinlogEvent) -> LoggedStatement:
    body = event.body
    start = _LOAD_HEADER if event.type == BinlogEventType.LOAD_STATEMENT else _QUERY_HEADER
    size, *_, low, high = read_piece(body, 8, 5)
    status = read_piece(body, start, low | high << 8)
    start += len(status)
    database = read_piece(body, start, size)
    text = body[start + size + 1 :]
    if event.type == BinlogEventType.QUERY_COMPRESSED:
        text = decompress_bytes(text)
    return LoggedStatement(
        database.decode(errors="replace"), text.decode(errors="replace").strip(), _is_strict(status)
    )


def _is_strict(status: bytes) -> bool:
    """What is known of a session begins with its flags, by the number 0, and its mode, by 1."""
    known = status[:1] == b"\0" and status[5:6] == b"\1"
    return not known or bool(int.from_bytes(status[6:14], "little") & _STRICT)
