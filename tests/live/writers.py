"""Writers of a live test: threads with connections of their own, multi-row transactions, no mercy.

Each transaction changes several rows of several tables, takes the next number of the ledger at the
very end, from a counter row that stays locked until the commit, and commits; some are rolled back.
A connection that breaks, because its server is restarted, is opened again; what was under way is
then known to the server's log alone, which is what the judge reads.
"""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pymysql

from tests.live.kinds import Kind

ORDERS, CUSTOMERS = 60, 12
BROKEN = (psycopg.Error, pymysql.err.Error, OSError)


class Writers:
    """Writes with several connections until it is left; what goes wrong is raised then."""

    def __init__(self, kind: Kind, crm: Path, seed: int, connections: int = 4) -> None:
        self._stop = threading.Event()
        self._errors: list[BaseException] = []
        self.commits = 0
        self.broken = 0
        jobs: list[Callable[[], None]] = [
            lambda n=n: self._write(kind, random.Random(seed * 100 + n))  # type: ignore[misc]  # a default binds n
            for n in range(connections)
        ]
        jobs.append(lambda: self._write_crm(crm, random.Random(seed)))
        self._threads = [threading.Thread(target=self._guarded, args=(job,)) for job in jobs]

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]

    def wait_for(self, commits: int) -> None:
        """Wait for so many more commits."""
        target, end = self.commits + commits, time.monotonic() + 60
        while self.commits < target and not self._errors:
            assert time.monotonic() < end, "the writers do not get on"
            time.sleep(0.01)

    def _guarded(self, job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:  # noqa: BLE001 - raised again where the writers are ended
            self._errors.append(error)

    def _write(self, kind: Kind, rng: random.Random) -> None:
        while not self._stop.is_set():
            try:
                with closing(kind.connect()) as connection:
                    while not self._stop.is_set():
                        self._transaction(connection, rng)
                        time.sleep(rng.random() * 0.01)
            except BROKEN:
                # A server that is being restarted, or two transactions that waited for each other.
                self.broken += 1
                time.sleep(0.05)

    def _transaction(self, connection: Any, rng: random.Random) -> None:
        with connection.cursor() as cursor:
            for _ in range(rng.randint(1, 4)):
                change(cursor, rng)
            cursor.execute("UPDATE counter SET n = n + 1")
            cursor.execute("INSERT INTO ledger SELECT n FROM counter")
        if rng.random() < 0.1:
            connection.rollback()
        else:
            connection.commit()
            self.commits += 1

    def _write_crm(self, path: Path, rng: random.Random) -> None:
        with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as connection:
            while not self._stop.is_set():
                connection.execute("BEGIN IMMEDIATE")
                who, name = rng.randrange(CUSTOMERS), f"c{rng.random():.6f}"
                connection.execute("UPDATE customer SET name = ? WHERE id = ?", (name, who))
                n = connection.execute("INSERT INTO ledger VALUES (NULL)").lastrowid
                connection.execute("INSERT INTO journal VALUES (?, ?, ?)", (n, who, name))
                connection.execute("COMMIT")
                time.sleep(rng.random() * 0.02)


def change(cursor: Any, rng: random.Random) -> None:
    """One of the things that applications do, in SQL that both databases understand."""
    order = rng.randrange(ORDERS)
    match rng.randrange(6):
        case 0:
            cursor.execute("DELETE FROM item WHERE order_id = %s", (order,))
            cursor.execute("DELETE FROM orders WHERE id = %s", (order,))
        case 1:
            cursor.execute("DELETE FROM orders WHERE id = %s", (order,))
            cursor.execute(
                "INSERT INTO orders VALUES (%s, %s, %s)", (order, rng.randrange(CUSTOMERS), "new")
            )
        case 2 | 3:
            product = f"p{rng.randrange(4)}"
            for _ in range(rng.randint(1, 3)):
                row = (order, product, rng.randint(1, 5))
                cursor.execute("INSERT INTO item VALUES (%s, %s, %s)", row)
        case 4:
            cursor.execute("UPDATE item SET quantity = quantity + 1 WHERE order_id = %s", (order,))
        case _:
            cursor.execute(
                "UPDATE orders SET customer_id = %s, note = %s WHERE id = %s",
                (rng.randrange(CUSTOMERS), rng.choice([None, "", "x ", "ä€𝄞"]), order),
            )
