"""Flink SQL in its local cluster, which keeps both sides of every join as state.

The tables are folders with files of changes (the `debezium-json` format), looked at every
millisecond; a change is one more file. The view is what the sink `print` has printed, since handing
rows to Python one by one costs far more than the join does. No checkpoint is taken, so nothing is
committed; a change is timed from the file's name appearing until its last row is printed.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TextIO

from pyflink.table import EnvironmentSettings, TableEnvironment

from benchmarks.peers.programs.protocol import COLUMNS, Change, Digest, digest_of, read_table, serve

VIEW = """
INSERT INTO lines SELECT i.id, o.id, c.name, c.city, p.title, i.quantity, i.quantity * p.cents
FROM orders o JOIN customer c ON c.id = o.customer_id
JOIN item i ON i.order_id = o.id JOIN product p ON p.id = i.product_id
"""
SINK = """
CREATE TABLE lines (item BIGINT, orders BIGINT, name STRING, city STRING, title STRING,
                    quantity BIGINT, cents BIGINT) WITH ('connector' = 'print')
"""
SIGNS = {"+I": 1, "+U": 1, "-U": -1, "-D": -1}


class FlinkSql:
    def __init__(self, folder: Path) -> None:
        self._rows = {table: read_table(folder, table) for table in COLUMNS}
        self._items = {row[0]: row for row in self._rows["item"]}
        self._folder = folder / "flink"
        self._files = 0
        self._shown: Counter[tuple[Any, ...]] = Counter()
        self._seen = 0
        self._changed = threading.Condition()

    def load(self) -> float:
        expected = len(self._items)
        printed = self._redirect_output()
        started = time.perf_counter()
        for table, rows in self._rows.items():
            (self._folder / table).mkdir(parents=True)
            self._write(table, [("c", row) for row in rows])
        environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        environment.get_config().set("parallelism.default", "2")
        for table, rows in self._rows.items():
            environment.execute_sql(self._definition(table, rows[0]))
        environment.execute_sql(SINK)
        self._result = environment.execute_sql(VIEW)
        # The collecting thread ends with the process: the query has no end.
        threading.Thread(target=self._collect, args=(printed,), daemon=True).start()
        self._wait_for(expected)
        return time.perf_counter() - started

    @staticmethod
    def _redirect_output() -> TextIO:
        """What the Java process will print: it inherits our standard output."""
        reading, writing = os.pipe()
        os.dup2(writing, 1)
        os.close(writing)
        return os.fdopen(reading, encoding="utf-8")

    def _definition(self, table: str, row: tuple[Any, ...]) -> str:
        kinds = ["STRING" if isinstance(value, str) else "BIGINT" for value in row]
        named = ", ".join(f"{c} {k}" for c, k in zip(COLUMNS[table], kinds, strict=True))
        return (
            f"CREATE TABLE {table} ({named}, PRIMARY KEY (id) NOT ENFORCED) WITH ("
            f"'connector' = 'filesystem', 'path' = 'file://{self._folder / table}',"
            f" 'format' = 'debezium-json', 'source.monitor-interval' = '1 ms')"
        )

    def _write(self, table: str, changes: Iterable[tuple[str, tuple[Any, ...]]]) -> None:
        """A file of changes appears whole: Flink reads what it sees once."""
        self._files += 1
        hidden = self._folder / f"{self._files}.json"
        with hidden.open("w", encoding="utf-8") as file:
            for kind, row in changes:
                image = dict(zip(COLUMNS[table], row, strict=True))
                before, after = (image, None) if kind == "d" else (None, image)
                file.write(json.dumps({"before": before, "after": after, "op": kind}) + "\n")
        self._started = time.perf_counter()
        hidden.rename(self._folder / table / hidden.name)

    def _collect(self, printed: TextIO) -> None:
        """Lines like `2> +I[7, 3, customer 1, city 1, product 9, 4, 400]`, and others."""
        for line in printed:
            kind, bracket, values = line.rstrip("\n").rpartition("> ")[2].partition("[")
            if not bracket or kind not in SIGNS:
                continue
            self._shown[tuple(values[:-1].split(", "))] += SIGNS[kind]
            with self._changed:
                self._seen += 1
                self._changed.notify()

    def _wait_for(self, changes: int) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: self._seen >= changes, timeout=600):
                raise TimeoutError(f"{changes - self._seen} rows did not come")

    def apply(self, change: Change) -> float:
        first, last = change.deleted
        gone = [("d", self._items.pop(number)) for number in range(first, last + 1)]
        self._items.update({row[0]: row for row in change.inserted})
        expected = self._seen + len(gone) + len(change.inserted)
        self._write("item", [*gone, *(("c", row) for row in change.inserted)])
        self._wait_for(expected)
        return time.perf_counter() - self._started

    def check(self) -> Digest:
        return digest_of((+self._shown).elements())

    def close(self) -> None:
        job = self._result.get_job_client()
        if job is not None:
            job.cancel().result()


if __name__ == "__main__":
    serve(FlinkSql(Path(sys.argv[1])))
