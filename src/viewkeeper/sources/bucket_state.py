"""What a source remembers, where the warehouse is in object storage: one object per source.

The object `sources/NAME/state.json` has all small files of the source, each sealed as it is on a
disk, and the epoch of the lock under which it was written last. It is read once per process that
holds the lock, and exchanged by compare and swap whenever one of the files changes.

Who takes the warehouse over *seals* each object when it first reads it: it writes the same content
with its own epoch. What a process that has lost the lock wrote before that is read and counts, and
is true: it had seen and done it. What it tries afterwards meets another tag, finds the higher epoch
and ends. So what was read under the lock stays what is there, without any clock. (Tags of equal
contents are equal, which is why the epoch is in the content.)

A process without the lock (`status`, `verify`, a task) reads the object whenever it asks, and seals
nothing. One that changes something without it, like `detach`, keeps the epoch that it finds.

What is only noted is in memory, and reaches the object with whatever is written next, or when the
source is acknowledged. A process that dies loses it: then the next one finds again what it says.

Files that an earlier version kept in the local folder are taken from there, once, when the object
is made.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from viewkeeper.errors import LockedError, WarehouseError
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.sources.state_files import FolderStateFiles, StateFiles, believe_file
from viewkeeper.storage.objects.object_path import ObjectPath
from viewkeeper.storage.sealed_json import seal_body, unseal_data, unseal_object
from viewkeeper.storage.stored_files import remove_tree
from viewkeeper.storage.typed_json import read_typed

T = TypeVar("T")

STATE = "state.json"
KIND = "source state"
ATTEMPTS = 10
"""So often an object is read again that others have exchanged meanwhile."""


@dataclass(frozen=True, slots=True)
class StateContent:
    """The object's body: the files by their names, each as a sealed text."""

    epoch: int = 0
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SeenState:
    """The object as it was last read or written; without a tag there is none.

    `until` is the epoch up to which nobody else can have exchanged it under the lock.
    """

    content: StateContent
    tag: str | None
    until: int


class BucketStateFiles:
    """The files of one source, in one object."""

    is_one_object = True

    def __init__(self, place: ObjectPath, local: Path) -> None:
        self._place = place
        self._local = local
        self._object = place / STATE
        self._seen: SeenState | None = None
        self._noted: dict[str, str] = {}
        self._lock = threading.RLock()

    def __reduce__(self) -> tuple[object, ...]:
        return BucketStateFiles, (self._place, self._local)

    @property
    def local(self) -> Path:
        return self._local

    @property
    def place(self) -> ObjectPath:
        return self._place

    @property
    def _epoch(self) -> int:
        """The epoch of the lock, as this process has it or had it; 0 if it never did."""
        return self._place.storage.epoch

    def read_file(self, name: str, kind: str, decode: Callable[[Any], T]) -> T | None:
        text = self._read_files().get(name)
        if text is None:
            return None
        return self._believe(
            kind, lambda mend: decode(unseal_data(text.encode(), self._object, kind, mend))
        )

    def _believe(self, kind: str, read: Callable[[str], T]) -> T:
        return believe_file(self._place.name, self._object, kind, read)

    def has_file(self, name: str) -> bool:
        return name in self._read_files()

    def list_files(self, folder: str) -> list[str]:
        found = (name.rpartition("/") for name in self._read_files())
        return [name for parent, _, name in found if parent == folder]

    def write_file(self, name: str, kind: str, body: object) -> None:
        with self._lock:
            self._noted[name] = seal_body(kind, body).decode()
            self.save_noted()

    def note_file(self, name: str, kind: str, body: object, *, durable: bool) -> None:
        with self._lock:
            self._noted[name] = seal_body(kind, body).decode()

    def save_noted(self) -> None:
        with self._lock:
            if self._noted:
                noted = dict(self._noted)
                self._exchange(lambda files: {**files, **noted})
                self._noted = {}

    def remove_files(self, names: Iterable[str]) -> bool:
        gone = {*names}
        with self._lock:
            is_there = not gone.isdisjoint(self._read_files())
            self._noted = {n: text for n, text in self._noted.items() if n not in gone}
            if is_there:
                self._exchange(lambda files: {n: t for n, t in files.items() if n not in gone})
            return is_there

    def forget_all(self) -> None:
        with self._lock:
            self._noted = {}
            if self._read_files():
                self._exchange(lambda _: {})
            for name in ("copies", "changes", "leases"):
                remove_tree(self._place / name)
        shutil.rmtree(self._local, ignore_errors=True)

    def reload_files(self) -> None:
        with self._lock:
            self._seen = None

    def _read_files(self) -> dict[str, str]:
        with self._lock:
            return {**self._current().content.files, **self._noted}

    def _current(self) -> SeenState:
        """The object: as it was last seen, if nobody else has exchanged it since."""
        seen, epoch = self._seen, self._epoch
        if seen is not None and self._is_unchanged(seen, epoch):
            self._seen = SeenState(seen.content, seen.tag, epoch)
        else:
            self._seen = self._read_object()
            # What others have removed is not brought back by what was noted of it.
            gone = seen.content.files.keys() - self._seen.content.files.keys() if seen else ()
            self._noted = {name: text for name, text in self._noted.items() if name not in gone}
            if self._seen.content.epoch < epoch:
                self._exchange(lambda files: files)
        return self._seen

    def _is_unchanged(self, seen: SeenState, epoch: int) -> bool:
        """Whether an object is as it was seen: nobody could exchange it while the lock was ours.

        If that was given back and taken again, with no epoch of others in between, somebody may
        have changed something without it, like `detach`: then the tag is asked for.
        """
        if 0 < seen.until == epoch - 1:
            return self._place.storage.client.find_tag(self._object.key) == seen.tag
        return 0 < seen.until == epoch

    def _read_object(self) -> SeenState:
        try:
            data, tag = self._place.storage.client.read_tagged(self._object.key)
        except FileNotFoundError:
            return SeenState(StateContent(0, self._read_earlier()), None, 0)
        content = self._believe(
            KIND,
            lambda mend: read_typed(StateContent, unseal_object(data, self._object, KIND, mend)),
        )
        # Under a higher epoch it is another process that exchanges it.
        return SeenState(content, tag, self._epoch if content.epoch <= self._epoch else 0)

    def _read_earlier(self) -> dict[str, str]:
        """The files that an earlier version has left in the local folder."""
        found = {}
        for path in (*self._local.glob("*.json"), *self._local.glob("states/*.json")):
            with suppress(FileNotFoundError):
                found[path.relative_to(self._local).as_posix()] = path.read_text()
        return found

    def _exchange(self, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> None:
        """Change the files, from what they are; a LockedError if the lock was lost."""
        for _ in range(ATTEMPTS):
            seen = self._seen or self._read_object()
            if seen.content.epoch > self._epoch > 0:
                raise self._lost_error(seen.content.epoch)
            wanted = StateContent(max(seen.content.epoch, self._epoch), change(seen.content.files))
            if wanted == seen.content:
                self._seen = seen
                return
            if seen.tag is None:
                self._bring_earlier_rows()
            body = {"epoch": wanted.epoch, "files": dict(wanted.files)}
            tag = self._put_expected(seal_body(KIND, body), seen.tag)
            if tag is not None:
                self._seen = SeenState(wanted, tag, self._epoch)
                if seen.tag is None:
                    self._remove_earlier(seen.content.files)
                return
            self._seen = None
        raise WarehouseError(
            f'warehouse object "{self._object}": others replace it all the time',
            hint="find out who writes to this address, then run again",
        )

    def _put_expected(self, data: bytes, expected: str | None) -> str | None:
        client = self._place.storage.client
        if expected is not None:
            return client.replace(self._object.key, data, expected)
        try:
            return client.create(self._object.key, data)
        except FileExistsError:
            return None

    def _bring_earlier_rows(self) -> None:
        """Put what earlier files refer to."""
        for path in (*self._local.glob("copies/*"), *self._local.glob("changes/*")):
            named = self._place / path.relative_to(self._local).as_posix()
            named.storage.client.put(named.key, path)

    def _remove_earlier(self, names: Iterable[str]) -> None:
        for name in names:
            (self._local / name).unlink(missing_ok=True)
        for name in ("copies", "changes"):
            shutil.rmtree(self._local / name, ignore_errors=True)

    def _lost_error(self, epoch: int) -> LockedError:
        return LockedError(
            f'warehouse object "{self._object}": another process has taken the warehouse over',
            detail=f"it has sealed the object under epoch {epoch}, ours was {self._epoch}",
            hint="nothing more is committed here: leave it to the other process, or stop that one "
            "and run again",
        )


def open_state_files(settings: SourceSettings) -> StateFiles:
    """What a source remembers, by its settings."""
    # All of it goes with the source; without a home that would be a folder of somebody else's.
    assert settings.home, f'source "{settings.name}" has no place for what it remembers'
    local = Path(settings.home)
    if isinstance(settings.kept, ObjectPath):
        return BucketStateFiles(settings.kept, local)
    return FolderStateFiles(local)
