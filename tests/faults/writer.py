"""The applications: a process that writes to all databases until its standard input ends.

    python -m tests.faults.writer PROJECT SEED PAUSE [DATABASE ...]

Between two transactions it rests, for PAUSE seconds at most. Now and then it moves the project's
clock to the next day.

Every transaction gets the next number of its database, inserted into the ledger with its other
changes, and a line in the journal once it is committed. From the journal the state after any
number of transactions can be computed again without anything of Viewkeeper.
"""

from __future__ import annotations

import json
import random
import select
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from tests.faults.shop import JOURNAL, TABLES, move_clock, run_all, transaction

NEW_DAY = 0.05
"""How often a transaction is the last one of its day."""


def main(folder: Path, seed: int, pause_seconds_max: float, databases: list[str]) -> None:
    rng = random.Random(seed)
    # Long enough for a test that locks a database.
    connections = {
        name: sqlite3.connect(folder / f"{name}.db", isolation_level=None, timeout=120)
        for name in databases or TABLES
    }
    print("ready", flush=True)
    with open(folder / JOURNAL, "a", encoding="utf-8") as journal:
        while not select.select([sys.stdin], [], [], rng.uniform(0, pause_seconds_max))[0]:
            name = rng.choice(list(connections))
            write(connections[name], name, rng, journal)
            if rng.random() < NEW_DAY:
                move_clock(folder)
    for connection in connections.values():
        connection.close()


def write_some(folder: Path, rng: random.Random, databases: Sequence[str], each: int) -> None:
    """A few transactions of these databases, without a process of their own; and a day passes."""
    move_clock(folder)
    with open(folder / JOURNAL, "a", encoding="utf-8") as journal:
        for name in databases:
            connection = sqlite3.connect(folder / f"{name}.db", isolation_level=None, timeout=30)
            for _ in range(each):
                write(connection, name, rng, journal)
            connection.close()


def write(connection: sqlite3.Connection, name: str, rng: random.Random, journal: TextIO) -> None:
    """One transaction, and its line."""
    statements = transaction(rng, name)
    connection.execute("BEGIN IMMEDIATE")
    number = connection.execute("SELECT coalesce(max(n), 0) + 1 FROM ledger").fetchone()[0]
    run_all(connection, statements)
    connection.execute("INSERT INTO ledger VALUES (?)", (number,))
    connection.execute("COMMIT")
    journal.write(json.dumps([name, number, statements]) + "\n")
    journal.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4:])
