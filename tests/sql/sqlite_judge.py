"""A judge without Spark: what a text means over the relations as of every ts, by SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing

import pyarrow as pa

from tests.sql.random_history import RANDOM_TABLES
from tests.sql.relation_history import SOURCES, Lifetime, Row

KEPT = (pa.int64(), pa.string())
"""The types of columns that queries for this judge read; of others it knows nothing."""


def states_at(
    texts: Mapping[str, str],
    lifetimes: Sequence[Lifetime],
    stamps: Sequence[int],
    moments: Iterable[int],
) -> dict[int, dict[str, list[Row]]]:
    """The rows of every text as of each of these ts; later texts may read earlier ones.

    `stamps` are the ts of the transactions, by their numbers.
    """
    found: dict[int, dict[str, list[Row]]] = {}
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        for source in SOURCES:
            database.execute(f"ATTACH ':memory:' AS {source}")
        for shape in RANDOM_TABLES:
            database.execute(f"CREATE TABLE {shape.relation} ({', '.join(shape.columns)})")
        for name, text in texts.items():
            database.execute(f"CREATE TEMP VIEW {name} AS {text}")
        for ts in moments:
            _show_rows(database, lifetimes, stamps, ts)
            found[ts] = {
                name: database.execute(f"SELECT * FROM {name}").fetchall() for name in texts
            }
    return found


def _show_rows(
    database: sqlite3.Connection, lifetimes: Sequence[Lifetime], stamps: Sequence[int], ts: int
) -> None:
    """Let the tables hold what was there as of a ts."""
    for shape in RANDOM_TABLES:
        kinds = [kind for _, kind in shape.columns.values()]
        rows = [
            [v if kind in KEPT else None for v, kind in zip(each.values, kinds, strict=True)]
            for each in lifetimes
            if each.relation == shape.relation
            and stamps[each.born] <= ts
            and (each.died is None or ts < stamps[each.died])
        ]
        database.execute(f"DELETE FROM {shape.relation}")
        marks = ", ".join("?" * len(kinds))
        database.executemany(f"INSERT INTO {shape.relation} VALUES ({marks})", rows)
