"""A SQLite database that changes its shape: what is reported, and that no answer is wrong by it.

One table of schema changes, each made while the source is followed and while nobody is there, in
both journal modes. Rows are written before and after each change, in one report with it. Where
values are kept, the changes and the answers as of before are the same under the handle's old names
and under those of a new handle; where they are not, every question about the time before is refused
in the snapshot that would have to answer it.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.sources.shape_reading import BEFORE, changed, plus, scanned
from viewkeeper.errors import BrokenQueryError, SchemaError
from viewkeeper.sources.sqlite import SqliteSource
from viewkeeper.sources.state_files import FolderStateFiles
from viewkeeper.updates.schema_change import SchemaChange
from viewkeeper.updates.source_protocol import Boundary, names_now_of

Row = tuple[object, ...]
Open = Callable[[], SqliteSource]
MADE = """
CREATE TABLE t(id INTEGER PRIMARY KEY, v INT, w INT, d DECIMAL(6,2) NOT NULL DEFAULT 1);
CREATE TABLE u(id INTEGER PRIMARY KEY, v INT, w INT, d DECIMAL(6,2) NOT NULL DEFAULT 1);
CREATE TABLE other(x INT);
CREATE TABLE unused(x INT);
INSERT INTO t(id, v) VALUES (1, 10), (2, 20);
INSERT INTO u(id, v) VALUES (7, 70)
"""
FOLLOWED = {"t": ["id", "v"], "u": ["id", "v"], "other": ["x"]}
REBUILD = (
    "CREATE TABLE n(id INTEGER PRIMARY KEY, v INT, w INT, d TEXT);"
    "INSERT INTO n SELECT * FROM t; DROP TABLE t; ALTER TABLE n RENAME TO t"
)


def retyped(old: str, new: str) -> str:
    return (
        "PRAGMA writable_schema = ON;"
        f"UPDATE sqlite_master SET sql = replace(sql, '{old}', '{new}') WHERE name = 't';"
        "PRAGMA writable_schema = RESET; CREATE TABLE bump(x); DROP TABLE bump"
    )


def change(kind: str, column: str = "", now: str = "", table: str = "t") -> SchemaChange:
    return SchemaChange(kind, table, column, now)  # type: ignore[arg-type]  # one of the words


@dataclass(frozen=True)
class Case:
    """A schema change, what is reported of it, and what `t` and its columns are called then.

    `table` is None where it is gone. `kept` says that its values are.
    """

    sql: str
    reported: tuple[SchemaChange, ...] = ()
    table: str | None = "t"
    id: str = "id"
    v: str = "v"
    kept: bool = True


CASES = {
    "column renamed": Case(
        'ALTER TABLE t RENAME COLUMN v TO "x ""y"""',
        (change("rename_column", "v", 'x "y"'),),
        v='x "y"',
    ),
    "key column renamed": Case(
        "ALTER TABLE t RENAME id TO nr", (change("rename_column", "id", "nr"),), id="nr"
    ),
    "columns swapped": Case(
        "ALTER TABLE t RENAME v TO a; ALTER TABLE t RENAME w TO v; ALTER TABLE t RENAME a TO w",
        (change("rename_column", "v", "w"),),
        v="w",
    ),
    "table renamed": Case(
        'ALTER TABLE t RENAME TO "t 2"', (change("rename_table", now="t 2"),), table="t 2"
    ),
    "table and column renamed": Case(
        "ALTER TABLE t RENAME TO b; ALTER TABLE b RENAME v TO c; ALTER TABLE b RENAME c TO e",
        (change("rename_table", now="b"), change("rename_column", "v", "e")),
        table="b",
        v="e",
    ),
    "renamed there and back": Case("ALTER TABLE t RENAME v TO a; ALTER TABLE t RENAME a TO v"),
    "tables swapped": Case(
        "ALTER TABLE t RENAME TO a; ALTER TABLE u RENAME TO t; ALTER TABLE a RENAME TO u",
        (change("rename_table", now="u"), change("rename_table", now="t", table="u")),
        table="u",
    ),
    "renamed, and another made": Case(
        "ALTER TABLE t RENAME TO b; CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)",
        (change("rename_table", now="b"),),
        table="b",
    ),
    "column added": Case("ALTER TABLE t ADD COLUMN a INT", (change("add_column", "a"),)),
    "filled column added": Case(
        "ALTER TABLE t ADD COLUMN a INT NOT NULL DEFAULT 5", (change("add_filled_column", "a"),)
    ),
    "generated column added": Case(
        "ALTER TABLE t ADD COLUMN a INT AS (v * 2)", (change("add_filled_column", "a"),)
    ),
    "unused column renamed": Case("ALTER TABLE t RENAME w TO a"),
    "unused column dropped": Case("ALTER TABLE t DROP COLUMN w"),
    "unused table dropped": Case("DROP TABLE unused; CREATE TABLE unused2(x)"),
    "index made": Case("CREATE INDEX i ON t(v)"),
    "type spelled otherwise": Case(retyped("v INT", "v BIGINT")),
    "key made unique": Case(
        "CREATE UNIQUE INDEX k ON t(v)",
        (change("rewrite", "id"), change("rewrite", "v")),
        kept=False,
    ),
    "type changed": Case(
        retyped("v INT", "v REAL"), (change("change_type", "v", "REAL"),), kept=False
    ),
    "type that is not kept": Case(
        retyped("v INT", "v MONEY"), (change("change_type", "v", "MONEY"),), kept=False
    ),
    "table dropped": Case("DROP TABLE t", (change("drop_table"),), table=None, kept=False),
    "table made again": Case(
        "DROP TABLE t; CREATE TABLE t(id INTEGER PRIMARY KEY, v INT)",
        (change("recreate_table"),),
        kept=False,
    ),
    "table rebuilt": Case(REBUILD, (change("recreate_table"),), kept=False),
    "uncapturable": Case(
        "CREATE UNIQUE INDEX k ON t(abs(v))", (change("recreate_table"),), kept=False
    ),
}


@pytest.fixture(params=["wal", "delete"])
def writer(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    connection.execute(f"PRAGMA journal_mode = {request.param}")
    connection.execute("PRAGMA synchronous = OFF")
    connection.executescript(MADE)
    yield connection
    connection.close()


@pytest.fixture
def opens(tmp_path: Path, writer: sqlite3.Connection) -> Iterator[Open]:
    """Opens the source, again and again, as a process that is started again does."""
    opened: list[SqliteSource] = []

    def one_more() -> SqliteSource:
        source = SqliteSource(
            "shop", tmp_path / "shop.db", "test", 1, FolderStateFiles(tmp_path / "home")
        )
        opened.append(source)
        return source

    yield one_more
    for source in opened:
        source.close()


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def insert(writer: sqlite3.Connection, case: Case, number: int) -> None:
    if case.table is not None:
        names = f"{quoted(case.id)}, {quoted(case.v)}"
        row = (number, number * 10)
        writer.execute(f"INSERT INTO {quoted(case.table)}({names}) VALUES (?, ?)", row)


@pytest.mark.parametrize("down", [False, True], ids=["following", "down"])
@pytest.mark.parametrize("name", CASES)
def test_every_schema_change(
    writer: sqlite3.Connection, opens: Open, name: str, down: bool
) -> None:
    case, source = CASES[name], opens()
    assert [source.handle_of(table) for table in FOLLOWED] == list(FOLLOWED)
    start = source.follow_tables(FOLLOWED)
    assert source.look_for_transactions(start) == ()
    if down:
        source.close()
    writer.execute("INSERT INTO t(id, v) VALUES (3, 30)")
    writer.executescript(case.sql)
    insert(writer, case, 4)
    writer.execute("INSERT INTO other VALUES (9)")
    if down:
        source = opens()
    check_snapshots(source, case, start)
    (boundary,) = source.look_for_transactions(start)
    assert boundary.reshaped == case.reported
    check_before(source, case, start, boundary.position)
    check_after(writer, source, case, start, boundary)
    writer.execute("INSERT INTO other VALUES (10)")
    assert opens().look_for_transactions(start)[0].reshaped == boundary.reshaped, (
        "a restart finds the same"
    )
    assert source.look_for_transactions(boundary.position)[0].reshaped == ()


def check_snapshots(source: SqliteSource, case: Case, start: int) -> None:
    """Nobody has looked yet; an answer is exact or refused all the same."""
    if case.kept:
        assert scanned(source, "t", ["id", "v"], start) == dict(BEFORE)
    else:
        with pytest.raises(BrokenQueryError, match='table "t" has changed its shape'):
            scanned(source, "t", ["id", "v"], start)


def check_before(source: SqliteSource, case: Case, start: int, until: int) -> None:
    """The time before the change, under the handle that was followed then."""
    assert changed(source, {"other": ["x"]}, start, until) == {(9,): 1}
    became = names_now_of(source, "t")
    if not case.kept:
        with pytest.raises(BrokenQueryError):
            changed(source, {"t": ["id", "v"]}, start, until)
        assert (became is None) == (case.reported[0].kind in ("drop_table", "recreate_table"))
        return
    assert case.table is not None
    assert changed(source, {"t": ["id", "v"]}, start, until) == {(3, 30): 1, (4, 40): 1}
    assert scanned(source, "t", ["id", "v"], until) == plus(BEFORE, Counter([(3, 30), (4, 40)]))
    assert became is not None
    assert (became.table, became.columns["id"], became.columns["v"]) == (
        case.table,
        case.id,
        case.v,
    )
    assert {"id", "v"} <= {field.name for field in source.describe_table("t").fields}
    assert source.describe_table("t").key == ("id",)
    assert source.describe_table("t").is_indexed(["id"])


def check_after(
    writer: sqlite3.Connection, source: SqliteSource, case: Case, start: int, boundary: Boundary
) -> None:
    """A view that is bound again follows what there is now, and its time before if it is kept."""
    if case.table is None:
        with pytest.raises(SchemaError, match='no table "t"'):
            source.handle_of("t")
        return
    if case.sql.endswith("abs(v))"):
        with pytest.raises(SchemaError, match="expression alone"):
            source.handle_of("t")
        return
    handle, columns = source.handle_of(case.table), [case.id, case.v]
    if "MONEY" in case.sql:
        assert "v" in source.describe_table(handle).refused
        return
    now = source.follow_tables({**FOLLOWED, handle: columns})
    if case.kept:
        expected = {(3, 30): 1, (4, 40): 1}
        assert changed(source, {handle: columns}, start, boundary.position) == expected
        assert scanned(source, handle, columns, start) == dict(BEFORE)
    insert(writer, case, 5)
    (after,) = source.look_for_transactions(now)
    assert after.reshaped == ()
    assert [row[0] for row in changed(source, {handle: columns}, now, after.position)] == [5]
    assert len(scanned(source, handle, columns, after.position)) - 1 == len(
        scanned(source, handle, columns, now)
    )
