"""The folders of plans and records, and the two files that old ones are folded into.

Plans and records are numbered from 1 without gaps. Old ones are folded: the ledger's entries into
`plans/folded.parquet`, a line per view and record into `records/folded.parquet`. A folded file says
through which number it reaches; a numbered file at or below that is a leftover and is ignored. So
folding is: replace the folded file, then delete the numbered ones; it can stop anywhere. A gap in
the numbers is damage, or a reader that lost the race with a fold, which reads again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from viewkeeper.errors import CorruptError, reload_hint
from viewkeeper.storage import disk
from viewkeeper.storage.sealed_json import corrupt_error
from viewkeeper.updates.schema_change import SchemaChange
from viewkeeper.warehouse.metadata.batch_plan import (
    BatchPlan,
    Ledger,
    LedgerEntry,
    encode_plan,
    read_plan,
)
from viewkeeper.warehouse.metadata.record import (
    Advance,
    Create,
    Record,
    Redefine,
    encode_record,
    kind_of_change,
    read_record,
)

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
    for field in schema:
        # What was folded before there was such a column has nothing to say in it.
        if field.name not in rows.schema.names:
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    return rows.replace_schema_metadata(None).select(schema.names).cast(schema), through


def _numbered_files(folder: Path) -> Sequence[tuple[int, Path]]:
    return sorted((int(path.stem), path) for path in folder.glob("[0-9]*.json"))


def _path_of(folder: Path, n: int) -> Path:
    return folder / f"{n:020d}.json"
