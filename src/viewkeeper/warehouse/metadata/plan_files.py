"""The folders of plans and records, and the two files that old ones are folded into.

Plans and records are numbered from 1 without gaps. A file has one of them, or, where a flush of the
journal brought several, all from a first number to a last one; its name says which. What is still
in the journal alone is read with them (`load_plans`), except by those who write the folders
(`load_plan_files`, `load_record_files`). Old ones are folded: the ledger's entries into
`plans/folded.parquet`, a line per view and record into `records/folded.parquet`. A folded file says
through which number it reaches; a numbered file at or below that is a leftover and is ignored. So
folding is: replace the folded file, then delete the numbered ones; it can stop anywhere. A gap in
the numbers is damage, or a reader that lost the race with a fold, which reads again.

A plan is written before any work: it names the transactions that got their ts in this batch. After
a crash the same plan is replayed with new snapshots; forming the batch again would give the same ts
to other transactions, and a view that had committed the first cut would lose rows for good.

The *ledger* is the list of all entries in ts order. It says which source position a ts stands for.
What no view can be asked about any more is dropped, except the last entry of each source, which
says where that source stands.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, field, fields, replace
from itertools import zip_longest
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from viewkeeper.errors import CorruptError, reload_hint
from viewkeeper.storage import stored_files
from viewkeeper.storage.disk import Guard, no_guard
from viewkeeper.storage.sealed_json import (
    Body,
    corrupt_error,
    seal_body,
    translate_decode_errors,
    unseal_data,
)
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.storage.typed_json import Readers, read_typed
from viewkeeper.updates.schema_change import SchemaChange
from viewkeeper.warehouse.metadata.head import read_journal
from viewkeeper.warehouse.metadata.record import (
    Advance,
    Create,
    Record,
    Redefine,
    decode_record,
    encode_record,
    kind_of_change,
)

_MEND = (
    f"restore the file from a backup; without one, drop the views, then {reload_hint()}: "
    "what the plan assigned cannot be guessed"
)


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One transaction: that of `source` with `after` < position <= `until`.

    A global transaction has one ts and an entry per source. `changes` is its number of row changes.
    Of the tables `emptied`, and of some keys of the tables `keyed`, rows went without being listed.
    `reshaped` are its schema changes. `n` is its number in the order of the warehouse's group, 0
    where no registry orders; where several ids became one transaction it is that of the last, and
    `first` that of the first of them. A `gap` is no transaction: what the source committed there is
    lost, and no view gets over it but by its difference from what the source shows later.
    """

    ts: int
    source: str
    after: int
    until: int
    committed_at: float
    changes: int
    emptied: tuple[str, ...] = ()
    keyed: tuple[str, ...] = ()
    reshaped: tuple[SchemaChange, ...] = ()
    n: int = 0
    first: int = 0
    gap: bool = False


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """Batch n: what got its ts here, and which views go from which ts to which."""

    n: int
    entries: tuple[LedgerEntry, ...]
    views: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        stamps = [entry.ts for entry in self.entries]
        assert stamps == sorted(stamps), "entries of a plan are in ts order"
        assert all(entry.after < entry.until for entry in self.entries)


def encode_plan(plan: BatchPlan) -> bytes:
    entries = [_encode_entry(entry) for entry in plan.entries]
    views = {view: list(span) for view, span in plan.views.items()}
    return seal_body("plan", {"n": plan.n, "entries": entries, "views": views})


def _encode_entry(entry: LedgerEntry) -> list[object]:
    e = entry
    plain: list[object] = [e.ts, e.source, e.after, e.until, e.committed_at, e.changes]
    if not (e.emptied or e.keyed or e.reshaped or e.n or e.gap):
        return plain
    reshaped = [astuple(change) for change in e.reshaped]
    numbers = [e.n, e.first] if e.n or e.gap else []
    gap = [True] if e.gap else []
    return [*plain, list(e.emptied), list(e.keyed), reshaped, *numbers, *gap]


def _decode_entry(facts: Sequence[Any]) -> LedgerEntry:
    names = [field.name for field in fields(LedgerEntry)]
    if len(facts) > len(names):
        raise ValueError("an entry has too many facts")
    return read_typed(LedgerEntry, dict(zip(names, facts, strict=False)), _READERS)


def _decode_change(facts: Any) -> SchemaChange:
    names = [field.name for field in fields(SchemaChange)]
    return read_typed(SchemaChange, dict(zip(names, facts, strict=False)))


_READERS: Readers = {SchemaChange: _decode_change}


def read_plan(path: StoragePath) -> BatchPlan:
    """The plan in a file; CorruptError if it cannot be believed."""
    plan = decode_plan(path.read_bytes(), path)
    if path.stem.isdigit() and int(path.stem) != plan.n:
        raise corrupt_error(path, "plan", f"it is plan {plan.n}", _MEND)
    return plan


def decode_plan(data: bytes, path: StoragePath) -> BatchPlan:
    """The plan in some bytes; `path` is what errors name."""
    body: Body = unseal_data(data, path, "plan", _MEND)
    with translate_decode_errors(path, "plan", _MEND):
        entries = tuple(_decode_entry(entry) for entry in body.pop("entries"))
        return replace(read_typed(BatchPlan, {**body, "entries": []}), entries=entries)


class Ledger:
    """All entries that are still kept, in ts order; grows by plans."""

    def __init__(self, entries: Iterable[LedgerEntry] = ()) -> None:
        self._entries: list[LedgerEntry] = []
        self._by_source: dict[str, list[LedgerEntry]] = {}
        self._gaps: list[LedgerEntry] = []
        self.add_entries(entries)

    def add_entries(self, entries: Iterable[LedgerEntry]) -> None:
        for entry in entries:
            assert not self._entries or entry.ts >= self._entries[-1].ts
            # Positions grow, except where a source was lost and is followed anew.
            own = self._by_source.setdefault(entry.source, [])
            self._entries.append(entry)
            own.append(entry)
            if entry.gap:
                self._gaps.append(entry)

    @property
    def entries(self) -> Sequence[LedgerEntry]:
        return self._entries

    @property
    def next_ts(self) -> int:
        """The ts of the next transaction; 1 is the beginning, before the first of them."""
        return self._entries[-1].ts + 1 if self._entries else 2

    def entries_between(self, after: int, until: int) -> Sequence[LedgerEntry]:
        """The entries with `after` < ts <= `until`."""
        first = bisect_right(self._entries, after, key=_ts_of)
        return self._entries[first : bisect_right(self._entries, until, key=_ts_of)]

    def position_at(self, source: str, ts: int) -> int | None:
        """Where a source stood as of a ts; None if no transaction of it was ever seen."""
        own = self._by_source.get(source, [])
        passed = bisect_right(own, ts, key=_ts_of)
        if passed:
            return own[passed - 1].until
        return own[0].after if own else None

    def positions_at(self, sources: Mapping[str, int], ts: int) -> dict[str, int]:
        """Where the sources of a view stood as of a ts.

        `sources` are the view's newest positions; a source of which nothing was ever seen is still
        where the view's initial load found it.
        """
        found = {source: self.position_at(source, ts) for source in sources}
        return {s: sources[s] if at is None else at for s, at in found.items()}

    def gap_after(self, ts: int, sources: Container[str]) -> str | None:
        """The first of these sources of which something after a ts is lost; None if nothing is."""
        lost = (gap.source for gap in self._gaps if gap.ts > ts and gap.source in sources)
        return next(lost, None)

    def entries_since(self, horizon: int) -> list[LedgerEntry]:
        """What must be kept to answer for every ts from the horizon on."""
        last = {own[-1] for own in self._by_source.values()}
        floor = {
            own[at - 1]
            for own in self._by_source.values()
            if (at := bisect_right(own, horizon, key=_ts_of))
        }
        keep = last | floor
        return [entry for entry in self._entries if entry.ts > horizon or entry in keep]


def _ts_of(entry: LedgerEntry) -> int:
    return entry.ts


FOLDED = "folded.parquet"
_THROUGH = b"through"
_TOGETHER = 2
"""The format of files with several plans or records, which older programs do not know."""

_ATTEMPTS = 5

Item = TypeVar("Item")

_ENTRY: dict[str, pa.DataType] = {
    "ts": pa.int64(),
    "source": pa.string(),
    "after": pa.int64(),
    "until": pa.int64(),
    "committed_at": pa.float64(),
    "changes": pa.int64(),
    "emptied": pa.list_(pa.string()),
    "keyed": pa.list_(pa.string()),
    "reshaped": pa.string(),
    "n": pa.int64(),
    "first": pa.int64(),
    "gap": pa.bool_(),
}
_COMMIT: dict[str, pa.DataType] = {
    "record": pa.int64(),
    "committed_at": pa.float64(),
    "view": pa.string(),
    "kind": pa.string(),
    "ts": pa.int64(),
    "rows_change": pa.int64(),
}
_ENTRIES = pa.schema(_ENTRY)
_COMMITS = pa.schema(_COMMIT)


def write_plan(root: StoragePath, plan: BatchPlan, guard: Guard = no_guard) -> None:
    stored_files.create_new(_path_of(root / "plans", plan.n), encode_plan(plan), guard)


def write_record(root: StoragePath, record: Record, guard: Guard = no_guard) -> None:
    stored_files.create_new(_path_of(root / "records", record.n), encode_record(record), guard)


def has_record(root: StoragePath, n: int) -> bool:
    return _path_of(root / "records", n).is_file()


def write_plans(root: StoragePath, plans: Sequence[BatchPlan], guard: Guard) -> None:
    """Several plans, one after the other, as one file."""
    _write_together(root / "plans", [(plan.n, encode_plan(plan)) for plan in plans], guard)


def write_records(root: StoragePath, records: Sequence[Record], guard: Guard) -> None:
    """Several records, one after the other, as one file."""
    _write_together(root / "records", [(each.n, encode_record(each)) for each in records], guard)


def _write_together(folder: StoragePath, items: Sequence[tuple[int, bytes]], guard: Guard) -> None:
    if len(items) == 1:
        stored_files.create_new(_path_of(folder, items[0][0]), items[0][1], guard)
    elif items:
        lines = [data.decode() for _, data in items]
        path = folder / f"{items[0][0]:020d}-{items[-1][0]:020d}.json"
        stored_files.create_new(path, seal_body(folder.name, lines, _TOGETHER), guard)


def _read_together(path: StoragePath, decode: Callable[[bytes, StoragePath], Item]) -> list[Item]:
    """What is in a file, which has one or several."""
    if "-" not in path.stem:
        return [decode(path.read_bytes(), path)]
    kind = path.parent.name
    lines = unseal_data(path.read_bytes(), path, kind, _MEND, _TOGETHER)
    with translate_decode_errors(path, kind, _MEND):
        return [decode(line.encode(), path) for line in read_typed(list[str], lines)]


def load_plans(root: StoragePath) -> tuple[list[LedgerEntry], int, list[BatchPlan]]:
    """The folded entries, through which plan they reach, and the plans after that; without a lock.

    The journal is read first: what is flushed meanwhile is then in both, never in none.
    """
    head, tail = read_journal(root)
    path = head.journal.path_below(root) if head.journal else root
    shown = [decode_plan(data, path) for data in tail.plans]
    entries, through, plans = load_plan_files(root)
    last = plans[-1].n if plans else through
    later = [plan for plan in shown if plan.n > last]
    if [plan.n for plan in later] != list(range(last + 1, last + 1 + len(later))):
        raise _missing_numbers(root / "plans", through, [plan.n for plan in (*plans, *later)])
    return entries, through, [*plans, *later]


def load_plan_files(root: StoragePath) -> tuple[list[LedgerEntry], int, list[BatchPlan]]:
    """The same without those that only the journal has."""
    folded, through, plans = _load_folder(root / "plans", _ENTRIES, decode_plan, _plan_number)
    rows = folded.to_pylist() if folded is not None else []
    return [_entry_of(row) for row in rows], through, plans


def plans_after(root: StoragePath, n: int) -> list[BatchPlan]:
    """The plans in the file that begins with the next number; none if it is not made yet, or
    folded."""
    folder = root / "plans"
    with suppress(FileNotFoundError):
        return [read_plan(_path_of(folder, n + 1))]
    for path in folder.glob(f"{n + 1:020d}-*.json"):
        with suppress(FileNotFoundError):
            return _read_together(path, decode_plan)
    return []


def _entry_of(row: dict[str, Any]) -> LedgerEntry:
    emptied, keyed = tuple(row["emptied"] or ()), tuple(row["keyed"] or ())
    changes = tuple(SchemaChange(*change) for change in json.loads(row["reshaped"] or "[]"))
    lists = {"emptied": emptied, "keyed": keyed, "reshaped": changes}
    numbers = {"n": row["n"] or 0, "first": row["first"] or 0}
    return LedgerEntry(**{**row, **lists, **numbers, "gap": bool(row["gap"])})


def load_ledger(root: StoragePath) -> Ledger:
    """The ledger of a warehouse, without a lock."""
    entries, _, plans = load_plans(root)
    ledger = Ledger(entries)
    for plan in plans:
        ledger.add_entries(plan.entries)
    return ledger


def load_records(root: StoragePath) -> tuple[int, list[Record]]:
    """Through which record the folded ones reach, and the records after that; without a lock."""
    tail = read_journal(root)[1]
    through, records = load_record_files(root)
    last = records[-1].n if records else through
    return through, [*records, *(each.record for each in tail.records if each.record.n > last)]


def load_record_files(root: StoragePath) -> tuple[int, list[Record]]:
    """The same without those that only the journal has."""
    _, through, records = _load_folder(root / "records", _COMMITS, decode_record, _record_number)
    return through, records


def read_commits(root: StoragePath) -> pa.Table:
    """When each view got to each ts: one row per view and record, as far back as is kept."""
    tail = read_journal(root)[1]
    folded, through, records = _load_folder(
        root / "records", _COMMITS, decode_record, _record_number
    )
    last = records[-1].n if records else through
    later = [each.record for each in tail.records if each.record.n > last]
    found = commit_rows([*records, *later])
    return found if folded is None else pa.concat_tables([folded, found])


def commit_rows(records: Iterable[Record]) -> pa.Table:
    """The lines that stay of records when they are folded."""
    rows: list[dict[str, object]] = [
        {
            "record": record.n,
            "committed_at": record.committed_at,
            "view": change.view,
            "kind": kind_of_change(change),
            "ts": change.ts if isinstance(change, (Advance, Create, Redefine)) else None,
            "rows_change": sum(file.count_sum for file in change.files)
            if isinstance(change, (Advance, Create, Redefine))
            else 0,
        }
        for record in records
        for change in record.changes
    ]
    return commit_table(rows)


def commit_table(rows: Sequence[dict[str, object]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=_COMMITS)


def entry_rows(entries: Iterable[LedgerEntry]) -> pa.Table:
    names = _ENTRIES.names
    rows = [{name: getattr(entry, name) for name in names} for entry in entries]
    for row in rows:
        row["reshaped"] = json.dumps([astuple(change) for change in row["reshaped"]])
    return pa.Table.from_pylist(rows, schema=_ENTRIES)


def fold_files(folder: StoragePath, rows: pa.Table, through: int, guard: Guard = no_guard) -> None:
    """Replace a folded file, then delete the numbered files that it stands for."""
    metadata = {_THROUGH: str(through).encode()}
    sink = pa.BufferOutputStream()
    pq.write_table(
        rows.replace_schema_metadata(metadata), sink, compression="zstd", write_page_checksum=True
    )
    stored_files.replace_file(folder / FOLDED, sink.getvalue().to_pybytes(), guard)
    for _, last, path in _numbered_files(folder):
        if last <= through:
            stored_files.remove_file(path)
    stored_files.sync_folder(folder)


def folded_rows(folder: StoragePath) -> pa.Table:
    """What is folded so far."""
    schema = _ENTRIES if folder.name == "plans" else _COMMITS
    found = _read_folded(folder, schema)[0]
    return schema.empty_table() if found is None else found


def last_whole_number(folder: StoragePath, through: int) -> int:
    """The greatest number up to a given one with which a file ends; 0 if there is none."""
    return max((last for _, last, _ in _numbered_files(folder) if last <= through), default=0)


def _load_folder(
    folder: StoragePath,
    schema: pa.Schema,
    decode: Callable[[bytes, StoragePath], Item],
    number_of: Callable[[Item], int],
) -> tuple[pa.Table | None, int, list[Item]]:
    for _ in range(_ATTEMPTS):
        rows, through = _read_folded(folder, schema)
        files = [file for file in _numbered_files(folder) if file[1] > through]
        numbers = [n for first, last, _ in files for n in range(first, last + 1)]
        if numbers != list(range(through + 1, through + 1 + len(numbers))):
            continue
        with suppress(FileNotFoundError):
            items = [item for *_, path in files for item in _read_together(path, decode)]
            _check_numbers(folder, numbers, [number_of(item) for item in items])
            return rows, through, items
    raise _missing_numbers(folder, through, numbers)


def _check_numbers(folder: StoragePath, named: Sequence[int], found: Sequence[int]) -> None:
    for name, number in zip_longest(named, found):
        if name != number:
            path = _path_of(folder, name or 0)
            raise corrupt_error(path, folder.name[:-1], f"it is {folder.name[:-1]} {number}", _MEND)


def _missing_numbers(folder: StoragePath, through: int, numbers: Sequence[int]) -> CorruptError:
    return CorruptError(
        f'warehouse folder "{folder}": numbers are missing',
        detail=f"folded through {through}, then {list(numbers[:5])} ...",
        hint=f"restore the folder from a backup; without one, {reload_hint()}",
    )


def _plan_number(plan: BatchPlan) -> int:
    return plan.n


def _record_number(record: Record) -> int:
    return record.n


def _read_folded(folder: StoragePath, schema: pa.Schema) -> tuple[pa.Table | None, int]:
    """The folded rows and through which number they reach; None if nothing is folded yet.

    An empty Arrow table would import pandas: a second for nothing.
    """
    path = folder / FOLDED
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None, 0
    try:
        with pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True) as file:
            rows = file.read()
        through = int((rows.schema.metadata or {})[_THROUGH])
    except (OSError, KeyError, ValueError) as error:
        raise corrupt_error(path, "folded file", str(error), "restore it from a backup") from error
    for column in schema:
        # What was folded before there was such a column has nothing to say in it.
        if column.name not in rows.schema.names:
            rows = rows.append_column(column, pa.nulls(rows.num_rows, column.type))
    return rows.replace_schema_metadata(None).select(schema.names).cast(schema), through


def _numbered_files(folder: StoragePath) -> Sequence[tuple[int, int, StoragePath]]:
    """The files, each with its first and its last number."""
    found = (_numbers_of(path) for path in folder.glob("[0-9]*.json"))
    return sorted(found, key=lambda file: file[:2])


def _numbers_of(path: StoragePath) -> tuple[int, int, StoragePath]:
    first, _, last = path.stem.partition("-")
    return int(first), int(last or first), path


def _path_of(folder: StoragePath, n: int) -> StoragePath:
    return folder / f"{n:020d}.json"
