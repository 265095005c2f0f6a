"""Schema changes in their place: inside transactions, between tables, while we read.

What the table-driven cases do not show: several shapes in one transaction, names that are used
again, partitions, tables that go by key, and what happens when a change meets an open question.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.sources.postgres_shapes import look_all, told
from tests.sources.postgres_shop import Shop, as_of, changed
from viewkeeper.errors import BrokenQueryError, SchemaError
from viewkeeper.testing.private_servers import PrivatePostgres
from viewkeeper.updates.source_protocol import Source, names_now_of

pytest_plugins = ("tests.servers",)
T = {"t": ["id", "v"]}


@pytest.fixture
def shop(postgres_server: PrivatePostgres, tmp_path: Path) -> Iterator[Shop]:
    made = Shop(postgres_server, tmp_path)
    yield made
    made.close()


@pytest.fixture(params=["watched", "unwatched"])
def way(request: pytest.FixtureRequest, shop: Shop) -> str:
    if request.param == "unwatched":
        shop.without_rights()
    return str(request.param)


def test_several_shapes_in_one_transaction(shop: Shop) -> None:
    shop.table("t (id int PRIMARY KEY, v real, w text)")
    source = shop.source()
    start = source.follow_tables({"t": ["id", "v"]})
    shop.transaction(
        "INSERT INTO t VALUES (1, 0.1, 'a')",
        "ALTER TABLE t RENAME v TO x",
        "INSERT INTO t (id, x) VALUES (2, 0.2)",
        "ALTER TABLE t DROP w, ALTER x TYPE double precision",
        "INSERT INTO t (id, x) VALUES (3, 0.3)",
        "ALTER TABLE t RENAME id TO v",
        "ALTER TABLE t RENAME x TO id",
        "INSERT INTO t (v, id) VALUES (4, 0.4)",
    )
    (boundary,) = source.look_for_transactions(start)
    assert told([boundary], "t") == [
        ("rename_column", "v", "x"),
        ("widen_type", "v", "double precision"),
        ("rename_column", "id", "v"),
        ("rename_column", "v", "id"),
    ]
    real = [0.10000000149011612, 0.20000000298023224]
    found = changed(source, "t", ["id", "v"], start, boundary.position)
    assert found == [(1, real[0], 1), (2, real[1], 1), (3, 0.3, 1), (4, 0.4, 1)]
    handle = source.handle_of("t")
    source.follow_tables({handle: ["v", "id"]})
    assert changed(source, handle, ["v", "id"], start, boundary.position) == found
    with source.prepare_snapshots(start, T) as opener:
        assert as_of(opener, "t", ["id", "v"], start) == Counter()


def test_two_tables_swap_their_names(shop: Shop, way: str) -> None:
    shop.table("a (id int PRIMARY KEY)")
    shop.table("b (id int PRIMARY KEY)")
    source = shop.source()
    start = source.follow_tables({"a": ["id"], "b": ["id"]})
    shop.run("INSERT INTO a VALUES (1)", "INSERT INTO b VALUES (2)")
    shop.transaction(
        "ALTER TABLE a RENAME TO c", "ALTER TABLE b RENAME TO a", "ALTER TABLE c RENAME TO b"
    )
    shop.run("INSERT INTO a VALUES (20)", "INSERT INTO b VALUES (10)")
    found = look_all(source, start)
    last = found[-1].position
    assert told(found, "a")[-1] == ("rename_table", "", "b")
    assert told(found, "b")[-1] == ("rename_table", "", "a")
    assert changed(source, "a", ["id"], start, last) == [(1, 1), (10, 1)]
    assert changed(source, "b", ["id"], start, last) == [(2, 1), (20, 1)]
    with source.prepare_snapshots(last, {"a": ["id"], "b": ["id"]}) as opener:
        assert as_of(opener, "a", ["id"], last) == Counter([(1,), (10,)])
        assert as_of(opener, "b", ["id"], last) == Counter([(2,), (20,)])
    assert source.handle_of("a") == "a#2"
    source.follow_tables({"a#2": ["id"]})
    assert changed(source, "a#2", ["id"], start, last) == [(2, 1), (20, 1)]


def test_a_schema_is_renamed(shop: Shop, way: str) -> None:
    shop.run("CREATE SCHEMA s")
    shop.table("s.t (id int PRIMARY KEY)")
    source = shop.source()
    start = source.follow_tables({"s.t": ["id"]})
    shop.run("ALTER SCHEMA s RENAME TO z", "INSERT INTO z.t VALUES (1)")
    found = look_all(source, start)
    assert told(found, "s.t") == [("rename_table", "", "z.t")]
    became = names_now_of(source, "s.t")
    assert became is not None
    assert (became.table, dict(became.columns)) == ("z.t", {"id": "id"})
    assert changed(source, "s.t", ["id"], start, found[-1].position) == [(1, 1)]


def test_a_name_comes_back_later(shop: Shop, way: str) -> None:
    shop.table("t (id int PRIMARY KEY, v text)")
    source = shop.source()
    start = source.follow_tables(T)
    shop.run("DROP TABLE t")
    first = look_all(source, start)
    assert told(first, "t") == [("drop_table", "", "")]
    shop.table("t (id int PRIMARY KEY, v text)")
    second = look_all(source, first[-1].position)
    assert told(second, "t") == [("recreate_table", "", "")]
    assert names_now_of(source, "t") is None
    assert source.handle_of("t") == "t#2"
    with pytest.raises(SchemaError, match="was dropped"):
        source.describe_table("t")
    position = source.follow_tables({"t": ["id", "v"], "t#2": ["id", "v"]})
    shop.run("INSERT INTO t VALUES (1, 'new')")
    (boundary,) = source.look_for_transactions(position)
    assert changed(source, "t#2", ["id", "v"], position, boundary.position) == [(1, "new", 1)]
    with pytest.raises(BrokenQueryError, match="gone"):
        changed(source, "t", ["id"], position, boundary.position)


def test_partitions_follow_their_root(shop: Shop, way: str) -> None:
    shop.run("CREATE TABLE t (id int, v real, w text) PARTITION BY RANGE (id)")
    shop.run("CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (10)")
    shop.run("CREATE TABLE t2 (w text, x int, v real, id int NOT NULL)", "ALTER TABLE t2 DROP x")
    shop.run("ALTER TABLE t ATTACH PARTITION t2 FOR VALUES FROM (10) TO (20)")
    for part in ("t1", "t2"):
        shop.run(f"ALTER TABLE {part} REPLICA IDENTITY FULL")
    source = shop.source()
    start = source.follow_tables(T)
    shop.run("INSERT INTO t VALUES (1, 0.5, 'a'), (11, 1.5, 'b')")
    shop.run("ALTER TABLE t RENAME v TO z", "ALTER TABLE t ADD u int")
    shop.run("INSERT INTO t (id, z) VALUES (2, 2.5), (12, 3.5)", "DELETE FROM t WHERE id = 11")
    found = look_all(source, start)
    last = found[-1].position
    assert sorted(told(found, "t")) == [("add_column", "u", ""), ("rename_column", "v", "z")]
    rows = changed(source, "t", ["id", "v"], start, last)
    assert sorted(map(str, rows)) == sorted(
        map(str, [(1, 0.5, 1), (11, 1.5, 1), (2, 2.5, 1), (12, 3.5, 1), (11, 1.5, -1)])
    )
    with source.prepare_snapshots(last, T) as opener:
        assert as_of(opener, "t", ["id", "v"], last) == Counter([(1, 0.5), (2, 2.5), (12, 3.5)])


def test_a_table_that_goes_by_key(shop: Shop, way: str) -> None:
    shop.table("t (id int PRIMARY KEY, v text, w text)", identity="DEFAULT")
    shop.run("ALTER TABLE t ALTER v SET STORAGE EXTERNAL")
    shop.run("INSERT INTO t VALUES (1, repeat('x', 9000), 'a')")
    source = shop.source(delete_by_key=["t"])
    start = source.follow_tables({"t": ["id", "v", "w"]})
    shop.run("ALTER TABLE t RENAME id TO key", "ALTER TABLE t RENAME v TO big")
    shop.run("UPDATE t SET w = 'b'")
    found = look_all(source, start)
    last = found[-1].position
    gone, came = changed(source, "t", ["id", "v", "w"], start, last)
    assert gone == (1, None, None, 0)
    assert came == (1, "x" * 9000, "b", 1)


def test_what_a_broken_question_met_is_reported(shop: Shop, way: str) -> None:
    shop.table("t (id int PRIMARY KEY, v text)")
    source = shop.source()
    start = source.follow_tables(T)
    source.look_for_transactions(start)
    shop.run("ALTER TABLE t DROP v")
    with (
        pytest.raises(BrokenQueryError, match="column v is gone"),
        source.prepare_snapshots(start, T),
    ):
        pass
    assert told(source.look_for_transactions(start), "t") == [("drop_column", "v", "")]
    with source.prepare_snapshots(start, {"t": ["id"]}) as opener:
        assert as_of(opener, "t", ["id"], start) == Counter()
    source.follow_tables(T)


def test_a_change_waits_for_an_open_snapshot_and_no_longer(shop: Shop, way: str) -> None:
    shop.table("t (id int PRIMARY KEY, v text)")
    source = shop.source()
    start = source.follow_tables(T)
    shop.run("INSERT INTO t VALUES (1, 'a')")
    with source.prepare_snapshots(start, T) as opener:
        assert as_of(opener, "t", ["id", "v"], start) == Counter()
        change = threading.Thread(target=shop.run, args=["ALTER TABLE t RENAME v TO w"])
        change.start()
        time.sleep(0.1)
        assert change.is_alive()
        # Nobody who looks meanwhile waits for it.
        assert [b.changes for b in source.look_for_transactions(start)] == [1]
    change.join(10)
    assert not change.is_alive()
    assert told(look_all(source, start), "t") == [("rename_column", "v", "w")]


def test_an_open_change_does_not_hold_looks_up(shop: Shop, way: str) -> None:
    shop.table("t (id int PRIMARY KEY, v text)")
    shop.table("u (id int PRIMARY KEY)")
    source = shop.source()
    start = source.follow_tables({**T, "u": ["id"]})
    shop.run("BEGIN", "ALTER TABLE t RENAME v TO w")
    with shop.connect() as other:
        other.execute("INSERT INTO u VALUES (1)")
    assert [b.changes for b in source.look_for_transactions(start)] == [1]
    assert told(source.look_for_transactions(start), "t") == []
    shop.run("COMMIT")
    time.sleep(0.25)
    assert told(look_all(source, start), "t") == [("rename_column", "v", "w")]


def test_event_triggers_are_told_of_and_removed(shop: Shop, way: str) -> None:
    shop.table("t (id int PRIMARY KEY, v text)")
    source = shop.source()
    source.follow_tables(T)
    query = b"SELECT count(*) FROM pg_event_trigger WHERE evtenabled = 'A'"
    (made,) = shop.writer.execute(query).fetchone() or (None,)
    (finding,) = [f for f in source.diagnose_source(T) if f.check == "schema changes"]
    if way == "watched":
        assert (made, finding.mend) == (2, None)
        assert "event triggers tell its schema changes" in source.describe_source()
    else:
        assert made == 0
        assert "looks find its schema changes" in source.describe_source()
        assert finding.mend is not None
        with psycopg.connect(shop.server.url_of(shop.database), autocommit=True) as superuser:
            superuser.execute(finding.mend.encode())
        source.close()
        source = shop.source()
        source.follow_tables(T)
        assert "event triggers tell" in source.describe_source()
    source.detach_source()
    (left,) = shop.writer.execute(query).fetchone() or (None,)
    assert left == (0 if way == "watched" else 2)


def test_types_and_names_survive_random_changes(shop: Shop, way: str) -> None:
    """Many small changes with rows between, now looked at and now not: the net is always right."""
    shop.table("t (id int PRIMARY KEY, a text, b text, c text)")
    source = shop.source()
    position = start = source.follow_tables({"t": ["id", "a", "b", "c"]})
    names = {"a": "a", "b": "b", "c": "c"}
    for number in range(30):
        column = "abc"[number % 3]
        now = f"{column}{number}"
        shop.run(f"ALTER TABLE t RENAME {names[column]} TO {now}")
        names[column] = now
        if number % 4 == 0:
            shop.run(f"ALTER TABLE t ADD extra{number} int")
        if number % 8 == 4 and way == "watched":
            # Who did not see it cannot tell which of several columns a message lacks.
            shop.run(f"ALTER TABLE t DROP extra{number - 4}")
        listed = ", ".join(names[c] for c in "abc")
        shop.run(f"INSERT INTO t (id, {listed}) VALUES ({number}, 'a', 'b', 'c{number}')")
        if number % 5 == 0:
            source.look_for_transactions(position)
        if number % 11 == 0:
            source = reopened(shop, source)
    last = look_all(source, start)[-1].position
    found = changed(source, "t", ["id", "a", "b", "c"], start, last)
    assert found == [(n, "a", "b", f"c{n}", 1) for n in range(30)]


def reopened(shop: Shop, source: Source) -> Source:
    source.close()
    again = shop.source()
    again.follow_tables({"t": ["id", "a", "b", "c"]})
    return again
