"""Writers beside schema changes: sessions that insert, update and delete in every table.

They know a table by the names that it may have, use only columns that no case touches, and stay in
one table per transaction. A statement of theirs may fail only because there is no table of that
name just now; anything else is kept as a failure. A table can be *held*: then nobody writes it.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tests.live.shapes.case import Subject
from tests.live.shapes.databases import ERRORS, Database, Session, is_missing

SEEDS = 6
GROUPS = 4
MISSING_SECONDS = 20.0


class Writers:
    """Writes with two sessions to the subjects' tables and with one to the other source."""

    def __init__(self, database: Database, side: Database, subjects: Sequence[Subject]) -> None:
        self._database = database
        self._side = side
        self._subjects = subjects
        self._locks = {subject.view: threading.Lock() for subject in subjects}
        self._ids = itertools.count(1000)
        self._stop = threading.Event()
        self._pause = threading.Event()
        self._idle = threading.Semaphore(0)
        self.failures: list[str] = []
        self.gone: set[str] = set()
        """Views whose table may be missing from now on."""
        self.names: dict[int, list[str]] = defaultdict(list)
        """Every name that a group of the other source ever had."""
        self.commits = 0
        self._threads = [
            threading.Thread(target=self._guarded, args=(self._write, random.Random(1))),
            threading.Thread(target=self._guarded, args=(self._write, random.Random(2))),
            threading.Thread(target=self._guarded, args=(self._write_side, random.Random(3))),
        ]

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    @contextmanager
    def all_held(self) -> Iterator[None]:
        """Nobody writes anything meanwhile."""
        self._pause.set()
        for _ in self._threads:
            assert self._idle.acquire(timeout=60), "a writer does not come to rest"
        try:
            yield
        finally:
            self._pause.clear()

    def hold(self, subject: Subject) -> None:
        """Nobody writes that table any more."""
        self._locks[subject.view].acquire()

    def release(self, subject: Subject) -> None:
        """That table is written again."""
        self._locks[subject.view].release()

    def wait_for(self, commits: int) -> None:
        """Wait for so many more commits."""
        target, end = self.commits + commits, time.monotonic() + 60
        while self.commits < target and not self.failures:
            assert time.monotonic() < end, "writers do not get on"
            time.sleep(0.01)

    def _guarded(self, job: Callable[[Session, random.Random], None], rng: random.Random) -> None:
        own = (self._side if job == self._write_side else self._database).connect()
        try:
            while not self._stop.is_set():
                if self._pause.is_set():
                    self._idle.release()
                    while self._pause.is_set() and not self._stop.is_set():
                        time.sleep(0.005)
                job(own, rng)
                time.sleep(0.01 + rng.random() * 0.02)
        except Exception as error:  # noqa: BLE001 - whatever it is, the test that asks must see it
            self.failures.append(f"{type(error).__name__}: {error}")
        finally:
            own.close()

    def _write_side(self, own: Session, rng: random.Random) -> None:
        group, name = rng.randrange(GROUPS), f"g{rng.randrange(1000)}"
        self.names[group].append(name)
        own.run(f"UPDATE grp SET name = '{name}' WHERE id = {group}")
        self.commits += 1

    def _write(self, own: Session, rng: random.Random) -> None:
        subject = rng.choice(self._subjects)
        if not self._locks[subject.view].acquire(blocking=False):
            return
        try:
            self._transaction(own, subject, rng)
        finally:
            self._locks[subject.view].release()

    def _transaction(self, own: Session, subject: Subject, rng: random.Random) -> None:
        """One transaction, under whichever name the table has."""
        id, group = next(self._ids), rng.randrange(GROUPS)
        statements = [
            f"INSERT INTO {{t}} (id, k, v) VALUES ({id}, {group}, {rng.randrange(9)})",
            f"UPDATE {{t}} SET v = v + 1 WHERE id = {1 + rng.randrange(SEEDS)}",
            f"DELETE FROM {{t}} WHERE id BETWEEN 1000 AND {id - 150}",
            f"UPDATE {{t}} SET k = {group} WHERE id = {1 + rng.randrange(SEEDS)}",
        ]
        chosen = rng.sample(statements, rng.randint(1, 3))
        # In one order, or two writers might wait for each other.
        chosen = sorted(chosen, key=statements.index)
        end = time.monotonic() + MISSING_SECONDS
        while time.monotonic() < end:
            for name in dict.fromkeys(subject.called):
                if self._done(own, [sql.format(t=name) for sql in chosen], subject):
                    self.commits += 1
                    return
            if subject.view in self.gone:
                return
            time.sleep(0.01)
        self.failures.append(f"{subject.view}: its table is missing")

    def _done(self, own: Session, statements: Sequence[str], subject: Subject) -> bool:
        """Whether the transaction succeeded; False if there is no such table."""
        try:
            own.run("BEGIN", *statements, "COMMIT")
        except ERRORS as error:
            own.run("ROLLBACK")
            if not is_missing(error):
                self.failures.append(f"{subject.view}: {statements}: {error}")
            return not is_missing(error)
        return True
