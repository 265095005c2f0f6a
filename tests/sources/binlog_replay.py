"""A binlog that a real server sent once, to be read again as it was, or damaged.

`binlog_packets.txt` has the packets of two logs of the same statements, one with checksums and one
without, in hexadecimal. The statements make the table `crm.t` with a column of most types, insert,
update and delete in it, plain and compressed, roll back to a savepoint, commit an XA transaction,
alter the table, empty it and drop it.
"""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from tests.sources.mariadb_database import Row
from viewkeeper.sources.mariadb.binlog.event_frames import BinlogEvent, BinlogEventType, EventFramer
from viewkeeper.sources.mariadb.binlog.shape_tracker import ShapeWatch
from viewkeeper.sources.mariadb.binlog.stream import BinlogStream, StreamPlan
from viewkeeper.sources.mariadb.logged_shapes import LoggedShape, LoggedShapes, ShapedColumn
from viewkeeper.sources.mariadb.server_connection import MariadbServer
from viewkeeper.sources.mariadb.types import DeclaredType
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.sources.stream.spool import Spool

BASE = "binlog"
_PACKETS = Path(__file__).with_name("binlog_packets.txt")
_HEADER_BYTES, _CRC_BYTES = 19, 4
_END = 1 << 62
_COLUMNS = {
    "id": "int(11)",
    "v": "varchar(40)",
    "d": "decimal(12,2)",
    "e": "enum('a','b')",
    "s": "set('x','y')",
    "m": "datetime(6)",
    "ts": "timestamp(3)",
    "da": "date",
    "y": "year(4)",
    "b": "blob",
    "f": "double",
    "bi": "bit(5)",
    "u": "bigint(20) unsigned",
    "c": "char(5)",
    "la": "varchar(300)",
    "un": "uuid",
}
_TEXTS = ("v", "e", "s", "c", "la")


class Recorded:
    """The packets of one log, and the position that they begin at."""

    def __init__(self, checksum: str) -> None:
        lines = _PACKETS.read_text().splitlines()
        first = next(i for i, line in enumerate(lines) if line.startswith(f"# {checksum} "))
        rest = lines[first + 1 :]
        last = next((i for i, line in enumerate(rest) if line.startswith("#")), len(rest))
        self.start = int(lines[first].split()[-1])
        self.packets = [bytes.fromhex(line) for line in rest[:last]]
        self.has_checksums = checksum == "CRC32"

    def place(self, type: BinlogEventType, number: int = 0) -> int:
        """Which packet has an event of this type, the first or a later one."""
        found = [i for i, packet in enumerate(self.packets) if packet[5] == type]
        return found[number]

    def transactions(self) -> Iterator[list[bytes]]:
        """Each transaction as a log of its own, with the packets that every log begins with."""
        begin = self.packets[:2]
        places = [i for i, packet in enumerate(self.packets) if packet[5] == BinlogEventType.GTID]
        for first, end in pairwise([*places, len(self.packets)]):
            events = (
                p
                for p in self.packets[first:end]
                if p[5] not in (BinlogEventType.ROTATE, BinlogEventType.FORMAT)
            )
            yield list(self.placed([*begin, *events]))

    def placed(self, packets: Iterable[bytes]) -> Iterator[bytes]:
        """Packets that say that they lie one behind the other, whatever their order."""
        at = self.start
        for packet in packets:
            fixed = bytearray(packet)
            if packet[5] not in (BinlogEventType.ROTATE, BinlogEventType.FORMAT):
                at += len(packet) - 1
                fixed[14:18] = struct.pack("<I", at & 0xFFFFFFFF)
            yield self.repaired(bytes(fixed))

    @property
    def made(self) -> int:
        """Where the table has been made."""
        events = Replay(self.packets, self.start).read_events()
        return next(event.position for event in events if event.type == BinlogEventType.QUERY)

    def repaired(self, packet: bytes) -> bytes:
        """A packet with the length and the checksum that its bytes should have."""
        fixed = bytearray(packet)
        fixed[10:14] = struct.pack("<I", (len(packet) - 1) & 0xFFFFFFFF)
        if self.has_checksums and len(fixed) > _HEADER_BYTES + _CRC_BYTES:
            fixed[-_CRC_BYTES:] = struct.pack("<I", zlib.crc32(fixed[1:-_CRC_BYTES]))
        return bytes(fixed)


class Replay:
    """Stands for the connection that a server sends its log by."""

    thread = 0

    def __init__(self, packets: Sequence[bytes], start: int, after: int = 0) -> None:
        self._packets = packets
        self._after = after
        self._frame = EventFramer("crm", BASE, start)

    def read_events(self) -> Iterator[BinlogEvent]:
        for packet in self._packets:
            event = self._frame.read_event(packet)
            if event is not None and event.position > self._after:
                yield event
        # Behind the last packet nothing is waited for: a file begins that is never reached.
        yield BinlogEvent(BinlogEventType.FORMAT, 0, _END, b"", 0)

    def close(self) -> None:
        """There is no connection."""


def make_reader(
    recorded: Recorded, folder: Path, patch: pytest.MonkeyPatch, since: int = 0
) -> Callable[[Sequence[bytes]], Counter[Row]]:
    """A function that reads packets to the end, through all of the reader, as changes of the
    table: rows and how often they came. What was done to the table up to `since` is not its
    past."""
    unused = {"url": "mariadb://nobody@127.0.0.1:1/crm"}
    server = MariadbServer(SourceSettings("crm", "mariadb", unused, str(folder), str(folder)))
    shapes = LoggedShapes({"t": shape_of_table(since)})
    watch = ShapeWatch(shapes, recorded.start, {"t": tuple(_COLUMNS)})

    log: list[Sequence[bytes]] = [()]

    def begin(_server: MariadbServer, _id: int, position: int, **_: bool) -> Replay:
        return Replay(log[0], recorded.start, position)

    def event_after(_server: MariadbServer, _id: int, start: int) -> BinlogEvent | None:
        return next(Replay(log[0], recorded.start, start).read_events(), None)

    patch.setattr("viewkeeper.sources.mariadb.binlog.stream.BinlogReader", begin)
    patch.setattr("viewkeeper.sources.mariadb.binlog.stream.read_event_after", event_after)

    def read(packets: Sequence[bytes]) -> Counter[Row]:
        log[0] = packets
        spool = Spool(folder)
        stream = BinlogStream(StreamPlan(server, watch, recorded.start, 1, folder), spool)
        try:
            stream.advance_to(_END)
            found = _rows(spool)
        finally:
            stream.disconnect()
            spool.clear_all()
        if stream.halted is not None:
            raise stream.halted
        return found

    return read


def _rows(spool: Spool) -> Counter[Row]:
    found: Counter[Row] = Counter()
    for batch in spool.changes_of("t", 0, _END):
        names = [name for name in batch.schema.names if name != "_count"]
        columns = [batch[name].to_pylist() for name in names]
        for *row, count in zip(*columns, batch["_count"].to_pylist(), strict=True):
            found[tuple(row)] += count
    return found


def shape_of_table(since: int = 0) -> LoggedShape:
    """The table as it was made."""
    columns = tuple(
        ShapedColumn(name, name, DeclaredType(type, "utf8mb4" if name in _TEXTS else ""))
        for name, type in _COLUMNS.items()
    )
    return LoggedShape("t", "crm", "t", columns, ("id",), "utf8mb4", since=since)
