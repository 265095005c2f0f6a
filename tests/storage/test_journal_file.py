"""A segment after every accident: the frames that are read are those that were promised.

A file is cut or zeroed at every byte of its last frames, a write fails half way, a sync fails, a
process is killed at random moments while it tells what it has been promised.
"""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from viewkeeper.errors import CorruptError, WarehouseError
from viewkeeper.storage.journal_file import (
    BEGIN,
    FRAME_BYTES,
    PAGE,
    Frame,
    JournalFile,
    Mark,
    read_prefix,
    read_shown,
    read_shown_mark,
)

SMALL = 64 << 10


def made(path: Path, writes: list[list[bytes]], *, shown: int | None = None) -> list[Mark]:
    """A segment with these writes, of which the first are shown; where each write ended."""
    journal = JournalFile.create(path, 7, SMALL)
    ends = []
    for number, write in enumerate(writes):
        ends.append(journal.append_frames([(1, data) for data in write]))
        if shown is None or number < shown:
            journal.show_mark(ends[-1])
    journal.close()
    return ends


def data_of(frames: list[Frame]) -> list[bytes]:
    return [frame.data for frame in frames]


def test_frames_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "s.vkj"
    ends = made(path, [[b"a", b""], [b"b" * 1000]])
    mark, frames = read_shown(path, BEGIN)
    assert mark == ends[-1] == read_shown_mark(path)
    assert data_of(frames) == [b"a", b"", b"b" * 1000]
    assert [frame.sequence for frame in frames] == [1, 2, 3]
    assert data_of(read_shown(path, ends[0])[1]) == [b"b" * 1000]
    assert read_shown(path, ends[1]) == (ends[1], [])
    assert data_of(read_prefix(path, BEGIN)) == data_of(frames)


def test_readers_see_nothing_beyond_the_mark(tmp_path: Path) -> None:
    path = tmp_path / "s.vkj"
    ends = made(path, [[b"a"], [b"b"]], shown=1)
    assert read_shown(path, BEGIN)[0] == ends[0]
    assert data_of(read_shown(path, BEGIN)[1]) == [b"a"]
    assert data_of(read_prefix(path, BEGIN)) == [b"a", b"b"], "who takes over sees it"


def test_a_new_segment_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "s.vkj"
    made(path, [])
    assert read_shown(path, BEGIN) == (BEGIN, [])
    assert read_prefix(path, BEGIN) == []


def test_a_segment_that_is_gone_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_shown(tmp_path / "s.vkj", BEGIN)
    assert read_shown_mark(tmp_path / "s.vkj") is None


@pytest.mark.parametrize("zeroed", [False, True], ids=["cut", "zeroed"])
def test_a_torn_write_ends_the_prefix_at_the_last_whole_frame(tmp_path: Path, zeroed: bool) -> None:
    """What was promised is shown; the last write, which was not, is cut at each of its bytes."""
    path = tmp_path / "s.vkj"
    ends = made(path, [[b"first"], [b"one", b"the other"]], shown=1)
    whole = path.read_bytes()
    middle = ends[0].offset + FRAME_BYTES + len(b"one")
    for at in range(ends[0].offset, ends[1].offset):
        left = whole[:at]
        path.write_bytes(left.ljust(len(whole), b"\0") if zeroed else left)
        expected = [b"first", b"one"] if at >= middle else [b"first"]
        assert data_of(read_prefix(path, BEGIN)) == expected, f"cut at {at}"
        assert data_of(read_shown(path, BEGIN)[1]) == [b"first"]


def test_blocks_of_one_write_may_arrive_in_any_order(tmp_path: Path) -> None:
    path = tmp_path / "s.vkj"
    ends = made(path, [[b"first"], [b"one", b"the other"]], shown=1)
    tear(path, ends[0].offset + FRAME_BYTES)
    assert data_of(read_prefix(path, BEGIN)) == [b"first"]


def test_damage_before_a_later_write_is_no_torn_end(tmp_path: Path) -> None:
    path = tmp_path / "s.vkj"
    ends = made(path, [[b"first"], [b"one", b"the other"], [b"last"]], shown=1)
    tear(path, ends[0].offset + FRAME_BYTES)
    with pytest.raises(CorruptError, match="later ones are there"):
        read_prefix(path, BEGIN)


def test_what_was_shown_and_is_gone_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "s.vkj"
    ends = made(path, [[b"first"], [b"second"]])
    whole = path.read_bytes()
    for at in range(ends[0].offset, ends[1].offset):
        path.write_bytes(whole[:at])
        with pytest.raises(CorruptError, match="shown up to"):
            read_prefix(path, BEGIN)
        with pytest.raises(CorruptError, match="shown up to"):
            read_shown(path, BEGIN)


def test_a_torn_mark_shows_nothing_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.vkj"
    made(path, [[b"first"]])
    tear(path, 70)
    assert read_shown(path, BEGIN) == (BEGIN, [])
    assert read_shown_mark(path) is None
    assert data_of(read_prefix(path, BEGIN)) == [b"first"]


@pytest.mark.parametrize("at", [0, 17, 25])
def test_another_first_page_is_refused(tmp_path: Path, at: int) -> None:
    path = tmp_path / "s.vkj"
    made(path, [[b"first"]])
    tear(path, at)
    for read in (read_shown, read_prefix):
        with pytest.raises(CorruptError, match="first page"):
            read(path, BEGIN)


def test_frames_of_another_segment_are_none(tmp_path: Path) -> None:
    ends = made(tmp_path / "a.vkj", [[b"first"]])
    other = JournalFile.create(tmp_path / "b.vkj", 8, SMALL)
    other.close()
    stale = (tmp_path / "a.vkj").read_bytes()[PAGE : ends[0].offset]
    with open(tmp_path / "b.vkj", "r+b") as file:
        file.seek(PAGE)
        file.write(stale)
    assert read_prefix(tmp_path / "b.vkj", BEGIN) == []


def test_a_write_that_fails_half_way_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.vkj"
    journal = JournalFile.create(path, 7, SMALL)
    journal.append_frames([(1, b"first")])
    real = os.pwrite

    def short(descriptor: int, data: bytes, offset: int) -> int:
        return real(descriptor, data[:-3], offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", short)
        with pytest.raises(WarehouseError, match="cannot write"):
            journal.append_frames([(1, b"second"), (1, b"third")])
    assert path.stat().st_size == journal.end.offset
    end = journal.append_frames([(1, b"again")])
    journal.show_mark(end)
    journal.close()
    assert data_of(read_shown(path, BEGIN)[1]) == [b"first", b"again"]


def test_a_failed_sync_is_never_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = JournalFile.create(tmp_path / "s.vkj", 7, SMALL)

    def refuse(_: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", refuse)
        with pytest.raises(WarehouseError, match="cannot sync"):
            journal.append_frames([(1, b"first")])
    with pytest.raises(WarehouseError, match="earlier failure"):
        journal.append_frames([(1, b"first")])
    journal.close()


def test_a_full_disk_is_met_when_a_segment_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(WarehouseError, match="cannot create"):
        JournalFile.create(tmp_path / "s.vkj", 7, SMALL)
    assert not list(tmp_path.iterdir())


def test_random_damage_is_refused_or_costs_only_what_was_not_promised(tmp_path: Path) -> None:
    rng = random.Random(4711)
    path = tmp_path / "s.vkj"
    writes = [[rng.randbytes(rng.randrange(60)) for _ in range(3)] for _ in range(4)]
    ends = made(path, writes, shown=3)
    whole = bytearray(path.read_bytes())
    promised = [data for write in writes[:3] for data in write]
    for _ in range(2_000):
        damaged = bytearray(whole)
        at = rng.randrange(PAGE, ends[-1].offset)
        damaged[at] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged[: ends[-1].offset])
        try:
            found = data_of(read_prefix(path, BEGIN))
        except CorruptError:
            assert at < ends[2].offset
        else:
            assert found[: len(promised)] == promised


WRITER = """
import sys
from pathlib import Path
from viewkeeper.storage.journal_file import JournalFile
journal = JournalFile.create(Path(sys.argv[1]), 7, 65536)
for number in range(100_000):
    data = str(number).encode() * 50
    journal.show_mark(journal.append_frames([(1, data), (2, data)]))
    print(number, flush=True)
"""


def test_what_was_promised_survives_a_kill(tmp_path: Path) -> None:
    rng = random.Random(1)
    for attempt in range(3):
        path = tmp_path / f"{attempt}.vkj"
        command = [sys.executable, "-c", WRITER, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            promised = [process.stdout.readline() for _ in range(rng.randrange(1, 60))]
            process.send_signal(signal.SIGKILL)
            promised += [line for line in process.stdout if line.endswith("\n")]
        found = read_prefix(path, BEGIN)
        expected = [str(n).encode() * 50 for n in range(len(found) // 2) for _ in range(2)]
        assert data_of(found) == expected
        assert len(found) // 2 >= len(promised)
        assert len(read_shown(path, BEGIN)[1]) // 2 >= len(promised)


def tear(path: Path, at: int) -> None:
    """Flip a bit of a byte."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
