"""Delta Lake tables of the suite, with and without a change data feed.

A table is a source of its own. Each row has a number that no view reads, by which a transaction of
any changes becomes one MERGE. One that is abandoned leaves a data file that no version names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from tests.sources.conformance.changes import ARROW, Change, Delete, Insert, Row, Update, Word
from tests.sources.conformance.database import Database

NUMBER = "nr"
_GONE = "gone"


class DeltaLake(Database):
    kind = "delta_lake"
    tables_max = 1
    enforces_keys = False
    has_indexes = False
    trims = False
    limited = "viewkeeper.sources.delta_lake.source"

    def __init__(self, folder: Path, feed: bool) -> None:
        super().__init__(folder)
        self.feed = feed
        self._next = count()
        self._numbers: dict[Row, list[int]] = defaultdict(list)

    def options(self) -> dict[str, object]:
        (table,) = self.columns
        return {"path": table}

    def absent(self) -> dict[str, object]:
        return {"path": f"nowhere/{next(iter(self.columns))}"}

    def _create(
        self,
        name: str,
        columns: Mapping[str, Word],
        key: Sequence[str],
        indexes: Sequence[Sequence[str]],
    ) -> None:
        settings = {"delta.enableChangeDataFeed": str(self.feed).lower()}
        write_deltalake(self.folder / name, self._rows(name, {}), configuration=settings)

    def _write(self, changes: Sequence[Change]) -> None:
        """The net of the changes, by row number: what is None there goes."""
        net: dict[int, Row | None] = {}
        for change in changes:
            match change:
                case Insert(row=row):
                    self._put(net, next(self._next), row)
                case Delete(row=row):
                    net[self._numbers[row].pop()] = None
                case Update(old=old, new=new):
                    self._put(net, self._numbers[old].pop(), new)
        (table,) = {change.table for change in changes}
        if all(isinstance(change, Insert) for change in changes):
            write_deltalake(self.folder / table, self._rows(table, net), mode="append")
        else:
            self._merge(table, net)

    def _put(self, net: dict[int, Row | None], number: int, row: Row) -> None:
        net[number] = row
        self._numbers[row].append(number)

    def _merge(self, table: str, net: Mapping[int, Row | None]) -> None:
        gone = pa.array([row is None for row in net.values()], pa.bool_())
        rows = self._rows(table, net).append_column(_GONE, gone)
        updates = {name: f"s.{name}" for name in (NUMBER, *self.columns[table])}
        (
            DeltaTable(str(self.folder / table))
            .merge(rows, f"s.{NUMBER} = t.{NUMBER}", source_alias="s", target_alias="t")
            .when_matched_delete(f"s.{_GONE}")
            .when_matched_update(updates)
            .when_not_matched_insert(updates, predicate=f"NOT s.{_GONE}")
            .execute()
        )

    def abandon(self, *changes: Change) -> None:
        rows = {i: each.row for i, each in enumerate(changes) if isinstance(each, Insert)}
        (table,) = self.columns
        pq.write_table(self._rows(table, rows), self.folder / table / "half.parquet")

    def _rows(self, table: str, rows: Mapping[int, Row | None]) -> pa.Table:
        columns: dict[str, Any] = {NUMBER: pa.array(rows, pa.int64())}
        for place, (name, word) in enumerate(self.columns[table].items()):
            values = [None if row is None else row[place] for row in rows.values()]
            columns[name] = pa.array(values, ARROW[word])
        return pa.table(columns)
