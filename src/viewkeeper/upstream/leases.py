"""Leases: what children still need of a parent's past, which bounds the parent's compaction.

A child leaves a small file in its parent's warehouse: who it is, and the ts up to which it has
taken everything. The parent folds nothing beyond the lowest of them. The lease of a child lasts
until it detaches; that of a reader beside the child's maintainer ends by itself. A child that is
gone for good leaves its file behind, and whoever knows that removes the file by hand.

A file that cannot be read counts as a lease on everything: nothing is folded on a guess.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from viewkeeper.errors import CorruptError
from viewkeeper.storage import disk, stored_files
from viewkeeper.storage.sealed_json import translate_decode_errors, unseal_or_plain, write_sealed
from viewkeeper.storage.storage_path import StoragePath, name_of
from viewkeeper.storage.typed_json import read_typed
from viewkeeper.upstream.parent_project import UNREADABLE, ParentProject

FOLDER = "leases"


@dataclass(frozen=True, slots=True)
class Lease:
    """States from `ts` on are still needed; `child` is its reader's name, `project` where it is.

    `until` is when it ends by itself, if it does.
    """

    child: str
    ts: int
    project: str = ""
    until: float | None = None

    def __str__(self) -> str:
        return self.project or self.child


@dataclass(frozen=True, slots=True)
class ChildLeases:
    """The leases that one child has on its parent: its own, and those of readers beside it."""

    parent: ParentProject
    child: str
    project: str

    def own_lease(self) -> Lease | None:
        with self._asking_parent("its leases cannot be read"):
            return lease_of(self.parent.root, self.child)

    def move_lease(self, ts: int) -> None:
        """Need states from a ts on, and none before it."""
        known = self.own_lease()
        if known is None or known.ts < ts:
            self._take_lease(self.child, ts)

    def begin_lease(self, ts: int) -> None:
        """Need states from a ts on, unless there is a lease, which stays as it is."""
        if self.own_lease() is None:
            self._take_lease(self.child, ts)

    def begin_hold(self, name: str, ts: int, until: float) -> None:
        """Keep states from a ts on for a reader beside the child, until a time."""
        self._take_lease(f"{self.child}-{name}", ts, until)

    def end_hold(self, name: str) -> None:
        with self._asking_parent("a lease cannot be ended there"):
            end_lease(self.parent.root, f"{self.child}-{name}")

    def end_all(self, force: bool, now: float) -> tuple[str, ...]:
        """End our leases, by `force` those of everybody; whose are left."""
        root, left = self.parent.root, []
        with self._asking_parent("a lease cannot be ended there"):
            for lease in active_leases(root, now):
                if force or (self.child and lease.child.startswith(self.child)):
                    end_lease(root, lease.child)
                else:
                    left.append(str(lease))
        return tuple(sorted(left))

    def _take_lease(self, child: str, ts: int, until: float | None = None) -> None:
        with self._asking_parent("a lease cannot be left there"):
            take_lease(self.parent.root, Lease(child, ts, self.project, until))

    @contextmanager
    def _asking_parent(self, trouble: str) -> Iterator[None]:
        """Inside, what fails in the parent's storage makes it a source that is away."""
        try:
            yield
        except UNREADABLE as error:
            raise self.parent.away_error(trouble, str(error)) from error


def active_leases(root: StoragePath, now: float) -> list[Lease]:
    """The leases on a warehouse that hold now."""
    return [lease for lease in _read_all(root) if lease.until is None or lease.until > now]


def find_oldest_ts(root: StoragePath, now: float) -> int | None:
    """The ts up to which a warehouse may fold its past; None if no child needs it."""
    return min((lease.ts for lease in active_leases(root, now)), default=None)


def take_lease(root: StoragePath, lease: Lease) -> None:
    """Take a lease, or move the one that the child has; a WarehouseError if that cannot be.

    A warehouse that is not there is not made for it.
    """
    if isinstance(root, Path):
        if root.is_dir():
            disk.make_folder(root / FOLDER)
        with disk.translate_os_errors("write to", root / FOLDER):
            (root / FOLDER).stat()
    write_sealed(lease_file_of(root, lease.child), "lease", asdict(lease))


def end_lease(root: StoragePath, child: str) -> bool:
    """End a lease; whether there was one."""
    file = lease_file_of(root, child)
    there = file.is_file()
    stored_files.remove_file(file)
    return there


def lease_of(root: StoragePath, child: str) -> Lease | None:
    try:
        return _read_lease(lease_file_of(root, child))
    except FileNotFoundError:
        return None


def lease_file_of(root: StoragePath, child: str) -> StoragePath:
    """Where a child's lease is."""
    return root / FOLDER / f"{re.sub(r'[^A-Za-z0-9_-]', '-', child)}.json"


def _read_all(root: StoragePath) -> Iterator[Lease]:
    for path in sorted((root / FOLDER).glob("*.json"), key=name_of):
        try:
            yield _read_lease(path)
        except FileNotFoundError:
            # It ended while we looked.
            continue


def _read_lease(path: StoragePath) -> Lease:
    mend = "remove the file if the child is gone; otherwise the child's next run writes it"
    try:
        with translate_decode_errors(path, "lease", mend):
            return read_typed(Lease, unseal_or_plain(path, "lease", mend))
    except CorruptError:
        return Lease(path.stem, 0, f"{path}, which cannot be read")
