"""Damaged binlogs of MariaDB, through the whole reader to rows; and damaged statements in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from tests.fuzz.mutation import fuzz, fuzz_text
from tests.sources.binlog_replay import Recorded, make_reader, shape_of_table
from viewkeeper.sources.mariadb.binlog.event_frames import BinlogEventType
from viewkeeper.sources.mariadb.binlog.table_map import read_table_map
from viewkeeper.sources.mariadb.byte_codes import MalformedBytesError
from viewkeeper.sources.mariadb.ddl.shape_effect import effect_of
from viewkeeper.sources.mariadb.ddl.statement import LoggedStatement
from viewkeeper.sources.mariadb.logged_shapes import LoggedShapes

STATEMENTS = (
    "ALTER TABLE t ADD COLUMN a INT NOT NULL DEFAULT 3 AFTER id, DROP COLUMN v, ADD KEY k (d)",
    "ALTER TABLE `crm`.`t` MODIFY v VARCHAR(60) CHARACTER SET utf8mb4, CHANGE f g FLOAT(20)",
    "alter ignore table t add (x enum('a','b''c') , y decimal(10,2) unsigned), rename to crm.t9",
    "ALTER TABLE t RENAME COLUMN f TO g, RENAME INDEX a TO b, CONVERT TO CHARACTER SET utf8mb4",
    "ALTER TABLE t ADD FOREIGN KEY (id) REFERENCES o (id) ON DELETE CASCADE, ENGINE=InnoDB",
    "ALTER TABLE t ADD z INT GENERATED ALWAYS AS (id + 1) STORED, ADD SYSTEM VERSIONING",
    "ALTER TABLE t EXCHANGE PARTITION p WITH TABLE u, TRUNCATE PARTITION q, COMMENT 'a, b'",
    "RENAME TABLE t TO t1, crm.t2 TO t, `a.b`.c TO d",
    "DROP TABLE IF EXISTS t, `t``2` /* generated */",
    "CREATE OR REPLACE TABLE t LIKE other",
    "CREATE UNIQUE INDEX i ON t (v)",
    "SET STATEMENT max_statement_time=1 FOR TRUNCATE TABLE t",
    "/*!40000 ALTER TABLE t DISABLE KEYS */",
    "INSERT INTO t SELECT * FROM u -- by hand\n",
    "DROP DATABASE IF EXISTS crm",
    "ALTER TABLE t MODIFY c NATIONAL CHARACTER VARYING(20), MODIFY la LONG VARBINARY, FORCE",
)


def framed(packets: Sequence[bytes]) -> bytes:
    """Packets as the network has them: with their lengths before them."""
    return b"".join(len(packet).to_bytes(3, "little") + b"\0" + packet for packet in packets)


def packets_in(data: bytes) -> Iterator[bytes]:
    at = 0
    while at + 4 <= len(data):
        end = at + 4 + int.from_bytes(data[at : at + 3], "little")
        yield data[at + 4 : end]
        at = end


@pytest.mark.parametrize("checksum", ["CRC32", "NONE"])
def test_binlog(scratch: Path, monkeypatch: pytest.MonkeyPatch, checksum: str) -> None:
    recorded = Recorded(checksum)
    read = make_reader(recorded, scratch, monkeypatch)
    seeds = [framed(packets) for packets in recorded.transactions()]
    fuzz(lambda data: read(list(packets_in(data))), seeds, inputs=2000)


def test_binlog_event(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One event is damaged, but its length and checksum say that it is whole: what is read of its
    body must not believe it."""
    recorded = Recorded("CRC32")
    read = make_reader(recorded, scratch, monkeypatch)
    logs = list(recorded.transactions())
    seeds = [
        bytes([number, place]) + packets[place][20:-4]
        for number, packets in enumerate(logs)
        for place in range(len(packets))
    ]

    def read_one(data: bytes) -> None:
        number, place = (*data[:2], 0, 0)[:2]
        packets = list(logs[number % len(logs)])
        place %= len(packets)
        packets[place] = recorded.repaired(packets[place][:20] + data[2:] + bytes(4))
        read(packets)

    fuzz(read_one, seeds, inputs=2000)


@pytest.mark.parametrize("wire", [0xF7, 0xF8])
def test_labels_come_as_text_or_not_at_all(wire: int) -> None:
    """ENUM and SET have no description of their own; it was looked for all the same."""
    with pytest.raises(MalformedBytesError, match="comes as text only"):
        read_table_map(b"\x03crm\0\x01t\0\x01" + bytes([wire]) + b"\0\0")


def test_binlog_order(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole events, left out, doubled and in another order; their places in the log are right."""
    recorded = Recorded("CRC32")
    read = make_reader(recorded, scratch, monkeypatch)
    events = recorded.packets
    places = [number for number, packet in enumerate(events) if packet[5] == BinlogEventType.GTID]
    seeds = [bytes([0, 1, *range(first, end)]) for first, end in pairwise([*places, len(events)])]

    def read_order(data: bytes) -> None:
        chosen = [events[number % len(events)] for number in data[:60]]
        read(list(recorded.placed(chosen)))

    fuzz(read_order, seeds, inputs=2000)


def test_statement() -> None:
    shapes = LoggedShapes({"t": shape_of_table()})

    def read(text: str) -> None:
        for strict in (True, False):
            effect_of(LoggedStatement("crm", text, strict), shapes, 1 << 60, lambda _: "")

    fuzz_text(read, STATEMENTS, inputs=2000)
