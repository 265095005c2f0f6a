"""A scan in ranges of a key: together they are the relation as of the asked position.

Every range is read in a snapshot of its own, under its own cut, while a writer goes on between them
and moves rows from one range to another. Kinds that find no key to divide by read everything at
once.
"""

from __future__ import annotations

from collections import Counter

import pyarrow as pa

from tests.sources.conformance.changes import Bag, Delete, Insert, Update, Word, inserts
from tests.sources.conformance.database import NAME, Database
from tests.sources.conformance.reading import Follower, snapshot_at
from viewkeeper.engine.load.view_recomputation import divide_scan, read_signed_batches
from viewkeeper.updates.source_protocol import COUNT, KeyRange
from viewkeeper.view.definition import Field, Relation

DIVIDING = {"sqlite", "postgres", "mariadb"}
ORDERS: dict[str, Word] = {"id": "int", "name": "text"}
PLACE = Relation(NAME, "orders")
FIELDS = (Field("id", pa.int64()), Field("name", pa.string()))


def bag_of_batches(batches: list[pa.RecordBatch]) -> Bag:
    found: Counter[tuple[object, ...]] = Counter()
    for batch in batches:
        for row in batch.to_pylist():
            found[row["id"], row["name"]] += row[COUNT]
    return Counter({row: count for row, count in found.items() if count})


def make_orders(database: Database) -> Follower:
    database.table("orders", ORDERS, key=["id"])
    database.commit(*inserts("orders", [(n, f"name {n}") for n in range(1, 21)]))
    return Follower(database)


def test_ranges_under_different_cuts_are_the_relation_together(
    database: Database,
) -> None:
    follower = make_orders(database)
    after, state = follower.newest, follower.state()["orders"]
    with snapshot_at(follower.source, after, follower.tables) as snapshot:
        found = snapshot.find_key_range(PLACE, ["id", "name"])
    if database.kind not in DIVIDING:
        assert found is None
        return
    assert found == KeyRange("id", 1, 21)
    read: list[pa.RecordBatch] = []
    for number, part in enumerate(found.split_range(4)):
        with follower.source.prepare_snapshots(after, follower.tables) as opener:
            read += read_signed_batches(PLACE, FIELDS, opener, after, part)
        # The next range is read under another cut: rows have left it, come into it, and moved.
        moved = (number + 1, f"name {number + 1}")
        database.commit(
            Update("orders", moved, (100 + number, "moved")),
            Delete("orders", (20 - number, f"name {20 - number}")),
            Insert("orders", (-number, "new")),
        )
        follower.look()
    assert bag_of_batches(read) == state


def test_a_scan_is_divided_only_where_that_saves_something(database: Database) -> None:
    follower = make_orders(database)
    with follower.source.prepare_snapshots(follower.newest, follower.tables) as opener:
        undivided = KeyRange("id") if database.kind in DIVIDING else None
        assert divide_scan(PLACE, FIELDS, opener, 4) == (undivided,), "too few rows"
        assert divide_scan(PLACE, FIELDS[1:], opener, 4) == (None,), "no key among the columns"
        assert divide_scan(PLACE, FIELDS, opener, 1) == (undivided,), "nobody to share it with"


def test_an_empty_table_has_no_range(database: Database) -> None:
    database.table("orders", ORDERS, key=["id"])
    follower = Follower(database)
    with snapshot_at(follower.source, follower.newest, follower.tables) as snapshot:
        assert snapshot.find_key_range(PLACE, ["id"]) is None
