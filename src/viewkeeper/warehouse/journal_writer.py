"""The journal as its one writer has it: a segment that the head names, and what is doubtful.

There is one segment at a time. It is made when it is first needed, and `head.json` names it before
anything is written to it. It ends when everything in it is in tables and `head.json` names another
one, or none; a reader that still has the older head does not find it, and reads the head again.

A process that has lost its lock must not make others believe anything. The lock is confirmed before
a write and again after its sync: if it was still held then, whoever takes over has read the write,
because the journal is read after the lock is taken; if not, nothing is shown or acknowledged.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from viewkeeper.errors import WarehouseError
from viewkeeper.storage import stored_files
from viewkeeper.storage.disk import Guard
from viewkeeper.storage.journal_file import BEGIN, Frame
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.storage.storage_protocol import JournalSegment
from viewkeeper.storage.stored_files import storage_of
from viewkeeper.warehouse.metadata.head import NAME, Head, encode_head
from viewkeeper.warehouse.metadata.journal_tail import (
    FOLDER,
    JournalPlace,
    JournalTail,
    decode_tail,
)

SEGMENT_BYTES = 8 << 20
SEGMENT_END = 4 << 20
"""So large is a segment when it is made; from there on the next flush begins a new one."""


class JournalWriter:
    """The segment of a warehouse that is open for writing, if there is one."""

    def __init__(self, root: StoragePath, guard: Guard) -> None:
        self._root = root
        self._guard = guard
        self._storage = storage_of(root)
        self._file: JournalSegment | None = None
        self._going = range(0)
        """Numbers of a lasting journal that were flushed before the last flush, or go with it."""
        self.failure: BaseException | None = None
        """What failed, after which only another start can say what holds."""

    @property
    def is_open(self) -> bool:
        return self._file is not None

    @property
    def is_lasting(self) -> bool:
        """Whether there is one journal without end, by which everything is committed."""
        return self._storage.has_lasting_journal

    def continue_journal(self, at: JournalPlace) -> None:
        """Write to a lasting journal, from a place on."""
        self._file = self._storage.commits.continue_journal(at.path_below(self._root), at.mark)
        self._going = range(at.offset, at.offset)

    @property
    def is_long(self) -> bool:
        """Whether it is time for a new segment."""
        if self._file is None or self.is_lasting:
            return False
        return self._file.end.offset >= SEGMENT_END

    @property
    def place(self) -> JournalPlace | None:
        """Where the next frame will be."""
        if self._file is None:
            return None
        return JournalPlace(self._file.path.name, self._file.end.offset, self._file.end.sequence)

    def begin_segment(self, head: Head, frames: Sequence[tuple[int, bytes]] = ()) -> Head:
        """Write to a new segment from now on, which has these frames; everything before them is in
        `head`. The same head, naming the segment."""
        stored_files.make_folder(self._root / FOLDER)
        unique = uuid.uuid4()
        name = f"{head.record + 1:020d}-{unique.hex[:8]}.vkj"
        number = unique.int >> 64
        file = self._storage.commits.create_segment(
            self._root / FOLDER, name, number, SEGMENT_BYTES
        )
        if frames:
            file.show_mark(file.append_frames(frames))
        named = replace(head, journal=JournalPlace(name, BEGIN.offset, BEGIN.sequence))
        self.write_head(named)
        self.remove_segment()
        self._file = file
        return named

    def copy_frames(self, head: Head, frames: Sequence[Frame]) -> tuple[Head, JournalTail]:
        """Begin a segment with frames that another process has left; the head, and the tail.

        They are written again because a sync of theirs may have failed, and because that process
        may still live and not know that it has lost its lock.
        """
        named = self.begin_segment(head, [(frame.kind, frame.data) for frame in frames])
        assert self._file is not None
        return named, decode_tail(
            self._storage.commits.read_prefix(self._file.path, BEGIN), self._file.path
        )

    def append_frames(self, frames: Sequence[tuple[int, bytes]]) -> None:
        """Make frames durable and show them to readers."""
        assert self._file is not None
        self._guard()
        try:
            mark = self._file.append_frames(frames)
        except BaseException as error:
            if not self._file.is_usable:
                self.failure = error
            raise
        with self.doubting():
            self._guard()
            self._file.show_mark(mark)

    @contextmanager
    def doubting(self) -> Iterator[None]:
        """What fails in here may have happened or not."""
        try:
            yield
        except BaseException as error:
            self.failure = error
            raise

    def refuse_failed(self) -> None:
        """A WarehouseError if something failed: what was under way must not be done half again."""
        if self.failure is not None:
            raise WarehouseError(
                f'warehouse "{self._root}": an earlier commit was interrupted',
                detail=" ".join(str(self.failure).split()) or None,
                hint="open the warehouse again: that finishes or forgets it, then go on",
            ) from self.failure

    def write_head(self, head: Head) -> None:
        """Replace `head.json`."""
        with self.doubting():
            stored_files.replace_file(self._root / NAME, encode_head(head), self._guard)
        if self.is_lasting:
            self._remove_flushed(head)

    def _remove_flushed(self, head: Head) -> None:
        """Remove the parts of a lasting journal that the head of before had in tables already.

        Those that only this one has stay until the next flush, for readers of the one before.
        """
        assert self._file is not None
        assert head.journal is not None
        going, at = self._going, head.journal.offset
        # What is left is removed at the next start.
        with suppress(WarehouseError):
            self._storage.commits.remove_numbers(self._file.path, going)
        self._going = range(going.stop, max(going.stop, at))

    def remove_segment(self) -> None:
        """Remove the segment, which no head names any more."""
        before, self._file = self._file, None
        if before is not None:
            before.close()
            stored_files.remove_file(before.path)

    def abandon_segment(self) -> None:
        """Leave the segment to the next start."""
        before, self._file = self._file, None
        if before is not None:
            before.close()
