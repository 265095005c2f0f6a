"""The parts of pgoutput's messages, read out of the frames that carry them.

A frame is bytes of somebody else. What it says of itself is believed only as far as it agrees with
its length: every part must end inside, and the last one where the frame ends. Anything else is a
MalformedFrameError, never a value that was cut off.
"""

from __future__ import annotations

from struct import Struct

from viewkeeper.sources.stream.kept_rows import Row

PAYLOAD = 25
"""Where the message begins in a frame."""
UNCHANGED = b"\xff\xfe"
"""In place of a large value that an update left as it was."""

_TEXT, _NULL, _SAME = (ord(kind) for kind in "tnu")
_long, _short = Struct("!I").unpack_from, Struct("!H").unpack_from
_begin, _commit = Struct("!QQI").unpack_from, Struct("!BQQQ").unpack_from
_BEGIN_SIZE, _COMMIT_SIZE = 46, 51
# Positions and times are numbers with a sign, which they never have.
_NUMBER_MAX = 1 << 63
_TIME_MAX = 1 << 58


class MalformedFrameError(ValueError):
    """A frame does not have the form of what it says to be."""


def oid_of(frame: bytes) -> int:
    """The relation that a message is about."""
    return int(_long(frame, PAYLOAD + 1)[0])


def begin_of(frame: bytes) -> tuple[int, int, int]:
    """The position, commit time and id of the transaction that begins."""
    position, at, xid = _begin(frame, PAYLOAD + 1)
    if len(frame) != _BEGIN_SIZE or position >= _NUMBER_MAX or at >= _TIME_MAX:
        raise MalformedFrameError("a transaction begins with odd numbers")
    return position, at, xid


def commit_end(frame: bytes) -> int:
    """Where the log goes on after the transaction that has ended."""
    _, _, end, _ = _commit(frame, PAYLOAD + 1)
    if len(frame) != _COMMIT_SIZE or end >= _NUMBER_MAX:
        raise MalformedFrameError("a transaction ends with odd numbers")
    return int(end)


def row_at(frame: bytes, at: int, picks: tuple[int, ...], width: int) -> tuple[Row, int]:
    """The picked columns of the row of so many columns that begins at `at`, and where it ends."""
    values: Row = []
    append = values.append
    (count,) = _short(frame, at)
    if count != width:
        raise MalformedFrameError(f"a row has {count} columns, its relation {width}")
    at += 2
    for _ in range(count):
        kind = frame[at]
        if kind == _TEXT:
            start = at + 5
            at = start + _long(frame, at + 1)[0]
            append(frame[start:at])
        elif kind == _NULL:
            append(None)
            at += 1
        elif kind == _SAME:
            append(UNCHANGED)
            at += 1
        else:
            raise MalformedFrameError(f"a value of the unknown kind {kind}")
    if at > len(frame):
        raise MalformedFrameError("a value is longer than its message")
    return [values[pick] for pick in picks], at


def last_row(frame: bytes, at: int, picks: tuple[int, ...], width: int) -> Row:
    """The picked columns of a row that the frame ends with."""
    row, end = row_at(frame, at, picks, width)
    if end != len(frame):
        raise MalformedFrameError("something follows the last row of a message")
    return row


def emptied_oids(frame: bytes) -> set[int]:
    """The relations that a TRUNCATE has emptied."""
    (count,) = _long(frame, PAYLOAD + 1)
    if len(frame) != PAYLOAD + 6 + 4 * count:
        raise MalformedFrameError("a list of relations is not as long as it says")
    return {_long(frame, PAYLOAD + 6 + 4 * number)[0] for number in range(count)}


def mark_of(frame: bytes) -> tuple[bool, bytes, bytes]:
    """Whether a message is part of its transaction, its prefix, and what it says."""
    end = frame.find(b"\0", PAYLOAD + 10)
    if end < 0 or _long(frame, end + 1)[0] != len(frame) - end - 5:
        raise MalformedFrameError("a message is not as long as it says")
    return bool(frame[PAYLOAD + 1] & 1), frame[PAYLOAD + 10 : end], frame[end + 5 :]
