"""The files of a table's version, as a log names them, and as our own short logs are read.

What a short log without a checkpoint says is read here, at a tenth of what the `deltalake` library
costs, and without importing it. It is believed only if the digest that the head has of the list of
files is that of the files found; in any doubt the library reads the log, and says what is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from viewkeeper.errors import CorruptError
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.storage.stored_files import storage_of
from viewkeeper.updates.source_protocol import COUNT, TS
from viewkeeper.warehouse.lake import delta_log
from viewkeeper.warehouse.lake.data_files import list_digest
from viewkeeper.warehouse.lake.verified_files import is_data_file_name, restore_hint
from viewkeeper.warehouse.metadata.head import ViewHead
from viewkeeper.warehouse.metadata.record import DataFile


@dataclass(frozen=True, slots=True)
class ActiveFile:
    """A file of a table's version, with the statistics that readers prune by."""

    path: str
    size: int
    rows: int
    count_min: int
    count_max: int
    ts_min: int
    ts_max: int


def active_file_of(file: DataFile) -> ActiveFile:
    """A file as a log would name it, given how its writer described it."""
    return ActiveFile(
        file.path,
        file.size,
        file.rows,
        file.count_min,
        file.count_max,
        file.ts_min,
        file.ts_max,
    )


@dataclass(frozen=True, slots=True)
class LogEntries:
    """What the entries of a log say up to a version: the files, and the newest record."""

    version: int
    files: tuple[ActiveFile, ...]
    applied: int


ENTRIES_MAX = 50
"""A log with more entries is left to the library, which begins with a checkpoint."""


def read_entries(folder: StoragePath, version: int) -> LogEntries | None:
    """A log as its entries say it; None if the library must read it: it is long, it is in object
    storage, where each entry is a request, or something about it is not as we write it."""
    if version > ENTRIES_MAX or storage_of(folder).has_lasting_journal:
        return None
    files: list[ActiveFile] = []
    removed: set[str] = set()
    applied = 0
    try:
        # As the library does: the newest first.
        for number in range(version, -1, -1):
            entry = delta_log.entry_path(folder, number).read_bytes()
            actions = [json.loads(line) for line in entry.splitlines()]
            adds = [action["add"] for action in actions if "add" in action]
            files += [_added_file(add) for add in adds if add["path"] not in removed]
            removed |= {action["remove"]["path"] for action in actions if "remove" in action}
            ours = [action["txn"] for action in actions if "txn" in action]
            applied = applied or max((t["version"] for t in ours if _is_own(t)), default=0)
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    return LogEntries(version, tuple(files), applied)


def _is_own(transaction: Mapping[str, Any]) -> bool:
    return bool(transaction["appId"] == delta_log.APPLICATION)


def _added_file(add: Mapping[str, Any]) -> ActiveFile:
    stats = json.loads(add["stats"])
    low, high = stats["minValues"], stats["maxValues"]
    counts = (low[COUNT], high[COUNT], low[TS], high[TS])
    return ActiveFile(add["path"], add["size"], stats["numRecords"], *counts)


def listed_entries(folder: StoragePath, view: ViewHead) -> LogEntries | None:
    """What the entries of a log say, if they name the files that the head names."""
    at = view.location
    if at.checkpoint is not None or at.listed is None:
        return None
    entries = read_entries(folder, at.version)
    if entries is None:
        return None
    try:
        check_list(folder, view, entries.files)
    except CorruptError:
        return None
    return entries


def check_list(folder: StoragePath, view: ViewHead, files: Sequence[ActiveFile]) -> None:
    """A CorruptError unless these are the files that the head names."""
    if not all(is_data_file_name(file.path) and _is_measured(file) for file in files):
        raise _other_list(folder, view, "it names files that are none of ours")
    if len(files) != view.files:
        raise _other_list(folder, view, f"it names {len(files)} files, the head {view.files}")
    listed = view.location.listed
    if listed is not None and list_digest(files) != listed:
        raise _other_list(folder, view, "it names other files than the head, or others of them")


def _is_measured(file: ActiveFile) -> bool:
    return all(isinstance(getattr(file, name), int) for name in ActiveFile.__slots__[1:])


def _other_list(folder: StoragePath, view: ViewHead, detail: str) -> CorruptError:
    return CorruptError(
        f'Delta Lake log "{folder / "_delta_log"}": not the log of view "{view.view}" at record '
        "and version that the head names",
        detail=f"version {view.location.version}: {detail}",
        hint=restore_hint("folder _delta_log", view.view),
    )
