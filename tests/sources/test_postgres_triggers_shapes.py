"""Schema changes under capture by triggers: writers never fail, and the log is by column numbers.

The triggers of a table live with whatever its owner does to it. These tests do it between looks,
inside writers' transactions, and while a writer has a snapshot from before.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sources.postgres_shapes import told
from tests.sources.postgres_shop import Shop, as_of, changed
from viewkeeper.errors import BrokenQueryError
from viewkeeper.testing.private_servers import PrivatePostgres
from viewkeeper.updates.source_protocol import Source

pytest_plugins = ("tests.servers",)
T = {"t": ["id", "v", "ok"]}
DEFINITION = "t (id int PRIMARY KEY, v text, ok boolean, pad char(3))"


@pytest.fixture
def shop(postgres_server: PrivatePostgres, tmp_path: Path) -> Iterator[Shop]:
    made = Shop(postgres_server, tmp_path)
    yield made
    made.close()


def following(shop: Shop, reader: str = "me") -> Source:
    return shop.source(reader, capture="triggers")


def test_columns_are_logged_by_their_numbers(shop: Shop) -> None:
    shop.table(DEFINITION)
    source = following(shop)
    start = source.follow_tables(T)
    shop.run("INSERT INTO t VALUES (1, 'a', true)")
    shop.transaction(
        "ALTER TABLE t RENAME v TO x",
        "ALTER TABLE t RENAME pad TO v",
        "INSERT INTO t (id, x, v, ok) VALUES (2, 'b', 'no', false)",
        "ALTER TABLE t RENAME ok TO yes",
        "UPDATE t SET x = 'c' WHERE id = 2",
    )
    shop.run("ALTER TABLE t DROP v, ADD v text DEFAULT 'other'")
    shop.run("INSERT INTO t (id, x, yes) VALUES (3, 'd', NULL)", "DELETE FROM t WHERE id = 1")
    (boundary,) = source.look_for_transactions(start)
    assert sorted(told([boundary], "t")) == [
        ("add_filled_column", "v", ""),
        ("rename_column", "ok", "yes"),
        ("rename_column", "v", "x"),
    ]
    found = changed(source, "t", T["t"], start, boundary.position)
    assert found == [
        (1, "a", True, 1),
        (2, "b", False, 1),
        (2, "b", False, -1),
        (2, "c", False, 1),
        (3, "d", None, 1),
        (1, "a", True, -1),
    ]
    with source.prepare_snapshots(start, T) as opener:
        assert as_of(opener, "t", T["t"], start) == Counter()


def test_a_writer_with_an_old_snapshot(shop: Shop) -> None:
    """Its own queries of the catalogue show the names of before; the table has those of now."""
    shop.table(DEFINITION)
    shop.run("CREATE TABLE elsewhere (id int)")
    source = following(shop)
    start = source.follow_tables(T)
    with shop.connect() as writer:
        writer.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        writer.execute("SELECT * FROM elsewhere")
        shop.transaction(
            "ALTER TABLE t RENAME v TO x",
            "ALTER TABLE t RENAME pad TO v",
            "ALTER TABLE t RENAME x TO pad",
        )
        writer.execute("INSERT INTO t (id, pad, v, ok) VALUES (1, 'was v', 'pad', true)")
        writer.execute("COMMIT")
    (boundary,) = source.look_for_transactions(start)
    assert changed(source, "t", T["t"], start, boundary.position) == [(1, "was v", True, 1)]


@pytest.mark.parametrize("partitioned", [False, True])
def test_writes_never_fail(shop: Shop, partitioned: bool) -> None:
    columns = "(id int, v text, ok boolean)"
    if partitioned:
        shop.run(f"CREATE TABLE t {columns} PARTITION BY RANGE (id)")
        shop.run("CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (100)")
        shop.run("CREATE TABLE t2 (ok boolean, v text, id int)")
        shop.run("ALTER TABLE t ATTACH PARTITION t2 FOR VALUES FROM (100) TO (10000)")
    else:
        shop.run(f"CREATE TABLE t {columns}")
    source = following(shop)
    start = source.follow_tables(T)
    changes = (
        "ALTER TABLE t RENAME v TO w",
        "ALTER TABLE t RENAME ok TO v",
        "ALTER TABLE t ADD ok int DEFAULT 5",
        "ALTER TABLE t DROP v",
        "ALTER TABLE t ALTER ok TYPE text USING 'n' || ok",
        "ALTER TABLE t RENAME TO u",
        "ALTER TABLE u ALTER w TYPE varchar(20)",
        "ALTER TABLE u DROP w",
        "ALTER TABLE u DROP ok",
    )
    table = "t"
    for number, change in enumerate(changes):
        shop.run(change)
        table = "u" if number >= 5 else "t"
        shop.run(f"INSERT INTO {table} (id) VALUES ({number}), ({100 + number})")
        shop.run(f"UPDATE {table} SET id = id WHERE id = {number}")
        if number % 2:
            source.look_for_transactions(start)
    last = source.look_for_transactions(start)[-1].position
    net = Counter(row[0] for row in changed(source, "t", ["id"], start, last) if row[-1] == 1)
    net.subtract(row[0] for row in changed(source, "t", ["id"], start, last) if row[-1] == -1)
    assert +net == Counter([*range(9), *range(100, 109)])
    with pytest.raises(BrokenQueryError, match="column v is gone"):
        changed(source, "t", ["v"], start, last)
    shop.run("DROP TABLE u", "CREATE TABLE t (id int)", "INSERT INTO t VALUES (1)")
    assert ("drop_table", "", "") in told(source.look_for_transactions(start), "t")


def test_writers_and_changes_at_the_same_time(shop: Shop) -> None:
    shop.table(DEFINITION)
    source = following(shop)
    start = source.follow_tables(T)
    failures: list[BaseException] = []
    stop = threading.Event()

    def write(first: int) -> None:
        try:
            with shop.connect() as writer:
                number = first
                while not stop.is_set():
                    writer.execute("INSERT INTO t (id) VALUES (%s)", (number,))
                    number += 2
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test tells it
            failures.append(error)

    writers = [threading.Thread(target=write, args=[first]) for first in (0, 1)]
    for writer in writers:
        writer.start()
    position = start
    rows: Counter[object] = Counter()
    for number in range(8):
        shop.run(f"ALTER TABLE t RENAME {'v' if number == 0 else f'v{number - 1}'} TO v{number}")
        for boundary in source.look_for_transactions(position):
            found = changed(source, "t", ["id", "v"], position, boundary.position)
            rows.update(row[:2] for row in found)
            position = boundary.position
    stop.set()
    for writer in writers:
        writer.join()
    for boundary in source.look_for_transactions(position):
        found = changed(source, "t", ["id", "v"], position, boundary.position)
        rows.update(row[:2] for row in found)
    assert failures == []
    assert rows == shop.rows("t", ["id", "v7"])
    assert rows


def test_a_snapshot_finds_a_change_before_a_look_does(shop: Shop) -> None:
    shop.table(DEFINITION)
    source = following(shop)
    start = source.follow_tables(T)
    shop.run("ALTER TABLE t DROP v")
    with (
        pytest.raises(BrokenQueryError, match="column v is gone"),
        source.prepare_snapshots(start, T),
    ):
        pass
    found = source.look_for_transactions(start)
    assert told(found, "t") == [("drop_column", "v", "")]
    assert told(source.look_for_transactions(start), "t") == [("drop_column", "v", "")]
    assert source.look_for_transactions(found[-1].position) == ()


def test_every_reader_is_told(shop: Shop) -> None:
    shop.table(DEFINITION)
    one, two = following(shop, "one"), following(shop, "two")
    first, second = one.follow_tables(T), two.follow_tables({"t": ["id"]})
    shop.run("ALTER TABLE t RENAME v TO w", "INSERT INTO t (id) VALUES (1)")
    (seen,) = one.look_for_transactions(first)
    assert told([seen], "t") == [("rename_column", "v", "w")]
    one.acknowledge_position(seen.position)
    reports = two.look_for_transactions(second)
    assert told(reports, "t") == []
    assert [b.changes for b in reports if b.changes] == [1]
    shop.run("ALTER TABLE t RENAME TO u")
    assert told(one.look_for_transactions(seen.position), "t") == [("rename_table", "", "u")]
    assert told(two.look_for_transactions(second), "t") == [("rename_table", "", "u")]
