"""Viewkeeper, over the four SQLite databases, with commits that survive a power cut.

`refresh`: a program commits at the source and calls `refresh()`. `run`: a maintainer runs beside
the writer with the settings that a new project has; a change is timed from its commit at the source
until a batch that has all of it is committed.
"""

from __future__ import annotations

import sqlite3
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Literal

import viewkeeper
from benchmarks.peers.programs.protocol import COLUMNS, Change, Digest, digest_of, serve
from viewkeeper.engine.report import BatchReport, SilentObserver
from viewkeeper.errors import ViewkeeperError

Way = Literal["refresh", "run"]

VIEW = """CREATE MATERIALIZED VIEW lines AS
SELECT i.id, o.id AS order_id, c.name, c.city, p.title, i.quantity, i.quantity * p.cents AS cents
FROM orders.orders o JOIN customer.customer c ON c.id = o.customer_id
JOIN item.item i ON i.order_id = o.id JOIN product.product p ON p.id = i.product_id
"""


class CommitCounter(SilentObserver):
    """Counts changes that are committed; trouble ends the race."""

    def __init__(self) -> None:
        self._committed = 0
        self._changed = threading.Condition()
        self._trouble: ViewkeeperError | None = None

    def on_batch_commit(self, report: BatchReport) -> None:
        with self._changed:
            self._committed += report.changes
            self._changed.notify()

    def on_trouble(self, error: ViewkeeperError) -> None:
        with self._changed:
            self._trouble = error
            self._changed.notify()

    def wait_for(self, changes: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._committed >= changes or self._trouble, timeout=600)
            if self._trouble is not None:
                raise self._trouble
            if self._committed < changes:
                raise TimeoutError(f"{changes - self._committed} changes were not committed")


class ViewkeeperViews:
    def __init__(self, folder: Path, way: Way) -> None:
        self._folder = folder
        self._way = way
        (folder / "views").mkdir()
        (folder / "views" / "lines.sql").write_text(VIEW)
        sources = "".join(f"  {table}: {{kind: sqlite, path: {table}.db}}\n" for table in COLUMNS)
        (folder / "viewkeeper.yml").write_text(f"warehouse: ./warehouse\nsources:\n{sources}")
        self._project = viewkeeper.open(folder)
        self._counter = CommitCounter()
        self._changes = 0
        self._stop = threading.Event()
        self._runner = threading.Thread(target=self._run, name="maintainer")

    def _run(self) -> None:
        self._project.run(self._counter, self._stop)

    def load(self) -> float:
        started = time.perf_counter()
        self._project.refresh()
        seconds = time.perf_counter() - started
        if self._way == "run":
            self._runner.start()
        return seconds

    def apply(self, change: Change) -> float:
        with closing(sqlite3.connect(self._folder / "item.db")) as database:
            database.execute("DELETE FROM item WHERE id BETWEEN ? AND ?", change.deleted)
            database.executemany("INSERT INTO item VALUES (?, ?, ?, ?)", change.inserted)
            database.commit()
        started = time.perf_counter()
        if self._way == "refresh":
            self._project.refresh()
        else:
            first, last = change.deleted
            self._changes += last + 1 - first + len(change.inserted)
            self._counter.wait_for(self._changes)
        return time.perf_counter() - started

    def check(self) -> Digest:
        columns = self._project.view("lines").arrow().columns
        return digest_of(zip(*(column.to_pylist() for column in columns), strict=True))

    def close(self) -> None:
        self._stop.set()
        if self._way == "run":
            self._runner.join()
        self._project.close()


if __name__ == "__main__":
    serve(ViewkeeperViews(Path(sys.argv[1]), "run" if "run" in sys.argv[2:] else "refresh"))
