"""Reading every file of a warehouse once, to say which is damaged and what mends it.

No JVM and no lock: data files against the digests in their names, logs and their entries against
the head, records, plans and the head themselves, and whatever else lies in the folder by the seal
or the digest that it has. Nothing is changed. Files that a maintainer replaces or removes meanwhile
are read again before they are called damaged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from viewkeeper.errors import CorruptError, WarehouseError, reload_hint
from viewkeeper.storage.named_digest import has_own_bytes
from viewkeeper.storage.sealed_json import corrupt_error, unseal_data
from viewkeeper.storage.storage_path import StoragePath, name_of
from viewkeeper.warehouse.lake.verified_files import (
    check_size,
    check_sizes,
    read_whole,
    restore_hint,
)
from viewkeeper.warehouse.metadata.coordination import read_coordination
from viewkeeper.warehouse.metadata.head import Head, ViewHead, read_head, read_journal
from viewkeeper.warehouse.metadata.plan_files import load_plans, load_records
from viewkeeper.warehouse.metadata.warehouse_identity import known_identity
from viewkeeper.warehouse.rows.view_state import files_of

ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class ScrubResult:
    """What was read, and what of it is damaged."""

    files: int
    bytes: int
    damaged: tuple[WarehouseError, ...]

    @property
    def is_whole(self) -> bool:
        return not self.damaged


def find_damage(root: StoragePath, view: ViewHead) -> CorruptError | None:
    """What is wrong with a view's files as far as that costs next to nothing: lists and sizes."""
    folder = root.absolute() / "views" / view.table
    try:
        check_sizes(folder, files_of(folder, view), view.view)
    except CorruptError as error:
        return error
    return None


def scrub_warehouse(
    root: StoragePath, views: tuple[str, ...], told: Callable[[str], None]
) -> ScrubResult:
    """Read every file of these views, or of the whole warehouse if none is named."""
    work = _Scrub(root.absolute(), told)
    head = work.attempt_read(lambda: read_head(root)) or Head()
    for view in [head.require_view(name) for name in views] or head.views.values():
        told(f"{view.view}: {view.files} data files")
        work.read_view(view)
    if not views:
        told("journal, plans, records and what sources keep")
        work.attempt_read(lambda: read_journal(root))
        work.attempt_read(lambda: load_records(root))
        work.attempt_read(lambda: load_plans(root))
        work.attempt_read(lambda: read_coordination(root))
        work.attempt_read(lambda: known_identity(root))
        for path in work.other_files():
            work.attempt_read(partial(work.read_other, path))
    return ScrubResult(work.files, work.bytes, tuple(work.damaged))


class _Scrub:
    """One scrub: what was read so far, and what was found."""

    def __init__(self, root: StoragePath, told: Callable[[str], None]) -> None:
        self.root = root
        self.told = told
        self.files = 0
        self.bytes = 0
        self.damaged: list[WarehouseError] = []

    def attempt_read(self, read: Callable[[], object]) -> Head | None:
        """Read something; what cannot be believed the third time either is damaged."""
        for left in reversed(range(ATTEMPTS)):
            try:
                found = read()
            except FileNotFoundError:
                return None
            except WarehouseError as error:
                if not left:
                    self.damaged.append(error)
            else:
                return found if isinstance(found, Head) else None
        return None

    def read_view(self, view: ViewHead) -> None:
        from viewkeeper.warehouse.lake.lake_table import library_files_of

        folder = self.root / "views" / view.table
        before = len(self.damaged)
        self.attempt_read(lambda: library_files_of(folder, view))
        for path in sorted((folder / "_delta_log").glob("*.json"), key=name_of):
            self.attempt_read(partial(self._read_entry, path, view.view))
        if len(self.damaged) > before:
            return
        for file in library_files_of(folder, view):
            self.attempt_read(
                partial(self._read_data_file, folder / file.path, file.size, view.view)
            )

    def _read_data_file(self, path: StoragePath, size: int, view: str) -> None:
        check_size(path, size, view)
        read_whole(path, view)
        self._count_file(size)

    def _read_entry(self, path: StoragePath, view: str) -> None:
        data = path.read_bytes()
        mend = restore_hint("file", view)
        try:
            lines = [json.loads(line) for line in data.splitlines()]
            kinds = [next(iter(line)) for line in lines]
        except (ValueError, RecursionError, TypeError, StopIteration) as error:
            raise corrupt_error(path, "log entry", str(error)[:200], mend) from error
        if not lines or kinds.count("commitInfo") != 1:
            raise corrupt_error(path, "log entry", f"it has {len(lines)} lines: {kinds[:4]}", mend)
        if "viewkeeper" not in lines[kinds.index("commitInfo")]["commitInfo"]:
            raise corrupt_error(
                path, "log entry", "another writer made it", f"remove it, or {mend}"
            )
        self._count_file(len(data))

    def other_files(self) -> Iterator[StoragePath]:
        """What sources and others keep, in every folder but those of the views."""
        for folder in ("sources", "history", "proposals", "leases"):
            for path in sorted((self.root / folder).rglob("*"), key=str):
                if path.suffix in (".json", ".parquet", ".word") and path.is_file():
                    yield path

    def read_other(self, path: StoragePath) -> None:
        data = path.read_bytes()
        mend = f"restore the file from a backup; without one, remove it, then {reload_hint()}"
        if path.suffix == ".parquet":
            self._read_rows(path, data, mend)
        elif data.startswith(b'{"kind":"'):
            kind = data[9 : data.find(b'"', 9)].decode("utf-8", "replace")
            unseal_data(data, path, kind, mend)
        else:
            try:
                json.loads(data)
            except (ValueError, RecursionError) as error:
                raise corrupt_error(path, "state", str(error)[:200], mend) from error
        self._count_file(len(data))

    def _read_rows(self, path: StoragePath, data: bytes, mend: str) -> None:
        try:
            if not has_own_bytes(path, data):
                raise ValueError("its bytes are not those that were written")
            with pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True) as parquet:
                for _ in parquet.iter_batches():
                    pass
        except (OSError, ValueError, pa.ArrowException) as error:
            raise corrupt_error(path, "file of rows", str(error)[:200], mend) from error

    def _count_file(self, size: int) -> None:
        self.files += 1
        self.bytes += size
        if self.files % 500 == 0:
            self.told(f"{self.files} files, {self.bytes >> 20} MB")
