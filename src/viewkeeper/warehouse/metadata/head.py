"""The newest committed state: what every reader starts from.

The head names, for each view, the version of its Delta Lake table, its ts and positions. It is one
file replaced by rename, so views that advance in one record become visible together, and a reader
never sees a table between two records.

`advance_head` is the whole meaning of a record, as a pure function: head, record and the table
versions that redo reached, to the next head.

Small commits are in the journal first (`metadata/record.py`). `head.json` is then the state of the
last flush and says where in the journal reading goes on; the newest head is that state advanced by
the records that the journal shows. Whoever computes it gets the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, assert_never

import pyarrow as pa

from viewkeeper.errors import CorruptError, WarehouseError
from viewkeeper.storage.journal_file import damaged_error
from viewkeeper.storage.sealed_json import Body, seal_body, translate_decode_errors, unseal_object
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.storage.stored_files import read_mark, storage_of
from viewkeeper.storage.typed_json import Readers, read_typed
from viewkeeper.warehouse.metadata.definition_version import (
    READERS,
    DefinitionVersion,
    encode_versions,
    schema_text,
)
from viewkeeper.warehouse.metadata.record import (
    JOURNAL_BEGIN,
    Advance,
    Create,
    DataFile,
    Drop,
    JournalPlace,
    JournalTail,
    Record,
    Redefine,
    Refresh,
    Resume,
    Rewrite,
    Stop,
    decode_tail,
    is_rows_name,
)

NAME = "head.json"
FORMAT = 2
"""Since there is a journal: a program that does not know of it would not see the newest commits."""

ATTEMPTS = 5

_MEND = (
    "restore the file from a backup; or, if records/00000000000000000001.json is still there, "
    "delete it: the next run rebuilds it from the records"
)


@dataclass(frozen=True, slots=True)
class TableLocation:
    """A version of a Delta Lake table, and its newest checkpoint that is known to be whole.

    `listed` is the digest of the files of that version; None if it was written by an older program.
    """

    version: int
    checkpoint: int | None
    listed: str | None = None


@dataclass(frozen=True, slots=True)
class UnflushedRows:
    """Signed rows of a view that record `record` has put into the journal, and no table has yet."""

    record: int
    file: DataFile
    rows: pa.Table


@dataclass(frozen=True, slots=True)
class ViewHead:
    """A view as committed.

    `schema` is that of its stored rows, without `_count` and `_ts`; columns that are `hidden` are
    not shown to readers. States from `horizon` to `ts`, the mark, can be read. `ahead` are the ts
    above the mark that are in the newest state too; there are gaps between them. `rows` is the sum
    of all counts: the number of rows in the newest state, or fewer while something is ahead,
    because counts below zero are in the sum and are not shown. `files` counts the table's data
    files. `distinct`: what lies at or before the horizon has one row per tuple. `stopped` is why it
    does not advance, since `stopped_at`. From `exact_ts` on every ts has a state of its own; before
    it some have that of an earlier commit (algorithms that are strong and not complete).
    `definition` is the SQL as the user wrote it, `versions` what became of it; the last one holds.
    `unflushed` are rows that are in the state and in none of the files; `head.json` has none.
    """

    view: str
    table: str
    location: TableLocation
    definition: str
    schema: pa.Schema
    created_ts: int
    horizon: int
    ts: int
    positions: Mapping[str, int]
    rows: int
    files: int
    distinct: bool
    committed_at: float
    stopped: str | None = None
    ahead: tuple[int, ...] = ()
    hidden: tuple[str, ...] = ()
    exact_ts: int = 0
    versions: tuple[DefinitionVersion, ...] = ()
    stopped_at: float | None = None
    unflushed: tuple[UnflushedRows, ...] = ()

    @property
    def is_inner(self) -> bool:
        """Whether it is no view of the user's but a fold inside one, `view#3`."""
        return "#" in self.view

    @property
    def shown_schema(self) -> pa.Schema:
        """The schema of the rows that readers see."""
        return pa.schema([field for field in self.schema if field.name not in self.hidden])

    @property
    def parent_tables(self) -> Mapping[str, str]:
        """The tables of the views that it was made from, by their names, as far as is known."""
        return self.versions[-1].parents if self.versions else {}

    @property
    def reach_ts(self) -> int:
        """The greatest ts of which rows may be in the view."""
        return self.ahead[-1] if self.ahead else self.ts


def owner_of(table: str) -> str:
    """The view that a table belongs to, given its name: itself, or what a fold is part of.

    >>> owner_of("sales#3"), owner_of("sales")
    ('sales', 'sales')
    """
    return table.partition("#")[0]


@dataclass(frozen=True, slots=True)
class Head:
    """Record `record` is the newest that is applied, plan `plan` the newest that is finished.

    `journal` is the place behind that record, if there is a journal. `refreshes` are the views that
    are to be loaded again: readers see what is stored of them, nobody maintains it.
    """

    record: int = 0
    plan: int = 0
    committed_at: float = 0.0
    views: Mapping[str, ViewHead] = field(default_factory=dict)
    journal: JournalPlace | None = None
    refreshes: tuple[str, ...] = ()

    @property
    def maintained_views(self) -> Mapping[str, ViewHead]:
        """What is stored without the views that are to be loaded again, which are like new ones."""
        if not self.refreshes:
            return self.views
        return {n: view for n, view in self.views.items() if owner_of(n) not in self.refreshes}

    @property
    def shown_views(self) -> dict[str, ViewHead]:
        """The views that the user has, without the folds inside them."""
        return {name: view for name, view in self.views.items() if not view.is_inner}

    def tables_of(self, name: str) -> list[ViewHead]:
        """What is stored of a view: itself first, then its folds."""
        mine = [view for view in self.views.values() if owner_of(view.view) == name]
        return sorted(mine, key=lambda view: (view.is_inner, view.view))

    def require_view(self, name: str) -> ViewHead:
        if name not in self.views:
            known = ", ".join(sorted(self.shown_views)) or "none"
            raise WarehouseError(
                f'view "{name}": not in the warehouse', detail=f"views there: {known}"
            )
        return self.views[name]


def advance_head(
    head: Head,
    record: Record,
    locations: Mapping[str, TableLocation],
    rows: Mapping[str, pa.Table] | None = None,
) -> Head:
    """The head after a record.

    `locations` are those of the views whose table it changed, `rows` those that it has put into the
    journal.
    """
    views, refreshes = dict(head.views), {*head.refreshes}
    for change in record.changes:
        if isinstance(change, Drop):
            del views[change.view]
            refreshes.discard(change.view)
        elif isinstance(change, Create):
            views[change.view] = _create_view(change, record, locations[change.view])
            refreshes.discard(change.view)
        elif isinstance(change, Refresh):
            refreshes.add(change.view)
        else:
            old = views[change.view]
            at = locations.get(change.view, old.location)
            views[change.view] = _change_view(old, change, record, at, rows or {})
    plan = head.plan if record.plan is None else record.plan
    left = tuple(sorted(refreshes))
    return Head(record.n, plan, record.committed_at, views, head.journal, left)


def advance_by_journal(head: Head, tail: JournalTail) -> Head:
    """The head after the records of the journal that follow it."""
    for each in tail.records:
        if each.is_beside:
            # It is seen once its tables and the head have it, and nothing follows it before.
            return head
        if each.record.n != head.record + 1:
            raise CorruptError(
                "head and journal of the warehouse do not fit",
                detail=f"record {each.record.n} does not follow {head.record}",
                hint=f"restore {NAME} and the folder journal from one backup",
            )
        head = advance_head(head, each.record, {}, each.rows)
        assert head.journal is not None, "a head without a journal has no tail"
        head = replace(head, journal=head.journal.moved_to(each.end))
    return head


def _create_view(change: Create, record: Record, at: TableLocation) -> ViewHead:
    return ViewHead(
        view=change.view,
        table=change.table,
        location=at,
        definition=change.definition,
        schema=change.schema,
        created_ts=change.ts,
        horizon=change.ts,
        ts=change.ts,
        positions=dict(change.positions),
        rows=sum(file.count_sum for file in change.files),
        files=len(change.files),
        distinct=change.distinct,
        hidden=change.hidden,
        versions=change.versions,
        committed_at=record.committed_at,
    )


def _change_view(
    old: ViewHead,
    change: Advance | Rewrite | Redefine | Stop | Resume,
    record: Record,
    at: TableLocation,
    rows: Mapping[str, pa.Table],
) -> ViewHead:
    match change:
        case Advance():
            names = [file for file in change.files if is_rows_name(file.path)]
            added = tuple(UnflushedRows(record.n, file, rows[file.path]) for file in names)
            return replace(
                old,
                unflushed=(*old.unflushed, *added),
                location=at,
                ts=change.ts,
                ahead=change.ahead,
                exact_ts=old.exact_ts if change.exact else change.ts,
                positions={**old.positions, **change.positions},
                rows=old.rows + sum(file.count_sum for file in change.files),
                files=old.files + len(change.files) - len(added),
                committed_at=record.committed_at,
            )
        case Rewrite():
            folded = change.horizon is not None
            return replace(
                old,
                location=at,
                horizon=change.horizon if change.horizon is not None else old.horizon,
                distinct=old.distinct or folded,
                files=old.files + len(change.files) - len(change.removes),
            )
        case Redefine():
            return _redefine_view(old, change, record, at)
        case Stop():
            # Tried again in vain, it has stopped since the first time.
            is_same = old.stopped == change.reason and old.stopped_at is not None
            since = old.stopped_at if is_same else record.committed_at
            return replace(old, stopped=change.reason, stopped_at=since)
        case Resume():
            return replace(old, stopped=None, stopped_at=None)
        case _:
            assert_never(change)


def _redefine_view(old: ViewHead, change: Redefine, record: Record, at: TableLocation) -> ViewHead:
    moved = change.ts > old.ts
    return replace(
        old,
        location=at,
        definition=change.definition,
        versions=(*old.versions, change.version),
        schema=change.schema,
        hidden=change.hidden,
        ts=change.ts,
        ahead=() if moved else old.ahead,
        exact_ts=change.ts if moved else old.exact_ts,
        positions=dict(change.positions),
        rows=old.rows + sum(file.count_sum for file in change.files),
        files=old.files + len(change.files),
        distinct=old.distinct and change.distinct,
        committed_at=record.committed_at,
        stopped=None if moved else old.stopped,
        stopped_at=None if moved else old.stopped_at,
    )


def encode_head(head: Head) -> bytes:
    assert not any(view.unflushed for view in head.views.values()), "what is flushed is in files"
    at = head.journal
    body: Body = {
        "record": head.record,
        "plan": head.plan,
        "committed_at": head.committed_at,
        "views": [_encode_view(view) for view in head.views.values()],
        "journal": [at.segment, at.offset, at.sequence] if at else None,
    }
    if head.refreshes:
        body["refreshes"] = list(head.refreshes)
    return seal_body("head", body, FORMAT)


def read_head(root: StoragePath) -> Head:
    """The newest head of a warehouse, without a lock; an empty one where nothing was committed."""
    head, tail = read_journal(root)
    return advance_by_journal(head, tail)


def read_journal(root: StoragePath) -> tuple[Head, JournalTail]:
    """The head of the last flush, and what the journal shows behind it; without a lock.

    A segment that is gone was flushed in the meantime, so that another head is there; so is one
    where records are missing between the head and the tail.
    """
    if storage_of(root).has_lasting_journal:
        return _read_lasting(root)
    before = None
    for _ in range(ATTEMPTS):
        head = read_flushed_head(root)
        if head.journal is None:
            return head, JournalTail()
        path = head.journal.path_below(root)
        try:
            shown = storage_of(root).commits.read_shown(path, head.journal.mark)[1]
            tail = decode_tail(shown, path)
            # A record that was committed beside the journal, after we read the head, is not in it.
            if tail.has_all_after(head.record) or read_flushed_head(root).record == head.record:
                return head, tail
        except FileNotFoundError as error:
            if head.journal == before:
                raise damaged_error(path, "the file is missing") from error
            before = head.journal
    raise damaged_error(path, f"the head names another one each time, {ATTEMPTS} times")


def _read_lasting(root: StoragePath) -> tuple[Head, JournalTail]:
    """The same of a lasting journal, whose flushed parts go one by one.

    A part that is not there may not be written yet, or be gone; it is not gone as long as the head
    is the same. Where a head comes faster than it can be read, the one that was read is as good: it
    was the newest while we looked, and parts are removed one flush late.
    """
    commits, tail = storage_of(root).commits, JournalTail()
    for _ in range(ATTEMPTS):
        mark = read_mark(root / NAME)
        head = read_flushed_head(root)
        at = head.journal or JOURNAL_BEGIN
        head = replace(head, journal=at)
        path = at.path_below(root)
        tail = decode_tail(commits.read_shown(path, at.mark)[1], path)
        if read_mark(root / NAME) == mark:
            break
    return head, tail


def read_commit_mark(root: StoragePath, head: Head) -> tuple[object, object] | None:
    """What differs once anything was committed after a head that was read; None without a head.

    That is two questions to the storage, and nothing is read.
    """
    file, at = read_mark(root / NAME), head.journal
    if file is None:
        return None
    commits = storage_of(root).commits
    return file, commits.read_shown_mark(at.path_below(root), at.mark) if at else None


def read_flushed_head(root: StoragePath) -> Head:
    """What `head.json` says: the state of the last flush."""
    try:
        data = (root / NAME).read_bytes()
    except FileNotFoundError:
        return Head()
    return _decode_head(data, str(root / NAME))


@lru_cache(maxsize=2)
def _decode_head(data: bytes, path: str) -> Head:
    """The head in the content of a file.

    Who reads views asks for it before each, and it is mostly what it was: with a hundred views it
    takes a thousand times as long to decode as to compare.
    """
    body = unseal_object(data, path, "head", _MEND, FORMAT)
    with translate_decode_errors(path, "head", _MEND):
        views = read_typed(tuple[ViewHead, ...], body.pop("views"), _READERS)
        plain = read_typed(Head, body, _READERS)
        return replace(plain, views={view.view: view for view in views})


def _encode_view(view: ViewHead) -> Body:
    body: Body = {name: getattr(view, name) for name in view.__dataclass_fields__}
    del body["unflushed"]
    return {
        **body,
        "location": [view.location.version, view.location.checkpoint, view.location.listed],
        "schema": schema_text(view.schema),
        "positions": dict(view.positions),
        "versions": encode_versions(view.versions),
    }


def _decode_location(facts: Any) -> TableLocation:
    version, checkpoint, listed = read_typed(tuple[int, int | None, str | None], [*facts, None][:3])
    if listed is not None:
        int(listed, 16)
    return TableLocation(version, checkpoint, listed)


def _decode_place(facts: Any) -> JournalPlace:
    segment, offset, sequence = read_typed(tuple[str, int, int], facts)
    if "/" in segment or segment in ("", ".", ".."):
        raise ValueError(f"{segment} is not the name of a segment")
    return JournalPlace(segment, offset, sequence)


def _refuse_rows(_: Any) -> UnflushedRows:
    raise ValueError("a head has no rows")


_READERS: Readers = {
    **READERS,
    TableLocation: _decode_location,
    JournalPlace: _decode_place,
    UnflushedRows: _refuse_rows,
}
