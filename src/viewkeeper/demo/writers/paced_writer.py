"""What all writers of the demo have in common: roles, pace, journals, and how they begin and end.

A writer is a program of its own that changes one database through a *session* of the database's
kind. It knows nothing of Viewkeeper: its modules import each other, the standard library and the
database's own driver. Every transaction does its statements, notes what they did to which rows,
takes the next number of the database's ledger, commits, and only then goes to the journal. Some
transactions are rolled back instead, and leave no trace.

A writer ends, between two transactions, when the stop file appears or its parent is gone; Ctrl-C is
for the parent to handle.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Generic, Protocol, TextIO, TypeAlias, TypeVar

ROLLED_BACK = 0.03
SIZES = ("customers", "products", "import")

T = TypeVar("T")
TransactionT = TypeVar("TransactionT", covariant=True)

Change: TypeAlias = tuple[str, int, list[Any]]
"""A table, a sign, and a whole row."""

Activity: TypeAlias = Callable[[T], None]
"""What a transaction does."""


class ForeignNumbers:
    """Picks numbers that may be of rows in other databases: this one cannot know."""

    def __init__(self, random: Random, sizes: Mapping[str, int]) -> None:
        self.random = random
        self.sizes = sizes

    def some_customer(self) -> int:
        return self.random.randint(1, self.sizes["customers"] * 21 // 20)

    def some_product(self) -> int:
        return self.random.randint(1, self.sizes["products"] * 21 // 20)


@dataclass(frozen=True, slots=True)
class WriterRole(Generic[T]):
    """What a writer does how often: transactions per second, and now and then a large one."""

    database: str
    rate: float
    activities: Mapping[Activity[T], int]
    burst: Activity[T] | None = None
    burst_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class WriterStart:
    """The arguments of a writer: the address of its database, the seed and the sizes."""

    target: str
    random: Random
    sizes: Mapping[str, int]


class WriterSession(Protocol[TransactionT]):
    """A connection to a database, or what stands for one."""

    def run_transaction(
        self, activity: Activity[TransactionT], keep: bool
    ) -> tuple[int, list[Change]] | None:
        """One transaction: its number in the ledger and its changes.

        None if it left no trace: because it was not to be kept, or the database would not.
        """
        ...

    def close(self) -> None: ...


@dataclass(slots=True)
class WriterCounts:
    """What a writer has done, by its own count."""

    transactions: int = 0
    changes: int = 0
    rolled_back: int = 0

    def add_counts(self, other: WriterCounts) -> None:
        self.transactions += other.transactions
        self.changes += other.changes
        self.rolled_back += other.rolled_back


class DemoWriter(Generic[T]):
    """One session that writes in a role."""

    def __init__(
        self, role: WriterRole[T], session: WriterSession[T], journal: TextIO, random: Random
    ) -> None:
        self._role = role
        self._session = session
        self._journal = journal
        self._random = random
        self.done = WriterCounts()

    def write_transaction(self, activity: Activity[T]) -> None:
        """One transaction, committed and journalled, or rolled back."""
        keep = self._random.random() >= ROLLED_BACK
        noted = self._session.run_transaction(activity, keep)
        if noted is None:
            self.done.rolled_back += 1
            return
        number, changes = noted
        print(json.dumps({"n": number, "changes": changes}), file=self._journal, flush=True)
        self.done.transactions += 1
        self.done.changes += len(changes)

    def keep_writing(self, goes_on: Callable[[], bool]) -> None:
        """Transactions at the role's pace; one that is late is not made up for."""
        role = self._role
        activities, weights = list(role.activities), list(role.activities.values())
        due = burst_due = time.monotonic()
        while goes_on():
            self.write_transaction(self._random.choices(activities, weights)[0])
            if role.burst and time.monotonic() >= burst_due:
                burst_due = time.monotonic() + role.burst_seconds
                self.write_transaction(role.burst)
            due = max(time.monotonic(), due + 1 / role.rate)
            time.sleep(due - time.monotonic() if due > time.monotonic() else 0.0)


def run_writer(
    roles: Mapping[str, WriterRole[T]], connect: Callable[[WriterStart], WriterSession[T]]
) -> None:
    """A writer from beginning to end; its counts are printed for the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parser = argparse.ArgumentParser(description="A writer of Viewkeeper's demo.")
    parser.add_argument("role", choices=roles)
    parser.add_argument("--target", required=True)
    for name in ("journal", "stop"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    for name in ("seed", "parent", *SIZES):
        parser.add_argument(f"--{name}", type=int, required=True)
    given = parser.parse_args()
    random = Random(given.seed)
    sizes = {name: getattr(given, name) for name in SIZES}

    def goes_on() -> bool:
        return os.getppid() == given.parent and not given.stop.exists()

    with (
        given.journal.open("w", encoding="utf-8") as journal,
        closing(connect(WriterStart(given.target, random, sizes))) as session,
    ):
        writer = DemoWriter(roles[given.role], session, journal, random)
        writer.keep_writing(goes_on)
    done = writer.done
    counts = [done.transactions, done.changes, done.rolled_back]
    print(json.dumps(counts), flush=True)  # noqa: T201 - for the parent
