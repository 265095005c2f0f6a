"""DuckDB, which has no incremental views: the whole view is computed again after every change.

Tables and view are in memory. What is timed is the statement that makes the view again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import duckdb
import pyarrow as pa

from benchmarks.peers.programs.protocol import COLUMNS, Change, Digest, digest_of, read_table, serve

VIEW = """
CREATE OR REPLACE TABLE lines AS
SELECT i.id, o.id AS order_id, c.name, c.city, p.title, i.quantity, i.quantity * p.cents AS cents
FROM orders o JOIN customer c ON c.id = o.customer_id
JOIN item i ON i.order_id = o.id JOIN product p ON p.id = i.product_id
"""


class DuckdbRecomputation:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._database = duckdb.connect(":memory:")

    def load(self) -> float:
        started = time.perf_counter()
        for table, columns in COLUMNS.items():
            rows = read_table(self._folder, table)
            kinds = ["VARCHAR" if isinstance(value, str) else "BIGINT" for value in rows[0]]
            named = ", ".join(f"{c} {k}" for c, k in zip(columns, kinds, strict=True))
            self._database.execute(f"CREATE TABLE {table} ({named})")
            self._insert(table, columns, rows)
        self._database.execute(VIEW)
        return time.perf_counter() - started

    def _insert(
        self, table: str, columns: Sequence[str], rows: Sequence[tuple[object, ...]]
    ) -> None:
        values = zip(*rows, strict=True)
        arrived = pa.table(dict(zip(columns, map(list, values), strict=True)))
        self._database.register("arrived", arrived)
        self._database.execute(f"INSERT INTO {table} SELECT * FROM arrived")
        self._database.unregister("arrived")

    def apply(self, change: Change) -> float:
        self._database.execute("DELETE FROM item WHERE id BETWEEN ? AND ?", list(change.deleted))
        self._insert("item", COLUMNS["item"], change.inserted)
        started = time.perf_counter()
        self._database.execute(VIEW)
        return time.perf_counter() - started

    def check(self) -> Digest:
        return digest_of(self._database.execute("SELECT * FROM lines").fetchall())

    def close(self) -> None:
        self._database.close()


if __name__ == "__main__":
    serve(DuckdbRecomputation(Path(sys.argv[1])))
