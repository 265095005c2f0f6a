"""Snapshots under load: rows minus tail is the relation as of the position that was asked for.

Four writers change two tables while snapshots are taken. The judge is another reader of the binlog,
with the decoding of the library `mysql-replication`: it replays every transaction and knows the
rows at every position. What the source streams is compared with it too.
"""

from __future__ import annotations

import pickle
import random
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pymysql
import pytest
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import XidEvent
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from tests.sources.mariadb_database import Database, Row, bag_of, changes, look, rows_of
from viewkeeper.errors import BarrierError, BrokenQueryError, SourceAwayError
from viewkeeper.sources.mariadb import MariadbSource
from viewkeeper.sources.mariadb.binlog.log import read_newest_position
from viewkeeper.sources.mariadb.position import file_name_of, file_of, offset_of, position_of
from viewkeeper.testing.private_servers import PrivateMariadb
from viewkeeper.updates.source_protocol import Lookup
from viewkeeper.view.definition import Relation

COLUMNS = {"a": ["id", "v"], "b": ["id", "v"]}


@pytest.fixture
def database(mariadb_server: PrivateMariadb, tmp_path: Path) -> Iterator[Database]:
    opened = Database(mariadb_server, "snapshots", tmp_path)
    opened.run(*(f"CREATE TABLE {t} (id INT PRIMARY KEY, v INT, KEY (v))" for t in COLUMNS))
    yield opened
    opened.writer.close()


@pytest.fixture
def source(database: Database) -> Iterator[MariadbSource]:
    opened = database.source()
    yield opened
    opened.close()


class Judge:
    """What the tables held at every position, from a reader of the binlog of its own."""

    def __init__(self, database: Database, start: int) -> None:
        self.states: dict[int, dict[str, Counter[Row]]] = {}
        settings = {"host": "127.0.0.1", "port": database.server.port, "user": "root"}
        reader: Any = BinLogStreamReader(
            connection_settings={**settings, "password": "secret"},
            server_id=77,
            log_file=file_name_of("binlog", file_of(start)),
            log_pos=offset_of(start),
            resume_stream=True,
            only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent, XidEvent],
            only_schemas=[database.name],
            pymysql_wrapper=_connect,
        )
        now: dict[str, Counter[Row]] = {name: Counter() for name in COLUMNS}
        self.states[start] = {name: Counter() for name in COLUMNS}
        for event in reader:
            if isinstance(event, XidEvent):
                place = position_of(int(reader.log_file.split(".")[1]), reader.log_pos)
                self.states[place] = {name: Counter(bag) for name, bag in now.items()}
            else:
                for row in event.rows:
                    for key, sign in (("before_values", -1), ("after_values", 1)):
                        if key in row:
                            _add(now[event.table], row[key], sign)
                    if "values" in row:
                        _add(now[event.table], row["values"], _sign(event))
        reader.close()

    def at(self, position: int) -> dict[str, Counter[Row]]:
        return self.states[max(known for known in self.states if known <= position)]


def _connect(**settings: Any) -> Any:
    """The library says `db`, which the driver warns about."""
    settings["database"] = settings.pop("db", None)
    return pymysql.connect(ssl_disabled=True, **settings)


def _sign(event: object) -> int:
    return 1 if isinstance(event, WriteRowsEvent) else -1


def _add(bag: Counter[Row], values: dict[str, object], sign: int) -> None:
    row = (values["id"], values["v"])
    bag[row] += sign
    if not bag[row]:
        del bag[row]


def write(database: Database, seed: int, transactions: int) -> None:
    rng = random.Random(seed)
    connection = database.connect()
    with connection.cursor() as cursor:
        for number in range(transactions):
            cursor.execute("BEGIN")
            try:
                for _ in range(rng.randint(1, 4)):
                    table, key = rng.choice(["a", "b"]), rng.randrange(40)
                    cursor.execute(
                        rng.choice(
                            [
                                f"INSERT IGNORE INTO {table} VALUES ({key}, {number})",
                                f"UPDATE {table} SET v = {number % 7} WHERE id = {key}",
                                f"DELETE FROM {table} WHERE id = {key}",
                                f"SAVEPOINT s{number}",
                            ]
                        )
                    )
            except pymysql.err.OperationalError:
                # A deadlock has rolled everything back.
                continue
            cursor.execute(rng.choice(["COMMIT", "COMMIT", "COMMIT", "ROLLBACK"]))
    connection.close()


def test_every_answer_is_exact_under_four_writers(
    database: Database, source: MariadbSource
) -> None:
    start = after = source.follow_tables(COLUMNS)
    writers = [threading.Thread(target=write, args=(database, n, 250)) for n in range(4)]
    for writer in writers:
        writer.start()
    rng = random.Random(1)
    seen: list[tuple[int, str, Counter[Row], list[int] | None]] = []
    while any(writer.is_alive() for writer in writers) or len(seen) < 40:
        boundaries = look(source, after)
        after = rng.choice(boundaries).position if boundaries else after
        with source.prepare_snapshots(after, COLUMNS) as opener:
            snapshot = pickle.loads(pickle.dumps(opener))()
            for table in COLUMNS:
                place, columns = Relation("crm", table), COLUMNS[table]
                scan = snapshot.scan_relation(place, columns, after)
                rows = Counter(row for batch in scan.batches for row in rows_of(batch, columns))
                tail = [r for b in scan.tail for r in rows_of(b, [*columns, "_count", "_position"])]
                assert all(after < int(str(row[-1])) <= scan.cut.position for row in tail)
                seen.append((after, table, _minus(rows, tail), None))
                keys = rng.sample(range(7), 2)
                asked = Lookup(0, place, tuple(columns), ("v",), (False,), pa.table({"v": keys}))
                answer = snapshot.answer_lookup(asked, after)
                rows = Counter(rows_of(answer.rows, columns))
                tail = rows_of(answer.tail, [*columns, "_count", "_position"])
                seen.append((after, table, _minus(rows, tail), keys))
            snapshot.close()
    for writer in writers:
        writer.join()
    judge = Judge(database, start)
    for position, table, rows, asked_for in seen:
        expected = judge.at(position)[table]
        if asked_for is None:
            assert rows == expected, position
        else:
            matching = {row: n for row, n in expected.items() if row[1] in asked_for}
            assert {row: n for row, n in rows.items() if row[1] in asked_for} == matching, position
    last = look(source, start)
    for table, columns in COLUMNS.items():
        whole = changes(source, table, columns, start, last[-1].position)
        assert bag_of(whole) == judge.at(last[-1].position)[table]
        for boundary in rng.sample(last, 25):
            until = [row for row in whole if int(str(row[-1])) <= boundary.position]
            assert bag_of(until) == judge.at(boundary.position)[table]


def _minus(rows: Counter[Row], tail: list[Row]) -> Counter[Row]:
    found = Counter(rows)
    found.subtract(bag_of(tail))
    return Counter({row: count for row, count in found.items() if count})


def test_a_table_that_was_emptied_cannot_be_brought_back(
    database: Database, source: MariadbSource
) -> None:
    database.run("INSERT INTO a VALUES (1, 1)", "INSERT INTO b VALUES (1, 1)")
    after = source.follow_tables(COLUMNS)
    database.run("TRUNCATE a", "INSERT INTO a VALUES (2, 2)")
    boundaries = look(source, after)
    with source.prepare_snapshots(after, COLUMNS) as opener:
        snapshot = opener()
        with pytest.raises(BarrierError) as caught:
            snapshot.scan_relation(Relation("crm", "a"), ["id"], after)
        assert (caught.value.table, caught.value.position) == ("a", boundaries[0].position)
        other = snapshot.scan_relation(Relation("crm", "b"), ["id"], after)
        assert [batch.to_pylist() for batch in other.batches] == [[{"id": 1}]]
        later = snapshot.scan_relation(Relation("crm", "a"), ["id"], boundaries[0].position)
        assert [batch.to_pylist() for batch in later.batches] == [[{"id": 2}]]
        assert sum(batch.num_rows for batch in later.tail) == 1
        snapshot.close()


def altering(database: Database, monkeypatch: pytest.MonkeyPatch, statement: str) -> None:
    """Have a statement run once, between a snapshot and the first touch of its tables."""
    left = [statement]

    def altered(connection: Any) -> int:
        cut = read_newest_position(connection)
        while left:
            database.run(left.pop())
        return cut

    monkeypatch.setattr("viewkeeper.sources.mariadb.answers.snapshot.read_newest_position", altered)


def test_a_column_that_was_renamed_meanwhile_is_the_same_in_an_old_snapshot(
    database: Database, source: MariadbSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changes of a table that take no copy show in snapshots that are older than they are."""
    database.run("ALTER TABLE a ADD COLUMN x INT", "INSERT INTO a VALUES (1, 1, 2)")
    after = source.follow_tables(COLUMNS)
    altering(database, monkeypatch, "ALTER TABLE a RENAME COLUMN v TO w, RENAME COLUMN x TO v")
    with source.prepare_snapshots(after, COLUMNS) as opener:
        snapshot = opener()
        try:
            scan = snapshot.scan_relation(Relation("crm", "a"), ["id", "v"], after)
            assert [batch.to_pylist() for batch in scan.batches] == [[{"id": 1, "v": 1}]]
        finally:
            snapshot.close()


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("ALTER TABLE a DROP COLUMN v, ADD COLUMN v INT DEFAULT 5", "column v is gone"),
        ("ALTER TABLE a MODIFY v VARCHAR(20)", r"column v got the type varchar\(20\)"),
        ("CREATE OR REPLACE TABLE a (id INT PRIMARY KEY, v INT)", "another table"),
        ("RENAME TABLE a TO z", "gone"),
        ("DROP TABLE a", "gone"),
    ],
)
def test_values_that_went_meanwhile_are_no_answer(
    database: Database,
    source: MariadbSource,
    monkeypatch: pytest.MonkeyPatch,
    statement: str,
    what: str,
) -> None:
    database.run("INSERT INTO a VALUES (1, 1)", "INSERT INTO b VALUES (2, 2)")
    after = source.follow_tables(COLUMNS)
    altering(database, monkeypatch, statement)
    with source.prepare_snapshots(after, COLUMNS) as opener:
        snapshot = opener()
        try:
            with pytest.raises(BrokenQueryError, match=what):
                snapshot.scan_relation(Relation("crm", "a"), ["id", "v"], after)
            scan = snapshot.scan_relation(Relation("crm", "b"), ["id", "v"], after)
            assert [batch.to_pylist() for batch in scan.batches] == [[{"id": 2, "v": 2}]]
        finally:
            snapshot.close()
    assert next(one.table for b in source.look_for_transactions(after) for one in b.reshaped) == "a"


def test_a_table_that_was_copied_meanwhile_is_read_in_a_new_snapshot(
    database: Database, source: MariadbSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.run("INSERT INTO a VALUES (1, 1)")
    after = source.follow_tables(COLUMNS)
    altering(database, monkeypatch, "ALTER TABLE a FORCE, ALGORITHM=COPY")
    with source.prepare_snapshots(after, COLUMNS) as opener:
        snapshot = opener()
        assert snapshot.cut > after
        scan = snapshot.scan_relation(Relation("crm", "a"), ["id", "v"], after)
        assert [batch.to_pylist() for batch in scan.batches] == [[{"id": 1, "v": 1}]]
        snapshot.close()


def test_nobody_alters_a_table_while_it_is_read(database: Database, source: MariadbSource) -> None:
    after = source.follow_tables(COLUMNS)
    with source.prepare_snapshots(after, COLUMNS) as opener:
        snapshot = opener()
        with pytest.raises(pymysql.err.OperationalError, match="Lock wait"):
            database.run("SET SESSION lock_wait_timeout = 1", "ALTER TABLE a ADD COLUMN z INT")
        database.run("INSERT INTO a VALUES (1, 1)")
        snapshot.close()
    database.run("ALTER TABLE a ADD COLUMN z INT")


def test_a_lookup_during_a_scan_takes_nothing_from_it(
    database: Database, source: MariadbSource
) -> None:
    database.run("INSERT INTO a SELECT seq, seq FROM seq_1_to_120000")
    after = source.follow_tables(COLUMNS)
    with source.prepare_snapshots(after, COLUMNS) as opener:
        snapshot = opener()
        scan = snapshot.scan_relation(Relation("crm", "a"), ["id"], after)
        first = next(scan.batches).num_rows
        keys = pa.table({"id": [5, 119_999]})
        asked = Lookup(0, Relation("crm", "a"), ("id",), ("id",), (False,), keys)
        assert snapshot.answer_lookup(asked, after).rows.num_rows == 2
        assert first + sum(batch.num_rows for batch in scan.batches) == 120_000
        snapshot.close()


def test_a_position_that_the_server_has_not_reached_is_no_answer(
    database: Database, source: MariadbSource
) -> None:
    after = source.follow_tables(COLUMNS)
    with source.prepare_snapshots(after, COLUMNS) as opener:
        snapshot = opener()
        with pytest.raises(SourceAwayError, match="before"):
            snapshot.scan_relation(Relation("crm", "a"), ["id"], after + 1)
        snapshot.close()
