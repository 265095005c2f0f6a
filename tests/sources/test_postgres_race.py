"""A commit is decoded before it is visible: answers are exact all the same, with both signs.

The race is provoked: the server waits for a synchronous standby that does not exist, so a commit
that asks for it is in the log, and decoded, but not visible until its wait is cancelled. Elsewhere
several writers race freely, and a judge with a slot and a decoder of its own says what the state
was after every transaction.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest

from tests.sources.postgres_shop import Row, Shop, as_of, ask, changed, plus
from viewkeeper.testing.private_servers import PrivatePostgres
from viewkeeper.updates.source_protocol import COUNT, Boundary, Source

T = {"t": ["id", "v"]}
COLUMNS = ["id", "v"]
STANDBY = {"synchronous_standby_names": "missing", "synchronous_commit": "local"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivatePostgres]:
    started = PrivatePostgres(tmp_path_factory.mktemp("standby") / "server", STANDBY)
    started.start()
    yield started
    started.stop()


@pytest.fixture
def shop(server: PrivatePostgres, tmp_path: Path) -> Iterator[Shop]:
    opened = Shop(server, tmp_path)
    opened.table("t (id int PRIMARY KEY, v int)")
    opened.run("INSERT INTO t VALUES (1, 10), (2, 20), (3, 30)")
    yield opened
    opened.close()


@contextmanager
def invisible(shop: Shop, *statements: str) -> Iterator[None]:
    """Inside, a transaction is committed in the log and visible to nobody."""
    connection = shop.connect()

    def commit() -> None:
        # Cancelling the wait is a warning: the commit stands.
        connection.execute("; ".join(["BEGIN", *statements, "COMMIT"]).encode())

    connection.execute("SET synchronous_commit = on")
    thread = threading.Thread(target=commit)
    thread.start()
    try:
        _wait_until(shop, connection, "SyncRep")
        yield
    finally:
        pid = connection.info.backend_pid
        shop.writer.execute("SELECT pg_cancel_backend(%s)", (pid,))
        thread.join()


def _wait_until(shop: Shop, connection: psycopg.Connection[object], event: str) -> None:
    query = "SELECT wait_event FROM pg_stat_activity WHERE pid = %s"
    for _ in range(500):
        if shop.writer.execute(query, (connection.info.backend_pid,)).fetchone() == (event,):
            return
        time.sleep(0.01)
    raise AssertionError(f"nobody waits for {event}")


def states(source: Source, start: int, initial: Counter[Row]) -> dict[int, Counter[Row]]:
    """The state as of every reported position."""
    found, state, after = {start: initial}, initial, start
    for boundary in source.look_for_transactions(start):
        changes = changed(source, "t", COLUMNS, after, boundary.position)
        state = found[boundary.position] = plus(state, changes)
        after = boundary.position
    return found


def test_both_signs_for_every_position_around_holes(shop: Shop) -> None:
    source = shop.source()
    start = source.follow_tables(T)
    initial = shop.rows("t", COLUMNS)
    with invisible(shop, "UPDATE t SET v = 11 WHERE id = 1", "INSERT INTO t VALUES (4, 40)"):
        shop.run("UPDATE t SET v = 21 WHERE id = 2")
        with invisible(shop, "DELETE FROM t WHERE id = 3"):
            known = states(source, start, initial)
            assert len(known) == 4
            _, first, second, third = known
            for after, state in known.items():
                with source.prepare_snapshots(after, T) as opener:
                    assert as_of(opener, "t", COLUMNS, after) == state
                    with closing(opener()) as snapshot:
                        answer = ask(snapshot, "t", COLUMNS, keys(1, 2, 3, 4), after)
                    counts = [int(count) for count in answer.tail[COUNT].to_numpy()]
                    found = Counter(zip(*answer.rows.to_pydict().values(), strict=True))
                    assert found == Counter([(1, 10), (2, 21), (3, 30)])
                    expected = {
                        start: [-1, 1],
                        first: [-1, 1, 1, -1, -1],
                        second: [1, -1, -1],
                        third: [1, -1, -1, 1],
                    }[after]
                    assert sorted(counts) == sorted(expected)
                    holes = answer.cut.missing
                    assert holes == ({first} if after == start else frozenset())
                    assert answer.whole_cut.includes(second)
            source.acknowledge_position(third)
            with source.prepare_snapshots(start, T) as opener:
                assert as_of(opener, "t", COLUMNS, start) == initial
    known = states(source, start, initial)
    for after, state in known.items():
        with source.prepare_snapshots(after, T) as opener:
            assert as_of(opener, "t", COLUMNS, after) == state
    source.acknowledge_position(third)
    assert source.look_for_transactions(third) == ()


def keys(*numbers: int) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64())})


def test_what_is_not_visible_is_not_acknowledged(shop: Shop, server: PrivatePostgres) -> None:
    source = shop.source()
    start = source.follow_tables(T)
    initial = shop.rows("t", COLUMNS)
    with invisible(shop, "UPDATE t SET v = 0"):
        (hidden,) = source.look_for_transactions(start)
        source.acknowledge_position(hidden.position)
        source.close()
        again = shop.source()
        assert again.look_for_transactions(start) == (hidden,)
        with again.prepare_snapshots(hidden.position, T) as opener:
            after = plus(initial, changed(again, "t", COLUMNS, start, hidden.position))
            assert as_of(opener, "t", COLUMNS, hidden.position) == after
    again.acknowledge_position(hidden.position)
    again.close()
    assert shop.source().look_for_transactions(hidden.position) == ()


class Judge:
    """Says what the states were, from a slot of its own that another decoder reads."""

    LINE = re.compile(r"table public\.t: (\w+):(.*)")
    VALUE = re.compile(r"(id|v)\[integer\]:(-?\d+)")

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self._slot = f"judge_{shop.database}"
        create = "SELECT pg_create_logical_replication_slot(%s, 'test_decoding')"
        shop.writer.execute(create, (self._slot,))
        self._initial = shop.rows("t", COLUMNS)

    def states(self) -> Iterator[Counter[Row]]:
        """The state after every transaction that changed the table."""
        rows = self._shop.writer.execute(
            "SELECT data FROM pg_logical_slot_get_changes(%s, NULL, NULL)", (self._slot,)
        ).fetchall()
        self._shop.writer.execute("SELECT pg_drop_replication_slot(%s)", (self._slot,))
        state, changes = self._initial, []
        for (line,) in rows:
            if found := self.LINE.match(line):
                changes += self._changes(found[1], found[2])
            elif line.startswith("COMMIT") and changes:
                state = plus(state, changes)
                yield state
                changes = []

    def _changes(self, kind: str, values: str) -> list[Row]:
        old, new, both = values.partition("new-tuple:")
        if kind == "UPDATE":
            assert new, "FULL identity"
            was, now = self._row(old), self._row(both)
            return [] if was == now else [(*was, -1), (*now, 1)]
        return [(*self._row(values), 1 if kind == "INSERT" else -1)]

    def _row(self, text: str) -> Row:
        found = dict(self.VALUE.findall(text))
        return int(found["id"]), int(found["v"])


def write(shop: Shop, seed: int, until: threading.Event) -> None:
    """Random transactions of several rows, some rolled back, some with savepoints."""
    rng = random.Random(seed)
    with psycopg.connect(shop.url) as connection:
        connection.execute(f"SET synchronous_commit = {rng.choice(['local', 'off'])}".encode())
        connection.commit()
        while not until.is_set():
            try:
                for _ in range(rng.randint(1, 4)):
                    _change(connection, rng)
                if rng.random() < 0.1:
                    connection.rollback()
                connection.commit()
            except psycopg.errors.DeadlockDetected:
                connection.rollback()


def _change(connection: psycopg.Connection[object], rng: random.Random) -> None:
    if rng.random() < 0.5:
        row = (rng.randrange(100), rng.randrange(40))
        connection.execute("UPDATE t SET v = %s WHERE id = %s", row)
        return
    connection.execute("SAVEPOINT s")
    connection.execute("DELETE FROM t WHERE id = %s", (rng.randrange(40),))
    if rng.random() < 0.3:
        connection.execute("ROLLBACK TO s")
    row = (rng.randrange(40), rng.randrange(100))
    connection.execute("INSERT INTO t VALUES (%s, %s)", row)


@pytest.fixture
def busy(postgres_server: PrivatePostgres, tmp_path: Path) -> Iterator[Shop]:
    opened = Shop(postgres_server, tmp_path)
    opened.table("t (id int, v int)")
    opened.run("INSERT INTO t SELECT n, n FROM generate_series(1, 40) n")
    yield opened
    opened.close()


def test_every_answer_under_racing_writers(busy: Shop) -> None:
    shop = busy
    source = shop.source()
    start = source.follow_tables(T)
    judge = Judge(shop)
    stop, rng = threading.Event(), random.Random(7)
    writers = [threading.Thread(target=write, args=(shop, seed, stop)) for seed in range(4)]
    for writer in writers:
        writer.start()
    seen: list[Boundary] = []
    found: list[tuple[int, Counter[Row]]] = []
    try:
        while len(found) < 40 or len(seen) < 300:
            seen += source.look_for_transactions(seen[-1].position if seen else start)
            after = rng.choice([start, *(b.position for b in seen[-30:])][-30:])
            with source.prepare_snapshots(after, T) as opener:
                found.append((after, as_of(opener, "t", COLUMNS, after)))
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    # A commit that waits for the disk takes those that did not with it.
    shop.run("INSERT INTO t VALUES (1000, 0)")
    seen += source.look_for_transactions(seen[-1].position)
    told = list(judge.states())
    positions = {boundary.position: number for number, boundary in enumerate(seen)}
    assert len(told) == len(seen)
    initial: Counter[Row] = Counter({(n, n): 1 for n in range(1, 41)})
    wrong = [
        after
        for after, state in found
        if state != (initial if after == start else told[positions[after]])
    ]
    assert not wrong, f"{len(wrong)} of {len(found)} answers"
    changes = changed(source, "t", COLUMNS, start, seen[-1].position)
    assert plus(initial, changes) == told[-1] == shop.rows("t", COLUMNS)
