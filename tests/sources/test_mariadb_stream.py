"""The binlog as a stream: whole transactions in commit order, and nothing else.

What a transaction did comes as it was committed, whatever way the server has to log it. What the
stream cannot carry exactly stops it, with the cause, after everything before that was delivered.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.sources.mariadb_database import Database, bag_of, changes, look
from viewkeeper.errors import GapError
from viewkeeper.sources.mariadb import MariadbSource
from viewkeeper.sources.mariadb.position import file_of
from viewkeeper.sources.stream.stage import TransactionStage
from viewkeeper.testing.private_servers import PrivateMariadb
from viewkeeper.updates.schema_change import SchemaChange

COLUMNS = ["id", "v"]


@pytest.fixture
def database(mariadb_server: PrivateMariadb, tmp_path: Path) -> Iterator[Database]:
    opened = Database(mariadb_server, "stream", tmp_path)
    opened.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    yield opened
    opened.writer.close()


@pytest.fixture
def source(database: Database) -> Iterator[MariadbSource]:
    opened = database.source()
    yield opened
    opened.close()


def test_transactions_come_whole_and_in_order(database: Database, source: MariadbSource) -> None:
    after = source.follow_tables({"t": COLUMNS})
    assert source.look_for_transactions(after) == ()
    database.run(
        "INSERT INTO t VALUES (1, 1), (2, 2)",
        *("BEGIN", "UPDATE t SET v = 9 WHERE id = 1", "DELETE FROM t WHERE id = 2"),
        *("INSERT INTO t VALUES (3, 3)", "COMMIT"),
        *("BEGIN", "INSERT INTO t VALUES (4, 4)", "ROLLBACK"),
        *("BEGIN", "INSERT INTO t VALUES (5, 5)", "SAVEPOINT s", "DELETE FROM t"),
        *("ROLLBACK TO s", "INSERT INTO t VALUES (6, 6)", "COMMIT"),
    )
    first, second, third = look(source, after)
    assert [first.changes, second.changes, third.changes] == [2, 4, 2]
    rows = changes(source, "t", COLUMNS, after, third.position)
    assert rows == [
        (1, 1, 1, first.position),
        (2, 2, 1, first.position),
        (1, 1, -1, second.position),
        (1, 9, 1, second.position),
        (2, 2, -1, second.position),
        (3, 3, 1, second.position),
        (5, 5, 1, third.position),
        (6, 6, 1, third.position),
    ]
    assert changes(source, "t", ["v"], first.position, second.position) == [
        row[1:] for row in rows[2:6]
    ]
    assert source.look_for_transactions(third.position) == ()


def test_savepoints_in_the_log_are_rolled_back(database: Database, source: MariadbSource) -> None:
    """Where a table without transactions is changed too, the log has what was rolled back."""
    database.run("CREATE TABLE m (id INT) ENGINE=MyISAM")
    after = source.follow_tables({"t": COLUMNS})
    database.run(
        *("BEGIN", "INSERT INTO t VALUES (1, 1)", "SAVEPOINT s", "INSERT INTO t VALUES (2, 2)"),
        *("INSERT INTO m SELECT id FROM t", "ROLLBACK TO s", "INSERT INTO t VALUES (3, 3)"),
        "COMMIT",
        *("BEGIN", "INSERT INTO t VALUES (4, 4)", "INSERT INTO m SELECT id FROM t", "ROLLBACK"),
    )
    until = look(source, after)[-1].position
    found = bag_of(changes(source, "t", COLUMNS, after, until))
    assert dict(found) == dict.fromkeys(database.run("SELECT id, v FROM t"), 1)


def test_prepared_transactions_count_when_they_are_committed(
    database: Database, source: MariadbSource
) -> None:
    start = source.follow_tables({"t": COLUMNS})
    database.run(
        *("XA START 'a'", "INSERT INTO t VALUES (1, 1)", "XA END 'a'", "XA PREPARE 'a'"),
    )
    other = database.connect()
    with other.cursor() as cursor:
        cursor.execute("INSERT INTO t VALUES (2, 2)")
    (between,) = look(source, start)
    assert changes(source, "t", COLUMNS, start, between.position) == [(2, 2, 1, between.position)]
    database.run("XA COMMIT 'a'")
    (committed,) = look(source, between.position)
    assert changes(source, "t", COLUMNS, between.position, committed.position) == [
        (1, 1, 1, committed.position)
    ]
    # Somebody who begins between both halves finds the first one further back, in another file.
    with other.cursor() as cursor:
        cursor.execute("FLUSH BINARY LOGS")
    again = database.source()
    assert again.look_for_transactions(between.position)[0] == committed
    assert changes(again, "t", COLUMNS, between.position, committed.position) == [
        (1, 1, 1, committed.position)
    ]
    again.close()
    database.run(
        *("XA START 'b'", "INSERT INTO t VALUES (7, 7)", "XA END 'b'", "XA PREPARE 'b'"),
        "XA ROLLBACK 'b'",
        *("XA START 'c'", "INSERT INTO t VALUES (8, 8)", "XA END 'c'", "XA COMMIT 'c' ONE PHASE"),
    )
    (last,) = look(source, committed.position)
    assert changes(source, "t", COLUMNS, committed.position, last.position) == [
        (8, 8, 1, last.position)
    ]
    other.close()


def test_triggers_generated_and_hidden_columns_are_in_the_log(
    database: Database, source: MariadbSource
) -> None:
    database.run(
        "CREATE TABLE g (id INT PRIMARY KEY, p INT AS (id * 2) VIRTUAL, q INT AS (id * 3) STORED,"
        " h INT INVISIBLE DEFAULT 7)",
        "CREATE TRIGGER tr AFTER INSERT ON t FOR EACH ROW INSERT INTO g (id) VALUES (NEW.id)",
    )
    columns = ["id", "p", "q", "h"]
    after = source.follow_tables({"g": columns, "t": COLUMNS})
    database.run("INSERT INTO t VALUES (1, 1)", "UPDATE g SET id = 5", "DELETE FROM g")
    inserted, _, deleted = look(source, after)
    assert inserted.changes == 2
    assert [row[:5] for row in changes(source, "g", columns, after, deleted.position)] == [
        (1, 2, 3, 7, 1),
        (1, 2, 3, 7, -1),
        (5, 10, 15, 7, 1),
        (5, 10, 15, 7, -1),
    ]


def test_other_ways_to_write_are_logged_as_rows(database: Database, source: MariadbSource) -> None:
    after = source.follow_tables({"t": COLUMNS})
    database.run(
        "INSERT INTO t VALUES (1, 1), (2, 2)",
        "REPLACE INTO t VALUES (1, 10)",
        "INSERT INTO t VALUES (2, 5) ON DUPLICATE KEY UPDATE v = v + 100",
        "INSERT IGNORE INTO t VALUES (2, 6), (3, 3)",
        "CREATE TABLE u AS SELECT * FROM t",
        "UPDATE t JOIN u USING (id) SET t.v = t.v + 1",
    )
    until = look(source, after)[-1].position
    found = bag_of(changes(source, "t", COLUMNS, after, until))
    assert dict(found) == dict.fromkeys(database.run("SELECT id, v FROM t"), 1)


def test_a_compressed_log_is_read(database: Database, source: MariadbSource) -> None:
    after = source.follow_tables({"t": COLUMNS})
    database.run("SET GLOBAL log_bin_compress = ON, GLOBAL log_bin_compress_min_len = 10")
    try:
        database.run("INSERT INTO t SELECT seq, 0 FROM seq_1_to_3000", "UPDATE t SET v = id")
        database.run("TRUNCATE TABLE t -- " + "x" * 300)
        boundaries = look(source, after)
    finally:
        database.run("SET GLOBAL log_bin_compress = OFF")
    assert [one.changes for one in boundaries] == [3000, 6000, 0]
    assert boundaries[-1].emptied == ("t",)
    found = bag_of(changes(source, "t", COLUMNS, after, boundaries[1].position))
    assert dict(found) == {(n, n): 1 for n in range(1, 3001)}


def test_files_that_end_and_others_changes_move_the_position_on(
    database: Database, source: MariadbSource
) -> None:
    database.run("CREATE TABLE other (id INT)")
    after = source.follow_tables({"t": COLUMNS})
    database.run("INSERT INTO other VALUES (1)")
    assert source.look_for_transactions(after) == (), "what others do is not reported"
    database.run("FLUSH BINARY LOGS", "INSERT INTO other VALUES (2)")
    (empty,) = source.look_for_transactions(after)
    assert (empty.changes, empty.emptied) == (0, ())
    assert file_of(empty.position) > file_of(after), "its file can be removed"
    database.run("INSERT INTO t VALUES (1, 1)")
    assert [one.changes for one in source.look_for_transactions(empty.position)] == [1]


def test_emptying_a_table_is_told(database: Database, source: MariadbSource) -> None:
    after = source.follow_tables({"t": COLUMNS, "stream.t": ["v"]})
    database.run("INSERT INTO t VALUES (1, 1)", "TRUNCATE t", "INSERT INTO t VALUES (2, 2)")
    boundaries = look(source, after)
    assert [(one.changes, sorted(one.emptied)) for one in boundaries] == [
        (1, []),
        (0, ["stream.t", "t"]),
        (1, []),
    ]


HARMLESS = [
    "ALTER TABLE t ADD COLUMN w INT DEFAULT 4 FIRST",
    "ALTER TABLE t ADD INDEX i (v), DROP COLUMN x",
    "ALTER TABLE t MODIFY x VARCHAR(90), ALTER COLUMN v SET DEFAULT 3",
    "ALTER TABLE t CHANGE x y INT, ENGINE=InnoDB, COMMENT='DROP COLUMN v'",
    "ALTER TABLE t RENAME COLUMN x TO v2",
    "CREATE TABLE elsewhere (id INT)",
    "CREATE VIEW seen AS SELECT v FROM t",
    "OPTIMIZE TABLE t",
    "RENAME TABLE spare TO spare2",
    "DROP TABLE spare",
    "/*!40000 ALTER TABLE t DISABLE KEYS */",
    "CREATE OR REPLACE TABLE spare (v INT)",
    "ALTER TABLE spare DROP COLUMN v",
]


@pytest.mark.parametrize("statement", HARMLESS)
def test_changes_of_other_things_do_not_matter(
    database: Database, source: MariadbSource, statement: str
) -> None:
    database.run("ALTER TABLE t ADD COLUMN x INT", "CREATE TABLE spare (id INT, v INT)")
    after = source.follow_tables({"t": COLUMNS})
    database.run("INSERT INTO t (id, v) VALUES (1, 1)", statement, "UPDATE t SET v = 2")
    until = look(source, after)[-1].position
    assert [row[:3] for row in changes(source, "t", COLUMNS, after, until)] == [
        (1, 1, 1),
        (1, 1, -1),
        (1, 2, 1),
    ]


def test_a_column_that_is_added_can_be_followed(database: Database, source: MariadbSource) -> None:
    after = source.follow_tables({"t": ["id"]})
    database.run("INSERT INTO t VALUES (1, 1)", "ALTER TABLE t ADD COLUMN w INT DEFAULT 4")
    source.follow_tables({"t": ["id", "w"]})
    database.run("INSERT INTO t VALUES (2, 2, 5)")
    first, second = look(source, after)
    assert changes(source, "t", ["id", "w"], first.position, second.position) == [
        (2, 5, 1, second.position)
    ]
    assert changes(source, "t", ["id"], after, first.position) == [(1, 1, first.position)]


def test_changes_that_list_no_rows_are_a_gap(database: Database, source: MariadbSource) -> None:
    after = source.follow_tables({"t": COLUMNS})
    database.run("SET SESSION binlog_format = STATEMENT")
    database.run("CREATE TABLE other (id INT)", "INSERT INTO other VALUES (1)")
    assert source.look_for_transactions(after) == ()
    database.run("INSERT INTO t VALUES (1, 1)")
    with pytest.raises(GapError, match="statement that lists no rows"):
        source.look_for_transactions(after)


def test_rows_without_all_columns_are_a_gap(database: Database, source: MariadbSource) -> None:
    database.run("INSERT INTO t VALUES (1, 1)")
    after = source.follow_tables({"t": COLUMNS})
    database.run("SET SESSION binlog_row_image = MINIMAL", "UPDATE t SET v = 2")
    with pytest.raises(GapError, match="without all columns") as caught:
        source.look_for_transactions(after)
    assert "binlog_row_image = FULL" in str(caught.value)


def test_a_large_transaction_passes_in_pieces(
    database: Database, source: MariadbSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No piece is larger than told, whatever the transaction; most wait in files."""
    monkeypatch.setattr("viewkeeper.sources.mariadb.binlog.transactions.PIECE_ROWS", 1000)
    stage = partial(TransactionStage, memory_bytes=40_000)
    monkeypatch.setattr("viewkeeper.sources.mariadb.binlog.transactions.TransactionStage", stage)
    database.run("CREATE TABLE u (id INT PRIMARY KEY)")
    after = source.follow_tables({"t": COLUMNS, "u": ["id"]})
    database.run(
        "INSERT INTO t VALUES (0, 0)",
        *("BEGIN", "INSERT INTO t SELECT seq, seq FROM seq_1_to_20000", "INSERT INTO u VALUES (1)"),
        *("UPDATE t SET v = v + 1", "COMMIT"),
        "INSERT INTO u VALUES (2)",
    )
    small, large, last = look(source, after)
    assert [small.changes, large.changes, last.changes] == [1, 60_003, 1]
    batches = [batch for _, batch in source.read_changes({"t": COLUMNS}, after, last.position)]
    assert max(batch.num_rows for batch in batches) < 3_000
    found = bag_of(changes(source, "t", COLUMNS, after, last.position))
    assert dict(found) == {(n, n + 1): 1 for n in range(20_001)}


def test_what_was_read_is_read_again_by_whoever_asks(
    database: Database, source: MariadbSource
) -> None:
    after = source.follow_tables({"t": COLUMNS})
    database.run(*(f"INSERT INTO t VALUES ({n}, {n})" for n in range(5)))
    boundaries = look(source, after)
    source.acknowledge_position(boundaries[2].position)
    assert look(source, boundaries[2].position) == boundaries[3:]
    assert look(source, boundaries[0].position) == boundaries[1:]
    again = database.source()
    rows = changes(again, "t", COLUMNS, boundaries[1].position, boundaries[3].position)
    assert [row[0] for row in rows] == [2, 3]
    again.close()


def test_odd_names_are_followed(database: Database, source: MariadbSource) -> None:
    database.run("CREATE TABLE `a``b.c` (`x y` INT)", "CREATE TABLE `Straße` (id INT)")
    after = source.follow_tables({"Straße": ["id"]})
    database.run("INSERT INTO `Straße` VALUES (1)", "TRUNCATE `Straße`")
    assert [one.emptied for one in look(source, after)] == [(), ("Straße",)]
    after = source.follow_tables({"stream.a`b.c": ["x y"]})
    database.run(
        "INSERT INTO `a``b.c` VALUES (1)", "ALTER TABLE `a``b.c` DROP COLUMN `x y`, ADD z INT"
    )
    boundary, dropped = source.look_for_transactions(after)
    assert changes(source, "stream.a`b.c", ["x y"], after, boundary.position) == [
        (1, 1, boundary.position)
    ]
    assert dropped.reshaped == (
        SchemaChange("drop_column", "stream.a`b.c", "x y"),
        SchemaChange("add_column", "stream.a`b.c", "z"),
    )


def test_a_look_without_time_goes_on_where_it_stopped(
    database: Database, source: MariadbSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("viewkeeper.sources.mariadb.binlog.spooled_changes._LOOK_SECONDS", -1.0)
    after = source.follow_tables({"t": COLUMNS})
    database.run("INSERT INTO t VALUES (1, 1)", "INSERT INTO t VALUES (2, 2)")
    found = [source.look_for_transactions(after) for _ in range(12)]
    assert found[0] == ()
    assert [one.changes for one in found[-1]] == [1, 1]


def test_a_look_is_not_longer_than_asked_for(
    database: Database, source: MariadbSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("viewkeeper.sources.mariadb.binlog.spooled_changes.LOOK_TRANSACTIONS", 3)
    after = source.follow_tables({"t": COLUMNS})
    database.run(*(f"INSERT INTO t VALUES ({n}, {n})" for n in range(8)))
    assert len(source.look_for_transactions(after)) == 3
    assert len(look(source, after)) == 8
    rows = changes(source, "t", COLUMNS, after, look(source, after)[-1].position)
    assert [row[0] for row in rows] == list(range(8))
