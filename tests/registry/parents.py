"""A parent's warehouse that tests write themselves, one commit at a time, with real files.

What its views must show is kept beside it in plain dictionaries: the state of every view as of
every ts.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.warehouse.model import folder_of
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.updates.source_protocol import COUNT, TS
from viewkeeper.upstream.source import WarehouseSource
from viewkeeper.warehouse.lake.data_files import write_rows
from viewkeeper.warehouse.metadata.definition_version import DefinitionVersion
from viewkeeper.warehouse.metadata.plan_files import BatchPlan, LedgerEntry
from viewkeeper.warehouse.metadata.record import Advance, Create, Redefine, ViewChange
from viewkeeper.warehouse.store import Store

Row = tuple[Any, ...]
Bag = Counter[Row]
KINDS: dict[str, pa.DataType] = {"k": pa.int64(), "name": pa.string()}
SCHEMA = pa.schema(KINDS)
FILE = "warehouse: ./warehouse\nsources: {shop: {kind: sqlite, path: shop.db, global: company}}\n"


class BuiltParent:
    """A project folder whose warehouse the test writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "warehouse").mkdir(parents=True)
        (folder / "viewkeeper.yml").write_text(FILE)
        (folder / "warehouse" / "identity").write_text("the first")
        self.store = Store.open(folder / "warehouse", "test", time.time)
        self.states: dict[str, dict[int, Bag]] = {}
        self.schemas: dict[str, pa.Schema] = {}

    @property
    def root(self) -> Path:
        return self.store.local_root

    @property
    def last(self) -> int:
        return self.store.ledger.next_ts - 1

    def create(self, view: str, rows: Mapping[Row, int], schema: pa.Schema = SCHEMA) -> None:
        """Load a view as of the newest ts, again if there is one."""
        old = self.store.head.views.get(view)
        table, ts = self.store.new_table(view), self.last
        self.schemas[view], self.states[view] = schema, {ts: Counter(dict(rows))}
        batch = self.store.head.record + 1
        stamped = self._rows(view, {ts: dict(rows)})
        folder = self.store.local_root.joinpath("views", table)
        files = (write_rows(folder, schema, stamped, batch, 0),) if rows else ()
        versions = (*(old.versions if old else ()), _version(schema, ts))
        replaces = old.table if old else None
        change = Create(
            view, table, "", schema, ts, {"shop": ts}, files, True, replaces, (), versions
        )
        self.store.commit([change])

    def commit(
        self,
        changes: Mapping[str, Mapping[int, Mapping[Row, int]]],
        count: int = 1,
        exact: bool = True,
        numbers: Mapping[int, int] | None = None,
    ) -> None:
        """Give some ts to transactions of the shop, and take these views to the last of them."""
        first = self.last + 1
        stamps = range(first, first + count)
        entries = tuple(
            LedgerEntry(ts, "shop", ts - 1, ts, 1000.0 + ts, 1, n=(numbers or {}).get(ts, 0))
            for ts in stamps
        )
        plan = BatchPlan(self.store.next_plan, entries)
        self.store.write_plan(plan)
        self.store.commit([self._advance(v, c, exact) for v, c in changes.items()], plan.n)

    def advance(self, view: str, changes: Mapping[int, Mapping[Row, int]]) -> None:
        """Take a view that was left behind to the newest ts."""
        self.store.commit([self._advance(view, changes, True)])

    def redefine(self, view: str, schema: pa.Schema) -> None:
        """Give a view other columns, at the ts where it stands."""
        head = self.store.head.views[view]
        self.schemas[view] = schema
        version = _version(schema, head.ts)
        change = Redefine(view, "", version, schema, head.ts, head.positions)
        self.store.commit([change])

    def _advance(
        self, view: str, changes: Mapping[int, Mapping[Row, int]], exact: bool
    ) -> ViewChange:
        states, last = self.states[view], self.last
        for ts in range(max(states) + 1, last + 1):
            state = Counter(states[ts - 1])
            for row, count in changes.get(ts, {}).items():
                state[row] += count
            states[ts] = Counter({row: count for row, count in state.items() if count})
        rows = self._rows(view, changes)
        batch, folder = (
            self.store.head.record + 1,
            folder_of(self.store, view),
        )
        keep, schema = self.store.group.keep_rows, self.schemas[view]
        files = (keep(folder, schema, rows, batch, 0),) if rows.num_rows else ()
        return Advance(view, last, {"shop": last}, files, exact=exact)

    def _rows(self, view: str, changes: Mapping[int, Mapping[Row, int]]) -> pa.Table:
        flat = [(*r, n, ts) for ts, rows in changes.items() for r, n in rows.items() if n]
        names = [*self.schemas[view].names, COUNT, TS]
        types = [*self.schemas[view].types, pa.int64(), pa.int64()]
        columns = list(zip(*flat, strict=True)) or [()] * len(names)
        arrays = [pa.array(c, t) for c, t in zip(columns, types, strict=True)]
        return pa.table(arrays, names=names)

    def close(self) -> None:
        self.store.close()


def _version(schema: pa.Schema, ts: int) -> DefinitionVersion:
    return DefinitionVersion("", (), tuple(schema.names), ts, 0.0)


def child_of(parent: BuiltParent, folder: Path, reader: str = "reader") -> WarehouseSource:
    """A source over a parent, as a project in a folder beside it has it."""
    home = str(folder / "home")
    options = {"path": str(parent.folder)}
    return WarehouseSource(SourceSettings("sales", "warehouse", options, str(folder), home), reader)
