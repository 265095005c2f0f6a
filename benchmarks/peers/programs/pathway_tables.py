"""Pathway, which keeps all tables and joins in memory and commits nothing to a disk.

Four Python connectors give it the rows; the view is what a subscriber has counted. A change is
timed from the first row given to the connector until the subscriber has seen the last one.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pathway as pw

from benchmarks.peers.programs.protocol import COLUMNS, Change, Digest, digest_of, read_table, serve


class Customer(pw.Schema):
    number: int = pw.column_definition(primary_key=True)
    name: str
    city: str


class Orders(pw.Schema):
    number: int = pw.column_definition(primary_key=True)
    customer_id: int


class Item(pw.Schema):
    number: int = pw.column_definition(primary_key=True)
    order_id: int
    product_id: int
    quantity: int


class Product(pw.Schema):
    number: int = pw.column_definition(primary_key=True)
    title: str
    cents: int


SCHEMAS = {"customer": Customer, "orders": Orders, "item": Item, "product": Product}


class Feed(pw.io.python.ConnectorSubject):
    """The rows of one table, and then the changes that are put into its queue; None ends it."""

    def __init__(self, table: str, rows: list[tuple[Any, ...]]) -> None:
        super().__init__()
        # Pathway has an `id` of its own.
        self._columns = ("number", *COLUMNS[table][1:])
        self._rows = {row[0]: row for row in rows}
        self.changes: queue.Queue[Change | None] = queue.Queue()

    def run(self) -> None:
        for row in self._rows.values():
            self.next(**dict(zip(self._columns, row, strict=True)))
        self.commit()
        while (change := self.changes.get()) is not None:
            first, last = change.deleted
            for number in range(first, last + 1):
                gone = self._rows.pop(number)
                self.delete(**dict(zip(self._columns, gone, strict=True)))
            for row in change.inserted:
                self._rows[row[0]] = row
                self.next(**dict(zip(self._columns, row, strict=True)))
            self.commit()


class PathwayTables:
    def __init__(self, folder: Path) -> None:
        rows = {table: read_table(folder, table) for table in COLUMNS}
        self._items = len(rows["item"])
        self._feeds = {table: Feed(table, rows[table]) for table in COLUMNS}
        self._shown: dict[Any, dict[str, Any]] = {}
        self._seen = 0
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="pathway")

    def _run(self) -> None:
        tables = {
            table: pw.io.python.read(feed, schema=SCHEMAS[table], autocommit_duration_ms=5)
            for table, feed in self._feeds.items()
        }
        item, orders = tables["item"], tables["orders"]
        customer, product = tables["customer"], tables["product"]
        ordered = item.join(orders, item.order_id == orders.number).select(
            item=pw.left.number,
            orders=pw.right.number,
            customer_id=pw.right.customer_id,
            product_id=pw.left.product_id,
            quantity=pw.left.quantity,
        )
        bought = ordered.join(customer, ordered.customer_id == customer.number).select(
            *pw.left, name=pw.right.name, city=pw.right.city
        )
        lines = bought.join(product, bought.product_id == product.number).select(
            item=pw.left.item,
            orders=pw.left.orders,
            name=pw.left.name,
            city=pw.left.city,
            title=pw.right.title,
            quantity=pw.left.quantity,
            cents=pw.left.quantity * pw.right.cents,
        )
        pw.io.subscribe(lines, on_change=self._on_change)
        pw.run(monitoring_level=pw.MonitoringLevel.NONE)

    def _on_change(self, key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
        if is_addition:
            self._shown[key] = row
        else:
            del self._shown[key]
        self._seen += 1
        if self._seen == self._awaited:
            with self._changed:
                self._changed.notify()

    def _wait_for(self, changes: int, begin: Any) -> float:
        with self._changed:
            self._awaited = self._seen + changes
            started = time.perf_counter()
            begin()
            while self._seen < self._awaited:
                if not self._changed.wait(timeout=600):
                    raise TimeoutError(f"{self._awaited - self._seen} rows did not come")
        return time.perf_counter() - started

    def load(self) -> float:
        return self._wait_for(self._items, self._thread.start)

    def apply(self, change: Change) -> float:
        first, last = change.deleted
        count = last + 1 - first + len(change.inserted)
        return self._wait_for(count, lambda: self._feeds["item"].changes.put(change))

    def check(self) -> Digest:
        names = ("item", "orders", "name", "city", "title", "quantity", "cents")
        return digest_of([row[name] for name in names] for row in self._shown.values())

    def close(self) -> None:
        for feed in self._feeds.values():
            feed.changes.put(None)
        self._thread.join(timeout=60)


if __name__ == "__main__":
    serve(PathwayTables(Path(sys.argv[1])))
