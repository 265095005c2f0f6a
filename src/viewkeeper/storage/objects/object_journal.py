"""The journal of a warehouse in object storage: one numbered object per commit.

Creating the object with the next number, if there is none, is the commit: it is durable when the
storage says so, and of two writers with the same number one is refused. Readers go from number to
number until there is none.

So the journal is also the fence. Whoever takes a warehouse over, after a holder that has not given
it back, reads all objects and then creates one of its own with the next number, the *seal*. What
the other one had created before is committed, and has been read; what it still tries gets the
number of the seal, and is refused. Seals are kept when objects whose rows are in tables are
removed: a number that is free again would let a writer that slept for long begin there.

Every object begins with a frame that names its writer, so that a writer whose answer was lost can
tell its own object from another's (`object_client`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from viewkeeper.errors import CorruptError, LockedError
from viewkeeper.storage.journal_file import (
    Frame,
    Mark,
    damaged_error,
    decode_frames,
    encode_frames,
)
from viewkeeper.storage.objects.object_client import ObjectClient
from viewkeeper.storage.objects.object_path import ObjectPath

WRITER, SEAL = 8, 9
"""Kinds of frames that only the journal itself knows."""

FENCES = "fences"
FENCES_MAX = 1_000
READ_MAX = 100_000
"""So many objects at most lie behind a head; a flush comes far earlier."""

BEGIN = Mark(1, 1)


class ObjectJournal:
    """The journal, open for writing."""

    def __init__(self, folder: ObjectPath, client: ObjectClient, writer: str, at: Mark) -> None:
        self._folder = folder
        self._client = client
        self._writer = writer
        self.end = at
        """The number of the next object, twice."""
        self.is_usable = True

    @property
    def path(self) -> ObjectPath:
        return self._folder

    def append_frames(self, frames: Sequence[tuple[int, bytes]]) -> Mark:
        """Create the next object; a LockedError if another writer has."""
        assert self.is_usable, "after a failure only another start can say what holds"
        number = self.end.offset
        about = json.dumps({"writer": self._writer, "number": number}).encode()
        data = encode_frames([(WRITER, about), *frames], number, 1)
        self.is_usable = False
        try:
            self._client.create(_key_of(self._folder, number), data)
        except FileExistsError as error:
            raise LockedError(
                f'warehouse "{self._folder.parent.parent}": another process has taken it over',
                detail=f"it has written number {number} of the journal",
                hint="nothing more is committed here: leave it to the other process, or stop that "
                "one and run again",
            ) from error
        self.is_usable = True
        self.end = Mark(number + 1, number + 1)
        return self.end

    def show_mark(self, mark: Mark) -> None:
        """An object is shown by being there."""

    def close(self) -> None:
        """Nothing more is written."""
        self.is_usable = False


def seal_journal(
    folder: ObjectPath, client: ObjectClient, writer: str, at: Mark
) -> tuple[Mark, list[Frame]]:
    """Take the next number of a journal whose writer may live; the mark behind it, and the frames
    behind `at` that were there before."""
    found: list[Frame] = []
    while True:
        end, frames = read_objects(folder, client, at)
        found, at = [*found, *frames], end
        fence = folder.parent / FENCES / f"{at.offset:020d}"
        client.put(fence.key, writer.encode())
        try:
            return ObjectJournal(folder, client, writer, at).append_frames([(SEAL, b"")]), found
        except LockedError:
            # The other writer was faster: its commit counts.
            continue


def read_objects(folder: ObjectPath, client: ObjectClient, at: Mark) -> tuple[Mark, list[Frame]]:
    """The frames of all objects from a number on, and the mark behind them."""
    frames: list[Frame] = []
    for number in range(at.offset, at.offset + READ_MAX):
        try:
            data = client.read(_key_of(folder, number))
        except FileNotFoundError:
            return Mark(number, number), frames
        found = decode_frames(data, number)
        if found is None or found[0].kind != WRITER:
            raise damaged_error(f"{folder}/{number:020d}", "its frames are not whole")
        own = [frame for frame in found[1:] if frame.kind != SEAL]
        frames += [Frame(frame.kind, number, frame.data, number + 1) for frame in own]
    raise _too_many_error(folder)


def find_free_number(folder: ObjectPath, client: ObjectClient, at: Mark) -> int:
    """The first number from a mark on that no object has."""
    for number in range(at.offset, at.offset + READ_MAX):
        if client.find_tag(_key_of(folder, number)) is None:
            return number
    raise _too_many_error(folder)


def remove_objects(folder: ObjectPath, client: ObjectClient, numbers: range) -> None:
    """Remove objects whose rows are in tables; nobody reads from there any more."""
    client.remove([_key_of(folder, number) for number in numbers])


def remove_older(folder: ObjectPath, client: ObjectClient, before: int) -> None:
    """Remove all objects below a number but the seals; lists them, so only at a start."""
    fences = sorted(client.list_keys(f"{(folder.parent / FENCES).key}/"))
    client.remove(fences[:-FENCES_MAX])
    kept = {int(key.rpartition("/")[2]) for key in fences[-FENCES_MAX:]}
    numbers = [int(key.rpartition("/")[2]) for key in client.list_keys(f"{folder.key}/")]
    client.remove([_key_of(folder, n) for n in numbers if n < before and n not in kept])


def _too_many_error(folder: ObjectPath) -> CorruptError:
    return damaged_error(folder, f"more than {READ_MAX} objects lie behind the head")


def _key_of(folder: ObjectPath, number: int) -> str:
    return (folder / f"{number:020d}").key
