"""What a start-up does under the lock, before anything else: repair, redo, tidy.

1. Names are made durable, before anything is built on them: a record that is only seen may be gone
   after a power cut, when its sources have long forgotten.
2. Every table's log is cut back to what the head names (torn entries are above it).
3. What the journal has beyond the head is copied into a new segment and flushed, and the journal
   goes (`group_commit`). Records after the head's are redone, in order; the head follows. Then
   every log must name the files that the head has, and they must be there with their sizes.
4. What no record knows is removed: data files and table folders of batches that never committed,
   half-made files, the spool. Tables that an unfinished load writes stay.

Afterwards the warehouse is exactly as if the last written record had been its last act. A view
whose files are damaged is left as it is: the others go on, and loading it again mends it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from viewkeeper.errors import CorruptError, reload_hint
from viewkeeper.storage import stored_files
from viewkeeper.storage.disk import Guard
from viewkeeper.storage.journal_file import damaged_error
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.warehouse.group_commit import GroupCommit, read_left
from viewkeeper.warehouse.lake import delta_log
from viewkeeper.warehouse.lake.data_files import list_digest
from viewkeeper.warehouse.lake.verified_files import PATTERN, check_sizes
from viewkeeper.warehouse.metadata import plan_files
from viewkeeper.warehouse.metadata.head import NAME, Head, encode_head, read_flushed_head
from viewkeeper.warehouse.metadata.record import FOLDER as JOURNAL
from viewkeeper.warehouse.metadata.record import Create, Drop, Record, Rewrite, rows_names_of
from viewkeeper.warehouse.metadata.unfinished_load import unfinished_tables
from viewkeeper.warehouse.redo import OpenTables
from viewkeeper.warehouse.stable_paths import link_tables

FOLDERS = ("plans", "records", JOURNAL, "views", "published", "spool", "history", "proposals")

NAMED = ("", "plans", "records", "history")
"""Where files get their names under the lock."""


def recover_warehouse(root: StoragePath, tables: OpenTables, guard: Guard) -> Head:
    """Bring a warehouse to its last record; idempotent. `guard` says whether the lock is held."""
    for folder in NAMED:
        stored_files.remove_temporaries(root / folder, guard)
        # A name that is there may be one that the last process could not, or did not live to, sync.
        stored_files.sync_folder(root / folder)
    for home in (root / "sources").glob("*"):
        stored_files.remove_temporaries(home, guard)
    head = read_flushed_head(root)
    for view in head.views.values():
        with tables.noting_damage(view.view):
            delta_log.cut_back(tables.folder_of(view.table), view.location, guard)
            tables.active_files(view)
    head = _flush_journal(root, tables, head, guard)
    through, records = plan_files.load_record_files(root)
    refuse_gap(root, head, through, records)
    for record in records:
        if record.n > head.record:
            _refuse_lost_rows(root, record)
            head = tables.redo_record(head, record)
            stored_files.replace_file(root / NAME, encode_head(head), guard)
    head = check_lists(tables, head)
    remove_unknown(tables, root, head, records, guard)
    empty_folder(root / "spool", guard)
    return head


def _flush_journal(root: StoragePath, tables: OpenTables, head: Head, guard: Guard) -> Head:
    """Bring everything that the journal has into the tables; the head that then holds."""
    if head.journal is not None:
        frames = read_left(head.journal.path_below(root), head.journal.mark, guard)
        journal = GroupCommit(root, tables, head, guard)
        journal.resume_journal(frames)
        head = journal.head
    for path in (root / JOURNAL).glob("*.vkj"):
        guard()
        stored_files.remove_file(path)
    return head


def _refuse_lost_rows(root: StoragePath, record: Record) -> None:
    if rows_names_of(record):
        raise damaged_error(root / JOURNAL, f"it does not have record {record.n} any more")


def remove_unknown(
    tables: OpenTables, root: StoragePath, head: Head, records: Sequence[Record], guard: Guard
) -> None:
    """Remove data files and folders that neither the head nor a kept record knows.

    What a kept record took out of use may still be read. Only at start-up: later, a file that no
    record knows may belong to a batch that is still being written.
    """
    known = {view.table for view in head.views.values()} | set(retired_tables(records))
    known |= unfinished_tables(root)
    for folder in (root / "views").iterdir():
        if folder.name not in known and stored_files.read_link(folder) is None:
            guard()
            stored_files.remove_tree(folder)
    link_tables(root / "views", head, guard)
    removed = {path for _, path in removed_files(records)}
    for view in head.views.values():
        if view.view in tables.damaged:
            continue
        used = removed | {file.path for file in tables.active_files(view)}
        for path in tables.folder_of(view.table).glob(PATTERN):
            if path.name not in used:
                guard()
                stored_files.remove_file(path)


def check_lists(tables: OpenTables, head: Head) -> Head:
    """The same head with the digests of all lists of files, after a look at every file's size."""
    views = dict(head.views)
    for name, view in views.items():
        if name in tables.damaged:
            continue
        with tables.noting_damage(name):
            files = tables.active_files(view)
            check_sizes(tables.folder_of(view.table), files, name)
            # Of a head that an older program wrote: what is there now is what must stay.
            at = replace(view.location, listed=list_digest(files))
            views[name] = replace(view, location=at)
    return replace(head, views=views)


def removed_files(records: Sequence[Record]) -> list[tuple[str, str]]:
    """The files that rewrites in these records took out of use: (view, file name)."""
    rewrites = [c for record in records for c in record.changes if isinstance(c, Rewrite)]
    return [(change.view, path) for change in rewrites for path in change.removes]


def retired_tables(records: Sequence[Record]) -> list[str]:
    """The tables that these records took out of use."""
    changes = [change for record in records for change in record.changes]
    dropped = [change.table for change in changes if isinstance(change, Drop)]
    return dropped + [c.replaces for c in changes if isinstance(c, Create) and c.replaces]


def refuse_gap(root: StoragePath, head: Head, through: int, records: Sequence[Record]) -> None:
    """A CorruptError unless the head is among the records that are there."""
    newest = records[-1].n if records else through
    if through <= head.record <= newest:
        return
    raise CorruptError(
        f'warehouse "{root}": head and records do not fit',
        detail=f"head is at record {head.record}; records reach from {through + 1} to {newest}",
        hint=f"restore {NAME} and records/ from one backup; without one, {reload_hint()}",
    )


def empty_folder(folder: StoragePath, guard: Guard) -> None:
    """Remove all that is in a folder."""
    for path in folder.iterdir():
        guard()
        stored_files.remove_tree(path) if path.is_dir() else stored_files.remove_file(path)
