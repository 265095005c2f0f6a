"""The world of the benchmarks: four SQLite databases, one relation each, and a four-way join.

    customer <- orders <- item -> product

Every key is indexed, every database is in WAL mode, and each item has one order, one customer and
one product, so that the view has as many rows as each relation. A workload of n updates is made of
inserts, deletes and updates in equal shares, spread evenly over the four relations. Ids that were
deleted are inserted again by later workloads: the world keeps its size and the view its density,
however often it is measured.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

VIEW = "order_lines"

SQL = f"""CREATE MATERIALIZED VIEW {VIEW} AS
SELECT i.id AS item_id, o.id AS order_id, o.placed, c.name AS customer, c.city,
       p.title AS product, i.quantity, i.quantity * p.cents AS cents
FROM shop.orders o
JOIN crm.customer c ON c.id = o.customer_id
JOIN depot.item i ON i.order_id = o.id
JOIN catalogue.product p ON p.id = i.product_id
"""


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation of the world: its database, its table, and how its rows are made and changed.

    In `values` and `change` a `?1` is the row's id and `?2` a random number below the number of
    rows; both are SQL, so that millions of rows can be made inside SQLite.
    """

    database: str
    table: str
    columns: str
    indexes: tuple[str, ...]
    values: str
    change: str

    @property
    def insert(self) -> str:
        return f"INSERT INTO {self.table} VALUES ({self.values})"

    @property
    def update(self) -> str:
        return f"UPDATE {self.table} SET {self.change} WHERE id = ?1"

    @property
    def delete(self) -> str:
        return f"DELETE FROM {self.table} WHERE id = ?1"


RELATIONS = (
    Relation(
        "crm",
        "customer",
        "id INTEGER PRIMARY KEY, name TEXT, city TEXT",
        (),
        "?1, 'customer ' || ?1, 'city ' || (?2 % 500)",
        "city = 'city ' || (?2 % 500)",
    ),
    Relation(
        "shop",
        "orders",
        "id INTEGER PRIMARY KEY, customer_id INTEGER, placed DATE",
        ("customer_id",),
        "?1, 1 + ?2, date(1700000000 + ?1 * 60, 'unixepoch')",
        "customer_id = 1 + ?2",
    ),
    Relation(
        "depot",
        "item",
        "id INTEGER PRIMARY KEY, order_id INTEGER, product_id INTEGER, quantity INTEGER",
        ("order_id", "product_id"),
        "?1, 1 + ?2, 1 + (?2 * 7 + ?1) % {rows}, 1 + ?1 % 9",
        "product_id = 1 + ?2, quantity = quantity % 9 + 1",
    ),
    Relation(
        "catalogue",
        "product",
        "id INTEGER PRIMARY KEY, title TEXT, cents INTEGER",
        (),
        "?1, 'product ' || ?1, 100 + ?2 % 10000",
        "cents = 100 + ?2 % 10000",
    ),
)


@dataclass(slots=True)
class Ids:
    """Which ids of a relation are there, which were deleted, and up to which they were used."""

    live: list[int]
    used: int
    gone: list[int] = field(default_factory=list)
    reuse: list[int] = field(default_factory=list)

    def take(self, draw: random.Random) -> int:
        """Delete a random row: its id."""
        index = draw.randrange(len(self.live))
        self.live[index], self.live[-1] = self.live[-1], self.live[index]
        self.gone.append(self.live.pop())
        return self.gone[-1]

    def give(self) -> int:
        """Insert a row: an id that an earlier workload deleted, or a new one."""
        if not self.reuse:
            self.used += 1
            self.reuse.append(self.used)
        self.live.append(self.reuse.pop())
        return self.live[-1]

    def settle(self) -> None:
        """A workload has ended; the next may insert again what it deleted."""
        self.reuse += self.gone
        self.gone.clear()


@dataclass(slots=True)
class Updates:
    """The updates of one transaction, as parameters of the relation's statements."""

    inserts: list[tuple[int, int]] = field(default_factory=list)
    updates: list[tuple[int, int]] = field(default_factory=list)
    deletes: list[tuple[int]] = field(default_factory=list)


class World:
    """The four databases, with one writing connection each, and a project beside them."""

    def __init__(self, folder: Path, rows: int, seed: int = 1) -> None:
        self.folder = folder
        self.rows = rows
        self._draw = random.Random(seed)
        self._turn = 0
        self._ids = {r: Ids(list(range(1, rows + 1)), rows) for r in RELATIONS}
        self._connections = {r: self._create(r) for r in RELATIONS}
        _write_project(folder)

    def _create(self, relation: Relation) -> sqlite3.Connection:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{relation.database}.db"
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"CREATE TABLE {relation.table} ({relation.columns})")
        # 7919 is prime, so that every other relation's id is referred to once.
        values = relation.values.replace("?1", "i").replace("?2", f"(i * 7919 % {self.rows})")
        connection.execute(
            f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT {self.rows})"
            f" INSERT INTO {relation.table} SELECT {values.format(rows=self.rows)} FROM n"
        )
        for column in relation.indexes:
            connection.execute(f"CREATE INDEX by_{column} ON {relation.table} ({column})")
        return connection

    def connection(self, relation: Relation) -> sqlite3.Connection:
        return self._connections[relation]

    def commit_updates(self, count: int, transactions: int) -> Iterator[None]:
        """Commit `count` updates; yields after every transaction of each of the relations."""
        rounds = max(1, min(transactions, count))
        for number in range(rounds):
            share = count * (number + 1) // rounds - count * number // rounds
            for relation, updates in self._shares(share).items():
                self._commit(relation, updates)
            yield
        for ids in self._ids.values():
            ids.settle()

    def _shares(self, count: int) -> dict[Relation, Updates]:
        """The updates of a round, by relation."""
        shares = {relation: Updates() for relation in RELATIONS}
        for _ in range(count):
            relation, kind = RELATIONS[self._turn % 4], self._turn // 4 % 3
            self._turn += 1
            ids, other = self._ids[relation], self._draw.randrange(self.rows)
            if kind == 0:
                shares[relation].inserts.append((ids.give(), other))
            elif kind == 1:
                shares[relation].deletes.append((ids.take(self._draw),))
            else:
                shares[relation].updates.append((self._draw.choice(ids.live), other))
        return shares

    def _commit(self, relation: Relation, updates: Updates) -> None:
        """One transaction; what happens to one row in it happens in this order."""
        connection = self._connections[relation]
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(relation.insert.format(rows=self.rows), updates.inserts)
        connection.executemany(relation.update, updates.updates)
        connection.executemany(relation.delete, updates.deletes)
        connection.execute("COMMIT")

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()


def _write_project(folder: Path) -> None:
    sources = "".join(
        f"  {r.database}: {{kind: sqlite, path: {r.database}.db}}\n" for r in RELATIONS
    )
    folder.joinpath("viewkeeper.yml").write_text(f"warehouse: ./warehouse\nsources:\n{sources}")
    folder.joinpath("views").mkdir(exist_ok=True)
    folder.joinpath("views", f"{VIEW}.sql").write_text(SQL)
