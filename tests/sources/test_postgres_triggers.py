"""PostgreSQL captured by triggers: reports of whole commits, and answers that are exact.

What decoding is tested for holds here too, as far as it is promised: several commits may be one
report, but never a part of one; rows minus tail is the state as of any look.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest

from tests.sources.postgres_shop import Row, Shop, as_of, ask, changed, plus
from viewkeeper.errors import BarrierError, GapError, SchemaError
from viewkeeper.testing.private_servers import PrivatePostgres
from viewkeeper.updates.source_protocol import Source

T = {"t": ["id", "v"]}
COLUMNS = ["id", "v"]


@pytest.fixture
def shop(postgres_server: PrivatePostgres, tmp_path: Path) -> Iterator[Shop]:
    opened = Shop(postgres_server, tmp_path)
    opened.run("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a')")
    yield opened
    opened.close()


def triggers(shop: Shop, reader: str = "me") -> Source:
    return shop.source(reader, capture="triggers")


def test_commits_between_two_looks_are_one_report(shop: Shop) -> None:
    source = triggers(shop)
    start = source.follow_tables(T)
    assert source.look_for_transactions(start) == source.look_for_transactions(start) == ()
    open_ = shop.connect()
    open_.execute("BEGIN")
    open_.execute("INSERT INTO t VALUES (9, 'open')")
    shop.transaction("INSERT INTO t VALUES (2, 'b')", "UPDATE t SET v = 'c' WHERE id = 1")
    shop.run("DELETE FROM t WHERE id = 2")
    (first,) = source.look_for_transactions(start)
    assert first.changes == 4
    assert plus(Counter({(1, "a"): 1}), changed(source, "t", COLUMNS, start, first.position)) == (
        Counter({(1, "c"): 1})
    )
    assert source.look_for_transactions(first.position) == ()
    open_.execute("COMMIT")
    (second,) = source.look_for_transactions(first.position)
    assert changed(source, "t", COLUMNS, first.position, second.position) == [(9, "open", 1)]
    both = [row[0] for row in changed(source, "t", ["id"], start, second.position)]
    assert both[-1] == 9
    assert len(both) == 5


def test_answers_go_back_to_any_look(shop: Shop) -> None:
    source = triggers(shop)
    states = {source.follow_tables(T): shop.rows("t", COLUMNS)}
    for number in range(2, 5):
        shop.run(f"INSERT INTO t VALUES ({number}, 'x')", "UPDATE t SET v = v || '!'")
        (boundary,) = source.look_for_transactions(max(states))
        states[boundary.position] = shop.rows("t", COLUMNS)
    shop.run("DELETE FROM t WHERE id < 3")
    for after, state in states.items():
        with source.prepare_snapshots(after, T) as opener:
            assert as_of(opener, "t", COLUMNS, after) == state
            with closing(opener()) as snapshot:
                keys = pa.table({"id": pa.array([1, 3], pa.int64())})
                answer = ask(snapshot, "t", COLUMNS, keys, after)
                assert answer.rows["id"].to_pylist() == [3]
                assert answer.cut.position > after
    told = source.look_for_transactions(max(states))
    assert [boundary.changes for boundary in told] == [2]
    assert told[0].position <= answer.cut.position


def test_every_kind_of_write_is_captured(shop: Shop) -> None:
    shop.run(
        "CREATE TABLE p (id int PRIMARY KEY, c char(4), b bool, x bytea, d timestamptz, f real,"
        " g int GENERATED ALWAYS AS (id * 2) STORED)",
        "CREATE TABLE k (id int REFERENCES p ON DELETE CASCADE ON UPDATE CASCADE, v int)",
    )
    source = triggers(shop)
    columns = {"p": ["id", "c", "b", "x", "d", "f", "g"], "k": ["id", "v"]}
    start = source.follow_tables(columns)
    writer = shop.writer
    shop.run(
        "SET TimeZone = 'Asia/Tokyo'", "SET DateStyle = 'German'", "SET extra_float_digits = 0"
    )
    shop.run(
        "INSERT INTO p VALUES (1, 'ab', true, '\\x00ff', '2024-01-01 00:00:00.000001+09', 1.1),"
        " (2, NULL, NULL, NULL, NULL, 'infinity')"
    )
    with writer.cursor().copy("COPY k FROM STDIN") as copy:
        copy.write("1\t10\n1\t11\n2\t20\n")
    shop.run("INSERT INTO p(id, c) VALUES (1, 'z') ON CONFLICT (id) DO UPDATE SET c = excluded.c")
    shop.run("UPDATE p SET id = 3 WHERE id = 1", "DELETE FROM p WHERE id = 2")
    shop.run("SET session_replication_role = replica", "INSERT INTO k VALUES (7, 7)")
    (boundary,) = source.look_for_transactions(start)
    found = plus(Counter(), changed(source, "p", columns["p"], start, boundary.position))
    with source.prepare_snapshots(boundary.position, columns) as opener:
        for table, names in columns.items():
            state = as_of(opener, table, names, boundary.position)
            changes = changed(source, table, names, start, boundary.position)
            assert plus(Counter(), changes) == state
    ((row, count),) = found.items()
    assert (row[0], row[1], row[2], row[3], row[6], count) == (3, "z   ", True, b"\x00\xff", 6, 1)


def test_partitions_count_as_their_root(shop: Shop) -> None:
    shop.run(
        "CREATE TABLE m (id int, g int) PARTITION BY LIST (g)",
        "CREATE TABLE m1 PARTITION OF m FOR VALUES IN (1)",
        "CREATE TABLE m2 PARTITION OF m FOR VALUES IN (2)",
    )
    source = triggers(shop)
    start = source.follow_tables({"m": ["id"]})
    shop.run("INSERT INTO m VALUES (1, 1), (2, 2)", "INSERT INTO m2 VALUES (3, 2)")
    shop.run("UPDATE m SET g = 2 WHERE id = 1")
    shop.run("CREATE TABLE m3 PARTITION OF m FOR VALUES IN (3)", "INSERT INTO m3 VALUES (4, 3)")
    (first,) = source.look_for_transactions(start)
    state = plus(Counter(), changed(source, "m", ["id"], start, first.position))
    assert state == shop.rows("m", ["id"])
    shop.run("TRUNCATE m")
    (second,) = source.look_for_transactions(first.position)
    assert second.emptied == ("m",)
    assert changed(source, "m", ["id"], first.position, second.position) == []
    shop.run("INSERT INTO m VALUES (5, 1)", "TRUNCATE m1")
    (third,) = source.look_for_transactions(second.position)
    with pytest.raises(GapError, match="one of its partitions"):
        changed(source, "m", ["id"], second.position, third.position)


def test_truncate_empties_and_is_a_barrier(shop: Shop) -> None:
    source = triggers(shop)
    start = source.follow_tables(T)
    shop.run("INSERT INTO t VALUES (2, 'before')")
    with source.prepare_snapshots(start, T):
        pass
    shop.transaction("TRUNCATE t", "INSERT INTO t VALUES (3, 'since')")
    before, emptied = source.look_for_transactions(start)
    assert (before.emptied, emptied.emptied) == ((), ("t",))
    assert changed(source, "t", COLUMNS, start, before.position) == [(2, "before", 1)]
    assert changed(source, "t", COLUMNS, before.position, emptied.position) == [(3, "since", 1)]
    with source.prepare_snapshots(start, T) as opener, pytest.raises(BarrierError) as caught:
        as_of(opener, "t", COLUMNS, start)
    assert caught.value.position >= emptied.position
    with source.prepare_snapshots(emptied.position, T) as opener:
        assert as_of(opener, "t", COLUMNS, emptied.position) == Counter({(3, "since"): 1})


def test_a_column_that_goes_does_not_make_writes_fail(shop: Shop) -> None:
    source = triggers(shop)
    start = source.follow_tables(T)
    shop.run("ALTER TABLE t RENAME v TO w", "INSERT INTO t VALUES (2, 'b')")
    (boundary,) = source.look_for_transactions(start)
    assert changed(source, "t", T["t"], start, boundary.position) == [(2, "b", 1)]
    shop.run("ALTER TABLE t DROP w", "INSERT INTO t VALUES (4)")
    _, boundary = source.look_for_transactions(start)
    assert changed(source, "t", ["id"], start, boundary.position) == [(2, 1), (4, 1)]
    shop.run("DROP SCHEMA viewkeeper CASCADE", "INSERT INTO t VALUES (3)")
    with pytest.raises(GapError, match="not followed any more"):
        source.look_for_transactions(start)


def test_what_everybody_acknowledged_is_trimmed(shop: Shop) -> None:
    one, two = triggers(shop, "one"), triggers(shop, "two")
    start, later = one.follow_tables(T), two.follow_tables({"t": ["id"]})
    shop.run("INSERT INTO t SELECT n, 'x' FROM generate_series(10, 59) n")
    (first,) = one.look_for_transactions(start)
    one.acknowledge_position(first.position)
    assert one.read_health((start,)).retained == 50
    assert two.read_health((later,)).behind[later].changes == 50
    (second,) = [b for b in two.look_for_transactions(later) if b.changes]
    two.begin_hold("verify", 60)
    two.acknowledge_position(second.position)
    assert changed(two, "t", ["id"], later, second.position)
    two.end_hold("verify")
    shop.run("UPDATE t SET v = 'y' WHERE id = 10")
    (third,) = one.look_for_transactions(first.position)
    two.acknowledge_position(third.position)
    one.acknowledge_position(third.position)
    shop.run("SELECT 1")
    one.acknowledge_position(third.position)
    assert one.read_health(()).retained == 0
    with pytest.raises(GapError):
        one.look_for_transactions(start)
    gone = one.detach_source()
    assert (gone.was_following, gone.capture_dropped, len(gone.other_readers)) == (True, False, 1)
    shop.run("INSERT INTO t VALUES (3, 'c')")
    assert sum(b.changes for b in two.look_for_transactions(third.position)) == 1
    assert two.detach_source().capture_dropped
    assert shop.writer.execute("SELECT to_regnamespace('viewkeeper')").fetchone() == (None,)
    shop.run("INSERT INTO t VALUES (4, 'd')")


def test_triggers_switched_off_and_a_restored_database_are_gaps(shop: Shop) -> None:
    source = triggers(shop)
    start = source.follow_tables(T)
    shop.run("ALTER TABLE t DISABLE TRIGGER viewkeeper_update")
    shop.run("INSERT INTO t VALUES (2, 'b')")
    with pytest.raises(GapError, match="triggers are gone or switched off"):
        source.look_for_transactions(start)
    shop.run("ALTER TABLE t ENABLE ALWAYS TRIGGER viewkeeper_update")
    (boundary,) = source.look_for_transactions(start)
    source.close()
    shop.run(f"DELETE FROM viewkeeper.look WHERE position = {boundary.position}")
    again = triggers(shop)
    with pytest.raises(GapError, match="restored to an earlier state"):
        again.look_for_transactions(start)


def test_doctor_names_what_triggers_need(shop: Shop) -> None:
    role = f"role_{shop.database}"
    shop.run(f"CREATE ROLE {role} LOGIN PASSWORD 'secret'")
    url = shop.server.url_of(shop.database, role)
    source = shop.source(url=url, capture="triggers")
    assert "triggers" in source.describe_source()
    for finding in source.diagnose_source(T):
        if finding.state == "bad":
            assert finding.mend
            shop.run(finding.mend)
    assert {finding.state for finding in source.diagnose_source(T)} == {"good"}
    start = source.follow_tables(T)
    shop.run("INSERT INTO t VALUES (2, 'b')")
    assert source.look_for_transactions(start)[0].changes == 1
    source.detach_source()


def test_every_answer_under_racing_writers(shop: Shop) -> None:
    shop.run(
        "CREATE TABLE r (id int, v int)", "INSERT INTO r SELECT n, n FROM generate_series(1, 9) n"
    )
    source = triggers(shop)
    start = source.follow_tables({"r": COLUMNS})
    initial = shop.rows("r", COLUMNS)
    stop = threading.Event()

    def write(seed: int) -> None:
        rng = random.Random(seed)
        with psycopg.connect(shop.url) as connection:
            while not stop.is_set():
                row = (rng.randrange(100), rng.randrange(9))
                connection.execute("INSERT INTO r VALUES (%s, %s)", row[::-1])
                connection.execute("DELETE FROM r WHERE v = %s AND id > 1000", row[:1])
                connection.commit() if rng.random() < 0.9 else connection.rollback()
                time.sleep(0.005)

    writers = [threading.Thread(target=write, args=(seed,)) for seed in range(4)]
    for writer in writers:
        writer.start()
    states: dict[int, Counter[Row]] = {start: initial}
    found: list[tuple[int, Counter[Row]]] = []
    try:
        rng = random.Random(3)
        while len(found) < 12:
            after = max(states)
            for boundary in source.look_for_transactions(after):
                changes = changed(source, "r", COLUMNS, after, boundary.position)
                assert len(changes) == boundary.changes
                states[boundary.position] = plus(states[after], changes)
                after = boundary.position
            asked = rng.choice(sorted(states)[-5:])
            with source.prepare_snapshots(asked, {"r": COLUMNS}) as opener:
                found.append((asked, as_of(opener, "r", COLUMNS, asked)))
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    assert not [asked for asked, state in found if state != states[asked]]
    last = max(states)
    for boundary in source.look_for_transactions(last):
        changes = changed(source, "r", COLUMNS, last, boundary.position)
        states[boundary.position] = plus(states[last], changes)
        last = boundary.position
    assert states[last] == shop.rows("r", COLUMNS)


def test_a_writer_that_locks_the_other_way_round_is_never_the_victim(shop: Shop) -> None:
    """It holds the second table and wants the first, while we hold that and want the second."""
    shop.run("CREATE TABLE u (id int PRIMARY KEY, v text)")
    source, positions = triggers(shop), list[int]()

    def follow() -> None:
        positions.append(source.follow_tables({"t": COLUMNS, "u": COLUMNS}))

    def is_waiting() -> bool:
        query = "SELECT 1 FROM pg_locks WHERE relation = 'u'::regclass AND NOT granted"
        return bool(shop.connect().execute(query).fetchall())

    writer, following = shop.connect(), threading.Thread(target=follow)
    writer.execute("BEGIN")
    writer.execute("INSERT INTO u VALUES (1, 'b')")
    following.start()
    end = time.monotonic() + 60
    while not is_waiting():
        assert time.monotonic() < end, "it never waited for the table"
    writer.execute("INSERT INTO t VALUES (2, 'b')")
    writer.execute("COMMIT")
    following.join(60)
    assert positions, "it never followed the tables"
    shop.run("INSERT INTO u VALUES (2, 'c')")
    (report,) = source.look_for_transactions(positions[0])
    assert changed(source, "u", COLUMNS, positions[0], report.position) == [(2, "c", 1)]


def test_tables_are_followed_and_left_beside_writers_in_every_order(shop: Shop) -> None:
    """They never stop, and would make a circle with whoever locks both tables at once."""
    shop.run("CREATE TABLE u (id int PRIMARY KEY, v text)")
    stop, commits, failed = threading.Event(), [0] * 4, list[psycopg.Error]()

    def write(number: int) -> None:
        with shop.connect() as connection:
            while not stop.is_set():
                try:
                    with connection.transaction():
                        for table in ("u", "t") if number % 2 else ("t", "u"):
                            key = 100 + 1000 * number + commits[number]
                            connection.execute(f"INSERT INTO {table} VALUES ({key}, 'w')".encode())
                            connection.execute("SELECT pg_sleep(0.02)")
                    commits[number] += 1
                except psycopg.Error as error:
                    failed.append(error)
                    return

    writers = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in writers:
        thread.start()
    try:
        source = triggers(shop)
        position = source.follow_tables({"t": COLUMNS, "u": COLUMNS})
        before = sum(commits)
        while sum(commits) < before + 8 and not failed:
            time.sleep(0.01)
    finally:
        stop.set()
        for thread in writers:
            thread.join()
    assert not failed
    newest = [report.position for report in source.look_for_transactions(position)][-1]
    for table in ("t", "u"):
        changes = changed(source, table, COLUMNS, position, newest)
        assert len(changes) >= 8, f"what was written to {table} after the position is not there"
    assert source.detach_source().capture_dropped


def test_a_table_of_another_owner_is_named_before_any_trigger_is_made(shop: Shop) -> None:
    shop.without_rights()
    shop.run("CREATE TABLE a (id int PRIMARY KEY, v text)")
    shop.run("RESET ROLE", "GRANT SELECT ON t TO plain")
    with pytest.raises(SchemaError, match='may not put triggers on table "t"'):
        triggers(shop).follow_tables({"a": COLUMNS, "t": COLUMNS})
    query = "SELECT count(*) FROM pg_trigger WHERE starts_with(tgname, 'viewkeeper')"
    assert shop.writer.execute(query.encode()).fetchone() == (0,)
