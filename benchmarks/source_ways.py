"""The raw ways to ask a database for the rows with N keys, to compare lookups with.

Each takes an open connection, ships the keys and brings the rows back as an Arrow table, with no
cut, no tail and no exact types: what a program would do that knows its table. They are those that
SOURCES.md lists as fastest; one whose driver is not installed is left out. For folders, which have
no index, it is what pyarrow finds by filtering the same rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.dataset as ds

from benchmarks.source_folders import DeltaLakeWorld, FilesWorld
from benchmarks.source_worlds import (
    TABLE,
    MariadbWorld,
    PostgresWorld,
    SourceWorld,
    SqliteWorld,
)

ASKED = ("id", "quantity", "name", "city")
_SELECT = "r.id, r.quantity, r.name, r.city"
_TYPES = (pa.int64(), pa.int64(), pa.string(), pa.string())

Way: TypeAlias = Callable[[Any], pa.Table]
"""Finds the rows of an int64 Arrow array of keys."""


def as_arrow(rows: Sequence[Sequence[Any]]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else ((),) * len(ASKED)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, _TYPES, strict=True)]
    return pa.table(dict(zip(ASKED, arrays, strict=True)))


@contextmanager
def ways(world: SourceWorld) -> Iterator[Mapping[str, Way]]:
    """The raw ways for a world, their connections open."""
    with ExitStack() as stack:
        match world:
            case PostgresWorld():
                yield _postgres(world, stack)
            case MariadbWorld():
                yield _mariadb(world, stack)
            case SqliteWorld():
                yield _sqlite(world, stack)
            case FilesWorld() | DeltaLakeWorld():
                yield {"pyarrow filter": _filtered(world)}
            case _:
                raise AssertionError(f"no raw way for {world.label}")


def _postgres(world: PostgresWorld, stack: ExitStack) -> dict[str, Way]:
    arrow: Any = import_module("adbc_driver_postgresql.dbapi")
    text = stack.enter_context(world.connect())
    native = stack.enter_context(closing(arrow.connect(world.server.url_of(world.database))))
    text.execute("SET random_page_cost = 1.1")
    with native.cursor() as cursor:
        cursor.execute("SET random_page_cost = 1.1")
    by_any = f"SELECT {_SELECT} FROM {TABLE} r WHERE r.id = ANY(%s)".encode()
    joined = f"SELECT {_SELECT} FROM unnest({{}}::bigint[]) k(id) JOIN {TABLE} r USING (id)"

    def psycopg_any(keys: Any) -> pa.Table:
        return as_arrow(text.execute(by_any, (keys.to_pylist(),)).fetchall())

    def adbc_list(keys: Any) -> pa.Table:
        column = pa.array([keys], pa.list_(pa.int64()))
        return _adbc(native, joined.format("$1"), pa.record_batch([column], ["keys"]))

    def adbc_literal(keys: Any) -> pa.Table:
        listed = ",".join(map(str, keys.to_pylist()))
        return _adbc(native, joined.format(f"'{{{listed}}}'"), None)

    return {
        "psycopg = ANY": psycopg_any,
        "ADBC unnest, list": adbc_list,
        "ADBC unnest, literal": adbc_literal,
    }


def _adbc(connection: Any, query: str, parameters: Any) -> pa.Table:
    with connection.cursor() as cursor:
        cursor.execute(query, parameters)
        found: pa.Table = cursor.fetch_arrow_table()
        return found


def _mariadb(world: MariadbWorld, stack: ExitStack) -> dict[str, Way]:
    found = _mariadb_ways("PyMySQL", stack.enter_context(closing(world.connect())))
    if find_spec("MySQLdb"):
        driver: Any = import_module("MySQLdb")
        address = {"host": "127.0.0.1", "port": world.server.port, "user": "root"}
        connection = driver.connect(**address, password="secret", database="shop")
        found |= _mariadb_ways("mysqlclient", stack.enter_context(closing(connection)))
    return found


def _mariadb_ways(driver: str, connection: Any) -> dict[str, Way]:
    def in_list(keys: Any) -> pa.Table:
        listed = ",".join(map(str, keys.to_pylist()))
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {_SELECT} FROM {TABLE} r WHERE r.id IN ({listed})")
            return as_arrow(cursor.fetchall())

    def json_table(keys: Any) -> pa.Table:
        query = (
            f"SELECT {_SELECT} FROM JSON_TABLE(%s, '$[*]' COLUMNS(id BIGINT PATH '$')) k"
            f" STRAIGHT_JOIN {TABLE} r USING (id)"
        )
        with connection.cursor() as cursor:
            cursor.execute(query, (json.dumps(keys.to_pylist()),))
            return as_arrow(cursor.fetchall())

    return {f"{driver} IN list": in_list, f"{driver} JSON_TABLE": json_table}


def _sqlite(world: SqliteWorld, stack: ExitStack) -> dict[str, Way]:
    connection = stack.enter_context(closing(world.connect()))
    query = f"SELECT {_SELECT} FROM json_each(?) k CROSS JOIN {TABLE} r WHERE r.id = k.value"

    def json_each(keys: Any) -> pa.Table:
        return as_arrow(connection.execute(query, (json.dumps(keys.to_pylist()),)).fetchall())

    def temporary(keys: Any) -> pa.Table:
        connection.execute("CREATE TEMP TABLE k (id INTEGER PRIMARY KEY)")
        connection.executemany("INSERT INTO k VALUES (?)", ((key,) for key in keys.to_pylist()))
        joined = f"SELECT {_SELECT} FROM k CROSS JOIN {TABLE} r USING (id)"
        rows = connection.execute(joined).fetchall()
        connection.execute("DROP TABLE k")
        return as_arrow(rows)

    found: dict[str, Way] = {"sqlite3 json_each": json_each, "sqlite3 temp table": temporary}
    if find_spec("apsw"):
        apsw: Any = import_module("apsw")
        other = stack.enter_context(closing(apsw.Connection(str(world.folder / "shop.db"))))

        def by_apsw(keys: Any) -> pa.Table:
            return as_arrow(other.execute(query, (json.dumps(keys.to_pylist()),)).fetchall())

        found["apsw json_each"] = by_apsw
    if find_spec("adbc_driver_sqlite"):
        adbc: Any = import_module("adbc_driver_sqlite.dbapi")
        native = stack.enter_context(closing(adbc.connect(str(world.folder / "shop.db"))))
        found["ADBC json_each"] = lambda keys: _adbc(native, query, (json.dumps(keys.to_pylist()),))
    return found


def _filtered(world: FilesWorld | DeltaLakeWorld) -> Way:
    where = world.path if isinstance(world, DeltaLakeWorld) else world.folder / "exports" / TABLE
    files = [str(file) for file in sorted(where.glob(f"*.{world.format}"))]
    data = ds.dataset(files, format="csv" if world.format == "csv" else "parquet")

    def filtered(keys: Any) -> pa.Table:
        return data.to_table(columns=list(ASKED), filter=ds.field("id").isin(keys))

    return filtered
