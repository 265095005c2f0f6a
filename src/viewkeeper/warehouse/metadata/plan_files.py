"""The folders of plans and records, and the two files that old ones are folded into.

Plans and records are numbered from 1 without gaps. Old ones are folded: the ledger's entries into
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
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from viewkeeper.errors import CorruptError, reload_hint
from viewkeeper.storage import disk
from viewkeeper.storage.sealed_json import (
    Body,
    corrupt_error,
    seal_body,
    translate_decode_errors,
    unseal_file,
)
from viewkeeper.storage.typed_json import Readers, read_typed
from viewkeeper.updates.schema_change import SchemaChange
from viewkeeper.warehouse.metadata.record import (
    Advance,
    Create,
    Record,
    Redefine,
    encode_record,
    kind_of_change,
    read_record,
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


def read_plan(path: Path) -> BatchPlan:
    """The plan in a file; CorruptError if it cannot be believed."""
    body: Body = unseal_file(path, "plan", _MEND)
    with translate_decode_errors(path, "plan", _MEND):
        entries = tuple(_decode_entry(entry) for entry in body.pop("entries"))
        plan = replace(read_typed(BatchPlan, {**body, "entries": []}), entries=entries)
        if path.stem.isdigit() and int(path.stem) != plan.n:
            raise ValueError(f"it is plan {plan.n}")
        return plan


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


def write_plan(root: Path, plan: BatchPlan, guard: disk.Guard = disk.no_guard) -> None:
    disk.create_new(_path_of(root / "plans", plan.n), encode_plan(plan), guard)


def write_record(root: Path, record: Record, guard: disk.Guard = disk.no_guard) -> None:
    disk.create_new(_path_of(root / "records", record.n), encode_record(record), guard)


def has_record(root: Path, n: int) -> bool:
    return _path_of(root / "records", n).exists()


def load_plans(root: Path) -> tuple[list[LedgerEntry], int, list[BatchPlan]]:
    """The folded entries, through which plan they reach, and the plans after that."""
    folded, through, plans = _load_folder(root / "plans", _ENTRIES, read_plan)
    return [_entry_of(row) for row in folded.to_pylist()], through, plans


def plan_after(root: Path, n: int) -> BatchPlan | None:
    """The plan with the next number; None if it is not made yet, or folded."""
    with suppress(FileNotFoundError):
        return read_plan(_path_of(root / "plans", n + 1))
    return None


def _entry_of(row: dict[str, Any]) -> LedgerEntry:
    emptied, keyed = tuple(row["emptied"] or ()), tuple(row["keyed"] or ())
    changes = tuple(SchemaChange(*change) for change in json.loads(row["reshaped"] or "[]"))
    lists = {"emptied": emptied, "keyed": keyed, "reshaped": changes}
    numbers = {"n": row["n"] or 0, "first": row["first"] or 0}
    return LedgerEntry(**{**row, **lists, **numbers, "gap": bool(row["gap"])})


def load_ledger(root: Path) -> Ledger:
    """The ledger of a warehouse, without a lock."""
    entries, _, plans = load_plans(root)
    ledger = Ledger(entries)
    for plan in plans:
        ledger.add_entries(plan.entries)
    return ledger


def load_records(root: Path) -> tuple[int, list[Record]]:
    """Through which record the folded ones reach, and the records after that."""
    _, through, records = _load_folder(root / "records", _COMMITS, read_record)
    return through, records


def read_commits(root: Path) -> pa.Table:
    """When each view got to each ts: one row per view and record, as far back as is kept."""
    folded, _, records = _load_folder(root / "records", _COMMITS, read_record)
    return pa.concat_tables([folded, commit_rows(records)])


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


def fold_files(
    folder: Path, rows: pa.Table, through: int, guard: disk.Guard = disk.no_guard
) -> None:
    """Replace a folded file, then delete the numbered files that it stands for."""
    metadata = {_THROUGH: str(through).encode()}
    sink = pa.BufferOutputStream()
    pq.write_table(
        rows.replace_schema_metadata(metadata), sink, compression="zstd", write_page_checksum=True
    )
    disk.replace_file(folder / FOLDED, sink.getvalue().to_pybytes(), guard)
    for number, path in _numbered_files(folder):
        if number <= through:
            disk.remove_file(path)
    disk.sync_folder(folder)


def folded_rows(folder: Path) -> pa.Table:
    """What is folded so far."""
    return _read_folded(folder, _ENTRIES if folder.name == "plans" else _COMMITS)[0]


def _load_folder(
    folder: Path, schema: pa.Schema, read: Callable[[Path], Item]
) -> tuple[pa.Table, int, list[Item]]:
    for _ in range(_ATTEMPTS):
        rows, through = _read_folded(folder, schema)
        files = [(n, path) for n, path in _numbered_files(folder) if n > through]
        if [n for n, _ in files] != list(range(through + 1, through + 1 + len(files))):
            continue
        with suppress(FileNotFoundError):
            return rows, through, [read(path) for _, path in files]
    raise CorruptError(
        f'warehouse folder "{folder}": numbers are missing',
        detail=f"folded through {through}, then {[n for n, _ in files][:5]} ...",
        hint=f"restore the folder from a backup; without one, {reload_hint()}",
    )


def _read_folded(folder: Path, schema: pa.Schema) -> tuple[pa.Table, int]:
    path = folder / FOLDED
    if not path.exists():
        return schema.empty_table(), 0
    try:
        rows = pq.read_table(path, page_checksum_verification=True)
        through = int((rows.schema.metadata or {})[_THROUGH])
    except (OSError, KeyError, ValueError) as error:
        raise corrupt_error(path, "folded file", str(error), "restore it from a backup") from error
    for column in schema:
        # What was folded before there was such a column has nothing to say in it.
        if column.name not in rows.schema.names:
            rows = rows.append_column(column, pa.nulls(rows.num_rows, column.type))
    return rows.replace_schema_metadata(None).select(schema.names).cast(schema), through


def _numbered_files(folder: Path) -> Sequence[tuple[int, Path]]:
    return sorted((int(path.stem), path) for path in folder.glob("[0-9]*.json"))


def _path_of(folder: Path, n: int) -> Path:
    return folder / f"{n:020d}.json"
