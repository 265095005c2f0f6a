"""The workload of the race: customers, orders, items and products, and changes of items.

    customer <- orders <- item -> product

Four SQLite databases hold the rows; a contestant reads them as it likes. A change of size n deletes
the n oldest items and inserts n new ones, so that the view keeps its size. The right answer after
every change is SQLite's own, as a number of rows and a digest that does not depend on their order.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.peers.programs.protocol import Change, Digest, digest_of

TABLES = {
    "customer": "id INTEGER PRIMARY KEY, name TEXT, city TEXT",
    "orders": "id INTEGER PRIMARY KEY, customer_id INTEGER",
    "item": "id INTEGER PRIMARY KEY, order_id INTEGER, product_id INTEGER, quantity INTEGER",
    "product": "id INTEGER PRIMARY KEY, title TEXT, cents INTEGER",
}
INDEXES = {"orders": ("customer_id",), "item": ("order_id", "product_id")}

ANSWER = """
SELECT i.id, o.id, c.name, c.city, p.title, i.quantity, i.quantity * p.cents
FROM orders o JOIN customer c ON c.id = o.customer_id
JOIN item i ON i.order_id = o.id JOIN product p ON p.id = i.product_id
"""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many rows each table has; the view has as many as there are items."""

    customers: int
    orders: int
    items: int
    products: int

    @classmethod
    def of(cls, items: int) -> Sizes:
        return cls(max(1, items // 50), max(1, items // 5), items, max(1, items // 100))


@dataclass(slots=True)
class Workload:
    """The databases of the race and the changes that are still to come."""

    folder: Path
    sizes: Sizes
    seed: int = 1
    _draw: random.Random = field(init=False)
    _oldest: int = field(init=False, default=1)
    _newest: int = field(init=False)

    def __post_init__(self) -> None:
        self._draw = random.Random(self.seed)
        self._newest = self.sizes.items

    def create_databases(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        sizes = self.sizes
        self._create(
            "customer", [(i, f"customer {i}", f"city {i % 97}") for i in _ids(sizes.customers)]
        )
        self._create(
            "product", [(i, f"product {i}", 100 + i * 37 % 9000) for i in _ids(sizes.products)]
        )
        self._create("orders", [(i, self._any(sizes.customers)) for i in _ids(sizes.orders)])
        self._create("item", [self._item(i) for i in _ids(sizes.items)])

    def _create(self, table: str, rows: list[tuple[object, ...]]) -> None:
        with closing(sqlite3.connect(self.folder / f"{table}.db")) as database:
            database.execute("PRAGMA journal_mode = wal")
            database.execute(f"CREATE TABLE {table} ({TABLES[table]})")
            marks = ", ".join("?" * len(rows[0]))
            database.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
            for column in INDEXES.get(table, ()):
                database.execute(f"CREATE INDEX {table}_{column} ON {table} ({column})")
            database.commit()

    def copy_databases(self, folder: Path) -> Path:
        """A copy for a contestant, which may change it."""
        return shutil.copytree(self.folder, folder)

    def _item(self, number: int) -> tuple[int, int, int, int]:
        order, product = self._any(self.sizes.orders), self._any(self.sizes.products)
        return number, order, product, self._draw.randint(1, 9)

    def _any(self, count: int) -> int:
        return self._draw.randint(1, count)

    def next_change(self, size: int) -> Change:
        """The next change: the oldest items go, as many new ones come."""
        first, self._oldest = self._oldest, self._oldest + size
        inserted = [self._item(self._newest + 1 + k) for k in range(size)]
        self._newest += size
        return Change((first, self._oldest - 1), inserted)

    def answer_after(self, changes: list[Change]) -> Digest:
        """What the view must show once these changes are applied, from the databases as made."""
        with closing(sqlite3.connect(":memory:")) as database:
            for table in TABLES:
                database.execute("ATTACH ? AS made", (str(self.folder / f"{table}.db"),))
                database.execute(f"CREATE TABLE {table} AS SELECT * FROM made.{table}")
                database.execute("DETACH made")
            for change in changes:
                database.execute("DELETE FROM item WHERE id BETWEEN ? AND ?", change.deleted)
                database.executemany("INSERT INTO item VALUES (?, ?, ?, ?)", change.inserted)
            for table in TABLES:
                database.execute(f"CREATE INDEX by_id_{table} ON {table} (id)")
            return digest_of(database.execute(ANSWER))


def _ids(count: int) -> range:
    return range(1, count + 1)
