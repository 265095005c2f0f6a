"""About how large tables are, by every kind of source that can say it without reading them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.sources.mariadb_database import Database
from tests.sources.postgres_shop import Shop
from viewkeeper.sources.kinds import open_source
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.sources.sqlite import SqliteSource
from viewkeeper.sources.sqlite.schema import read_table
from viewkeeper.sources.sqlite.table_size import estimate_table
from viewkeeper.testing.private_servers import PrivateMariadb, PrivatePostgres
from viewkeeper.updates.source_protocol import SizedSource, TableSize


def test_postgres_and_its_partitions(postgres_server: PrivatePostgres, tmp_path: Path) -> None:
    shop = Shop(postgres_server, tmp_path)
    try:
        shop.run(
            "CREATE TABLE plain (id integer PRIMARY KEY)",
            "CREATE TABLE fresh (id integer PRIMARY KEY)",
            "INSERT INTO plain SELECT generate_series(1, 1000)",
            "CREATE TABLE parted (id integer PRIMARY KEY) PARTITION BY RANGE (id)",
            "CREATE TABLE low PARTITION OF parted FOR VALUES FROM (0) TO (500)",
            "CREATE TABLE high PARTITION OF parted FOR VALUES FROM (500) TO (2000)",
            "INSERT INTO parted SELECT generate_series(1, 1000)",
            "ANALYZE plain",
            "ANALYZE parted",
        )
        source = shop.source()
        assert isinstance(source, SizedSource)
        for table in ("plain", "public.plain", "parted"):
            size = source.estimate_size(table)
            assert size.rows == 1000
            assert size.bytes is not None
            assert size.bytes >= 32768
        assert source.estimate_size("fresh") == TableSize(None, 0)
    finally:
        shop.close()


def test_mariadb(mariadb_server: PrivateMariadb, tmp_path: Path) -> None:
    database = Database(mariadb_server, "sizes", tmp_path)
    database.run(
        "CREATE TABLE item (id INT PRIMARY KEY)",
        "INSERT INTO item SELECT seq FROM seq_1_to_1000",
        "ANALYZE TABLE item",
    )
    source = database.source()
    size = source.estimate_size("item")
    source.close()
    # It is what the storage engine says, which samples.
    assert size.rows is not None
    assert 500 <= size.rows <= 2000
    assert size.bytes is not None
    assert size.bytes > 0


def test_sqlite_with_and_without_numbers(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database, database:
        database.execute("CREATE TABLE item (id INTEGER PRIMARY KEY)")
        database.execute("CREATE TABLE word (w TEXT PRIMARY KEY) WITHOUT ROWID")
        database.execute("CREATE TABLE none (id INTEGER PRIMARY KEY)")
        database.execute("CREATE TABLE taken (rowid TEXT, oid REAL)")
        database.executemany("INSERT INTO taken VALUES (?, 0.5)", [(f"{n:09}",) for n in range(9)])
        database.executemany("INSERT INTO item VALUES (?)", [(n,) for n in range(1, 51)])
    with closing(SqliteSource("shop", tmp_path / "shop.db", "me")) as source:
        size = source.estimate_size("item")
        assert size.rows == 50
        assert size.bytes is not None
        assert 100 < size.bytes <= 3 * 4096
        assert source.estimate_size("none") == TableSize(0, 0)
        assert source.estimate_size("word") == TableSize()
        assert source.estimate_size("taken").rows == 9


def test_a_large_table_of_sqlite_is_not_read(tmp_path: Path) -> None:
    """What is asked of SQLite takes as many steps for many rows as for a few."""
    steps = []
    for rows in (1_000, 100_000):
        with closing(sqlite3.connect(tmp_path / f"{rows}.db")) as database:
            database.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT)")
            numbers = ((n, "x") for n in range(rows))
            database.executemany("INSERT INTO item VALUES (?, ?)", numbers)
            table = read_table(database, "shop", "item")
            calls = list[None]()
            database.set_progress_handler(partial(calls.append, None), 10)
            assert estimate_table(database, table).rows == rows - 1
            steps.append(len(calls))
    assert steps[1] < 2 * steps[0]


@pytest.mark.parametrize("width", [0, 10, 300, 20_000])
def test_bytes_of_sqlite_are_near_what_its_pages_have(width: int, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database, database:
        database.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, data BLOB, n REAL)")
        rows = [(n * 3, "x" * (n % 20), b"y" * (n % 7 * width // 3), n / 7) for n in range(1, 1001)]
        database.executemany("INSERT INTO item VALUES (?, ?, ?, ?)", rows)
        database.execute("CREATE TABLE other (id INTEGER PRIMARY KEY, data BLOB)")
        database.execute("INSERT INTO other VALUES (1, zeroblob(100000000))")
        measured = "SELECT sum(payload) FROM dbstat WHERE name = 'item'"
        (payload,) = database.execute(measured).fetchone()
    with closing(SqliteSource("shop", tmp_path / "shop.db", "me")) as source:
        size = source.estimate_size("item")
    # Two of three numbers are of no row, and are taken for rows all the same.
    assert size.rows == 3000
    assert size.bytes is not None
    assert payload < size.bytes / 3 * 1.5
    assert size.bytes / 3 < payload * 1.5


def test_delta_lake_has_what_its_log_says(tmp_path: Path) -> None:
    for first in (0, 100):
        rows = pa.table({"id": [*range(first, first + 100)]})
        write_deltalake(tmp_path / "item", rows, mode="append")
    DeltaTable(tmp_path / "item").delete("id >= 150")
    settings = SourceSettings(
        "lake", "delta_lake", {"path": "item"}, str(tmp_path), str(tmp_path / "home")
    )
    with closing(open_source(settings, "me")) as source:
        assert isinstance(source, SizedSource)
        size = source.estimate_size("item")
    files = [*DeltaTable(tmp_path / "item").file_uris()]
    assert size == TableSize(150, sum(Path(file).stat().st_size for file in files))


def test_files_have_bytes(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "item.csv").write_text("id,name\n1,a\n2,b\n")
    options = {"path": "data", "format": "csv"}
    settings = SourceSettings("f", "files", options, str(tmp_path), str(tmp_path / "home"))
    with closing(open_source(settings, "me")) as source:
        assert isinstance(source, SizedSource)
        assert source.estimate_size("item") == TableSize(None, 16)
