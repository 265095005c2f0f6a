"""What the events of a transaction say: how it begins, its row images, its statements.

Row events come in two forms, plain or compressed; statements too. All of that is undone here, so
that the stream deals with groups, images and text. What is not as MariaDB writes it is a
MalformedBytesError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from viewkeeper.sources.mariadb.binlog.event_frames import BinlogEvent, BinlogEventType
from viewkeeper.sources.mariadb.byte_codes import (
    MalformedBytesError,
    decompress_bytes,
    read_length,
    read_piece,
)
from viewkeeper.sources.mariadb.ddl.statement import LoggedStatement

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
        database.decode(errors="replace"),
        text.decode(errors="replace").strip(),
        _is_strict(status),
    )


def _is_strict(status: bytes) -> bool:
    """What is known of a session begins with its flags, by the number 0, and its mode, by 1."""
    known = status[:1] == b"\0" and status[5:6] == b"\1"
    return not known or bool(int.from_bytes(status[6:14], "little") & _STRICT)
