"""What a warehouse says of its groups, and the numbers in its ledger: written, read, folded."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from viewkeeper.errors import CorruptError
from viewkeeper.updates.schema_change import SchemaChange
from viewkeeper.warehouse.metadata.coordination import (
    FILE,
    Coordination,
    GroupSpan,
    read_coordination,
    write_coordination,
)
from viewkeeper.warehouse.metadata.plan_files import (
    BatchPlan,
    LedgerEntry,
    encode_plan,
    entry_rows,
    fold_files,
    load_ledger,
    read_plan,
)
from viewkeeper.warehouse.store import Store

ENTRIES = (
    LedgerEntry(2, "shop", 0, 5, 10.0, 1),
    LedgerEntry(3, "shop", 5, 6, 11.0, 1, n=1, first=1),
    LedgerEntry(3, "sales", 1, 2, 11.0, 1, n=1, first=1),
    LedgerEntry(4, "sales", 2, 4, 12.0, 1, ("a",), (), (SchemaChange("drop_table", "b"),), 5, 3),
)


def test_numbers_survive_plans_and_folding(tmp_path: Path) -> None:
    (tmp_path / "1").write_bytes(encode_plan(BatchPlan(1, ENTRIES)))
    assert read_plan(tmp_path / "1").entries == ENTRIES
    with Store.open(tmp_path / "w", "test", time.time) as store:
        plan = BatchPlan(store.next_plan, ENTRIES)
        store.write_plan(plan)
        store.commit([], plan.n)
        fold_files(store.root / "plans", entry_rows(ENTRIES), plan.n)
    assert tuple(load_ledger(tmp_path / "w").entries) == ENTRIES


def test_spans_are_found_with_their_ends(tmp_path: Path) -> None:
    assert read_coordination(tmp_path) is None
    one, two = GroupSpan("g", "one", 3, 9, 7), GroupSpan("h", "two", 8, 0, 8, alone=True)
    told = Coordination("orders", (one, two))
    write_coordination(tmp_path, told)
    assert read_coordination(tmp_path) == told
    assert told.span_of("one") == (one, 8)
    assert told.span_of("two") == (two, None)
    assert told.span_of("three") is None


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    write_coordination(tmp_path, Coordination("orders"))
    text = (tmp_path / FILE).read_text()
    (tmp_path / FILE).write_text(text.replace("orders", "others"))
    with pytest.raises(CorruptError, match=FILE):
        read_coordination(tmp_path)
