"""A warehouse's storage in a bucket: what the disk does by links, renames and syncs, by conditions.

A put is whole and durable when it is answered. `create_new` is a put on the condition that there is
no such object; `replace_file` one on the condition that the object is still the one that was last
seen. A file that the lock's holder alone replaces, like the head, must be the one that this holder
has written last: a process that slept through a takeover is refused, whatever it believes.

Names of data files have the epoch of the lock in them: a start removes what it does not know only
where that is of an earlier epoch, so that a zombie in its start cannot remove what its successor is
about to commit.

Files are written to a temporary file of this machine first, and put when they are whole; large ones
in parts. Nothing is listed and nothing renamed while a batch is committed.
"""

from __future__ import annotations

import io
import os
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa

from viewkeeper.errors import LockedError, WarehouseError
from viewkeeper.storage.disk import Guard, mark_of, no_guard
from viewkeeper.storage.journal_file import Frame, Mark
from viewkeeper.storage.local_lock import LockHolder
from viewkeeper.storage.objects import object_journal, object_lease
from viewkeeper.storage.objects.object_address import ObjectAddress
from viewkeeper.storage.objects.object_client import ObjectClient
from viewkeeper.storage.objects.object_journal import ObjectJournal
from viewkeeper.storage.objects.object_lease import ObjectLease
from viewkeeper.storage.objects.object_path import ObjectPath
from viewkeeper.storage.objects.object_requests import (
    ObjectRequests,
    ObstoreRequests,
    library_options,
)
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.storage.storage_protocol import Clock, FileFacts, TableAddress

LOCK = "lock"
WHOLE_BYTES = 8 << 20
"""Files up to this size are read by one request."""

AHEAD_BYTES = 1 << 20
ATTEMPTS = 5


def _key_of(place: StoragePath) -> str:
    return _object_of(place).key


def _object_of(place: StoragePath) -> ObjectPath:
    assert isinstance(place, ObjectPath), f"{place} is not in object storage"
    return place


def open_requests(address: ObjectAddress) -> ObjectRequests:
    """Requests to the service that an address names."""
    return ObstoreRequests(address)


class ObjectStorage:
    """A place in a bucket, in which a warehouse lies."""

    has_lasting_journal = True

    def __init__(self, address: ObjectAddress, epoch: int = 0) -> None:
        self.address = address
        self.epoch = epoch
        self.client = ObjectClient(lambda: open_requests(address))
        self.commits = ObjectCommits(self)
        self.writer = uuid.uuid4().hex
        """What tells the objects of this process from those of others."""
        self._tags: dict[str, str] = {}
        """Of files that the lock's holder alone replaces, the tags that this one has given them."""

    def begin_epoch(self, epoch: int) -> None:
        """The lock was taken: what was written before may have been replaced since."""
        self.epoch = epoch
        self._tags.clear()

    @staticmethod
    def reopen_path(address: ObjectAddress, epoch: int, key: str) -> ObjectPath:
        """A path in another process, which writes data files under an epoch."""
        return ObjectPath(_reopen_storage(address, epoch), key)

    # -- files -----------------------------------------------------------------------------------

    def create_new(self, place: StoragePath, data: bytes, guard: Guard) -> None:
        guard()
        self.client.create(_key_of(place), data)

    def replace_file(
        self, place: StoragePath, data: bytes, guard: Guard, *, durable: bool, whole: bool
    ) -> None:
        key, is_held = _key_of(place), guard is not no_guard
        for _ in range(ATTEMPTS):
            known = self._tags.get(key) if is_held else None
            expected = known or self.client.find_tag(key)
            guard()
            tag = self._put_expected(key, data, expected)
            if tag is not None:
                if is_held:
                    self._tags[key] = tag
                return
            if known is not None:
                raise LockedError(
                    f'warehouse object "{place}": another process has replaced it',
                    hint="nothing more is committed here: leave it to the other process, or stop "
                    "that one and run again",
                )
        raise WarehouseError(
            f'warehouse object "{place}": others replace it all the time',
            hint="find out who writes to this address, then run again",
        )

    def _put_expected(self, key: str, data: bytes, expected: str | None) -> str | None:
        if expected is not None:
            return self.client.replace(key, data, expected)
        try:
            return self.client.create(key, data)
        except FileExistsError:
            return None

    def begin_file(self, folder: StoragePath, name: str) -> PendingObject:
        return PendingObject(_object_of(folder) / name, self._scratch_folder())

    def _scratch_folder(self) -> str | None:
        """Where files are gathered; tasks on other machines have no folder of the project."""
        scratch = Path(self.address.local, "spool") if self.address.local else None
        return str(scratch) if scratch is not None and scratch.is_dir() else None

    def remove_file(self, place: StoragePath) -> None:
        self.client.remove([_key_of(place)])

    def remove_tree(self, folder: StoragePath) -> None:
        self.client.remove(self.client.list_keys(f"{_key_of(folder)}/"))

    def file_facts(self, place: StoragePath) -> FileFacts | None:
        found = self.client.find_facts(_key_of(place))
        return None if found is None else FileFacts(found.size, found.changed_at, found.tag)

    def file_sizes(self, folder: StoragePath) -> dict[str, int]:
        prefix = f"{_key_of(folder)}/"
        found = self.client.list_facts(prefix)
        return {facts.key.removeprefix(prefix): facts.size for facts in found}

    def touch_file(self, place: StoragePath, at: float) -> None:
        """Put the object again: its time of last change is the storage's then."""
        self.client.put(_key_of(place), place.read_bytes())

    def read_end(self, place: StoragePath, count: int) -> tuple[bytes, int]:
        return self.client.read_end(_key_of(place), count)

    def parquet_source(self, place: StoragePath) -> Any:
        key, facts = _key_of(place), self.file_facts(place)
        if facts is None:
            raise FileNotFoundError(str(place))
        size = facts.size
        if size <= WHOLE_BYTES:
            return pa.BufferReader(self.client.read(key))
        reader = io.BufferedReader(ObjectReader(self.client, key, size), AHEAD_BYTES)
        return pa.PythonFile(cast("Any", reader), mode="r")

    def read_marks(
        self, root: StoragePath, names: Sequence[str], folders: Sequence[StoragePath]
    ) -> tuple[object, ...]:
        """The head alone: a flush replaces it, and so does every other holder."""
        homes = sorted(self.local_folder(root).glob("sources/*/*"))
        return (self.client.find_tag(_key_of(root / names[0])), *(mark_of(home) for home in homes))

    # -- folders ---------------------------------------------------------------------------------

    def make_folder(self, folder: StoragePath) -> None:
        """There are none."""

    def sync_folder(self, folder: StoragePath) -> None:
        """What is answered is durable."""

    def remove_temporaries(self, folder: StoragePath, guard: Guard) -> None:
        """There are none."""

    def open_to(self, root: StoragePath, group: bool) -> None:
        """Who may read is said by the bucket."""

    def can_write(self, folder: StoragePath) -> bool:
        """Readers keep nothing here: they may have no right to, and cannot ask."""
        return False

    def local_folder(self, root: StoragePath) -> Path:
        return Path(self.address.local)

    # -- Delta Lake ------------------------------------------------------------------------------

    def table_address(self, folder: StoragePath) -> TableAddress:
        return TableAddress(str(folder), library_options(self.address))

    def sync_other(self, places: Iterator[StoragePath]) -> None:
        """What is answered is durable."""


class ObjectCommits:
    """The lease of a warehouse, and the objects of its journal."""

    def __init__(self, storage: ObjectStorage) -> None:
        self._storage = storage

    def take_lock(
        self, root: StoragePath, holder: LockHolder, steady: Clock, over: object
    ) -> ObjectLease:
        lock = _object_of(root) / LOCK
        lease = ObjectLease.take_lease(
            self._storage.client, lock.key, str(root), holder, self._storage.writer, steady, over
        )
        if not _key_of(root):
            self._storage.begin_epoch(lease.epoch)
        return lease

    def running_holder(self, root: StoragePath, now: float) -> LockHolder | None:
        lock = _object_of(root) / LOCK
        return object_lease.read_holder(self._storage.client, lock.key, str(root), now)

    def create_segment(
        self, folder: StoragePath, name: str, segment: int, size: int
    ) -> ObjectJournal:
        raise AssertionError("a lasting journal has no segments")

    def continue_journal(self, folder: StoragePath, at: Mark) -> ObjectJournal:
        return ObjectJournal(_object_of(folder), self._storage.client, self._storage.writer, at)

    def seal_journal(self, folder: StoragePath, at: Mark) -> tuple[Mark, list[Frame]]:
        """Refuse what the last holder may still write; the mark behind the seal, and the frames."""
        place, storage = _object_of(folder), self._storage
        return object_journal.seal_journal(place, storage.client, storage.writer, at)

    def read_shown(self, segment: StoragePath, after: Mark) -> tuple[Mark, list[Frame]]:
        return object_journal.read_objects(_object_of(segment), self._storage.client, after)

    def read_prefix(self, segment: StoragePath, after: Mark) -> list[Frame]:
        return self.read_shown(segment, after)[1]

    def read_shown_mark(self, segment: StoragePath, after: Mark) -> object | None:
        return object_journal.find_free_number(_object_of(segment), self._storage.client, after)

    def remove_numbers(self, folder: StoragePath, numbers: range) -> None:
        """Remove objects of the journal whose rows are in tables; none of them is a seal."""
        object_journal.remove_objects(_object_of(folder), self._storage.client, numbers)

    def remove_older(self, folder: StoragePath, before: int) -> None:
        """Remove what earlier holders have left of the journal."""
        object_journal.remove_older(_object_of(folder), self._storage.client, before)


@lru_cache(maxsize=32)
def _reopen_storage(address: ObjectAddress, epoch: int) -> ObjectStorage:
    return ObjectStorage(address, epoch)


class PendingObject:
    """An object that is gathered in a temporary file."""

    def __init__(self, place: ObjectPath, scratch: str | None) -> None:
        self.place = place
        descriptor, name = tempfile.mkstemp(suffix=".parquet", dir=scratch)
        self._path = Path(name)
        self._file = os.fdopen(descriptor, "wb", buffering=0)

    @property
    def sink(self) -> BinaryIO:
        return self._file

    def finish_file(
        self, name: Callable[[Path], str], *, durable: bool = True
    ) -> tuple[StoragePath, int]:
        """Put the object under the name that is computed from the file."""
        size = os.fstat(self._file.fileno()).st_size
        self._file.close()
        named = self.place.parent / name(self._path).replace(self._path.stem, self.place.stem, 1)
        large = size > WHOLE_BYTES
        named.storage.client.put(named.key, self._path if large else self._path.read_bytes())
        self._path.unlink()
        return named, size

    def abandon_file(self) -> None:
        self._file.close()
        with suppress(FileNotFoundError):
            self._path.unlink()


class ObjectReader(io.RawIOBase):
    """A large object, read in the parts that somebody asks for."""

    def __init__(self, client: ObjectClient, key: str, size: int) -> None:
        super().__init__()
        self._client = client
        self._key = key
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        stop = min(self._size, self._at + len(view))
        if stop <= self._at:
            return 0
        data = self._client.read_range(self._key, self._at, stop)
        view[: len(data)] = data
        self._at += len(data)
        return len(data)
