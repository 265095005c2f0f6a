"""Every kind of schema change: what is told of it, and that nothing is ever answered wrongly.

Each case runs while the source looks on, and while it is away. Values from before the change and
from after it come under the handle that was there and under the one that is bound then; questions
as of before it and after it are exact, or broken. Another table goes on in any case.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from tests.sources.mariadb_database import Database, Row, bag_of, changes, reshaped, rows_of
from viewkeeper.errors import BrokenQueryError
from viewkeeper.sources.mariadb import MariadbSource
from viewkeeper.testing.private_servers import PrivateMariadb
from viewkeeper.updates.schema_change import SchemaChange, name_of_handle
from viewkeeper.updates.source_protocol import Lookup, names_now_of
from viewkeeper.view.definition import Relation

COLUMNS = ["id", "v", "w"]


@pytest.fixture
def database(mariadb_server: PrivateMariadb, tmp_path: Path) -> Iterator[Database]:
    opened = Database(mariadb_server, "shapes", tmp_path)
    opened.run(
        "SET SESSION sql_mode = DEFAULT, lock_wait_timeout = 10",
        "CREATE TABLE t (id INT PRIMARY KEY, v INT, w VARCHAR(10), g INT AS (v * 2) STORED,"
        " spare INT) CHARSET utf8mb4",
        "CREATE TABLE u (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE other (id INT PRIMARY KEY, v INT)",
        "CREATE DATABASE IF NOT EXISTS shapes2",
    )
    yield opened
    opened.run("DROP DATABASE shapes2")
    opened.writer.close()


@pytest.fixture
def source(database: Database) -> Iterator[MariadbSource]:
    opened = database.source()
    yield opened
    opened.close()


@dataclass(frozen=True)
class Case:
    """Statements and what is told of them; `table` and `columns` are what they are called then.

    Without a table it is gone, or another one.
    """

    statements: Sequence[str]
    told: Sequence[tuple[str, str, str]]
    table: str | None = "t"
    columns: Sequence[str] = ("id", "v", "w")
    exact: bool = True


def case(*statements: str, told: Sequence[tuple[str, str, str]] = (), **facts: object) -> Case:
    return Case(statements, told, **facts)  # type: ignore[arg-type]  # as the fields are declared


GONE = {"table": None, "columns": (), "exact": False}
OTHER = ("recreate_table", "", "")
CASES = {
    "rename column": case(
        "ALTER TABLE t RENAME COLUMN v TO x",
        told=[("rename_column", "v", "x")],
        columns=("id", "x", "w"),
    ),
    "change column": case(
        'ALTER TABLE t /* why */ CHANGE COLUMN `v` `x y` INT COMMENT "DROP w", ALGORITHM=INPLACE',
        told=[("rename_column", "v", "x y")],
        columns=("id", "x y", "w"),
    ),
    "swap columns": case(
        "ALTER TABLE t RENAME COLUMN v TO spare, RENAME COLUMN spare TO v",
        told=[("rename_column", "v", "spare")],
        columns=("id", "spare", "w"),
    ),
    "rename there and back": case(
        "ALTER TABLE t RENAME COLUMN v TO x",
        "ALTER TABLE t RENAME COLUMN x TO v",
        told=[("rename_column", "v", "x")],
    ),
    "add column": case(
        "ALTER TABLE t ADD COLUMN n INT, ADD IF NOT EXISTS v INT",
        told=[("add_column", "n", "")],
    ),
    "add columns": case(
        "ALTER TABLE t ADD (n INT NULL DEFAULT NULL, m DECIMAL(5,2) NOT NULL)",
        told=[("add_column", "n", ""), ("add_filled_column", "m", "")],
    ),
    "add a filled column": case(
        "ALTER TABLE t ADD n INT DEFAULT 7 FIRST", told=[("add_filled_column", "n", "")]
    ),
    "drop column": case(
        "ALTER TABLE t DROP COLUMN IF EXISTS w, DROP COLUMN IF EXISTS nothing",
        told=[("drop_column", "w", "")],
        columns=("id", "v"),
        exact=False,
    ),
    "replace column": case(
        "ALTER TABLE t DROP w, ADD w VARCHAR(10)",
        told=[("drop_column", "w", ""), ("add_column", "w", "")],
        columns=("id", "v"),
        exact=False,
    ),
    "wider integer": case("ALTER TABLE t MODIFY v BIGINT"),
    "longer text": case("ALTER TABLE t MODIFY w TEXT"),
    "widened": case(
        "ALTER TABLE t MODIFY v DECIMAL(12,2)", told=[("widen_type", "v", "decimal(12,2)")]
    ),
    "narrowed": case(
        "ALTER TABLE t MODIFY v SMALLINT, MODIFY w VARCHAR(5)",
        told=[("rewrite", "v", ""), ("rewrite", "w", "")],
        exact=False,
    ),
    "another type": case(
        "ALTER TABLE t MODIFY v VARCHAR(20)",
        told=[("change_type", "v", "varchar(20)")],
        exact=False,
    ),
    "a type that cannot be kept": case(
        "ALTER TABLE t ADD tm TIME, MODIFY v TIME",
        told=[("add_column", "tm", ""), ("change_type", "v", "time")],
        exact=False,
    ),
    "not null, strictly": case("ALTER TABLE t MODIFY v INT NOT NULL"),
    "not null, somehow": case(
        "SET STATEMENT sql_mode = '' FOR ALTER TABLE t MODIFY v INT NOT NULL",
        told=[("rewrite", "v", "")],
        exact=False,
    ),
    "character set with room": case("ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4"),
    "character set without": case(
        "ALTER TABLE t CONVERT TO CHARACTER SET latin1",
        told=[("rewrite", "w", "")],
        exact=False,
    ),
    "options and indexes": case(
        "ALTER TABLE t COMMENT='DROP COLUMN v' AUTO_INCREMENT=9 ROW_FORMAT=DYNAMIC, ORDER BY v",
        "CREATE INDEX i ON t (v)",
        "DROP INDEX i ON t",
        "ALTER TABLE t ENGINE=InnoDB, ADD CHECK (id > 0), ALTER COLUMN v SET DEFAULT 3, FORCE",
        "ANALYZE TABLE t",
    ),
    "another key": case(
        "ALTER TABLE t DROP PRIMARY KEY, ADD UNIQUE (spare)", told=[("change_key", "", "")]
    ),
    "renamed table": case("RENAME TABLE t TO z", told=[("rename_table", "", "z")], table="z"),
    "renamed by alter": case(
        "ALTER TABLE t RENAME TO z, RENAME COLUMN v TO x",
        told=[("rename_column", "v", "x"), ("rename_table", "", "z")],
        table="z",
        columns=("id", "x", "w"),
    ),
    "renamed to another database": case(
        "RENAME TABLE IF EXISTS shapes.t TO shapes2.t",
        told=[("rename_table", "", "shapes2.t")],
        table="shapes2.t",
    ),
    "renamed in steps": case(
        "RENAME TABLE t TO tmp, other TO other2, tmp TO z",
        told=[("rename_table", "", "z")],
        table="z",
    ),
    "dropped": case("DROP TABLE IF EXISTS nothing, t", told=[("drop_table", "", "")], **GONE),
    "dropped and made again": case(
        "DROP TABLE t",
        "CREATE TABLE t (id INT PRIMARY KEY, v INT, w VARCHAR(10), spare INT)",
        told=[("drop_table", "", ""), OTHER],
        **GONE,
    ),
    "replaced": case(
        "CREATE OR REPLACE TABLE t (id INT PRIMARY KEY, v INT, w VARCHAR(10), spare INT)",
        told=[OTHER],
        **GONE,
    ),
    "altered by a tool": case(
        "CREATE TABLE _t_new LIKE t",
        "ALTER TABLE _t_new MODIFY v BIGINT",
        "INSERT INTO _t_new (id, v, w) SELECT id, v, w FROM t",
        "RENAME TABLE t TO _t_old, _t_new TO t",
        told=[OTHER],
        **GONE,
    ),
    "several at once": case(
        "ALTER TABLE t RENAME COLUMN v TO x, DROP COLUMN spare, ADD n INT, MODIFY w LONGTEXT,"
        " ADD INDEX (id)",
        told=[("rename_column", "v", "x"), ("add_column", "n", "")],
        columns=("id", "x", "w"),
    ),
    "other tables": case(
        "ALTER TABLE other RENAME COLUMN v TO z, DROP PRIMARY KEY",
        "CREATE TABLE shapes2.t (v INT)",
        "ALTER TABLE shapes2.t DROP COLUMN v, ADD z INT",
        "DROP TABLE shapes2.t",
        "ALTER TABLE t DROP COLUMN spare",
        "CREATE VIEW seen AS SELECT v FROM t",
        "DROP VIEW seen",
    ),
}


def in_bag(rows: Sequence[Row]) -> Counter[Row]:
    return Counter(tuple(map(plain, row)) for row in rows)


def plain(value: object) -> object:
    """Values of a column that was widened are the same numbers."""
    return int(value) if isinstance(value, Decimal) and value == int(value) else value


def as_of(
    source: MariadbSource, handle: str, columns: Sequence[str], after: int
) -> Counter[Row] | None:
    """A table as of a position, by a scan; checked with a lookup. None if the query is broken."""
    with source.prepare_snapshots(after, {handle: columns}) as opener:
        snapshot = opener()
        try:
            scan = snapshot.scan_relation(Relation("crm", handle), columns, after)
            rows = in_bag([row for batch in scan.batches for row in rows_of(batch, columns)])
            tail = [
                row
                for batch in scan.tail
                for row in rows_of(batch, [*columns, "_count", "_position"])
            ]
            keys = pa.table({columns[0]: [1, 2, 3]})
            one = tuple(columns)
            asked = Lookup(0, Relation("crm", handle), one, one[:1], (False,), keys)
            answer = snapshot.answer_lookup(asked, after)
            assert in_bag(rows_of(answer.rows, columns)) == Counter(
                {row: n for row, n in rows.items() if row[0] in (1, 2, 3)}
            )
        except BrokenQueryError:
            return None
        finally:
            snapshot.close()
    rows.subtract(Counter({tuple(map(plain, row)): n for row, n in bag_of(tail).items()}))
    return Counter({row: n for row, n in rows.items() if n})


@pytest.mark.parametrize("away", [False, True], ids=["running", "away"])
@pytest.mark.parametrize("name", CASES)
def test_a_schema_change(database: Database, source: MariadbSource, name: str, away: bool) -> None:
    case = CASES[name]
    database.run("INSERT INTO t (id, v, w) VALUES (1, 1, 'a'), (2, 2, 'b')")
    start = source.follow_tables({"t": COLUMNS, "u": ["id", "v"]})
    first = Counter([(1, 1, "a"), (2, 2, "b")])
    if away:
        source.close()
        source = database.source()
    database.run("INSERT INTO t (id, v, w) VALUES (3, 3, 'c')", "DELETE FROM t WHERE id = 2")
    if not away:
        assert [one.changes for one in source.look_for_transactions(start)] == [1, 1]
    database.run(*case.statements, "INSERT INTO u VALUES (1, 1)")
    told = [SchemaChange(kind, "t", column, now) for kind, column, now in case.told]  # type: ignore[arg-type]  # kinds by their names
    assert reshaped(source, start) == told
    boundaries = source.look_for_transactions(start)
    assert [one.changes for one in boundaries if one.changes][-1:] == [1], "u goes on"
    before, end = boundaries[1].position, boundaries[-1].position
    old = changes(source, "t", COLUMNS, start, before)
    assert bag_of(old) == {(3, 3, "c"): 1, (2, 2, "b"): -1}, "what came before is as it was"
    exact = as_of(source, "t", COLUMNS, start)
    second = Counter([(1, 1, "a"), (3, 3, "c")])
    assert exact == (first if case.exact else None)
    assert as_of(source, "t", COLUMNS, before) == (second if case.exact else None)
    assert as_of(source, "u", ["id", "v"], end) == {(1, 1): 1}
    check_what_it_became(source, case, start, before, end)
    again = database.source()
    assert [one for one in reshaped(again, start) if one.table == "t"] == told, "after a restart"
    again.follow_tables({"t": COLUMNS, "u": ["id", "v"]})
    again.close()
    source.close()


def check_what_it_became(
    source: MariadbSource, case: Case, start: int, before: int, end: int
) -> None:
    became = names_now_of(source, "t")
    if case.table is None:
        assert became is None
        return
    assert became is not None
    assert became.table == case.table
    kept = [name for name in COLUMNS if name in became.columns]
    now = [became.columns[name] for name in kept]
    assert tuple(now) == tuple(case.columns)
    handle = source.handle_of(became.table)
    assert name_of_handle(handle) == became.table
    assert (handle == "t") == (case.table == "t" and now == COLUMNS)
    usable = [field.name for field in source.describe_table(handle).fields]
    now = [name for name in now if name in usable]
    source.follow_tables({handle: now})
    assert source.handle_of(became.table) == handle
    if not case.exact:
        return
    changed = bag_of(changes(source, handle, now, start, before))
    values = {(3, 3, "c"): 1, (2, 2, "b"): -1}
    assert {tuple(map(plain, row)): n for row, n in changed.items()} == values
    assert as_of(source, handle, now, start) == {(1, 1, "a"): 1, (2, 2, "b"): 1}
    assert as_of(source, handle, now, end) == {(1, 1, "a"): 1, (3, 3, "c"): 1}
