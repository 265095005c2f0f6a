"""The files of a Delta Lake log, seen as files: synced, repaired, forgotten.

Nobody syncs them but us, so the newest entry can come back from a power cut empty, halved, zeroed
or cut at a line end. Halves and zeros make a table unreadable; the other two read as "rows gone".

A view's table needs no judgement: everything above the version that the head names is deleted and
redone from the records. A published table has no record, so its newest entry is judged: one of ours
ends with the line of its application transaction, and whatever is torn off, that line is gone.
"""

from __future__ import annotations

import json
from itertools import chain

from viewkeeper.errors import CorruptError, WarehouseError
from viewkeeper.storage import stored_files
from viewkeeper.storage.disk import Guard, no_guard
from viewkeeper.storage.storage_path import StoragePath, name_of
from viewkeeper.warehouse.metadata.head import TableLocation

APPLICATION = "viewkeeper"
NOTHING = TableLocation(version=-1, checkpoint=None)

LOG = "_delta_log"
_LAST_CHECKPOINT = "_last_checkpoint"


def entry_path(folder: StoragePath, version: int) -> StoragePath:
    """The file of the entry that made a version."""
    return folder / LOG / f"{version:020d}.json"


def sync_entry(folder: StoragePath, version: int) -> None:
    """Make one entry durable."""
    log = folder / LOG
    stored_files.storage_of(log).sync_other(iter([entry_path(folder, version)]))
    stored_files.sync_folder(log)


def write_entry(folder: StoragePath, version: int, entry: bytes, guard: Guard = no_guard) -> None:
    """Write an entry of our own, durably; somebody else's of that version is an error."""
    path = entry_path(folder, version)
    try:
        stored_files.create_new(path, entry, guard)
    except FileExistsError as error:
        raise WarehouseError(
            f'Delta Lake table "{folder}": another writer committed to it',
            hint="views are written by one Viewkeeper process only; stop the other, then run again",
        ) from error


def sync_checkpoint(folder: StoragePath, version: int) -> None:
    """Make one checkpoint, and the hint that points to it, durable."""
    log = folder / LOG
    written = chain(log.glob(f"{version:020d}.checkpoint*"), [log / _LAST_CHECKPOINT])
    stored_files.storage_of(log).sync_other(written)
    stored_files.sync_folder(log)


def cut_back(folder: StoragePath, at: TableLocation, guard: Guard = no_guard) -> None:
    """Delete everything above a version and a checkpoint; redo writes it again.

    An entry that is whole and not ours is another writer's: refused rather than deleted.
    """
    log = folder / LOG
    if not log.is_dir():
        return
    stored_files.remove_temporaries(log, guard)
    for path in sorted(log.iterdir(), key=name_of):
        version = _version_of(path)
        known = at.checkpoint if ".checkpoint" in path.name else at.version
        if version is not None and version > (-1 if known is None else known):
            _refuse_foreign(path)
            guard()
            stored_files.remove_file(path)
    # The hint may name a checkpoint that is gone; readers then list the log, which is as good.
    stored_files.remove_file(log / _LAST_CHECKPOINT)
    stored_files.sync_folder(log)


def drop_torn(folder: StoragePath) -> None:
    """Delete the newest entry of a table without records if it is not whole."""
    entries = sorted((folder / LOG).glob("*.json"), key=name_of)
    if not entries or _is_whole(entries[-1]):
        return
    stored_files.remove_file(entries[-1])
    stored_files.sync_folder(folder / LOG)


def forget_entries(
    folder: StoragePath, checkpoint: int, older_than: float, guard: Guard = no_guard
) -> None:
    """Delete entries and checkpoints that a durable checkpoint replaces, once nobody reads them.

    A reader may hold what the log named at any moment since `older_than`, and that is a checkpoint
    of then and all entries after it, however old these are. So everything from the newest
    checkpoint that was there at that moment stays.
    """
    found = [(path, _version_of(path)) for path in sorted((folder / LOG).iterdir(), key=name_of)]
    whole = [
        version
        for path, version in found
        if version is not None
        and ".checkpoint" in path.name
        and version <= checkpoint
        and stored_files.require_facts(path).changed_at < older_than
    ]
    for path, version in found:
        if whole and version is not None and version < max(whole):
            guard()
            stored_files.remove_file(path)


def _version_of(path: StoragePath) -> int | None:
    digits = path.name.partition(".")[0]
    return int(digits) if len(digits) == 20 and digits.isdigit() else None


def _is_whole(entry: StoragePath) -> bool:
    try:
        last = json.loads(entry.read_bytes().splitlines()[-1])
    except (ValueError, IndexError, RecursionError):
        return False
    return isinstance(last, dict) and ("metaData" if int(entry.stem) == 0 else "txn") in last


def _refuse_foreign(path: StoragePath) -> None:
    if path.suffix != ".json":
        return
    try:
        # This line comes first, so a torn entry of ours has it whole or not at all.
        first = json.loads(path.read_bytes().splitlines()[0])["commitInfo"]
    except (ValueError, IndexError, KeyError, TypeError, RecursionError):
        return
    if isinstance(first, dict) and APPLICATION not in first:
        raise CorruptError(
            f'warehouse file "{path}": another writer changed this table',
            detail=f"operation {first.get('operation')} by {first.get('engineInfo')}",
            hint="views are written by Viewkeeper only; delete this file to undo that change and "
            "run again (let other tools read, or write to a copy)",
        )
