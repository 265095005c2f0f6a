"""Many at once: writers and readers in processes of their own, several projects on one database.

Readers must find, at every moment and in both journal modes, that the rows under a cut are the rows
from the beginning plus the changes up to that cut. Projects must not lose changes to each other's
trimming, and must not take each other's capture away.
"""

from __future__ import annotations

import multiprocessing
import pickle
import shutil
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing.synchronize import Event
from pathlib import Path

import pyarrow as pa
import pytest

from tests.sources.opening import opened
from viewkeeper.errors import GapError
from viewkeeper.sources.sqlite import SqliteSource
from viewkeeper.updates.source_protocol import Boundary, Lookup
from viewkeeper.view.definition import Relation

Row = tuple[object, ...]
T = Relation("shop", "t")
# A program of its own, which knows only sqlite3: transactions on both databases for half a second.
WRITER = """
import random, sqlite3, sys, time
rng = random.Random(int(sys.argv[1]))
open_ = [sqlite3.connect(path, isolation_level=None, timeout=30) for path in sys.argv[2:]]
end = time.monotonic() + 0.5
while time.monotonic() < end:
    for connection in open_:
        connection.execute("BEGIN IMMEDIATE")
        for _ in range(rng.randint(1, 4)):
            row = (rng.randrange(30), rng.randrange(100))
            connection.execute("INSERT OR REPLACE INTO t(id, v) VALUES (?, ?)", row)
            connection.execute("DELETE FROM t WHERE id = ?", (rng.randrange(60),))
        connection.execute(rng.choice(["COMMIT", "COMMIT", "ROLLBACK"]))
    time.sleep(0.001)
"""
COLUMNS = {"t": ["id", "v"]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.fixture
def writer(path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, v INT, w INT)")
    connection.execute("INSERT INTO t VALUES (1, 1, 1), (2, 2, 2)")
    yield connection
    connection.close()


@pytest.fixture
def one(path: Path, writer: sqlite3.Connection) -> Iterator[SqliteSource]:
    source = SqliteSource("shop", path, "one")
    yield source
    source.close()


@pytest.fixture
def two(path: Path, writer: sqlite3.Connection) -> Iterator[SqliteSource]:
    source = SqliteSource("shop", path, "two")
    yield source
    source.close()


def rows_in(batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def summed(source: SqliteSource, after: int, until: int) -> Counter[Row]:
    sums: Counter[Row] = Counter()
    batches = (batch for _, batch in source.read_changes(COLUMNS, after, until))
    for identity, value, count, _ in rows_in(batches):
        assert isinstance(count, int)
        sums[(identity, value)] += count
    return sums


def logged(writer: sqlite3.Connection) -> int:
    return int(writer.execute("SELECT count(*) FROM _viewkeeper_log").fetchone()[0])


def own_objects(writer: sqlite3.Connection) -> set[str]:
    query = "SELECT name FROM sqlite_master WHERE name LIKE '\\_viewkeeper%' ESCAPE '\\'"
    return {name for (name,) in writer.execute(query)}


def read_for_a_while(sources: list[SqliteSource], start: int, ready: Event, done: Event) -> None:
    """Exit with a failure as soon as a cut and its rows disagree."""
    rows: list[Row] = [(1, 1), (2, 2)]
    ready.set()
    while True:
        last = done.is_set()
        for source in sources:
            check_cuts(source, start, rows)
        if last:
            break
    for source in sources:
        source.close()


def check_cuts(source: SqliteSource, start: int, rows: list[Row]) -> None:
    snapshot = opened(source)
    scan = snapshot.scan_relation(T, ["id", "v"], start)
    now = Counter(rows_in(scan.batches))
    keys = pa.table({"id": list(range(20))})
    answer = snapshot.answer_lookup(Lookup(0, T, ("id", "v"), ("id",), (False,), keys), start)
    found = Counter(rows_in(iter(answer.rows.to_batches())))
    snapshot.close()
    for cut, seen, limit in ((scan.cut, now, 60), (answer.cut, found, 20)):
        expected = Counter(rows)
        expected.update(summed(source, start, cut.position))
        kept = {row: n for row, n in expected.items() if n and int(str(row[0])) < limit}
        assert kept == dict(seen), f"cut {cut.position}"
    assert summed_tail(answer.tail) == summed(source, start, answer.cut.position)


def summed_tail(tail: pa.Table) -> Counter[Row]:
    sums: Counter[Row] = Counter()
    for identity, value, count, _ in rows_in(iter(tail.to_batches())):
        assert isinstance(count, int)
        sums[(identity, value)] += count
    return sums


def test_rows_under_a_cut_are_the_first_rows_plus_the_changes(
    path: Path, writer: sqlite3.Connection, one: SqliteSource
) -> None:
    start = one.follow_tables(COLUMNS)
    other = path.with_name("rollback.db")
    writer.execute("VACUUM INTO ?", (str(other),))
    rollback = SqliteSource("shop", other, "one")
    assert (one.read_health(()).advice, "delete" in str(rollback.read_health(()).advice)) == (
        None,
        True,
    )
    context = multiprocessing.get_context("spawn")
    ready, done = context.Event(), context.Event()
    arguments = ([one, rollback], start, ready, done)
    readers = [context.Process(target=read_for_a_while, args=arguments) for _ in range(2)]
    for reader in readers:
        reader.start()
    assert ready.wait(60)
    command = [sys.executable, "-c", WRITER]
    writers = [subprocess.Popen([*command, seed, path, other]) for seed in ("1", "2")]
    assert [each.wait(60) for each in writers] == [0, 0]
    done.set()
    for reader in readers:
        reader.join(60)
    assert [reader.exitcode for reader in readers] == [0, 0]
    assert one.look_for_transactions(start) != ()
    assert rollback.look_for_transactions(start) != ()
    rollback.close()


def test_following_twice_changes_nothing(writer: sqlite3.Connection, one: SqliteSource) -> None:
    start = one.follow_tables(COLUMNS)
    before = writer.execute("SELECT name, sql FROM sqlite_master").fetchall()
    assert one.follow_tables(COLUMNS) == start
    assert writer.execute("SELECT name, sql FROM sqlite_master").fetchall() == before


def test_everything_between_two_looks_is_one_transaction(
    writer: sqlite3.Connection, one: SqliteSource
) -> None:
    start = one.follow_tables(COLUMNS)
    assert one.look_for_transactions(start) == ()
    writer.execute("UPDATE t SET v = v + 1")
    writer.execute("UPDATE t SET w = 9")
    writer.execute("DELETE FROM t WHERE id = 1")
    began = time.time()
    (boundary,) = one.look_for_transactions(start)
    assert boundary.position == start + 5
    assert boundary.changes == 5
    assert abs(boundary.committed_at - began) < 60
    assert one.look_for_transactions(start) == (boundary,)
    assert (
        one.look_for_transactions(boundary.position)
        == one.look_for_transactions(boundary.position)
        == ()
    )


def test_a_later_view_needs_more_columns(
    writer: sqlite3.Connection, one: SqliteSource, two: SqliteSource
) -> None:
    start = one.follow_tables(COLUMNS)
    writer.execute("INSERT INTO t VALUES (3, 3, 3)")
    later = two.follow_tables({"t": ["w"]})
    writer.execute("INSERT INTO t VALUES (4, 4, 4)")
    (boundary,) = one.look_for_transactions(start)
    assert summed(one, start, boundary.position) == Counter({(3, 3): 1, (4, 4): 1})
    batches = [batch for _, batch in two.read_changes({"t": ["w"]}, later, boundary.position)]
    assert [row[0] for row in rows_in(iter(batches))] == [4]
    with pytest.raises(GapError, match='column "w"'):
        list(two.read_changes({"t": ["w"]}, start, boundary.position))


def test_the_slowest_reader_keeps_the_log(
    writer: sqlite3.Connection, one: SqliteSource, two: SqliteSource
) -> None:
    start = one.follow_tables(COLUMNS)
    two.follow_tables(COLUMNS)
    writer.execute("BEGIN")
    writer.executemany("INSERT INTO t(v) VALUES (?)", [(n,) for n in range(3000)])
    writer.execute("COMMIT")
    (boundary,) = one.look_for_transactions(start)
    one.acknowledge_position(boundary.position)
    assert logged(writer) == 3000
    assert len(summed(two, start, boundary.position)) == 3000
    two.acknowledge_position(boundary.position)
    assert logged(writer) == 1, "only the newest change stays, so that its number is not used again"
    assert one.read_health().retained == 1
    with pytest.raises(GapError, match="trimmed"):
        summed(two, start, boundary.position)
    writer.execute("INSERT INTO t(v) VALUES (7)")
    assert [each.changes for each in one.look_for_transactions(boundary.position)] == [1]


def test_a_lease_keeps_the_log_until_it_ends(writer: sqlite3.Connection, one: SqliteSource) -> None:
    start = one.follow_tables(COLUMNS)
    writer.execute("UPDATE t SET v = v + 1")
    one.begin_hold("verify", 60)
    one.acknowledge_position(start + 4)
    assert sum(map(abs, summed(one, start, start + 4).values())) == 4
    one.end_hold("verify")
    one.begin_hold("short", -1)
    one.acknowledge_position(start + 4)
    assert logged(writer) == 1
    leases = writer.execute("SELECT reader FROM _viewkeeper_reader").fetchall()
    assert leases == [("one",)]


def test_a_reader_whose_tables_rest_does_not_keep_the_log_for_ever(
    writer: sqlite3.Connection, one: SqliteSource, two: SqliteSource
) -> None:
    writer.execute("CREATE TABLE quiet(x INT)")
    start = one.follow_tables(COLUMNS)
    two.follow_tables({"quiet": ["x"]})
    writer.execute("INSERT INTO t(v) VALUES (1)")
    assert two.look_for_transactions(start) == ()
    rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000)"
    writer.execute(f"INSERT INTO t(v) {rows} SELECT i FROM n")
    (boundary,) = two.look_for_transactions(start)
    assert boundary == Boundary(start + 10_001, boundary.committed_at, 0)


def test_what_or_ignore_left_pending_is_cleared(
    writer: sqlite3.Connection, one: SqliteSource
) -> None:
    start = one.follow_tables(COLUMNS)
    writer.execute("INSERT OR IGNORE INTO t VALUES (1, 5, 5)")
    assert writer.execute("SELECT count(*) FROM _viewkeeper_pending_1").fetchone() == (1,)
    one.acknowledge_position(start)
    assert writer.execute("SELECT count(*) FROM _viewkeeper_pending_1").fetchone() == (0,)


def test_detaching_respects_the_others(
    writer: sqlite3.Connection, one: SqliteSource, two: SqliteSource
) -> None:
    start = one.follow_tables(COLUMNS)
    two.follow_tables({"t": ["w"]})
    done = one.detach_source()
    assert (done.other_readers, done.capture_dropped) == (("two",), False)
    writer.execute("ALTER TABLE t DROP COLUMN v")
    writer.execute("UPDATE t SET w = 7 WHERE id = 1")
    (boundary,) = two.look_for_transactions(start)
    batches = [batch for _, batch in two.read_changes({"t": ["w"]}, start, boundary.position)]
    assert list(rows_in(iter(batches))) == [(1, -1, 1), (7, 1, 2)]
    with pytest.raises(GapError, match='does not know the reader "one"'):
        one.look_for_transactions(start)
    last = two.detach_source()
    assert last.capture_dropped
    assert own_objects(writer) == set()
    assert not two.detach_source().was_following


def test_detaching_by_force_removes_everything(
    writer: sqlite3.Connection, one: SqliteSource, two: SqliteSource
) -> None:
    one.follow_tables(COLUMNS)
    two.follow_tables(COLUMNS)
    assert one.detach_source(force=True).other_readers == ("two",)
    assert own_objects(writer) == set()
    writer.execute("INSERT OR REPLACE INTO t VALUES (1, 5, 5)")
    with pytest.raises(GapError, match="change log is not there"):
        two.look_for_transactions(0)


def test_following_again_after_detaching_leaves_a_gap(
    writer: sqlite3.Connection, one: SqliteSource, two: SqliteSource
) -> None:
    writer.execute("CREATE TABLE other(x INT)")
    two.follow_tables({"other": ["x"]})
    start = one.follow_tables(COLUMNS)
    one.detach_source()
    writer.execute("UPDATE t SET v = 0")
    writer.execute("INSERT INTO other VALUES (1)")
    again = one.follow_tables(COLUMNS)
    assert summed(one, again, again) == Counter()
    with pytest.raises(GapError, match="was not captured"):
        summed(one, start, again)


def test_a_restored_backup_is_noticed(
    path: Path, writer: sqlite3.Connection, one: SqliteSource, tmp_path: Path
) -> None:
    start = one.follow_tables(COLUMNS)
    writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(path, tmp_path / "backup.db")
    writer.execute("UPDATE t SET v = v + 1")
    (boundary,) = one.look_for_transactions(start)
    one.acknowledge_position(boundary.position)
    writer.close()
    for leftover in (path.with_name("shop.db-wal"), path.with_name("shop.db-shm")):
        leftover.unlink(missing_ok=True)
    (tmp_path / "backup.db").replace(path)
    with pytest.raises(GapError, match="is not of this database"):
        one.look_for_transactions(boundary.position)


def test_triggers_that_were_removed_are_a_gap(
    writer: sqlite3.Connection, one: SqliteSource, two: SqliteSource
) -> None:
    start = one.follow_tables(COLUMNS)
    assert one.look_for_transactions(start) == ()
    writer.execute("DROP TRIGGER _viewkeeper_1_insert")
    for source in (one, one):
        with pytest.raises(GapError, match="no longer complete"):
            source.look_for_transactions(start)
    again = one.follow_tables(COLUMNS)
    writer.execute("INSERT INTO t VALUES (7, 7, 7)")
    (boundary,) = one.look_for_transactions(again)
    assert summed(one, again, boundary.position) == Counter({(7, 7): 1})
    query = "SELECT name FROM sqlite_master WHERE type = 'trigger'"
    for (name,) in writer.execute(query).fetchall():
        writer.execute(f"DROP TRIGGER {name}")
    with pytest.raises(GapError, match="no longer complete"):
        one.look_for_transactions(again)


def test_other_changes_of_shape_do_no_harm(writer: sqlite3.Connection, one: SqliteSource) -> None:
    start = one.follow_tables(COLUMNS)
    writer.executescript(
        "CREATE TABLE s(x); CREATE INDEX i ON t(v); ALTER TABLE s ADD COLUMN y INT;"
        "ALTER TABLE t RENAME COLUMN w TO other; ALTER TABLE t DROP COLUMN other; VACUUM"
    )
    assert one.look_for_transactions(start) == ()


def test_a_source_travels_without_its_connections(
    writer: sqlite3.Connection, one: SqliteSource
) -> None:
    start = one.follow_tables(COLUMNS)
    copy = pickle.loads(pickle.dumps(one))
    assert copy.look_for_transactions(start) == ()
    copy.close()
