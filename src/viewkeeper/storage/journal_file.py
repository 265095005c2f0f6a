"""A file to which frames are appended, each write durable when it returns.

A segment begins with a page of its own: what kind of file it is, the segment's id, and the *mark*.
Frames follow. A frame has a magic word, its kind, its place in the write that it came with, the
length of its data, its sequence number, the id of its segment, and a checksum of all of that and
the data. So whatever a crash leaves, the frames that count are the longest valid prefix: a frame
that is torn, zeroed, of another segment or out of sequence ends it.

All frames of one `append_frames` are one `write` and one `fdatasync`. A write comes only after the
one before it is durable. So a valid frame of a later write behind an invalid one is no torn end: it
is damage, and so is a mark beyond the prefix.

The *mark* says up to where readers may read. It is written after the sync and never synced itself,
so nobody has ever seen what a power cut takes back. Readers hold no lock.

The disk's refusals: a write that fails is cut off again, and the file can be used on; if that fails
too, or if a sync fails, it is never written to again. A sync that failed is not repeated, because
the kernel forgets what it could not write: whoever goes on copies the prefix into a new segment.
"""

from __future__ import annotations

import errno
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from viewkeeper.errors import CorruptError, WarehouseError
from viewkeeper.storage import disk

PAGE = 4096
DATA_MAX = 64 << 20
"""A frame that claims more data than this is none of ours."""

_WORD = b"VKJ1"
_HEADER = struct.Struct("<4sBxHIQQ")
_CHECK = struct.Struct("<I")
_MARK = struct.Struct("<QQ")
_PAGE_WORD = b"VKJ1 segment\0\0\0\0"
_PAGE_ID = struct.Struct("<16sQ")
_MARK_AT = 64
FRAME_BYTES = _HEADER.size + _CHECK.size


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame as it was read; `end` is the offset of the byte after it."""

    kind: int
    sequence: int
    data: bytes
    end: int


@dataclass(frozen=True, slots=True)
class Mark:
    """Up to where readers may read: an offset, and the sequence number of the next frame."""

    offset: int
    sequence: int


BEGIN = Mark(PAGE, 1)
"""Where the first frame of a segment is."""


class JournalFile:
    """A segment that is open for writing, by one process."""

    def __init__(self, path: Path, descriptor: int, segment: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._segment = segment
        self._is_closed = False
        self.is_usable = True
        """Whether more can be appended."""
        self.end = BEGIN
        """Where the next frame will be; everything before it is durable."""

    @staticmethod
    def create(path: Path, segment: int, size: int) -> JournalFile:
        """A new segment with room for `size` bytes, so that a full disk is met now."""
        with disk.translate_os_errors("create", path):
            with disk.open_new(path) as file:
                descriptor = os.dup(file.fileno())
            try:
                os.posix_fallocate(descriptor, 0, size)
                page = _PAGE_ID.pack(_PAGE_WORD, segment)
                page += _CHECK.pack(zlib.crc32(page))
                _write_whole(descriptor, page.ljust(PAGE, b"\0"), 0)
                os.fsync(descriptor)
                disk.sync_folder(path.parent)
            except BaseException:
                os.close(descriptor)
                path.unlink(missing_ok=True)
                raise
        journal = JournalFile(path, descriptor, segment)
        journal.show_mark(BEGIN)
        return journal

    def append_frames(self, frames: Sequence[tuple[int, bytes]]) -> Mark:
        """Make frames durable, all or none; the mark that shows them to readers."""
        if not self.is_usable:
            raise _unusable_error(self.path)
        data = encode_frames(frames, self._segment, self.end.sequence)
        with disk.translate_os_errors("write", self.path):
            try:
                _write_whole(self._descriptor, data, self.end.offset)
            except BaseException:
                self._cut_off()
                raise
        self.is_usable = False
        with disk.translate_os_errors("sync", self.path):
            os.fdatasync(self._descriptor)
        self.is_usable = True
        self.end = Mark(self.end.offset + len(data), self.end.sequence + len(frames))
        return self.end

    def show_mark(self, mark: Mark) -> None:
        """Let readers see everything before a mark; what it shows is durable already."""
        with disk.translate_os_errors("write", self.path):
            _write_whole(self._descriptor, _encode_mark(mark, self._segment), _MARK_AT)

    def close(self) -> None:
        """Nothing more is written; may be called twice."""
        if not self._is_closed:
            self._is_closed, self.is_usable = True, False
            os.close(self._descriptor)

    def _cut_off(self) -> None:
        """Remove what a failed write has left, so that nothing of it is ever taken for a frame."""
        self.is_usable = False
        os.ftruncate(self._descriptor, self.end.offset)
        self.is_usable = True


def encode_frames(frames: Sequence[tuple[int, bytes]], segment: int, sequence: int) -> bytes:
    """Frames as they are written together to a segment, the first with a sequence number."""
    pieces: list[bytes] = []
    for place, (kind, data) in enumerate(frames):
        header = _HEADER.pack(_WORD, kind, place, len(data), sequence + place, segment)
        pieces += [header, _CHECK.pack(zlib.crc32(data, zlib.crc32(header))), data]
    return b"".join(pieces)


def decode_frames(data: bytes, segment: int) -> list[Frame] | None:
    """The frames that are all of some data, from sequence number 1 on; None if it is not whole."""
    frames = list(_valid_frames(data, segment, Mark(0, 1)))
    return frames if frames and frames[-1].end == len(data) else None


def read_shown(path: Path, after: Mark) -> tuple[Mark, list[Frame]]:
    """The mark of a segment, and the frames between another one and that; for readers.

    FileNotFoundError if the segment is gone.
    """
    with open(path, "rb", buffering=0) as file:
        descriptor = file.fileno()
        segment = _read_segment_id(path, descriptor)
        mark = _read_mark(descriptor, segment)
        if mark is None or mark.offset <= after.offset:
            return after, []
        data = os.pread(descriptor, mark.offset - after.offset, after.offset)
    frames = list(_valid_frames(data, segment, after))
    if not frames or frames[-1].end != mark.offset or frames[-1].sequence + 1 != mark.sequence:
        read = frames[-1].end if frames else after.offset
        raise damaged_error(path, f"frames are whole up to byte {read}, shown up to {mark.offset}")
    return mark, frames


def read_shown_mark(path: Path) -> Mark | None:
    """The mark of a segment, which changes with every write; None if there is none to be read."""
    try:
        with open(path, "rb", buffering=0) as file:
            return _read_mark(file.fileno(), _read_segment_id(path, file.fileno()))
    except (OSError, CorruptError):
        return None


def read_prefix(path: Path, after: Mark) -> list[Frame]:
    """All frames behind a mark that are valid, shown or not; for a process that takes over.

    A CorruptError if the segment shows that there were more.
    """
    with open(path, "rb", buffering=0) as file:
        segment = _read_segment_id(path, file.fileno())
        mark = _read_mark(file.fileno(), segment)
        data = os.pread(file.fileno(), os.fstat(file.fileno()).st_size, after.offset)
    frames = list(_valid_frames(data, segment, after))
    end = frames[-1].end if frames else after.offset
    sequence = frames[-1].sequence + 1 if frames else after.sequence
    if mark is not None and mark.offset > end:
        raise damaged_error(path, f"frames are whole up to byte {end}, shown up to {mark.offset}")
    if _has_later_write(memoryview(data)[end - after.offset :], segment, sequence):
        raise damaged_error(path, f"the frame at byte {end} is not whole, and later ones are there")
    return frames


def damaged_error(path: object, detail: str) -> CorruptError:
    """The error for a segment that cannot be believed."""
    return CorruptError(
        f'warehouse file "{path}": not a journal that can be believed',
        detail=detail,
        hint="restore the warehouse from a backup; without one, remove the file and head.json's "
        "views are those of the last flush: then load all of them again",
    )


def _valid_frames(data: bytes, segment: int, after: Mark) -> Iterator[Frame]:
    view, at, sequence = memoryview(data), 0, after.sequence
    while (found := _frame_at(view, at, segment)) is not None and found[1] == sequence:
        kind, _, _, body = found
        at += FRAME_BYTES + len(body)
        yield Frame(kind, sequence, bytes(body), after.offset + at)
        sequence += 1


def _frame_at(view: memoryview, at: int, segment: int) -> tuple[int, int, int, memoryview] | None:
    """Kind, sequence number, place and data of the frame at an offset; None if there is none."""
    start = at + FRAME_BYTES
    if start > len(view):
        return None
    header = view[at : at + _HEADER.size]
    word, kind, place, length, sequence, found = _HEADER.unpack(header)
    if word != _WORD or found != segment or length > DATA_MAX or start + length > len(view):
        return None
    body = view[start : start + length]
    (check,) = _CHECK.unpack(view[at + _HEADER.size : start])
    if check != zlib.crc32(body, zlib.crc32(header)):
        return None
    return kind, sequence, place, body


def _has_later_write(view: memoryview, segment: int, sequence: int) -> bool:
    """Whether a valid frame of a write that began beyond a sequence number is anywhere in here."""
    data, at = bytes(view), 0
    while (at := data.find(_WORD, at)) >= 0:
        found = _frame_at(view, at, segment)
        if found is not None and found[1] - found[2] > sequence:
            return True
        at += 1
    return False


def _read_segment_id(path: Path, descriptor: int) -> int:
    page = os.pread(descriptor, _PAGE_ID.size + _CHECK.size, 0)
    if len(page) < _PAGE_ID.size + _CHECK.size:
        raise damaged_error(path, f"its first page has {len(page)} bytes")
    word, segment = _PAGE_ID.unpack(page[: _PAGE_ID.size])
    (check,) = _CHECK.unpack(page[_PAGE_ID.size :])
    if word != _PAGE_WORD or check != zlib.crc32(page[: _PAGE_ID.size]):
        raise damaged_error(path, "its first page is not that of a segment")
    return int(segment)


def _encode_mark(mark: Mark, segment: int) -> bytes:
    facts = _MARK.pack(mark.offset, mark.sequence)
    return facts + _CHECK.pack(zlib.crc32(facts, segment & 0xFFFFFFFF))


def _read_mark(descriptor: int, segment: int) -> Mark | None:
    """The mark; None if it is torn, which a power cut may do to it."""
    for _ in range(3):
        found = os.pread(descriptor, _MARK.size + _CHECK.size, _MARK_AT)
        if len(found) == _MARK.size + _CHECK.size:
            mark = Mark(*_MARK.unpack(found[: _MARK.size]))
            if found == _encode_mark(mark, segment):
                return mark
    return None


def _write_whole(descriptor: int, data: bytes, offset: int) -> None:
    written = os.pwrite(descriptor, data, offset)
    if written != len(data):
        raise OSError(errno.ENOSPC, f"{written} of {len(data)} bytes were written")


def _unusable_error(path: Path) -> WarehouseError:
    return WarehouseError(
        f'warehouse file "{path}": cannot write to it after an earlier failure',
        hint="open the warehouse again: that finds out what is on the disk, and goes on",
    )
