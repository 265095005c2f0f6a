"""The change log is the difference: the table before, plus the log, is the table after.

Random statements of every kind run against tables of every kind, by a plain `sqlite3` connection
that knows nothing of capture, with `recursive_triggers` on and off. Then the log is replayed, as a
bag, onto the rows from before. A failure prints the statements and the seed that makes them again.
"""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.sources.opening import opened
from viewkeeper.sources.sqlite import SqliteSource
from viewkeeper.view.definition import Relation

Row = tuple[object, ...]
SEEDS = range(5)
STATEMENTS = 40
EXPECTED = ("constraint failed", "transaction", "savepoint", "mismatch", "ON CONFLICT")


@dataclass(frozen=True)
class Shape:
    """Tables to write to: their SQL, and for each the columns that are written and captured.

    `younger` is SQL that runs after `follow`.
    """

    ddl: str
    written: Mapping[str, Sequence[str]]
    captured: Mapping[str, Sequence[str]]
    younger: str = ""


def one(ddl: str, written: str, captured: str | None = None, younger: str = "") -> Shape:
    return Shape(ddl, {"t": written.split()}, {"t": (captured or written).split()}, younger)


TOUCH = (
    "CREATE TRIGGER touch AFTER INSERT ON t BEGIN UPDATE t SET v = v + 10 WHERE id = NEW.id; END"
)
ODD_NAMES = (
    'x BEGIN NEW."q"; END; --',
    "$viewkeeper$'); DROP TABLE t; --",
    "new\nline \\ % {0} ?1 :a",
    'NEW."a" END',
)
ODD = ['"' + name.replace('"', '""') + '"' for name in ODD_NAMES]
SHAPES = {
    "integer key": one("CREATE TABLE t(id INTEGER PRIMARY KEY, v INT)", "id v"),
    "no key": one("CREATE TABLE t(a INT, v INT)", "a v"),
    "rowid written": one("CREATE TABLE t(a INT, v INT)", "rowid a v", "a v"),
    "two more keys": one(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a INT UNIQUE, b INT, v INT, UNIQUE (b, v))",
        "id a b v",
    ),
    "three keys": one(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a INT UNIQUE, b INT UNIQUE, v INT)", "id a b v"
    ),
    "key not captured": one(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a INT UNIQUE, v INT)", "id a v", "v"
    ),
    "text key": one("CREATE TABLE t(s TEXT PRIMARY KEY, v INT)", "s v"),
    "ignoring case": one("CREATE TABLE t(s TEXT COLLATE NOCASE UNIQUE, v INT)", "s v"),
    "index ignoring case": one(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, s TEXT, v INT);"
        "CREATE UNIQUE INDEX u ON t(s COLLATE NOCASE, v)",
        "id s v",
    ),
    "without rowid": one(
        "CREATE TABLE t(a INT, b INT, v INT, PRIMARY KEY (a, b)) WITHOUT ROWID", "a b v"
    ),
    "without rowid, text": one(
        "CREATE TABLE t(s TEXT COLLATE NOCASE PRIMARY KEY, b INT UNIQUE, v INT) WITHOUT ROWID",
        "s b v",
    ),
    "strict": one("CREATE TABLE t(id INTEGER PRIMARY KEY, s TEXT UNIQUE, v INT) STRICT", "id s v"),
    "partial": one(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a INT, v INT);"
        "CREATE UNIQUE INDEX u ON t(a) WHERE v > 1",
        "id a v",
    ),
    "half an expression": one(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a INT, v INT);"
        "CREATE UNIQUE INDEX u ON t(a, abs(v))",
        "id a v",
    ),
    "generated": one(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a INT, g INT AS (a % 3) UNIQUE,"
        " h INT AS (a * 2) STORED)",
        "id a",
        "id a g h",
    ),
    "column called rowid": one("CREATE TABLE t(rowid INT UNIQUE, oid TEXT, v INT)", "rowid oid v"),
    "default under replace": one(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a INT NOT NULL DEFAULT 2 UNIQUE, v INT)", "id a v"
    ),
    "conflict clauses": one(
        "CREATE TABLE t(id INTEGER PRIMARY KEY ON CONFLICT REPLACE,"
        " a INT UNIQUE ON CONFLICT REPLACE, b INT UNIQUE ON CONFLICT IGNORE, v INT)",
        "id a b v",
    ),
    "descending key": one("CREATE TABLE t(id INTEGER PRIMARY KEY DESC, v INT)", "id v"),
    "older touch": one(
        f"CREATE TABLE t(id INTEGER PRIMARY KEY, a INT UNIQUE, v INT); {TOUCH}", "id a v"
    ),
    "younger touch": one(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a INT UNIQUE, v INT, w INT)",
        "id a w v",
        "id v",
        TOUCH,
    ),
    "younger delete": one(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a INT UNIQUE, v INT)",
        "id a v",
        "id a v",
        "CREATE TRIGGER d AFTER INSERT ON t WHEN NEW.v = 3 BEGIN DELETE FROM t WHERE id < 2; END",
    ),
    "younger trigger before": one(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a INT UNIQUE, v INT)",
        "id a v",
        "id a v",
        "CREATE TRIGGER b BEFORE INSERT ON t BEGIN UPDATE t SET v = 7 WHERE a = NEW.a; END",
    ),
    "nested insert": one(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a INT UNIQUE, v INT);"
        "CREATE TRIGGER n AFTER INSERT ON t WHEN NEW.v = 1"
        " BEGIN INSERT OR IGNORE INTO t VALUES (NEW.id + 1, NEW.a + 1, 9); END",
        "id a v",
    ),
    "cascade": Shape(
        "CREATE TABLE p(id INTEGER PRIMARY KEY, a INT UNIQUE);"
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a INT REFERENCES p ON DELETE CASCADE"
        " ON UPDATE CASCADE, v INT REFERENCES p(a) ON DELETE SET NULL ON UPDATE SET NULL)",
        {"p": ["id", "a"], "t": ["id", "a", "v"]},
        {"p": ["id", "a"], "t": ["id", "a", "v"]},
    ),
    "tree": one(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a INT UNIQUE, up INT REFERENCES t"
        " ON DELETE SET NULL ON UPDATE CASCADE,"
        " v INT REFERENCES t(a) ON DELETE CASCADE ON UPDATE SET NULL)",
        "id a up v",
    ),
    "tree of defaults": one(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a INT UNIQUE, up INT DEFAULT 1 REFERENCES t"
        " ON DELETE SET DEFAULT, v INT REFERENCES t(a) ON DELETE SET NULL)",
        "id a up v",
    ),
    "tree, in part": one(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a INT UNIQUE, up INT REFERENCES t"
        " ON DELETE SET NULL, v INT)",
        "id a up v",
        "up v",
    ),
    "tree without rowid": one(
        "CREATE TABLE t(a INT PRIMARY KEY, b INT UNIQUE, up INT REFERENCES t(b)"
        " ON DELETE SET NULL, v INT REFERENCES t ON DELETE CASCADE) WITHOUT ROWID",
        "a b up v",
    ),
    "ring": Shape(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a INT UNIQUE, q INT REFERENCES q"
        " ON DELETE SET NULL ON UPDATE CASCADE);"
        "CREATE TABLE q(id INTEGER PRIMARY KEY, v INT REFERENCES t"
        " ON DELETE CASCADE ON UPDATE SET NULL)",
        {"t": ["id", "a", "q"], "q": ["id", "v"]},
        {"t": ["id", "a", "q"], "q": ["id", "v"]},
    ),
    "trigger on what is replaced": one(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a INT UNIQUE, v INT);"
        "CREATE TRIGGER d AFTER DELETE ON t BEGIN UPDATE t SET v = v + 1 WHERE id < 3; END",
        "id a v",
    ),
    "default with a comment": one(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a INT NOT NULL DEFAULT (2 -- )\n) UNIQUE, v INT)",
        "id a v",
    ),
    "names that leave quotes": Shape(
        f"CREATE TABLE {ODD[0]}(id INTEGER PRIMARY KEY, {ODD[1]} INT UNIQUE, {ODD[2]} INT,"
        f" {ODD[3]} INT)",
        {ODD_NAMES[0]: ["id", *ODD_NAMES[1:]]},
        {ODD_NAMES[0]: ["id", *ODD_NAMES[1:]]},
    ),
    "names to quote": Shape(
        'CREATE TABLE "größe ""x"" 表"("sel ect" INTEGER PRIMARY KEY, "a b" INT UNIQUE, "v\'" INT)',
        {'größe "x" 表': ["sel ect", "a b", "v'"]},
        {'größe "x" 表': ["sel ect", "a b", "v'"]},
    ),
}


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class Writer:
    """Makes random statements over few values, so that they collide."""

    def __init__(self, rng: random.Random, shape: Shape) -> None:
        self.rng = rng
        self.shape = shape

    def statement(self) -> str:
        table, columns = self.rng.choice(list(self.shape.written.items()))
        make = self.rng.choice(
            [self.insert] * 4
            + [self.update] * 3
            + [self.delete, self.upsert, self.copy, self.control]
        )
        return make(quoted(table), [quoted(column) for column in columns])

    def value(self, column: str) -> str:
        if self.rng.random() < 0.12:
            return "NULL"
        if column in ('"s"', '"oid"'):
            return self.rng.choice(["'a'", "'A'", "'b'", "'B '", "'é'"])
        return str(self.rng.randrange(5))

    def policy(self) -> str:
        return self.rng.choice(
            ["", "OR REPLACE ", "OR REPLACE ", "OR IGNORE ", "OR FAIL ", "OR ABORT "]
        )

    def values(self, columns: Sequence[str]) -> str:
        rows = range(self.rng.choice([1, 1, 1, 3]))
        texts = ("(" + ", ".join(self.value(column) for column in columns) + ")" for _ in rows)
        return "VALUES " + ", ".join(texts)

    def insert(self, table: str, columns: list[str]) -> str:
        chosen = [c for c in columns if self.rng.random() < 0.9] or columns
        return f"INSERT {self.policy()}INTO {table}({', '.join(chosen)}) {self.values(chosen)}"

    def upsert(self, table: str, columns: list[str]) -> str:
        action = self.rng.choice(["NOTHING", f"UPDATE SET {self.assignments(columns)}"])
        values = self.values(columns)
        return f"INSERT INTO {table}({', '.join(columns)}) {values} ON CONFLICT DO {action}"

    def copy(self, table: str, columns: list[str]) -> str:
        source = ", ".join(
            c if self.rng.random() < 0.6 else f"{c} + 1" if c not in ('"s"', '"oid"') else c
            for c in columns
        )
        into = f"INSERT {self.policy()}INTO {table}({', '.join(columns)})"
        return f"{into} SELECT {source} FROM {table} {self.where(columns)}"

    def assignments(self, columns: list[str]) -> str:
        chosen = self.rng.sample(columns, self.rng.randint(1, min(2, len(columns))))
        return ", ".join(
            f"{c} = {c} + 1"
            if self.rng.random() < 0.4 and c not in ('"s"', '"oid"')
            else f"{c} = {self.value(c)}"
            for c in chosen
        )

    def update(self, table: str, columns: list[str]) -> str:
        return (
            f"UPDATE {self.policy()}{table} SET {self.assignments(columns)} {self.where(columns)}"
        )

    def delete(self, table: str, columns: list[str]) -> str:
        return f"DELETE FROM {table} {self.where(columns)}"

    def where(self, columns: list[str]) -> str:
        column = self.rng.choice(columns)
        return self.rng.choice(
            ["", f"WHERE {column} = {self.value(column)}"] * 1
            + [f"WHERE {column} >= {self.value(column)}"]
        )

    def control(self, table: str, columns: list[str]) -> str:
        return self.rng.choice(
            ["BEGIN", "COMMIT", "COMMIT", "ROLLBACK", "SAVEPOINT s", "ROLLBACK TO s", "RELEASE s"]
        )


def rows_of(source: SqliteSource, table: str, columns: Sequence[str]) -> tuple[Counter[Row], int]:
    snapshot = opened(source)
    try:
        scan = snapshot.scan_relation(Relation(source.name, table), columns, 0)
        rows: Counter[Row] = Counter()
        for batch in scan.batches:
            rows.update(zip(*(column.to_pylist() for column in batch.columns), strict=True))
        return rows, scan.cut.position
    finally:
        snapshot.close()


def replay(
    source: SqliteSource, captured: Mapping[str, Sequence[str]], after: int, until: int
) -> dict[str, Counter[Row]]:
    sums: dict[str, Counter[Row]] = {table: Counter() for table in captured}
    for table, batch in source.read_changes(captured, after, until):
        names = captured[table]
        columns = [batch.column(name).to_pylist() for name in names]
        for *row, count in zip(*columns, batch.column("_count").to_pylist(), strict=True):
            sums[table][tuple(row)] += count
    return sums


def plus(left: Counter[Row], right: Counter[Row]) -> dict[Row, int]:
    total = {row: left[row] + right[row] for row in {*left, *right}}
    return {row: count for row, count in total.items() if count}


def run(writer: sqlite3.Connection, statements: Iterator[str]) -> list[str]:
    done = []
    for statement in statements:
        try:
            writer.execute(statement)
            done.append(statement)
        except (sqlite3.IntegrityError, sqlite3.OperationalError) as error:
            done.append(f"{statement}  -- {error}")
            if not any(word in str(error) for word in EXPECTED):
                raise
    if writer.in_transaction:
        writer.execute("COMMIT")
    return done


def attempt(path: Path, shape: Shape, seed: int, recursive: bool) -> None:
    rng = random.Random(seed)
    writer = sqlite3.connect(path, isolation_level=None)
    source = SqliteSource("shop", path, "test")
    try:
        for pragma in ("journal_mode = WAL", "synchronous = OFF", "foreign_keys = ON"):
            writer.execute(f"PRAGMA {pragma}")
        writer.execute(f"PRAGMA recursive_triggers = {'ON' if recursive else 'OFF'}")
        writer.execute(f"PRAGMA trusted_schema = {'ON' if recursive else 'OFF'}")
        writer.executescript(shape.ddl)
        random_writer = Writer(rng, shape)
        run(writer, (random_writer.statement() for _ in range(6)))
        position = source.follow_tables(shape.captured)
        writer.executescript(shape.younger)
        source.look_for_transactions(position)
        before = {t: rows_of(source, t, columns)[0] for t, columns in shape.captured.items()}
        done = run(writer, (random_writer.statement() for _ in range(STATEMENTS)))
        for table, columns in shape.captured.items():
            after, cut = rows_of(source, table, columns)
            change = replay(source, {table: columns}, position, cut)[table]
            assert plus(before[table], change) == dict(after), f"seed {seed}\n" + "\n".join(done)
    finally:
        source.close()
        writer.close()


TREE = "CREATE TABLE t(id INTEGER PRIMARY KEY, a INT UNIQUE, up INT DEFAULT 9 REFERENCES t {}, v)"


@pytest.mark.parametrize("recursive", [False, True])
@pytest.mark.parametrize("action", ["CASCADE", "SET NULL", "SET DEFAULT"])
@pytest.mark.parametrize("change", ["a = 20", "id = 2"])
def test_an_update_whose_row_is_changed_by_what_it_replaces(
    action: str, change: str, recursive: bool, tmp_path: Path
) -> None:
    """SQLite's own OLD is that of before in the outer triggers, or they are not run at all."""
    path = tmp_path / "shop.db"
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("PRAGMA foreign_keys = ON")
    writer.execute(f"PRAGMA recursive_triggers = {recursive}")
    writer.execute(TREE.format(f"ON DELETE {action}"))
    writer.execute("INSERT INTO t VALUES (9, 90, 9, 0), (2, 20, 9, 0), (1, 10, 2, 0)")
    source = SqliteSource("shop", path, "test")
    columns = ["id", "a", "up"]
    position = source.follow_tables({"t": columns})
    before, _ = rows_of(source, "t", columns)
    run(writer, iter([f"UPDATE OR REPLACE t SET {change}, v = 1 WHERE id = 1"]))
    after, cut = rows_of(source, "t", columns)
    logged = replay(source, {"t": columns}, position, cut)["t"]
    assert plus(before, logged) == dict(after)
    source.close()
    writer.close()


@pytest.mark.parametrize("recursive", [False, True], ids=["silent replace", "recursive triggers"])
@pytest.mark.parametrize("name", SHAPES)
def test_before_plus_log_is_after(name: str, recursive: bool, tmp_path: Path) -> None:
    for seed in SEEDS:
        attempt(tmp_path / f"{seed}.db", SHAPES[name], seed, recursive)
