"""What a warehouse asks of the storage that it lies in: a disk, or object storage.

A file is there whole or not at all, and what has returned is durable. `create_new` gives a free
name to content, once; `replace_file` exchanges content, and refuses where another writer was
faster. Those two carry everything else: a commit is the creation of the next number of a journal,
and a lock that can be lost is made harmless by that (`HeldLock`).

| | disk (`LocalStorage`) | object storage (`ObjectStorage`) |
| --- | --- | --- |
| `create_new` | link under a free name | put, if there is no object of that key |
| `replace_file` | rename | put, if the object is the one that was last seen |
| `begin_file` | written, synced, renamed | gathered in a temporary file, then put |
| lock | `flock`, and the name in the file | a lease: an object that its holder renews |
| journal | a segment, one synced write per commit | an object per commit |
| folders, syncs, permissions | as they are called | nothing |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from viewkeeper.storage.disk import Guard
from viewkeeper.storage.journal_file import Frame, Mark
from viewkeeper.storage.local_lock import LockHolder
from viewkeeper.storage.storage_path import StoragePath

Clock = Callable[[], float]


class HeldLock(Protocol):
    """The lock of a warehouse, held by this process."""

    @property
    def epoch(self) -> int:
        """How often the warehouse was taken, this time included."""

    @property
    def is_after_death(self) -> bool:
        """Whether the holder before has not given it back."""

    @property
    def predecessor(self) -> LockHolder | None:
        """The holder before, if it has not given it back: it died, or lost it."""

    def confirm_held(self) -> None:
        """Be sure that it is still held; LockedError says who has it instead."""

    def renew_lease(self) -> None:
        """Tell those who wait that the holder lives."""

    def release_lock(self, *, is_clean: bool = True) -> None:
        """Give it back; not clean: something that was sent may still be carried out."""


class NewFile(Protocol):
    """A file that is being written, and has its name when it is whole."""

    @property
    def place(self) -> StoragePath: ...

    @property
    def sink(self) -> BinaryIO: ...

    def finish_file(
        self, name: Callable[[Path], str], *, durable: bool = True
    ) -> tuple[StoragePath, int]:
        """Give the file the name that is computed from its content; where it is, and its size."""

    def abandon_file(self) -> None:
        """Leave nothing behind; may be called twice."""


class JournalSegment(Protocol):
    """A journal that is open for writing, by one process."""

    @property
    def path(self) -> StoragePath: ...

    @property
    def end(self) -> Mark:
        """Where the next frame will be."""

    @property
    def is_usable(self) -> bool:
        """Whether more can be appended."""

    def append_frames(self, frames: Sequence[tuple[int, bytes]]) -> Mark:
        """Make frames durable, all or none; the mark that shows them to readers."""

    def show_mark(self, mark: Mark) -> None:
        """Let readers see everything before a mark."""

    def close(self) -> None:
        """Nothing more is written; may be called twice."""


@dataclass(frozen=True, slots=True)
class TableAddress:
    """A Delta Lake table as the library `deltalake` names it."""

    url: str
    options: dict[str, str] | None


@dataclass(frozen=True, slots=True)
class FileFacts:
    """A file or folder as it is: its bytes, when it was last changed, in seconds since the epoch,
    and a mark that differs once it was changed or replaced."""

    size: int
    changed_at: float
    mark: object


class CommitStorage(Protocol):
    """The lock and the journal of warehouses: what makes one writer, and its commits."""

    def take_lock(
        self, root: StoragePath, holder: LockHolder, steady: Clock, over: object
    ) -> HeldLock:
        """Take a warehouse's lock now, or say who has it.

        `steady` is a clock that only goes forward. A lock that still is what `over` says
        (`LockedError.seen`) is taken from its holder.
        """

    def running_holder(self, root: StoragePath, now: float) -> LockHolder | None:
        """Who maintains a warehouse, as far as can be seen."""

    def create_segment(
        self, folder: StoragePath, name: str, segment: int, size: int
    ) -> JournalSegment:
        """Begin a segment of a journal."""

    def continue_journal(self, folder: StoragePath, at: Mark) -> JournalSegment:
        """Write to a lasting journal, from a mark on."""

    def seal_journal(self, folder: StoragePath, at: Mark) -> tuple[Mark, list[Frame]]:
        """Refuse what the last holder may still write; the mark behind the seal, and the frames."""

    def remove_numbers(self, folder: StoragePath, numbers: range) -> None:
        """Remove parts of a lasting journal whose rows are in tables."""

    def remove_older(self, folder: StoragePath, before: int) -> None:
        """Remove what earlier holders have left of a lasting journal."""

    def read_shown(self, segment: StoragePath, after: Mark) -> tuple[Mark, list[Frame]]:
        """The frames that readers may see behind a mark, and the mark behind them.

        FileNotFoundError if the segment is gone.
        """

    def read_prefix(self, segment: StoragePath, after: Mark) -> list[Frame]:
        """All frames behind a mark that are valid, shown or not; for a process that takes over."""

    def read_shown_mark(self, segment: StoragePath, after: Mark) -> object | None:
        """What changes with every write to a segment."""


class Storage(Protocol):
    """A disk, or a place in object storage."""

    @property
    def has_lasting_journal(self) -> bool:
        """Whether everything is committed by the journal, which has no end."""

    @property
    def commits(self) -> CommitStorage: ...

    @property
    def epoch(self) -> int:
        """That of the lock under which files are written; 0 where names need none."""

    # -- files -----------------------------------------------------------------------------------

    def create_new(self, place: StoragePath, data: bytes, guard: Guard) -> None:
        """Create a file that must not exist yet; FileExistsError if somebody else made it."""

    def replace_file(
        self, place: StoragePath, data: bytes, guard: Guard, *, durable: bool, whole: bool
    ) -> None:
        """Give a file new content; a reader sees the old or the new, whole."""

    def begin_file(self, folder: StoragePath, name: str) -> NewFile:
        """Begin a file of a folder, under a name that no other attempt has."""

    def remove_file(self, place: StoragePath) -> None: ...

    def remove_tree(self, folder: StoragePath) -> None: ...

    def file_facts(self, place: StoragePath) -> FileFacts | None:
        """What is known of a file or folder; None if it is not there."""

    def file_sizes(self, folder: StoragePath) -> dict[str, int]:
        """The bytes of all files of a folder, by their names."""

    def touch_file(self, place: StoragePath, at: float) -> None:
        """Let a file's time of last change be `at` or later."""

    def read_end(self, place: StoragePath, count: int) -> tuple[bytes, int]:
        """The last bytes of a file, `count` at most, and its size."""

    def parquet_source(self, place: StoragePath) -> Any:
        """A file as Arrow reads it in parts: a path, or an open file."""

    def read_marks(
        self, root: StoragePath, names: Sequence[str], folders: Sequence[StoragePath]
    ) -> tuple[object, ...]:
        """What differs once anybody has changed a warehouse: files and folders by their names, and
        tables by their folders."""

    # -- folders ---------------------------------------------------------------------------------

    def make_folder(self, folder: StoragePath) -> None: ...

    def sync_folder(self, folder: StoragePath) -> None: ...

    def remove_temporaries(self, folder: StoragePath, guard: Guard) -> None: ...

    def open_to(self, root: StoragePath, group: bool) -> None: ...

    def can_write(self, folder: StoragePath) -> bool: ...

    def local_folder(self, root: StoragePath) -> Path:
        """Where files of this machine belong that can be lost: spools, indexes, staged rows."""

    # -- Delta Lake ------------------------------------------------------------------------------

    def table_address(self, folder: StoragePath) -> TableAddress: ...

    def sync_other(self, places: Iterator[StoragePath]) -> None:
        """Make durable, and give permissions to, what another library has written."""
