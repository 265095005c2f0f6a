"""Which table is which: swaps, tools that copy, names that are used again, what was not logged.

A handle goes on to mean the table that it was made for. Whatever cannot be known for sure is told
as a table that is another one now; after that everything goes on.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sources.mariadb_database import Database, bag_of, changes, look, reshaped, rows_of
from viewkeeper.errors import BrokenQueryError, SchemaError
from viewkeeper.sources.mariadb import MariadbSource
from viewkeeper.sources.mariadb.answers.snapshot import MariadbOpener
from viewkeeper.sources.mariadb.ddl.column_definition import parse_column_definition
from viewkeeper.sources.mariadb.ddl.statement import tokens_of
from viewkeeper.sources.mariadb.types import DeclaredType, kind_of
from viewkeeper.testing.private_servers import PrivateMariadb
from viewkeeper.updates.schema_change import SchemaChange
from viewkeeper.updates.source_protocol import CurrentNames, names_now_of
from viewkeeper.view.definition import Relation

COLUMNS = ["id", "v"]
BOTH = {"a": COLUMNS, "b": COLUMNS}


@pytest.fixture
def database(mariadb_server: PrivateMariadb, tmp_path: Path) -> Iterator[Database]:
    opened = Database(mariadb_server, "identity", tmp_path)
    opened.run(
        *(f"CREATE TABLE {t} (id INT PRIMARY KEY, v INT)" for t in BOTH),
        "SET SESSION lock_wait_timeout = 10",
    )
    yield opened
    opened.writer.close()


@pytest.fixture
def source(database: Database) -> Iterator[MariadbSource]:
    opened = database.source()
    yield opened
    opened.close()


def scanned(opener: MariadbOpener, handle: str, after: int) -> set[tuple[object, ...]]:
    """The rows of a table as a snapshot has them now."""
    snapshot = opener()
    try:
        scan = snapshot.scan_relation(Relation("crm", handle), COLUMNS, after)
        return {row for batch in scan.batches for row in rows_of(batch, COLUMNS)}
    finally:
        snapshot.close()


def test_two_tables_swap_names(database: Database, source: MariadbSource) -> None:
    after = source.follow_tables(BOTH)
    database.run(
        "INSERT INTO a VALUES (1, 1)",
        "RENAME TABLE a TO tmp, b TO a, tmp TO b",
        "INSERT INTO b VALUES (2, 2)",
        "INSERT INTO a VALUES (9, 9)",
    )
    assert reshaped(source, after) == [
        SchemaChange("rename_table", "a", now="b"),
        SchemaChange("rename_table", "b", now="a"),
    ]
    assert names_now_of(source, "a") == CurrentNames("b", {"id": "id", "v": "v"})
    assert names_now_of(source, "b") == CurrentNames("a", {"id": "id", "v": "v"})
    until = look(source, after)[-1].position
    assert bag_of(changes(source, "a", COLUMNS, after, until)) == {(1, 1): 1, (2, 2): 1}
    assert bag_of(changes(source, "b", COLUMNS, after, until)) == {(9, 9): 1}
    handles = source.handle_of("b"), source.handle_of("a")
    assert handles == ("b#2", "a#2")
    source.follow_tables(dict.fromkeys(handles, COLUMNS))
    assert bag_of(changes(source, "b#2", COLUMNS, after, until)) == {(1, 1): 1, (2, 2): 1}
    with source.prepare_snapshots(after, {**BOTH, "b#2": COLUMNS}) as opener:
        assert scanned(opener, "a", after) == scanned(opener, "b#2", after) == {(1, 1), (2, 2)}
        assert scanned(opener, "b", after) == {(9, 9)}


def test_a_name_that_is_used_again_is_another_handle(
    database: Database, source: MariadbSource
) -> None:
    after = source.follow_tables(BOTH)
    database.run("INSERT INTO a VALUES (1, 1)", "DROP TABLE a")
    database.run("CREATE TABLE a (id INT PRIMARY KEY, v INT)", "INSERT INTO a VALUES (2, 2)")
    kinds = [(one.kind, one.table) for one in reshaped(source, after)]
    assert kinds == [("drop_table", "a"), ("recreate_table", "a")]
    assert names_now_of(source, "a") is None
    handle = source.handle_of("a")
    assert handle == "a#2"
    assert [field.name for field in source.describe_table(handle).fields] == COLUMNS
    with pytest.raises(SchemaError, match="not there any more"):
        source.describe_table("a")
    position = source.follow_tables({handle: COLUMNS, "a": COLUMNS})
    database.run("INSERT INTO a VALUES (3, 3)")
    (boundary,) = look(source, position)
    assert bag_of(changes(source, handle, COLUMNS, position, boundary.position)) == {(3, 3): 1}
    with source.prepare_snapshots(position, {handle: COLUMNS, "a": COLUMNS}) as opener:
        assert scanned(opener, handle, position) == {(2, 2), (3, 3)}
        with pytest.raises(BrokenQueryError):
            scanned(opener, "a", position)


def test_what_happened_before_a_table_was_followed_is_not_its_past(
    database: Database, source: MariadbSource
) -> None:
    """Somebody who looks from further back is told that nothing can be asked there."""
    after = source.follow_tables({"a": COLUMNS})
    database.run(
        "INSERT INTO b VALUES (1, 1)",
        "ALTER TABLE b DROP COLUMN v, ADD COLUMN v INT DEFAULT 8",
        "INSERT INTO b VALUES (2, 2)",
    )
    source.follow_tables({"b": COLUMNS})
    database.run("INSERT INTO b VALUES (3, 3)")
    assert reshaped(source, after) == [SchemaChange("recreate_table", "b")]
    told = next(one.position for one in source.look_for_transactions(after) if one.reshaped)
    last = source.look_for_transactions(after)[-1].position
    assert bag_of(changes(source, "b", COLUMNS, told, last)) == {(2, 2): 1, (3, 3): 1}
    assert names_now_of(source, "b") == CurrentNames("b", {"id": "id", "v": "v"})
    with source.prepare_snapshots(after, {"b": COLUMNS}) as opener:
        with pytest.raises(BrokenQueryError):
            scanned(opener, "b", after)
        assert scanned(opener, "b", told) == {(1, 8), (2, 2), (3, 3)}


def test_a_dropped_database_takes_its_tables_with_it(
    database: Database, source: MariadbSource
) -> None:
    database.run(
        "CREATE DATABASE identity2", "CREATE TABLE identity2.c (id INT PRIMARY KEY, v INT)"
    )
    after = source.follow_tables({"identity2.c": COLUMNS, **BOTH})
    database.run("DROP DATABASE identity2", "INSERT INTO a VALUES (1, 1)")
    assert reshaped(source, after) == [SchemaChange("drop_table", "identity2.c")]
    assert names_now_of(source, "identity2.c") is None
    assert [one.changes for one in look(source, after)] == [1]


def test_what_was_acknowledged_is_remembered_by_its_shape(
    database: Database, source: MariadbSource
) -> None:
    """After a restart: the names at the acknowledged place, and what the log has since."""
    after = source.follow_tables(BOTH)
    database.run("ALTER TABLE a RENAME COLUMN v TO x", "RENAME TABLE a TO c")
    database.run("INSERT INTO c VALUES (1, 1)")
    reached = look(source, after)[-1].position
    source.acknowledge_position(reached)
    source.close()
    database.run("ALTER TABLE c RENAME COLUMN x TO y", "RENAME TABLE b TO a")
    database.run("INSERT INTO c VALUES (2, 2)")
    later = database.source()
    assert reshaped(later, reached) == [
        SchemaChange("rename_column", "a", "v", "y"),
        SchemaChange("rename_table", "b", now="a"),
    ]
    until = look(later, reached)[-1].position
    assert bag_of(changes(later, "a", COLUMNS, reached, until)) == {(2, 2): 1}
    assert names_now_of(later, "a") == CurrentNames("c", {"id": "id", "v": "y"})
    assert later.handle_of("a") == "a#2"
    later.close()


def unlogged(statement: str) -> tuple[str, ...]:
    return "SET SESSION sql_log_bin = 0", statement, "SET SESSION sql_log_bin = 1"


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE a DROP COLUMN v",
        "ALTER TABLE a MODIFY v VARCHAR(9)",
        "ALTER TABLE a RENAME COLUMN v TO z",
        "DROP TABLE a",
    ],
)
@pytest.mark.parametrize("seen_by", ["rows", "time"])
def test_a_change_that_was_not_logged_is_found(
    database: Database,
    source: MariadbSource,
    monkeypatch: pytest.MonkeyPatch,
    statement: str,
    seen_by: str,
) -> None:
    monkeypatch.setattr(
        "viewkeeper.sources.mariadb.binlog.shape_tracker._SECONDS",
        0.0 if seen_by == "time" else 1e9,
    )
    after = source.follow_tables(BOTH)
    assert source.look_for_transactions(after) == ()
    database.run(*unlogged(statement))
    with source.prepare_snapshots(after, BOTH) as opener, pytest.raises(BrokenQueryError):
        scanned(opener, "a", after)
    if seen_by == "time":
        source.look_for_transactions(after)
        database.run("INSERT INTO b VALUES (1, 1)")
    elif statement.startswith("ALTER"):
        database.run("INSERT INTO a (id) VALUES (1)", "INSERT INTO b VALUES (1, 1)")
    else:
        return
    assert reshaped(source, after) == [SchemaChange("recreate_table", "a")]
    assert names_now_of(source, "a") is None
    assert look(source, after)[-1].changes == 1, "b goes on"


def test_a_table_that_is_altered_all_the_while_keeps_no_look_waiting(
    database: Database, source: MariadbSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("viewkeeper.sources.mariadb.binlog.shape_tracker._SECONDS", 0.0)
    after = source.follow_tables(BOTH)
    database.run("LOCK TABLES a WRITE", "INSERT INTO a VALUES (1, 1)")
    try:
        assert [one.changes for one in source.look_for_transactions(after)] == [1]
        assert source._capture._audit._seen == []
    finally:
        database.run("UNLOCK TABLES")


def test_an_opener_that_was_made_before_a_change_answers_or_is_broken(
    database: Database, source: MariadbSource
) -> None:
    database.run("INSERT INTO a VALUES (1, 1)")
    after = source.follow_tables(BOTH)
    with source.prepare_snapshots(after, BOTH) as made:
        opener = pickle.loads(pickle.dumps(made))
        database.run("ALTER TABLE a RENAME COLUMN v TO w, ADD v INT DEFAULT 5")
        assert scanned(opener, "a", after) == {(1, 1)}
        database.run("RENAME TABLE a TO c")
        with pytest.raises(BrokenQueryError):
            scanned(opener, "a", after)
        database.run("RENAME TABLE b TO a")
        with pytest.raises(BrokenQueryError, match=r"called identity\.c now"):
            scanned(opener, "a", after)
    assert [one.kind for one in reshaped(source, after)] == [
        "rename_column",
        "add_filled_column",
        "rename_table",
        "rename_table",
    ]
    with source.prepare_snapshots(after, BOTH) as opener:
        assert scanned(opener, "a", after) == {(1, 1)}


def test_a_generated_column_follows_what_it_is_made_of(
    database: Database, source: MariadbSource
) -> None:
    database.run("CREATE TABLE g (id INT PRIMARY KEY, v INT, s INT AS (v * 2) STORED, t INT)")
    after = source.follow_tables({"g": ["id", "s"]})
    database.run(
        "ALTER TABLE g MODIFY s INT AS (v * 3) STORED",
        "ALTER TABLE g MODIFY v SMALLINT",
        "ALTER TABLE g MODIFY t SMALLINT",
    )
    told = [(one.kind, one.column) for one in reshaped(source, after)]
    assert told == [("rewrite", "s")] * 3, "which columns it is made of is not looked at"


def test_the_key_that_is_told_is_the_one_that_is_enforced(
    database: Database, source: MariadbSource
) -> None:
    after = source.follow_tables(BOTH)
    database.run("ALTER TABLE a ADD UNIQUE (v)")
    assert reshaped(source, after) == []
    database.run("ALTER TABLE a MODIFY v INT NOT NULL, DROP PRIMARY KEY")
    assert reshaped(source, after) == [SchemaChange("change_key", "a", now="v")]
    assert source.describe_table("a").key == ("v",)
    database.run("ALTER TABLE a RENAME COLUMN v TO w")
    assert source.describe_table("a").key == ("v",), "by the handle's names"
    database.run("DROP INDEX v ON a")
    assert reshaped(source, after)[-1] == SchemaChange("change_key", "a", now="")
    assert source.describe_table("a").key == ()


TYPES = [
    "INT", "INTEGER UNSIGNED", "TINYINT", "BOOL", "SERIAL", "BIGINT", "INT(5) ZEROFILL", "INT8",
    "MIDDLEINT", "DECIMAL", "DEC(7)", "NUMERIC(20,4) UNSIGNED", "FIXED(5,5)", "FLOAT", "FLOAT(20)",
    "FLOAT(30)", "DOUBLE PRECISION", "REAL", "DOUBLE(10,3)", "BIT", "BIT(9)", "BIT(64)", "DATE",
    "DATETIME", "DATETIME(3)", "TIMESTAMP(6) NULL", "YEAR", "TIME", "CHAR", "CHARACTER(3)",
    "CHARACTER VARYING(9)", "VARCHAR(20) CHARACTER SET latin1", "VARCHAR(20) COLLATE utf8mb3_bin",
    "NATIONAL VARCHAR(4)", "NCHAR(2)", "TEXT", "TEXT CHARSET ascii", "LONG VARCHAR", "LONG",
    "MEDIUMTEXT", "JSON", "CHAR(4) CHARACTER SET binary", "TEXT CHARACTER SET binary", "BINARY",
    "VARBINARY(9)", "BLOB", "LONG VARBINARY", "ENUM('a','b,c','it''s')", "SET('x','y')",
    "ENUM('a') CHARACTER SET latin1", "UUID", "INET6", "POINT", "VARCHAR(9) COMPRESSED",
    "VARCHAR(10) CHARACTER SET sjis", "DECIMAL(40,2)", "LONGTEXT UNICODE", "TINYTEXT ASCII",
]  # fmt: skip


def test_types_are_read_as_the_server_reads_them(database: Database) -> None:
    def characters(charset: str) -> str:
        return bytes(range(256)).decode("latin1") if charset == "latin1" else ""

    for declared in TYPES:
        key = "" if declared == "SERIAL" else ", id INT PRIMARY KEY"
        database.run(f"CREATE OR REPLACE TABLE types (c {declared}{key}) CHARSET utf8mb4")
        ((found, charset),) = database.run(
            "SELECT column_type, character_set_name FROM information_schema.columns"
            " WHERE table_schema = 'identity' AND table_name = 'types' AND column_name = 'c'"
        )
        charset = str(charset or "")
        theirs = DeclaredType(str(found), charset, "", characters(charset))
        tokens = tokens_of(f"x c {declared}")[1:]
        ours = parse_column_definition(tokens, "utf8mb4", characters).declared
        assert kind_of(ours) == kind_of(theirs), (declared, ours.type, theirs.type)


def test_a_statement_that_cannot_be_read_makes_its_tables_others(
    database: Database, source: MariadbSource
) -> None:
    """What is a string in one SQL mode has no end in another."""
    after = source.follow_tables(BOTH)
    database.run("ALTER TABLE a FORCE, COMMENT = 'x\\\\'", "INSERT INTO b VALUES (1, 1)")
    assert reshaped(source, after) == []
    database.run("SET SESSION sql_mode = 'NO_BACKSLASH_ESCAPES'")
    database.run("ALTER TABLE a COMMENT = 'x\\'", "INSERT INTO b VALUES (2, 2)")
    assert reshaped(source, after) == [SchemaChange("recreate_table", "a")]
    assert [one.changes for one in look(source, after)] == [1, 1]
