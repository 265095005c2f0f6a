"""What PostgreSQL commits arrives as it was committed: every transaction, in order, exactly.

Each test writes with an ordinary session and compares what the source reports with what that
session sees: the state in the beginning plus the reported changes is the state in the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import psycopg
import pytest

from tests.sources.postgres_shop import Shop, as_of, changed, plus
from viewkeeper.errors import BarrierError, GapError, SchemaError
from viewkeeper.sources.postgres.decoding import capture as postgres_capture
from viewkeeper.sources.postgres.decoding import spool_reader
from viewkeeper.sources.stream.spool import Spool
from viewkeeper.sources.stream.stage import TransactionStage
from viewkeeper.testing.private_servers import PrivatePostgres

T = {"t": ["id", "v"]}


@pytest.fixture
def shop(postgres_server: PrivatePostgres, tmp_path: Path) -> Iterator[Shop]:
    opened = Shop(postgres_server, tmp_path)
    yield opened
    opened.close()


def test_transactions_come_one_by_one_in_commit_order(shop: Shop) -> None:
    shop.table("t (id int PRIMARY KEY, v text)")
    shop.run("INSERT INTO t VALUES (1, 'a')")
    source = shop.source()
    start = source.follow_tables(T)
    assert source.look_for_transactions(start) == ()
    late = shop.connect()
    late.execute("BEGIN")
    late.execute("INSERT INTO t VALUES (9, 'late')")
    shop.transaction("INSERT INTO t VALUES (2, 'b')", "UPDATE t SET v = 'c' WHERE id = 1")
    shop.run("DELETE FROM t WHERE id = 2")
    late.execute("COMMIT")
    found = source.look_for_transactions(start)
    assert [boundary.changes for boundary in found] == [3, 1, 1]
    positions = [start, *(boundary.position for boundary in found)]
    assert positions == sorted(set(positions))
    steps = [
        changed(source, "t", ["id", "v"], after, until) for after, until in pairwise(positions)
    ]
    assert steps == [
        [(2, "b", 1), (1, "a", -1), (1, "c", 1)],
        [(2, "b", -1)],
        [(9, "late", 1)],
    ]
    assert source.look_for_transactions(positions[-1]) == ()
    assert changed(source, "t", ["v"], positions[1], positions[2]) == [("b", -1)]


def test_what_was_open_when_following_began_is_waited_for(shop: Shop) -> None:
    shop.table("t (id int PRIMARY KEY, v text)")
    source = shop.source(statement_seconds=1)
    other = shop.connect()
    other.execute("BEGIN")
    other.execute("INSERT INTO t VALUES (1, 'open')")
    with pytest.raises(Exception, match="transactions that are still open") as caught:
        source.follow_tables(T)
    assert str(other.info.backend_pid) in str(caught.value)
    other.execute("COMMIT")
    start = source.follow_tables(T)
    with source.prepare_snapshots(start, T) as opener:
        assert as_of(opener, "t", ["id", "v"], start) == Counter({(1, "open"): 1})


def test_a_large_tail_travels_in_a_file(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_reader, "INLINE_BYTES", 0)
    shop.table("t (id int PRIMARY KEY, v text)")
    source, home = shop.source(), Path(str(shop.settings().home))
    start = source.follow_tables(T)
    shop.run("INSERT INTO t VALUES (1, 'a')")
    with source.prepare_snapshots(start, T) as opener:
        assert list(home.glob("spool-*-tails/*.arrow"))
        assert as_of(opener, "t", ["id", "v"], start) == Counter()
    assert not list(home.glob("spool-*-tails/*.arrow"))


def test_updates_that_touch_nothing_followed_are_no_changes(shop: Shop) -> None:
    shop.table("t (id int PRIMARY KEY, v text, w text)")
    shop.run("INSERT INTO t VALUES (1, 'a', 'b')")
    source = shop.source()
    start = source.follow_tables(T)
    shop.run("UPDATE t SET w = 'c'", "UPDATE t SET v = v")
    assert source.look_for_transactions(start) == ()
    shop.run("UPDATE t SET w = 'd', v = 'x'")
    assert [boundary.changes for boundary in source.look_for_transactions(start)] == [2]


def test_a_large_value_that_did_not_change_is_taken_from_the_old_row(shop: Shop) -> None:
    shop.table("t (id int PRIMARY KEY, v text)")
    shop.run("ALTER TABLE t ALTER v SET STORAGE EXTERNAL")
    big = "x" * 20_000
    shop.run(f"INSERT INTO t VALUES (1, '{big}')")
    source = shop.source()
    start = source.follow_tables(T)
    shop.run("UPDATE t SET id = 2")
    (boundary,) = source.look_for_transactions(start)
    found = changed(source, "t", ["id", "v"], start, boundary.position)
    assert found == [(1, big, -1), (2, big, 1)]


def test_a_table_without_a_key_is_a_bag(shop: Shop) -> None:
    shop.table("t (id int, v text)")
    source = shop.source()
    assert source.describe_table("t").key == ()
    start = source.follow_tables(T)
    shop.transaction("INSERT INTO t VALUES (1, 'a')", "INSERT INTO t VALUES (1, 'a'), (1, NULL)")
    shop.run("DELETE FROM t WHERE ctid = (SELECT min(ctid) FROM t)")
    last = source.look_for_transactions(start)[-1].position
    state = plus(Counter(), changed(source, "t", ["id", "v"], start, last))
    assert state == shop.rows("t", ["id", "v"]) == Counter({(1, "a"): 1, (1, None): 1})


def test_without_old_rows_a_table_is_refused_with_the_statement(shop: Shop) -> None:
    shop.table("t (id int PRIMARY KEY, v text)", identity="DEFAULT")
    source = shop.source()
    with pytest.raises(SchemaError, match="old values") as caught:
        source.follow_tables(T)
    assert 'ALTER TABLE "public"."t" REPLICA IDENTITY FULL' in str(caught.value.hint)
    shop.run('ALTER TABLE "public"."t" REPLICA IDENTITY FULL')
    source.follow_tables(T)


@pytest.mark.parametrize("by", ["primary key", "index"])
def test_an_identity_that_covers_what_is_followed_suffices(shop: Shop, by: str) -> None:
    shop.run("CREATE TABLE t (id int NOT NULL, v text NOT NULL, w text)")
    if by == "index":
        shop.run(
            "CREATE UNIQUE INDEX i ON t (id, v)", "ALTER TABLE t REPLICA IDENTITY USING INDEX i"
        )
    else:
        shop.run("ALTER TABLE t ADD PRIMARY KEY (v, id)")
    shop.run("INSERT INTO t VALUES (1, 'a', 'w'), (2, 'b', 'w')")
    source = shop.source()
    start = source.follow_tables(T)
    shop.run(
        "UPDATE t SET w = 'x'", "UPDATE t SET v = 'c' WHERE id = 1", "DELETE FROM t WHERE id = 2"
    )
    last = source.look_for_transactions(start)[-1].position
    found = changed(source, "t", ["id", "v"], start, last)
    assert found == [(1, "a", -1), (1, "c", 1), (2, "b", -1)]
    with pytest.raises(SchemaError, match="old values"):
        source.follow_tables({"t": ["id", "w"]})


def test_an_identity_that_is_taken_away_is_a_gap_for_who_reads_past_it(shop: Shop) -> None:
    shop.table("t (id int PRIMARY KEY, v text)")
    shop.run("INSERT INTO t VALUES (1, 'a')")
    source = shop.source()
    start = source.follow_tables(T)
    shop.run("ALTER TABLE t REPLICA IDENTITY DEFAULT", "UPDATE t SET v = 'b'")
    (boundary,) = source.look_for_transactions(start)
    with pytest.raises(GapError, match="old values were not logged"):
        changed(source, "t", ["id", "v"], start, boundary.position)
    with pytest.raises(GapError), source.prepare_snapshots(start, T):
        pass
    shop.run("ALTER TABLE t REPLICA IDENTITY FULL", "UPDATE t SET v = 'c'")
    last = source.look_for_transactions(boundary.position)[-1].position
    assert changed(source, "t", ["v"], boundary.position, last) == [("b", -1), ("c", 1)]


def test_partitions_count_as_their_root(shop: Shop) -> None:
    shop.table("t (id int, g int, v text, PRIMARY KEY (id, g)) PARTITION BY LIST (g)")
    for number in (1, 2):
        shop.run(
            f"CREATE TABLE t{number} PARTITION OF t FOR VALUES IN ({number})",
            f"ALTER TABLE t{number} REPLICA IDENTITY FULL",
        )
    source = shop.source()
    shop.run("ALTER TABLE t1 REPLICA IDENTITY DEFAULT")
    with pytest.raises(SchemaError, match="old values"):
        source.follow_tables(T)
    shop.run("ALTER TABLE t1 REPLICA IDENTITY FULL")
    start = source.follow_tables(T)
    shop.transaction(
        "INSERT INTO t VALUES (1, 1, 'a'), (2, 2, 'b')", "UPDATE t SET g = 2 WHERE id = 1"
    )
    shop.run("CREATE TABLE t3 PARTITION OF t FOR VALUES IN (3)", "INSERT INTO t VALUES (3, 3, 'c')")
    last = source.look_for_transactions(start)[-1].position
    assert plus(Counter(), changed(source, "t", ["id", "v"], start, last)) == shop.rows("t", T["t"])
    with source.prepare_snapshots(start, T) as opener:
        assert as_of(opener, "t", ["id", "v"], start) == Counter()
    shop.run("DELETE FROM t WHERE id = 3")
    gap = source.look_for_transactions(last)[-1].position
    with pytest.raises(GapError, match="old values were not logged"):
        changed(source, "t", ["id", "v"], last, gap)
    shop.run("TRUNCATE t")
    emptied = source.look_for_transactions(gap)[-1]
    assert emptied.emptied == ("t",)
    shop.run("INSERT INTO t VALUES (4, 1, 'd')", "TRUNCATE t1")
    partly = source.look_for_transactions(emptied.position)[-1]
    assert partly.emptied == ()
    with pytest.raises(GapError, match="one of its partitions was truncated"):
        changed(source, "t", ["id"], emptied.position, partly.position)
    shop.run("DROP TABLE t2")
    with (
        pytest.raises(GapError, match="dropped or detached"),
        source.prepare_snapshots(partly.position, T),
    ):
        pass


def test_schemas_cases_and_one_table_by_two_names(shop: Shop) -> None:
    shop.run('CREATE SCHEMA "Sales"')
    shop.table('"Sales"."Order" ("Id" int PRIMARY KEY, v text)')
    shop.table("t (id int PRIMARY KEY, v text)")
    source = shop.source()
    tables = {"Sales.Order": ["Id"], "t": ["id"], "public.t": ["v"]}
    start = source.follow_tables(tables)
    shop.transaction('INSERT INTO "Sales"."Order" VALUES (1)', "INSERT INTO t VALUES (2, 'x')")
    (boundary,) = source.look_for_transactions(start)
    assert changed(source, "Sales.Order", ["Id"], start, boundary.position) == [(1, 1)]
    assert changed(source, "t", ["id"], start, boundary.position) == [(2, 1)]
    assert changed(source, "public.t", ["v"], start, boundary.position) == [("x", 1)]
    with source.prepare_snapshots(start, tables) as opener:
        assert as_of(opener, "public.t", ["v"], start) == Counter()
    shop.run("TRUNCATE t")
    assert set(source.look_for_transactions(boundary.position)[0].emptied) == {"t", "public.t"}
    with pytest.raises(SchemaError, match=r'did you mean "Sales.Order"'):
        source.describe_table("Sales.Orders")


def test_a_prepared_transaction_comes_when_it_is_committed(shop: Shop) -> None:
    shop.table("t (id int PRIMARY KEY, v text)")
    source = shop.source()
    start = source.follow_tables(T)
    shop.run("BEGIN", "INSERT INTO t VALUES (1, 'two')", f"PREPARE TRANSACTION '{shop.database}'")
    shop.run("INSERT INTO t VALUES (2, 'one')")
    (first,) = source.look_for_transactions(start)
    with source.prepare_snapshots(start, T) as opener:
        assert as_of(opener, "t", ["id", "v"], start) == Counter()
    shop.run(f"COMMIT PREPARED '{shop.database}'")
    (second,) = source.look_for_transactions(first.position)
    assert changed(source, "t", ["v"], first.position, second.position) == [("two", 1)]
    with source.prepare_snapshots(first.position, T) as opener:
        assert as_of(opener, "t", ["v"], first.position) == Counter({("one",): 1})


def test_generated_columns_are_refused_and_identity_columns_are_not(shop: Shop) -> None:
    shop.table(
        "t (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v text,"
        " w text GENERATED ALWAYS AS (v || '!') STORED)"
    )
    source = shop.source()
    assert [field.name for field in source.describe_table("t").fields] == ["id", "v"]
    assert "capture: triggers" in source.describe_table("t").refused["w"]
    with pytest.raises(SchemaError, match='column "w" cannot be used'):
        source.follow_tables({"t": ["w"]})
    start = source.follow_tables(T)
    shop.run("INSERT INTO t(v) VALUES ('a')")
    (boundary,) = source.look_for_transactions(start)
    assert changed(source, "t", ["id", "v"], start, boundary.position) == [(1, "a", 1)]


def test_truncate_empties_and_is_a_barrier(shop: Shop) -> None:
    shop.table("t (id int PRIMARY KEY, v text)")
    shop.table("u (id int PRIMARY KEY)")
    shop.run("INSERT INTO t VALUES (1, 'a')", "INSERT INTO u VALUES (1)")
    source = shop.source()
    tables = {**T, "u": ["id"]}
    start = source.follow_tables(tables)
    shop.transaction(
        "INSERT INTO t VALUES (2, 'before')",
        "INSERT INTO u VALUES (2)",
        "TRUNCATE t",
        "INSERT INTO t VALUES (3, 'since')",
    )
    (boundary,) = source.look_for_transactions(start)
    assert (boundary.emptied, boundary.changes) == (("t",), 2)
    assert changed(source, "t", ["id", "v"], start, boundary.position) == [(3, "since", 1)]
    with source.prepare_snapshots(start, tables) as opener:
        with pytest.raises(BarrierError) as caught:
            as_of(opener, "t", ["id"], start)
        assert (caught.value.table, caught.value.position) == ("t", boundary.position)
        assert as_of(opener, "u", ["id"], start) == Counter({(1,): 1})
    with source.prepare_snapshots(boundary.position, tables) as opener:
        assert as_of(opener, "t", ["id"], boundary.position) == Counter({(3,): 1})


def test_a_snapshot_keeps_truncate_waiting(shop: Shop) -> None:
    shop.table("t (id int PRIMARY KEY, v text)")
    shop.run("INSERT INTO t VALUES (1, 'a')")
    source = shop.source()
    start = source.follow_tables(T)
    with source.prepare_snapshots(start, T) as opener:
        shop.run("SET lock_timeout = '50ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            shop.run("TRUNCATE t")
        assert as_of(opener, "t", ["id", "v"], start) == Counter({(1, "a"): 1})
    shop.run("TRUNCATE t")


def test_a_large_transaction_takes_no_memory(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = partial(TransactionStage, memory_bytes=1 << 20)
    monkeypatch.setattr(postgres_capture, "TransactionStage", stage)
    monkeypatch.setattr(postgres_capture, "Spool", partial(Spool, memory_bytes=1 << 20))
    shop.table("t (id int, v text)")
    source = shop.source()
    start = source.follow_tables(T)
    shop.transaction(
        "INSERT INTO t SELECT n, 'row ' || n FROM generate_series(1, 60000) n",
        "UPDATE t SET v = 'new ' || id WHERE id <= 20000",
    )
    shop.run("INSERT INTO t VALUES (0, 'after')")
    large, small = source.look_for_transactions(start)
    assert (large.changes, small.changes) == (100_000, 1)
    assert len(list(Path(str(shop.settings().home)).glob("spool-*/*.arrow"))) > 1
    total: Counter[object] = Counter()
    for _, batch in source.read_changes(T, start, small.position):
        assert batch.num_rows <= 10_000
        total.update({"rows": int(batch["_count"].to_numpy().sum()), "batches": 1})
    assert total["rows"] == 60_001
    assert total["batches"] >= 10
    with source.prepare_snapshots(start, T) as opener:
        assert as_of(opener, "t", ["id", "v"], start) == Counter()


def test_other_columns_may_come_and_go(shop: Shop) -> None:
    shop.table("t (id int PRIMARY KEY, u int, v varchar(5))")
    source = shop.source()
    start = source.follow_tables(T)
    shop.run("INSERT INTO t VALUES (1, 1, 'a')", "ALTER TABLE t DROP u, ADD w int DEFAULT 7")
    shop.run("INSERT INTO t VALUES (2, 'b')", "ALTER TABLE t ALTER v TYPE varchar(9)")
    last = source.look_for_transactions(start)[-1].position
    assert changed(source, "t", T["t"], start, last) == [(1, "a", 1), (2, "b", 1)]


def test_more_columns_can_be_followed_later(shop: Shop) -> None:
    shop.table("t (id int PRIMARY KEY, v text, w text)")
    shop.table("u (id int PRIMARY KEY)")
    source = shop.source()
    start = source.follow_tables({"t": ["id"]})
    shop.run("INSERT INTO t VALUES (1, 'a', 'b')")
    (first,) = source.look_for_transactions(start)
    later = source.follow_tables({"t": ["w"], "u": ["id"]})
    assert later > first.position
    assert source.follow_tables({"t": ["id"], "u": ["id"]}) == later
    shop.transaction("UPDATE t SET w = 'c'", "INSERT INTO u VALUES (5)")
    (second,) = source.look_for_transactions(later)
    assert changed(source, "t", ["id", "w"], later, second.position) == [(1, "b", -1), (1, "c", 1)]
    assert changed(source, "t", ["id"], start, later) == [(1, 1)]
    assert changed(source, "u", ["id"], start, second.position) == [(5, 1)]


def test_a_transaction_that_stays_open_holds_nobody_up(shop: Shop) -> None:
    shop.table("t (id int PRIMARY KEY, v text)")
    source = shop.source()
    position = source.follow_tables(T)
    large = shop.connect()
    large.execute("BEGIN")
    for number in range(1, 8):
        # Some of what it wrote reaches the disk, up to the middle of a record.
        values = f"SELECT n, repeat('x', 900) FROM generate_series({number}000, {number}700) n"
        large.execute(f"INSERT INTO t {values}".encode())
        assert source.look_for_transactions(position) == ()
        shop.run(f"INSERT INTO t VALUES ({number}, 'small')")
        (boundary,) = source.look_for_transactions(position)
        assert boundary.changes == 1
        position = boundary.position
    large.execute("COMMIT")
    assert [boundary.changes for boundary in source.look_for_transactions(position)] == [7 * 701]


def test_messages_of_strangers_tell_nothing(shop: Shop) -> None:
    """Any role may write messages into the log, under our prefix too."""
    shop.table("t (id int PRIMARY KEY, v text)")
    source = shop.source()
    start = source.follow_tables(T)
    for text in ("shape ", "shape {", 'shape {"gone": 1e999}', 'shape {"shape": []}', "shape " * 9):
        shop.run(f"SELECT pg_logical_emit_message(true, 'viewkeeper', '{text}')")
    shop.run("INSERT INTO t VALUES (77, 'b')")
    found = [boundary for boundary in source.look_for_transactions(start) if boundary.changes]
    assert [boundary.changes for boundary in found] == [1]
