"""A database of its own for a test of the MariaDB source, and ways to look at what was captured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pymysql
import pymysql.connections

from viewkeeper.sources.mariadb import MariadbSource, open_source
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.testing.private_servers import PrivateMariadb
from viewkeeper.updates.schema_change import SchemaChange
from viewkeeper.updates.source_protocol import Boundary

Row = tuple[object, ...]


class Database:
    """One database, a writer in it, and a source that follows it."""

    def __init__(self, server: PrivateMariadb, name: str, folder: Path) -> None:
        self.server = server
        self.name = name
        self.folder = folder
        self.writer = self.connect("")
        self.run(f"DROP DATABASE IF EXISTS {name}", f"CREATE DATABASE {name}", f"USE {name}")

    def connect(self, database: str | None = None) -> pymysql.connections.Connection[Any]:
        return pymysql.connections.Connection(
            host="127.0.0.1",
            port=self.server.port,
            user="root",
            password=b"secret",
            database=(self.name if database is None else database) or None,
            charset="utf8mb4",
            autocommit=True,
            ssl_disabled=True,
        )

    def settings(self, **options: object) -> SourceSettings:
        url = options.pop("url", self.server.url_of(self.name))
        home = str(self.folder / "home")
        return SourceSettings("crm", "mariadb", {"url": url, **options}, str(self.folder), home)

    def source(self, **options: object) -> MariadbSource:
        return open_source(self.settings(**options), "test")

    def run(self, *statements: str) -> list[Row]:
        """Run statements, one transaction each unless they say otherwise; the last one's rows."""
        rows: Sequence[Row] = ()
        with self.writer.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
                rows = cursor.fetchall()
        return list(rows)


def look(source: MariadbSource, after: int) -> tuple[Boundary, ...]:
    """Everything that was committed after a position, without the empty reports."""
    found: list[Boundary] = []
    while boundaries := source.look_for_transactions(found[-1].position if found else after):
        found += boundaries
        last = boundaries[-1]
        if not last.changes and not last.emptied and not last.reshaped:
            break
    return tuple(one for one in found if one.changes or one.emptied)


def reshaped(source: MariadbSource, after: int) -> list[SchemaChange]:
    """The schema changes that were committed after a position, in their order."""
    found: list[SchemaChange] = []
    while boundaries := source.look_for_transactions(after):
        found += [change for one in boundaries for change in one.reshaped]
        if boundaries[-1].position == after:
            break
        after = boundaries[-1].position
    return found


def changes(
    source: MariadbSource, table: str, columns: Sequence[str], after: int, until: int
) -> list[Row]:
    """The changes as rows, with their counts and positions."""
    found: list[Row] = []
    for _, batch in source.read_changes({table: columns}, after, until):
        found += rows_of(batch, [*columns, "_count", "_position"])
    return found


def rows_of(table: pa.Table | pa.RecordBatch, columns: Sequence[str]) -> list[Row]:
    return list(zip(*(table[name].to_pylist() for name in columns), strict=True))


def bag_of(changed: Sequence[Row]) -> Counter[Row]:
    """Changes summed up: rows and how often they are there."""
    bag: Counter[Row] = Counter()
    for *row, count, _ in changed:
        assert isinstance(count, int)
        bag[tuple(row)] += count
    return Counter({row: count for row, count in bag.items() if count})
