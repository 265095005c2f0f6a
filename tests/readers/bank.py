"""A bank whose accounts always add up to nothing, as a project that readers are tried on.

Two views have the accounts with even and with odd numbers. A transfer is one transaction, so at
every ts the two views together add up to nothing, and apart they do not.
"""

from __future__ import annotations

import random
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

import viewkeeper
from viewkeeper.readers.view_feed import FeedChanges, FeedEvent, FeedReset
from viewkeeper.updates.source_protocol import COUNT
from viewkeeper.warehouse.metadata.head import read_head
from viewkeeper.warehouse.rows.view_state import read_counted

ACCOUNTS = 10
VIEWS = {
    "evens": "SELECT a.id, a.amount, a.note FROM bank.account a WHERE a.id % 2 = 0",
    "odds": "SELECT a.id, a.amount FROM bank.account a WHERE a.id % 2 = 1",
}


class Bank:
    """The project, its database, and who writes to it."""

    def __init__(self, folder: Path, settings: str = "warehouse: ./warehouse\n") -> None:
        self.folder = folder
        self.warehouse = folder / "warehouse"
        rows = ", ".join(f"({n}, 0, NULL)" for n in range(ACCOUNTS))
        with self.database() as database:
            database.execute("PRAGMA journal_mode = wal")
            database.execute(
                "CREATE TABLE account (id INTEGER PRIMARY KEY, amount INTEGER, note TEXT)"
            )
            database.execute(f"INSERT INTO account VALUES {rows}")
        text = f"{settings}freshness: 20ms\nsources:\n  bank: {{kind: sqlite, path: bank.db}}\n"
        (folder / "viewkeeper.yml").write_text(text)
        (folder / "views").mkdir()
        for name, sql in VIEWS.items():
            self.define(name, sql)

    def define(self, name: str, sql: str) -> None:
        text = f"CREATE MATERIALIZED VIEW {name} AS\n{sql};\n"
        (self.folder / "views" / f"{name}.sql").write_text(text)

    def refresh(self, *again: str) -> None:
        """Bring the views up to date; load some of them again."""
        with viewkeeper.open(self.folder) as project:
            assert project.refresh(full_refresh=again).waiting == {}

    @contextmanager
    def database(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.folder / "bank.db", timeout=60)) as connection:
            yield connection
            connection.commit()

    def transfer(self, giver: int, taker: int, amount: int) -> None:
        with self.database() as database:
            change = "UPDATE account SET amount = amount + ? WHERE id = ?"
            database.executemany(change, [(-amount, giver), (amount, taker)])

    @contextmanager
    def writing(self, seed: int, pause: float = 0.01) -> Iterator[None]:
        """Transfers, one after the other, while the block lasts."""
        stop, rng = threading.Event(), random.Random(seed)

        def write() -> None:
            while not stop.wait(pause):
                giver, taker = rng.sample(range(ACCOUNTS), 2)
                self.transfer(giver, taker, rng.randint(1, 100))

        thread = threading.Thread(target=write)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(60)

    def state_of(self, view: str, as_of: int | None = None) -> Counter[tuple[Any, ...]]:
        """The rows of a view, with how often each is there."""
        head = read_head(self.warehouse).require_view(view)
        return count_rows(read_counted(self.warehouse, head, as_of))


def count_rows(rows: pa.Table) -> Counter[tuple[Any, ...]]:
    """Signed rows as a counter."""
    names = [name for name in rows.schema.names if name != COUNT]
    found = Counter[tuple[Any, ...]]()
    values = zip(*(rows[name].to_pylist() for name in (*names, COUNT)), strict=True)
    for *row, count in values:
        found[tuple(row)] += count
    return found


class Consumer:
    """Somebody who sums up a feed."""

    def __init__(self) -> None:
        self.rows = Counter[tuple[Any, ...]]()

    def take_event(self, event: FeedEvent) -> None:
        if isinstance(event, FeedReset):
            self.rows.clear()
        if isinstance(event, FeedChanges):
            self.rows.update(count_rows(event.rows))

    @property
    def state(self) -> Counter[tuple[Any, ...]]:
        assert min(self.rows.values(), default=0) >= 0
        return +self.rows
