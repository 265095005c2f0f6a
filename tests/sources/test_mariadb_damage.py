"""A binlog that is damaged, or that somebody has written who is no MariaDB: an error of the source
that says so, never other rows, a loop without an end, or more memory than there is."""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.sources.binlog_replay import Recorded, make_reader
from tests.sources.mariadb_database import Database, Row, look
from viewkeeper.errors import SourceError
from viewkeeper.sources.mariadb.binlog.event_frames import BinlogEventType
from viewkeeper.sources.mariadb.byte_codes import MalformedBytesError, decompress_bytes
from viewkeeper.sources.mariadb.position import file_name_of, file_of, offset_of
from viewkeeper.testing.private_servers import PrivateMariadb

Read = Callable[[Sequence[bytes]], Counter[Row]]
COLUMNS = ["id", "v"]
_BODY = 20


@pytest.fixture(params=["CRC32", "NONE"])
def recorded(request: pytest.FixtureRequest) -> Recorded:
    return Recorded(request.param)


@pytest.fixture
def read(recorded: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    return make_reader(recorded, tmp_path, monkeypatch, recorded.made)


def test_what_was_recorded_is_read(recorded: Recorded, read: Read) -> None:
    found = read(recorded.packets)
    assert {row[0] for row in found} == {1, 2, 3, 5, 6, 8, 9, 11, 77}
    assert sum(found.values()) == 8


def changed(
    recorded: Recorded,
    type: BinlogEventType,
    change: Callable[[bytearray], object],
    number: int = 0,
) -> list[bytes]:
    """The packets, one of them with another body, and with length and checksum right."""
    packets = list(recorded.packets)
    place = recorded.place(type, number)
    end = len(packets[place]) - (4 if recorded.has_checksums else 0)
    body = bytearray(packets[place][_BODY:end])
    change(body)
    made = packets[place][:_BODY] + bytes(body) + packets[place][end:]
    packets[place] = recorded.repaired(made)
    return packets


def test_every_bit_of_a_checked_log_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = Recorded("CRC32")
    read = make_reader(recorded, tmp_path, monkeypatch, recorded.made)
    place = recorded.place(BinlogEventType.WRITE_V1)
    for at in range(1, len(recorded.packets[place])):
        packet = bytearray(recorded.packets[place])
        packet[at] ^= 4
        packets = [*recorded.packets[:place], bytes(packet)]
        with pytest.raises(SourceError, match=r"is damaged after position \d{6}:\d+\n") as caught:
            read(packets)
        assert "viewkeeper refresh" in (caught.value.hint or "")


def test_a_table_without_columns_has_no_rows(recorded: Recorded, read: Read) -> None:
    def without_columns(body: bytearray) -> None:
        body[:] = body[:8] + b"\x03crm\0\x01t\0" + b"\0\0"

    def rows(body: bytearray) -> None:
        body[:] = body[:8] + b"\0" + bytes(20)

    packets = changed(recorded, BinlogEventType.TABLE_MAP, without_columns)
    write = recorded.place(BinlogEventType.WRITE_V1)
    packets[write] = changed(recorded, BinlogEventType.WRITE_V1, rows)[write]
    with pytest.raises(SourceError, match="damaged") as caught:
        read(packets)
    assert "no columns" in (caught.value.detail or "")


@pytest.mark.parametrize(
    ("type", "change", "complaint"),
    [
        (
            BinlogEventType.WRITE_V1,
            lambda body: body.__setitem__(body.index(b"\1x"), 240),
            "a row ends",
        ),
        (BinlogEventType.WRITE_V1, lambda body: body.__delitem__(slice(-3, None)), "a row ends"),
        (BinlogEventType.WRITE_V1, lambda body: body.__setitem__(8, 15), "15 columns"),
        (
            BinlogEventType.TABLE_MAP,
            lambda body: body.__setitem__(8, 200),
            "200 bytes were announced",
        ),
        (BinlogEventType.GTID, lambda body: body.__delitem__(slice(5, None)), "were announced"),
        (BinlogEventType.QUERY, lambda body: body.__setitem__(12, 255), "were announced"),
        (BinlogEventType.XA_PREPARE, lambda body: body.clear(), "were announced"),
    ],
)
def test_lengths_are_not_believed(
    recorded: Recorded,
    read: Read,
    type: BinlogEventType,
    change: Callable[[bytearray], object],
    complaint: str,
) -> None:
    with pytest.raises(SourceError) as caught:
        read(changed(recorded, type, change))
    assert complaint in str(caught.value)


def test_an_update_has_both_images(recorded: Recorded, read: Read) -> None:
    inserted = recorded.packets[recorded.place(BinlogEventType.WRITE_V1, 1)][_BODY:]
    image = inserted[11:-4] if recorded.has_checksums else inserted[11:]
    packets = changed(
        recorded, BinlogEventType.UPDATE_V1, lambda body: body.__setitem__(slice(13, None), image)
    )
    with pytest.raises(SourceError, match="damaged") as caught:
        read(packets)
    assert "what it became is not there" in (caught.value.detail or "")


def test_what_is_compressed_has_the_length_that_it_says() -> None:
    bomb = zlib.compress(bytes(1 << 28))
    for said in (100, 1 << 20, (1 << 28) + 1):
        with pytest.raises(MalformedBytesError, match="another length"):
            decompress_bytes(b"\x84" + struct.pack(">I", said) + bomb)
    with pytest.raises(MalformedBytesError, match="too large"):
        decompress_bytes(b"\x85" + (1 << 35).to_bytes(5, "big") + bomb)


def test_a_damaged_event_is_compressed(recorded: Recorded, read: Read) -> None:
    for type in (BinlogEventType.WRITE_COMPRESSED_V1, BinlogEventType.QUERY_COMPRESSED):
        with pytest.raises(SourceError, match="damaged"):
            read(changed(recorded, type, lambda body: body.__setitem__(-9, body[-9] ^ 1)))


def test_a_damaged_file_stops_before_the_damage_and_goes_on_when_it_is_mended(
    mariadb_server: PrivateMariadb, tmp_path: Path
) -> None:
    database = Database(mariadb_server, "damage", tmp_path)
    database.run("SET GLOBAL binlog_checksum = CRC32", "CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    source = database.source()
    after = source.follow_tables({"t": COLUMNS})
    database.run("INSERT INTO t VALUES (1, 1)")
    (whole,) = look(source, after)
    source.close()
    database.run("INSERT INTO t VALUES (2, 77)")
    file = mariadb_server.folder / "data" / file_name_of("binlog", file_of(whole.position))
    intact = file.read_bytes()
    at = intact.index(struct.pack("<II", 2, 77), offset_of(whole.position))
    with file.open("r+b") as opened:
        opened.seek(at + 4)
        opened.write(b"\x4c")
    source = database.source()
    assert [one.changes for one in source.look_for_transactions(after)] == [1], (
        "what lies before it is reported"
    )
    with pytest.raises(SourceError, match="damaged") as caught:
        source.look_for_transactions(whole.position)
    assert "checksum" in (caught.value.detail or "")
    with file.open("r+b") as opened:
        opened.seek(at + 4)
        opened.write(b"\x4d")
    assert [one.changes for one in source.look_for_transactions(whole.position)] == [1]
    source.close()
