"""Folders to measure sources on: the table `orders` as files, and as a Delta Lake table.

Files have no log: one *state* is measured, handed over by renaming, whose changes are spread over
all ten files, so that every file has to be compared. In Delta Lake one commit either appends or
updates, by turns, twice as many rows as a half of a transaction elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from benchmarks.source_worlds import COLUMNS, TABLE, SourceWorld

PARTS = 10
LAKE_FILES = 20
_TYPES = ("bigint", "int", "string", "string", "decimal(12,2)", "timestamp_ntz")


def rows_of(first: int, count: int) -> pa.Table:
    """Rows with consecutive ids."""
    ids = np.arange(first, first + count, dtype=np.int64)
    texts: Any = pa.array(ids).cast(pa.string())
    cities: Any = pa.array(ids % 500).cast(pa.string())
    join: Any = pc.binary_join_element_wise
    arrays: list[Any] = [
        pa.array(ids),
        pa.array((ids % 100).astype(np.int32)),
        join("customer number", texts, " "),
        join("city", cities, " "),
        pa.array(ids % 100_000 / 100).cast(pa.decimal128(12, 2)),
        pa.array(1_700_000_000_000_000 + ids * 1_000_000).cast(pa.timestamp("us")),
    ]
    return pa.table(dict(zip(COLUMNS, arrays, strict=True)))


def updated(rows: pa.Table, count: int) -> pa.Table:
    """The same rows, the first of them changed."""
    quantities: Any = pc.if_else(
        pa.array(np.arange(rows.num_rows) < count),
        pc.add(rows["quantity"], pa.scalar(1, pa.int32())),
        rows["quantity"],
    )
    return rows.set_column(1, "quantity", quantities)


class FilesWorld(SourceWorld):
    kind = "files"

    def __init__(self, folder: Path, rows: int, format: str) -> None:
        super().__init__(folder, rows)
        self.format = format
        self._parts: list[pa.Table] = []

    @property
    def label(self) -> str:
        return f"files, {self.format}"

    def options(self) -> dict[str, object]:
        declared = dict(zip(COLUMNS, _TYPES, strict=True))
        table: dict[str, object] = {"key": ["id"]}
        if self.format == "csv":
            table["columns"] = declared
        return {
            "path": "exports",
            "format": self.format,
            "tables": {TABLE: table},
            "settle_seconds": 0,
        }

    def create(self) -> None:
        (self.folder / "exports" / TABLE).mkdir(parents=True)
        share = -(-self.rows // PARTS)
        for first in range(1, self.rows + 1, share):
            self._parts.append(rows_of(first, min(share, self.rows + 1 - first)))
        self._hand_over(range(len(self._parts)))

    def _commit(self, transactions: int, half: int) -> Iterator[None]:
        """A state; of few changes some parts get none."""
        for number in range(transactions):
            new = self._next + number * half
            shares = [half // PARTS + (part < half % PARTS) for part in range(len(self._parts))]
            for part, share in enumerate(shares):
                changed = updated(self._parts[part], share)
                self._parts[part] = pa.concat_tables([changed, rows_of(new, share)])
                new += share
            self._hand_over([part for part, share in enumerate(shares) if share])
            yield

    def _hand_over(self, parts: range | list[int]) -> None:
        for part in parts:
            path = self.folder / "exports" / TABLE / f"part{part}.{self.format}"
            temporary = path.with_name(f"_{path.name}")
            if self.format == "csv":
                pyarrow.csv.write_csv(self._parts[part], temporary)
            else:
                pq.write_table(self._parts[part], temporary)
            temporary.rename(path)


class DeltaLakeWorld(SourceWorld):
    kind = "delta_lake"

    format = "parquet"

    def __init__(self, folder: Path, rows: int, feed: bool) -> None:
        super().__init__(folder, rows)
        self.feed = feed

    @property
    def label(self) -> str:
        return "delta_lake" + ("" if self.feed else ", no feed")

    def options(self) -> dict[str, object]:
        return {"path": TABLE}

    @property
    def path(self) -> Path:
        return self.folder / TABLE

    def create(self) -> None:
        settings = {"delta.enableChangeDataFeed": str(self.feed).lower()}
        share = -(-self.rows // LAKE_FILES)
        for first in range(1, self.rows + 1, share):
            rows = rows_of(first, min(share, self.rows + 1 - first))
            write_deltalake(self.path, rows, mode="append", configuration=settings)

    def _commit(self, transactions: int, half: int) -> Iterator[None]:
        table = DeltaTable(str(self.path))
        for number in range(transactions):
            count = 2 * half
            if number % 2 == 0:
                write_deltalake(table, rows_of(self._next + number * half, count), mode="append")
            else:
                first = self._updated(number, count)
                table.update(
                    {"quantity": "quantity + 1"},
                    predicate=f"id BETWEEN {first} AND {first + count - 1}",
                )
            yield
