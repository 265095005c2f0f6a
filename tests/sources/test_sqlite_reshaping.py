"""Schema changes of a SQLite database that need a story of their own.

Columns that are followed after they were added, keys, types, what SQLite refuses because of our
triggers, tools that rebuild tables and put our triggers back, databases that are busy, several
projects, snapshots that are open meanwhile, and a writer that renames without end.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from tests.sources.shape_reading import BEFORE, bag, changed, plus, scanned, snapshot_of
from viewkeeper.errors import BrokenQueryError, SchemaError
from viewkeeper.sources.sqlite import SqliteSource
from viewkeeper.sources.state_files import FolderStateFiles
from viewkeeper.updates.schema_change import SchemaChange
from viewkeeper.updates.source_protocol import CurrentNames, names_now_of
from viewkeeper.view.definition import Relation

T = {"t": ["id", "v"]}
ALL = {"t": ["id", "v", "a"]}
MADE = """
CREATE TABLE t(id INTEGER PRIMARY KEY, v INT, d DECIMAL(6,2));
CREATE TABLE other(x INT NOT NULL);
INSERT INTO t VALUES (1, 10, 1.5), (2, 20, 2.25)
"""
Open = Callable[..., SqliteSource]


@pytest.fixture(params=["wal", "delete"])
def writer(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(
        tmp_path / "shop.db", isolation_level=None, check_same_thread=False
    )
    connection.execute(f"PRAGMA journal_mode = {request.param}")
    connection.execute("PRAGMA synchronous = OFF")
    connection.executescript(MADE)
    yield connection
    connection.close()


@pytest.fixture
def opens(tmp_path: Path, writer: sqlite3.Connection) -> Iterator[Open]:
    opened: list[SqliteSource] = []

    def one_more(reader: str = "one") -> SqliteSource:
        source = SqliteSource(
            "shop", tmp_path / "shop.db", reader, 1, FolderStateFiles(tmp_path / reader)
        )
        opened.append(source)
        return source

    yield one_more
    for source in opened:
        source.close()


def reported(source: SqliteSource, after: int) -> tuple[SchemaChange, ...]:
    return tuple(change for each in source.look_for_transactions(after) for change in each.reshaped)


def test_a_column_that_was_added_was_null_before(writer: sqlite3.Connection, opens: Open) -> None:
    source = opens()
    start = source.follow_tables(T)
    writer.execute("INSERT INTO t(id, v) VALUES (3, 30)")
    writer.execute("ALTER TABLE t ADD COLUMN a INT")
    (added,) = source.look_for_transactions(start)
    assert source.handle_of("t") == "t", "the handle means what it meant, and more"
    source.follow_tables(ALL)
    writer.execute("INSERT INTO t(id, v, a) VALUES (4, 40, 400)")
    (later,) = source.look_for_transactions(added.position)
    assert later.reshaped == ()
    both = changed(source, ALL, start, later.position)
    assert both == {(3, 30, None): 1, (4, 40, 400): 1}
    assert scanned(source, "t", ALL["t"], start) == {(1, 10, None): 1, (2, 20, None): 1}


@pytest.mark.parametrize(
    "filled", ["ADD COLUMN a INT DEFAULT 7", "ADD COLUMN a INT; UPDATE t SET a = 7"]
)
def test_what_came_into_a_column_before_it_was_followed_is_a_rewrite(
    writer: sqlite3.Connection, opens: Open, filled: str
) -> None:
    source = opens()
    start = source.follow_tables(T)
    writer.executescript(f"ALTER TABLE t {filled}")
    (added,) = source.look_for_transactions(start)
    writer.execute("INSERT INTO t(id, v, a) VALUES (3, 30, 300)")
    source.follow_tables(ALL)
    with pytest.raises(BrokenQueryError, match="column a"):
        scanned(source, "t", ALL["t"], start)
    with pytest.raises(BrokenQueryError, match="column a"):
        changed(source, ALL, start, added.position + 1)
    assert scanned(source, "t", T["t"], start) == dict(BEFORE)
    (noted,) = source.look_for_transactions(added.position)
    assert noted.reshaped == (SchemaChange("rewrite", "t", "a"),)
    expected = {(1, 10, 7): 1, (2, 20, 7): 1, (3, 30, 300): 1}
    assert scanned(source, "t", ALL["t"], noted.position) == expected
    assert opens().look_for_transactions(added.position) == (noted,)


def test_keys_come_and_go(writer: sqlite3.Connection, opens: Open) -> None:
    source = opens()
    start = source.follow_tables({"other": ["x"]})
    assert source.describe_table("other").key == ()
    writer.execute("CREATE UNIQUE INDEX k ON other(x)")
    assert reported(source, start) == (SchemaChange("change_key", "other", now="x"),)
    assert source.describe_table("other").key == ("x",)
    (boundary,) = source.look_for_transactions(start)
    writer.execute("INSERT INTO other VALUES (1)")
    writer.execute("REPLACE INTO other VALUES (1)")
    writer.execute("DROP INDEX k")
    writer.execute("INSERT INTO other VALUES (1)")
    (dropped,) = source.look_for_transactions(boundary.position)
    assert dropped.reshaped == (SchemaChange("change_key", "other"),)
    assert changed(source, {"other": ["x"]}, start, dropped.position) == {(1,): 2}


def test_a_row_that_a_new_key_let_go_unseen_is_never_shown(
    writer: sqlite3.Connection, opens: Open
) -> None:
    source = opens()
    start = source.follow_tables(T)
    writer.execute("CREATE UNIQUE INDEX k ON t(d)")
    writer.execute("REPLACE INTO t VALUES (9, 90, 1.5)")
    with pytest.raises(BrokenQueryError, match="rewritten"):
        scanned(source, "t", T["t"], start)
    (boundary,) = source.look_for_transactions(start)
    assert {each.kind for each in boundary.reshaped} == {"rewrite"}
    writer.execute("REPLACE INTO t VALUES (8, 80, 1.5)")
    (after,) = source.look_for_transactions(boundary.position)
    assert scanned(source, "t", T["t"], boundary.position) == {(2, 20): 1, (9, 90): 1}
    assert changed(source, T, boundary.position, after.position) == {(9, 90): -1, (8, 80): 1}


def test_a_wider_decimal_keeps_its_values(writer: sqlite3.Connection, opens: Open) -> None:
    source = opens()
    start = source.follow_tables({"t": ["id", "d"]})
    writer.execute("INSERT INTO t VALUES (3, 30, 3.5)")
    writer.executescript(
        "PRAGMA writable_schema = ON; UPDATE sqlite_master SET"
        " sql = replace(sql, '(6,2)', '(9,3)') WHERE name = 't'; PRAGMA writable_schema = RESET;"
        "ALTER TABLE other ADD COLUMN y"
    )
    (boundary,) = source.look_for_transactions(start)
    assert boundary.reshaped == (SchemaChange("widen_type", "t", "d", "DECIMAL(9,3)"),)
    found = changed(source, {"t": ["id", "d"]}, start, boundary.position)
    assert found == {(3, Decimal("3.500")): 1}


def test_dropping_a_captured_column_is_refused_at_the_source(
    writer: sqlite3.Connection, opens: Open
) -> None:
    source = opens()
    start = source.follow_tables(T)
    with pytest.raises(sqlite3.OperationalError, match="error in trigger _viewkeeper_1_"):
        writer.execute("ALTER TABLE t DROP COLUMN v")
    assert source.look_for_transactions(start) == ()
    writer.execute("INSERT INTO t(id, v) VALUES (3, 30)")
    assert changed(source, T, start, source.look_for_transactions(start)[0].position) == {
        (3, 30): 1
    }
    source.detach_source()
    writer.execute("ALTER TABLE t DROP COLUMN v")


def test_a_tool_that_puts_our_triggers_back_on_a_rebuilt_table(
    writer: sqlite3.Connection, opens: Open
) -> None:
    source = opens()
    start = source.follow_tables(T)
    query = "SELECT sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 't'"
    triggers = [sql for (sql,) in writer.execute(query)]
    writer.execute("BEGIN")
    writer.execute("CREATE TABLE n(id INTEGER PRIMARY KEY, v INT, d DECIMAL(6,2))")
    writer.execute("INSERT INTO n SELECT id, v + 1, d FROM t")
    writer.execute("DROP TABLE t")
    writer.execute("ALTER TABLE n RENAME TO t")
    for sql in triggers:
        writer.execute(sql)
    writer.execute("COMMIT")
    with pytest.raises(BrokenQueryError, match="another table"):
        scanned(source, "t", T["t"], start)
    assert reported(source, start) == (SchemaChange("recreate_table", "t"),)
    assert source.handle_of("t") == "t#2"
    now = source.follow_tables({"t#2": ["id", "v"], **T})
    writer.execute("INSERT INTO t(id, v) VALUES (3, 30)")
    (boundary,) = source.look_for_transactions(now)
    assert changed(source, {"t#2": ["id", "v"]}, now, boundary.position) == {(3, 30): 1}


def test_a_rename_of_the_old_kind_is_mended(writer: sqlite3.Connection, opens: Open) -> None:
    source = opens()
    start = source.follow_tables(T)
    writer.execute("PRAGMA legacy_alter_table = ON")
    writer.execute("ALTER TABLE t RENAME TO b")
    (boundary,) = source.look_for_transactions(start)
    assert boundary.reshaped == (SchemaChange("rename_table", "t", now="b"),)
    # SQLite goes on with triggers that it has in memory until it reads anything else.
    writer.execute("SELECT count(*) FROM other")
    writer.execute("REPLACE INTO b VALUES (1, 11, 0)")
    (after,) = source.look_for_transactions(boundary.position)
    assert changed(source, T, start, after.position) == {(1, 10): -1, (1, 11): 1}


def test_a_busy_database_reports_nothing_past_the_change(
    writer: sqlite3.Connection, opens: Open
) -> None:
    source = opens()
    start = source.follow_tables(T)
    writer.execute("ALTER TABLE t RENAME v TO z")
    writer.execute("INSERT INTO t(id, z) VALUES (3, 30)")
    writer.execute("BEGIN IMMEDIATE")
    assert source.look_for_transactions(start) == ()
    writer.execute("COMMIT")
    (boundary,) = source.look_for_transactions(start)
    assert boundary.reshaped == (SchemaChange("rename_column", "t", "v", "z"),)
    assert boundary.changes == 1


def test_every_project_learns_of_it_under_its_own_names(
    writer: sqlite3.Connection, opens: Open
) -> None:
    one, two = opens("one"), opens("two")
    start = one.follow_tables(T)
    writer.execute("ALTER TABLE t RENAME v TO z")
    (first,) = one.look_for_transactions(start)
    later = two.follow_tables({"T": ["id", "Z"]})
    assert later == first.position
    writer.execute("ALTER TABLE t RENAME z TO w")
    writer.execute("INSERT INTO t(id, w) VALUES (3, 30)")
    assert reported(two, later) == (SchemaChange("rename_column", "T", "z", "w"),)
    assert reported(one, start) == (SchemaChange("rename_column", "t", "v", "w"),)
    (last,) = one.look_for_transactions(start)
    for source, tables in ((one, T), (two, {"T": ["id", "z"]})):
        assert changed(source, tables, later, last.position) == {(3, 30): 1}
    assert names_now_of(one, "t") == CurrentNames("t", {"id": "id", "v": "w"})
    assert one.handle_of("t") == "t#2"
    one.follow_tables({"t#2": ["w"]})
    assert one.handle_of("t") == one.handle_of("t") == "t#2"
    assert reported(one, first.position) == (SchemaChange("rename_column", "t", "v", "w"),)
    one.acknowledge_position(last.position)
    two.acknowledge_position(last.position)
    writer.execute("INSERT INTO t(id, w) VALUES (4, 40)")
    assert len(one.look_for_transactions(last.position)) == 1
    one.acknowledge_position(last.position)
    kept = writer.execute("SELECT count(*) FROM _viewkeeper_shape").fetchone()
    assert kept == (1,), "shapes are trimmed with the log"
    assert scanned(one, "t", T["t"], last.position) == plus(BEFORE, Counter([(3, 30)]))


def test_a_snapshot_that_is_open_meanwhile_answers_for_its_own_time(
    writer: sqlite3.Connection, opens: Open
) -> None:
    source = opens()
    start = source.follow_tables(T)
    snapshot = snapshot_of(source, start)
    writer.execute("ALTER TABLE t RENAME v TO z")
    writer.execute("ALTER TABLE t RENAME TO b")
    scan = snapshot.scan_relation(Relation("shop", "t"), ["id", "v"], start)
    assert plus(bag(scan.batches)) == dict(BEFORE)
    writer.execute("DROP TABLE b")
    if writer.execute("PRAGMA journal_mode").fetchone() == ("wal",):
        again = snapshot.scan_relation(Relation("shop", "t"), ["id", "v"], start)
        assert plus(bag(again.batches)) == dict(BEFORE)
    else:
        with pytest.raises(BrokenQueryError):
            snapshot.scan_relation(Relation("shop", "t"), ["id", "v"], start)
    snapshot.close()


def test_what_is_gone_is_passed_over(writer: sqlite3.Connection, opens: Open) -> None:
    source = opens()
    start = source.follow_tables({**T, "other": ["x"]})
    writer.execute("DROP TABLE t")
    assert source.follow_tables({**T, "other": ["x"]}) >= start
    writer.execute("INSERT INTO other VALUES (1)")
    (boundary,) = opens().look_for_transactions(start)
    assert boundary.reshaped == (SchemaChange("drop_table", "t"),)
    assert changed(source, {"other": ["x"]}, start, boundary.position) == {(1,): 1}
    with pytest.raises(SchemaError, match='table "t" is gone'):
        source.describe_table("t")


def test_names_change_without_end_under_a_reader(writer: sqlite3.Connection, opens: Open) -> None:
    """The names of a table and of a column go round while rows are written and read."""
    source = opens()
    start, done, failed = source.follow_tables(T), threading.Event(), []

    def write() -> None:
        names, number = ["t", "v"], 2
        try:
            while not done.is_set():
                number += 1
                which = number % 2
                new = f"n{number}"
                rename = "TO" if which == 0 else f"COLUMN {names[1]} TO"
                writer.execute(f"ALTER TABLE {names[0]} RENAME {rename} {new}")
                names[which] = new
                row = (number, number * 10)
                writer.execute(f"INSERT INTO {names[0]}(id, {names[1]}) VALUES (?, ?)", row)
                time.sleep(0.01)
        except sqlite3.Error as error:
            failed.append(error)

    writer.execute("PRAGMA busy_timeout = 30000")
    thread = threading.Thread(target=write)
    thread.start()
    end, renames, at = time.monotonic() + 0.5, 0, start
    while time.monotonic() < end:
        assert scanned(source, "t", T["t"], start) == dict(BEFORE)
        for boundary in source.look_for_transactions(at):
            renames, at = renames + len(boundary.reshaped), boundary.position
        since = Counter(changed(source, T, start, at))
        assert scanned(source, "t", T["t"], at) == plus(BEFORE, since)
    done.set()
    thread.join()
    assert not failed
    assert renames > 0
