"""The words between the race and a program: one JSON object a line, standard library alone.

    race: {"change": {"deleted": [first, last], "inserted": [[id, order, product, quantity], ...]}}
    program: {"seconds": 0.012}         from the change being there to the view showing it
    race: {"check": true}
    program: {"rows": 100000, "digest": 123}
    race: {"end": true}

The first line of a program is what its load took. Diagnostics go to standard error.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import zlib
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

COLUMNS = {
    "customer": ("id", "name", "city"),
    "orders": ("id", "customer_id"),
    "item": ("id", "order_id", "product_id", "quantity"),
    "product": ("id", "title", "cents"),
}


@dataclass(frozen=True, slots=True)
class Change:
    """Items that go, by their first and last id, and items that come."""

    deleted: tuple[int, int]
    inserted: Sequence[tuple[int, int, int, int]]


@dataclass(frozen=True, slots=True)
class Digest:
    """What a view shows: how many rows, and a sum over them that does not depend on their order."""

    rows: int
    digest: int


def digest_of(rows: Iterable[Sequence[object]]) -> Digest:
    """
    >>> digest_of([(1, "a"), (2, "b")]) == digest_of([(2, "b"), (1, "a")])
    True
    """
    count = total = 0
    for row in rows:
        count += 1
        total += zlib.crc32("|".join(map(str, row)).encode())
    return Digest(count, total)


class Program(Protocol):
    """One system that keeps the view of the race."""

    def load(self) -> float:
        """Compute the view; the seconds that it took."""

    def apply(self, change: Change) -> float:
        """Bring the change to the system; the seconds until the view shows it."""

    def check(self) -> Digest:
        """What the view shows."""

    def close(self) -> None: ...


def read_table(folder: Path, table: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(folder / f"{table}.db")) as database:
        return database.execute(f"SELECT {', '.join(COLUMNS[table])} FROM {table}").fetchall()


def serve(program: Program) -> None:
    """Answer the race until it ends; nothing else may write to standard output."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def answer(**words: object) -> None:
        print(json.dumps(words), file=answers, flush=True)

    answer(seconds=program.load())
    for line in sys.stdin:
        request = json.loads(line)
        if "change" in request:
            change = request["change"]
            inserted = [tuple(row) for row in change["inserted"]]
            answer(seconds=program.apply(Change(tuple(change["deleted"]), inserted)))
        elif "check" in request:
            found = program.check()
            answer(rows=found.rows, digest=found.digest)
        else:
            break
    program.close()
