"""The folded ledger: barriers stay in it, and files from before there were any can be read."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from viewkeeper.warehouse.metadata.plan_files import (
    FOLDED,
    LedgerEntry,
    entry_rows,
    fold_files,
    load_ledger,
)

ENTRIES = [
    LedgerEntry(2, "shop", 0, 10, 1.0, 3),
    LedgerEntry(3, "shop", 10, 20, 2.0, 1, ("orders",), ("item",)),
]


def folded(root: Path) -> Path:
    (root / "plans").mkdir()
    fold_files(root / "plans", entry_rows(ENTRIES), through=1)
    return root / "plans" / FOLDED


def test_what_is_folded_comes_back(tmp_path: Path) -> None:
    folded(tmp_path)
    assert list(load_ledger(tmp_path).entries) == ENTRIES


def test_a_file_from_before_barriers_is_read(tmp_path: Path) -> None:
    path = folded(tmp_path)
    rows = pq.read_table(path)
    pq.write_table(rows.drop_columns(["emptied", "keyed"]), path, write_page_checksum=True)
    plain = [
        LedgerEntry(e.ts, e.source, e.after, e.until, e.committed_at, e.changes) for e in ENTRIES
    ]
    assert list(load_ledger(tmp_path).entries) == plain
