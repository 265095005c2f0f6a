"""Schema changes under load: four writers, one who renames, adds and drops, and questions between.

Every change here keeps the values that are followed, so every answer is exact, or it is broken and
the next look reports why. The judge is the replay of the stream, which at the end must be what a
SELECT finds.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from tests.sources.mariadb_database import Database, Row, bag_of, changes, look, rows_of
from viewkeeper.errors import BrokenQueryError, SourceAwayError
from viewkeeper.sources.mariadb import MariadbSource
from viewkeeper.testing.private_servers import PrivateMariadb
from viewkeeper.updates.source_protocol import names_now_of
from viewkeeper.view.definition import Relation

COLUMNS = {"a": ["id", "v"], "b": ["id", "v"]}
_CHANGES = [
    "ALTER TABLE {table} RENAME COLUMN {column} TO {next}",
    "ALTER TABLE {table} ADD COLUMN {extra} INT",
    "ALTER TABLE {table} CHANGE {column} {next} BIGINT, ADD {extra} INT DEFAULT 3 FIRST",
    "RENAME TABLE {table} TO {away}",
    "ALTER TABLE {table} FORCE, ALGORITHM=COPY",
    "ALTER TABLE other ADD COLUMN {extra} INT, ADD INDEX (v)",
]


@pytest.fixture
def database(mariadb_server: PrivateMariadb, tmp_path: Path) -> Iterator[Database]:
    opened = Database(mariadb_server, "reshaping", tmp_path)
    tables = (*COLUMNS, "other")
    opened.run(*(f"CREATE TABLE {t} (id INT PRIMARY KEY, v INT, KEY (v))" for t in tables))
    yield opened
    opened.writer.close()


class Load:
    """Writers that know what the tables are called only by trying."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._stop = threading.Event()
        self.names = ("a", "v")
        self._threads = [threading.Thread(target=self._write, args=(n,)) for n in range(4)]
        self._threads.append(threading.Thread(target=self._reshape))
        self.reshaped = 0

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _write(self, seed: int) -> None:
        rng = random.Random(seed)
        connection = self._database.connect()
        with connection.cursor() as cursor:
            while not self._stop.is_set():
                table, column = rng.choice([self.names, ("b", "v")])
                key, value = rng.randrange(40), rng.randrange(1000)
                statement = rng.choice(
                    [
                        f"INSERT IGNORE INTO {table} (id, {column}) VALUES ({key}, {value})",
                        f"UPDATE {table} SET {column} = {value} WHERE id = {key}",
                        f"DELETE FROM {table} WHERE id = {key}",
                    ]
                )
                try:
                    cursor.execute(statement)
                except (pymysql.err.ProgrammingError, pymysql.err.OperationalError) as error:
                    # It is called otherwise by now, is being altered, or a deadlock was solved.
                    if error.args[0] not in (1054, 1146, 1205, 1213, 1412):
                        raise
        connection.close()

    def _reshape(self) -> None:
        rng = random.Random(7)
        connection = self._database.connect()
        with connection.cursor() as cursor:
            while not self._stop.wait(0.05):
                number = self.reshaped + 1
                table, column = self.names
                change = rng.choice(_CHANGES)
                names = {"next": f"v{number}", "extra": f"x{number}", "away": f"a{number}"}
                cursor.execute(change.format(table=table, column=column, **names))
                self.names = (
                    names["away"] if "{away}" in change else table,
                    names["next"] if "{next}" in change else column,
                )
                self.reshaped = number
        connection.close()


def as_of(source: MariadbSource, after: int) -> dict[str, Counter[Row]]:
    """Both tables as of a position, under one cut."""
    found = {}
    with source.prepare_snapshots(after, COLUMNS) as opener:
        snapshot = opener()
        try:
            for table, columns in COLUMNS.items():
                scan = snapshot.scan_relation(Relation("crm", table), columns, after)
                rows = Counter(row for batch in scan.batches for row in rows_of(batch, columns))
                signed = [*columns, "_count", "_position"]
                rows.subtract(bag_of([r for batch in scan.tail for r in rows_of(batch, signed)]))
                found[table] = Counter({row: count for row, count in rows.items() if count})
        finally:
            snapshot.close()
    return found


def test_every_answer_is_exact_or_broken_while_tables_are_reshaped(database: Database) -> None:
    source = database.source()
    start = source.follow_tables(COLUMNS)
    rng = random.Random(3)
    answers: dict[int, dict[str, Counter[Row]]] = {}
    broken = 0
    with Load(database) as load:
        while len(answers) < 12 or load.reshaped < 15:
            seen = source.look_for_transactions(start)
            if not seen:
                continue
            after = rng.choice(seen[-50:]).position
            try:
                answers[after] = as_of(source, after)
            except BrokenQueryError:
                broken += 1
                source.look_for_transactions(start)
            except SourceAwayError as error:
                # A table that is altered again and again is tried again.
                if "altered" not in str(error) and "locked" not in str(error):
                    raise
            assert broken < 500
    boundaries = look(source, start)
    last = boundaries[-1].position
    whole = {t: changes(source, t, columns, start, last) for t, columns in COLUMNS.items()}
    for after, found in answers.items():
        for table, rows in whole.items():
            until = [row for row in rows if int(str(row[-1])) <= after]
            assert found[table] == bag_of(until), (table, after)
    table, column = load.names
    final = Counter(database.run(f"SELECT id, {column} FROM {table}"))
    assert bag_of(whole["a"]) == final
    became = names_now_of(source, "a")
    assert became is not None
    assert (became.table, became.columns) == (table, {"id": "id", "v": column})
    again = database.source()
    assert bag_of(changes(again, "a", COLUMNS["a"], start, last)) == final
    again.close()
    source.close()
