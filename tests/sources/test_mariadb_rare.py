"""Rare ways to change a table that the log tells in its own way: each continues exact or stops.

What changes rows without listing them must never be passed over, and what has nothing to do with a
followed table must never stop it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sources.mariadb_database import Database, bag_of, changes, look, reshaped
from viewkeeper.errors import WarehouseError
from viewkeeper.sources.mariadb import MariadbSource
from viewkeeper.sources.stream.spool import Spool
from viewkeeper.testing.private_servers import PrivateMariadb
from viewkeeper.updates.schema_change import SchemaChange

COLUMNS = ["id", "k"]


@pytest.fixture
def database(mariadb_server: PrivateMariadb, tmp_path: Path) -> Iterator[Database]:
    opened = Database(mariadb_server, "rare", tmp_path)
    opened.run("CREATE TABLE t (id INT PRIMARY KEY, k INT)", "INSERT INTO t VALUES (1, 1), (2, 1)")
    yield opened
    opened.writer.close()


@pytest.fixture
def source(database: Database) -> Iterator[MariadbSource]:
    opened = database.source()
    yield opened
    opened.close()


def test_a_prepared_transaction_without_followed_rows_is_passed(
    database: Database, source: MariadbSource
) -> None:
    database.run("CREATE TABLE other (id INT PRIMARY KEY)")
    after = source.follow_tables({"t": COLUMNS})
    database.run(
        *("XA START 'a'", "INSERT INTO other VALUES (1)", "XA END 'a'", "XA PREPARE 'a'"),
        "XA COMMIT 'a'",
        "INSERT INTO t VALUES (3, 3)",
    )
    (boundary,) = look(source, after)
    assert changes(source, "t", COLUMNS, after, boundary.position) == [(3, 3, 1, boundary.position)]


def test_settings_before_a_statement_hide_nothing(
    database: Database, source: MariadbSource
) -> None:
    after = source.follow_tables({"t": COLUMNS})
    database.run(
        "SET STATEMENT lock_wait_timeout = 9 FOR TRUNCATE TABLE t",
        "SET STATEMENT lock_wait_timeout = 9, optimizer_switch = 'mrr=on' FOR "
        "ALTER TABLE t MODIFY k VARCHAR(9)",
    )
    emptied, retyped = source.look_for_transactions(after)
    assert emptied.emptied == ("t",)
    assert retyped.reshaped == (SchemaChange("change_type", "t", "k", "varchar(9)"),)


REWRITTEN = [("rewrite", "id"), ("rewrite", "k")]
ANOTHER = [("recreate_table", "")]


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("ALTER TABLE t WAIT 5 DROP COLUMN k", [("drop_column", "k")]),
        (
            "ALTER TABLE t NOWAIT RENAME COLUMN k TO l, ADD k INT",
            [("rename_column", "k"), ("add_column", "k")],
        ),
        ("ALTER IGNORE TABLE t ADD UNIQUE (k)", REWRITTEN),
        ("ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE t", ANOTHER),
        ("ALTER TABLE t ROW_FORMAT = DYNAMIC ENGINE = MyISAM", ANOTHER),
        ("ALTER TABLE t ENGINE = Aria TRANSACTIONAL = 1", ANOTHER),
        ("ALTER TABLE q DROP PARTITION p0", REWRITTEN),
        ("ALTER TABLE q TRUNCATE PARTITION p0", REWRITTEN),
        ("ALTER TABLE q ADD PARTITION (PARTITION p2 VALUES LESS THAN (900))", []),
        ("ALTER TABLE q REORGANIZE PARTITION p1 INTO (PARTITION p1 VALUES LESS THAN (700))", []),
        ("ALTER TABLE t PARTITION BY HASH (id) PARTITIONS 3", []),
        ("ALTER TABLE t ADD FOREIGN KEY (k) REFERENCES c (id) ON DELETE CASCADE", ANOTHER),
        ("ALTER TABLE t ADD SYSTEM VERSIONING", ANOTHER),
    ],
)
def test_what_changes_rows_without_listing_them_is_told(
    database: Database, source: MariadbSource, statement: str, told: list[tuple[str, str]]
) -> None:
    database.run(
        "CREATE TABLE p (id INT PRIMARY KEY, k INT) PARTITION BY RANGE (id)"
        " (PARTITION p0 VALUES LESS THAN (100))",
        "CREATE TABLE q (id INT PRIMARY KEY, k INT) PARTITION BY RANGE (id)"
        " (PARTITION p0 VALUES LESS THAN (100), PARTITION p1 VALUES LESS THAN (500))",
        "CREATE TABLE c (id INT PRIMARY KEY)",
        "INSERT INTO c VALUES (1)",
        "CREATE TABLE u (id INT PRIMARY KEY, k INT)",
    )
    after = source.follow_tables({"t": COLUMNS, "q": COLUMNS, "u": COLUMNS})
    database.run(statement, "INSERT INTO u VALUES (1, 1)")
    assert [(one.kind, one.column) for one in reshaped(source, after)] == told
    assert look(source, after)[-1].changes == 1, "other tables go on"


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE t ENGINE = InnoDB ROW_FORMAT = DYNAMIC",
        "ALTER TABLE t NOWAIT ADD z INT",
        "ALTER TABLE p CONVERT TO CHARACTER SET utf8mb4",
        "SET STATEMENT lock_wait_timeout = 9 FOR ALTER TABLE t COMMENT = 'ENGINE'",
    ],
)
def test_what_changes_nothing_is_passed(
    database: Database, source: MariadbSource, statement: str
) -> None:
    database.run("CREATE TABLE p (id INT PRIMARY KEY, k INT)")
    after = source.follow_tables({"t": COLUMNS})
    database.run(statement, "INSERT INTO t (id, k) VALUES (3, 3)")
    (boundary,) = look(source, after)
    assert changes(source, "t", COLUMNS, after, boundary.position) == [(3, 3, 1, boundary.position)]


def test_rows_before_a_savepoint_stay_however_many_come_after_it(
    database: Database, source: MariadbSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("viewkeeper.sources.mariadb.binlog.transactions.PIECE_ROWS", 5)
    database.run("CREATE TABLE m (id INT) ENGINE = MyISAM")
    after = source.follow_tables({"t": COLUMNS})
    database.run(
        *("BEGIN", "INSERT INTO t VALUES (10, 1), (11, 1)", "SAVEPOINT s"),
        *(f"INSERT INTO t VALUES ({n}, 2)" for n in range(20, 40)),
        *("INSERT INTO m VALUES (1)", "ROLLBACK TO s", "INSERT INTO t VALUES (12, 3)", "COMMIT"),
    )
    until = look(source, after)[-1].position
    found = bag_of(changes(source, "t", COLUMNS, after, until))
    assert found == {(10, 1): 1, (11, 1): 1, (12, 3): 1}


def test_labels_may_have_any_character(database: Database, source: MariadbSource) -> None:
    labels = ["a\\b", "line\nline", "it's", "", "a,b", "tab\t", "cr\r"]
    listed = ", ".join(database.writer.escape(label) for label in labels)
    chosen = ", ".join(database.writer.escape(x) for x in ("a\\b", "it's"))
    database.run(f"CREATE TABLE e (id INT, label ENUM ({listed}), chosen SET ({chosen}))")
    after = source.follow_tables({"e": ["id", "label", "chosen"]})
    rows = [f"({i}, {i + 1}, 3)" for i in range(len(labels))]
    database.run(f"INSERT INTO e VALUES {', '.join(rows)}")
    (boundary,) = look(source, after)
    found = changes(source, "e", ["id", "label", "chosen"], after, boundary.position)
    assert [row[:3] for row in found] == [(i, x, "a\\b,it's") for i, x in enumerate(labels)]


def test_a_full_disk_loses_no_transaction(
    database: Database, source: MariadbSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be put into the spool is read again, and nothing of it twice."""
    monkeypatch.setattr("viewkeeper.sources.mariadb.binlog.transactions.PIECE_ROWS", 5)
    after = source.follow_tables({"t": COLUMNS})
    database.run("INSERT INTO t SELECT seq, 1 FROM seq_100_to_120", "INSERT INTO t VALUES (3, 3)")
    write, left = Spool.write_batch, [1]

    def refused(spool: Spool, *arguments: object) -> None:
        write(spool, *arguments)  # type: ignore[arg-type]  # passed on as they came
        left[0] -= 1
        if left[0] == 0:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(Spool, "write_batch", refused)
    with pytest.raises(WarehouseError, match="No space left on device"):
        source.look_for_transactions(after)
    found = look(source, after)
    assert [one.changes for one in found] == [21, 1]
    bag = bag_of(changes(source, "t", COLUMNS, after, found[-1].position))
    assert bag == {(n, 1): 1 for n in range(100, 121)} | {(3, 3): 1}


def test_what_a_killed_reader_left_is_removed(
    database: Database, source: MariadbSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source._capture.spool, "_limit", 0)
    after = source.follow_tables({"t": COLUMNS})
    # No process has such a number; an earlier version had folders of pieces too.
    left = [database.folder / "home" / f"{kind}-99999999-x" for kind in ("spool", "pieces")]
    for folder in left:
        folder.mkdir()
    database.run("INSERT INTO t SELECT seq, 1 FROM seq_100_to_120")
    assert [one.changes for one in look(source, after)] == [21]
    assert not any(folder.exists() for folder in left)
