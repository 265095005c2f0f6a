"""A warehouse with one view beside the simplest thing that could be meant by it.

The model of a view is a list of (ts, Counter of rows): its state as of T is the sum up to T. Rows
are tuples. A `World` does every step to the warehouse and to the model, so a test compares the two.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.warehouse.lake.data_files import stored_schema, write_rows
from viewkeeper.warehouse.metadata.head import ViewHead, read_head
from viewkeeper.warehouse.metadata.plan_files import BatchPlan, LedgerEntry
from viewkeeper.warehouse.metadata.record import Advance, Create, DataFile
from viewkeeper.warehouse.rows.view_state import read_state, read_view_changes
from viewkeeper.warehouse.store import Store

Row = tuple[Any, ...]
Bag = Mapping[Row, int]

COLUMNS: dict[str, pa.DataType] = {"k": pa.int64(), "s": pa.string()}
SCHEMA = pa.schema(COLUMNS)
VIEW = "v"
LOADED = 1


def folder_of(store: Store, view: str = VIEW) -> Path:
    """The folder of a view's table, in a warehouse that is a folder."""
    return store.local_root / "views" / store.head.views[view].table


@dataclass
class World:
    """A warehouse, and the history that it should hold: what was added at which ts."""

    store: Store
    schema: pa.Schema = SCHEMA
    history: list[tuple[int, Counter[Row]]] = field(default_factory=list)
    hidden: tuple[str, ...] = ()

    def load(self, rows: Bag, *, distinct: bool = True) -> None:
        """Create the view with rows as of its first ts."""
        table = self.store.new_table(VIEW)
        files = self.files(self.store.table_folder(table), rows, LOADED)
        create = Create(
            VIEW,
            table,
            "SELECT ...",
            self.schema,
            LOADED,
            {"shop": 0},
            files,
            distinct,
            hidden=self.hidden,
        )
        self.store.commit([create])
        self.history.append((LOADED, Counter(rows)))

    def files(self, folder: StoragePath, rows: Bag, ts: int) -> tuple[DataFile, ...]:
        if not any(rows.values()):
            return ()
        table = signed(self.schema, rows, ts)
        return (write_rows(folder, self.schema, table, self.store.head.record + 1, 0),)

    def kept(self, rows: Bag, ts: int) -> tuple[DataFile, ...]:
        """Rows for the next record, in the journal or in a file."""
        if not any(rows.values()):
            return ()
        folder, table = self.store.folder_of(VIEW), signed(self.schema, rows, ts)
        number = self.store.head.record + 1
        return (self.store.group.keep_rows(folder, self.schema, table, number, 0),)

    def plan(self) -> BatchPlan:
        """Write the plan of one transaction, or take up the one that a crash left."""
        pending = self.store.pending_plan()
        if pending:
            return pending
        ts = max(self.store.ledger.next_ts, LOADED + 1)
        entry = LedgerEntry(ts, "shop", ts - 2, ts - 1, 100.0 + ts, 1)
        plan = BatchPlan(self.store.next_plan, (entry,), {VIEW: (ts - 1, ts)})
        self.store.write_plan(plan)
        return plan

    def append(self, rows: Bag) -> None:
        """One batch of one transaction."""
        plan = self.plan()
        ts = plan.entries[-1].ts
        files = self.kept(rows, ts)
        self.store.commit([Advance(VIEW, ts, {"shop": ts - 1}, files)], plan.n)
        self.history.append((ts, Counter(rows)))

    def expected(self, ts: int) -> Counter[Row]:
        total: Counter[Row] = Counter()
        for at, rows in self.history:
            if at <= ts:
                total.update(rows)
        return +total

    @property
    def view(self) -> ViewHead:
        return self.store.head.require_view(VIEW)

    def check(self) -> None:
        """Every state of the window, the changes of the whole, and the number of rows agree."""
        view = read_head(self.store.root).require_view(VIEW)
        assert view == self.view
        for ts in range(view.horizon, view.ts + 1):
            assert bag(read_state(self.store.root, view, ts)) == self.expected(ts), f"as of {ts}"
        assert view.rows == sum(self.expected(view.ts).values())
        moves = read_view_changes(self.store.root, view, view.horizon) if view.horizon else None
        if moves is not None:
            assert per_ts(moves) == self.moved(view.horizon)

    def moved(self, since: int) -> dict[int, Counter[Row]]:
        found = {ts: nonzero(rows) for ts, rows in self.history if ts > since}
        return {ts: rows for ts, rows in found.items() if rows}


def signed(schema: pa.Schema, rows: Bag, ts: int) -> pa.Table:
    columns = [[row[i] for row in rows] for i in range(len(schema))]
    arrays = [pa.array(c, kind) for c, kind in zip(columns, schema.types, strict=True)]
    arrays += [pa.array(list(rows.values()), pa.int64()), pa.array([ts] * len(rows), pa.int64())]
    return pa.Table.from_arrays(arrays, schema=stored_schema(schema))


def bag(rows: pa.Table) -> Counter[Row]:
    return Counter(tuple(row.values()) for row in rows.to_pylist())


def per_ts(rows: pa.Table) -> dict[int, Counter[Row]]:
    """Signed rows as a Counter per ts; a row may occur only once per ts."""
    found: dict[int, Counter[Row]] = {}
    for values in (tuple(row.values()) for row in rows.to_pylist()):
        row, count, ts = values[:-2], values[-2], values[-1]
        assert row not in found.setdefault(ts, Counter()), "a row twice in one ts"
        found[ts][row] = count
    return found


def nonzero(rows: Counter[Row]) -> Counter[Row]:
    return Counter({row: count for row, count in rows.items() if count})


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with opened(tmp_path / "warehouse") as made:
        yield made


@contextmanager
def opened(root: Path) -> Iterator[World]:
    """A new warehouse with a small view."""
    with Store.open(root, "test", time.time) as store:
        made = World(store)
        made.load({(1, "a"): 1, (2, None): 2, (3, ""): 1})
        yield made
