"""The writer of the demo's Delta Lake table; `paced_writer` says what a writer is.

A transaction of Delta Lake is one version of one table, so the ledger is in the table too: a row
without an id, with nothing but its number. New ratings are appended together with it; changes and
removals are one MERGE, into which it goes as a row that matches nothing. Now and then small files
are compacted, which is a version that changes no row. A transaction that is given up leaves a file
that no version names, as a writer that died does.
"""

from __future__ import annotations

import decimal
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from viewkeeper.demo.writers import paced_writer
from viewkeeper.demo.writers.paced_writer import (
    Change,
    ForeignNumbers,
    WriterRole,
    WriterStart,
    run_writer,
)
from viewkeeper.demo.writers.server_writer import random_moment
from viewkeeper.demo.writers.sql_writer import plain_value

TABLE = "rating"
_TYPES: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "product_id": pa.int64(),
    "stars": pa.decimal128(2, 1),
    "review": pa.string(),
    "rated_at": pa.timestamp("us", "UTC"),
    "n": pa.int64(),
}
SCHEMA = pa.schema(_TYPES)
COLUMNS = SCHEMA.names[:-1]
COMPACT_VERSIONS = 15

REVIEWS = [
    "très bien",
    "schön",
    "плохо",
    "まあまあ",
    "👍🏽",
    "no, thanks",
    "  two blanks before",
    None,
]

Rating: TypeAlias = dict[str, Any]


def random_rating(number: int, product: int, random: Random) -> Rating:
    stars = decimal.Decimal(random.randrange(2, 11)) / 2
    review = random.choice(REVIEWS)
    return {
        "id": number,
        "product_id": product,
        "stars": stars.quantize(decimal.Decimal("0.1")),
        "review": review,
        "rated_at": random_moment(random),
    }


def ledger_row(number: int) -> Rating:
    return {"n": number}


def read_ratings(folder: Path) -> tuple[dict[int, Rating], int]:
    """The ratings by id, and the last number of the ledger."""
    files = DeltaTable(str(folder)).file_uris()
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    ratings = {row["id"]: {n: row[n] for n in COLUMNS} for row in rows if row["id"] is not None}
    return ratings, max((row["n"] for row in rows if row["id"] is None), default=0)


class LakeTransaction:
    """What becomes of the ratings."""

    def __init__(self, ratings: Mapping[int, Rating], numbers: ForeignNumbers) -> None:
        self.numbers = numbers
        self.random = numbers.random
        self.ratings = dict(ratings)
        self.touched: dict[int, None] = {}

    def some_rating(self) -> int | None:
        return self.random.choice(sorted(self.ratings)) if self.ratings else None

    def put_rating(self, row: Rating) -> None:
        self.ratings[row["id"]] = row
        self.touched[row["id"]] = None

    def remove_rating(self, number: int) -> None:
        del self.ratings[number]
        self.touched[number] = None


Activity: TypeAlias = paced_writer.Activity[LakeTransaction]


def add_ratings(tx: LakeTransaction) -> None:
    """New ratings, one of a product that may have some already."""
    first = max(tx.ratings, default=0) + 1
    for number in range(first, first + tx.random.randint(1, 2)):
        tx.put_rating(random_rating(number, tx.numbers.some_product(), tx.random))


def change_rating(tx: LakeTransaction) -> None:
    if (number := tx.some_rating()) is not None:
        tx.put_rating(random_rating(number, tx.ratings[number]["product_id"], tx.random))


def take_back(tx: LakeTransaction) -> None:
    if (number := tx.some_rating()) is not None:
        tx.remove_rating(number)


def review_ratings(tx: LakeTransaction) -> None:
    """Many at once: changed, given to another product, removed, and some new."""
    for number in sorted(tx.random.sample(sorted(tx.ratings), min(20, len(tx.ratings)))):
        if tx.random.random() < 0.3:
            tx.remove_rating(number)
        else:
            tx.put_rating(random_rating(number, tx.numbers.some_product(), tx.random))
    add_ratings(tx)


RATINGS: dict[Activity, int] = {change_rating: 4, add_ratings: 3, take_back: 2}

ROLES: dict[str, WriterRole[LakeTransaction]] = {
    "ratings": WriterRole("ratings", 3, RATINGS, review_ratings, 5.0)
}


class LakeSession:
    """The table, and what is in it."""

    def __init__(self, start: WriterStart) -> None:
        self._numbers = ForeignNumbers(start.random, start.sizes)
        self._folder = Path(start.target)
        self._ratings, self._number = read_ratings(self._folder)
        self._since_compaction = 0

    def run_transaction(self, activity: Activity, keep: bool) -> tuple[int, list[Change]] | None:
        tx = LakeTransaction(self._ratings, self._numbers)
        activity(tx)
        number = self._number + 1
        if not keep:
            self._give_up(tx, number)
            return None
        if all(each not in self._ratings for each in tx.touched):
            self._append_rows(tx, number)
        else:
            self._merge_rows(tx, number)
        changes = _changes_since(self._ratings, tx)
        self._ratings, self._number = tx.ratings, number
        self._compact_files()
        return number, changes

    def _append_rows(self, tx: LakeTransaction, number: int) -> None:
        rows = [*(tx.ratings[each] for each in tx.touched), ledger_row(number)]
        write_deltalake(str(self._folder), table_of(rows), mode="append")

    def _merge_rows(self, tx: LakeTransaction, number: int) -> None:
        ids = [each for each in tx.touched if each in tx.ratings or each in self._ratings]
        rows = [tx.ratings.get(each) or self._ratings[each] for each in ids]
        gone = pa.array([*(each not in tx.ratings for each in ids), False])
        given = table_of([*rows, ledger_row(number)]).append_column("gone", gone)
        columns = {name: f"s.{name}" for name in SCHEMA.names}
        merger = DeltaTable(str(self._folder)).merge(
            given, predicate="t.id = s.id", source_alias="s", target_alias="t"
        )
        merger = merger.when_matched_delete(predicate="s.gone").when_matched_update(columns)
        merger.when_not_matched_insert(columns).execute()

    def _give_up(self, tx: LakeTransaction, number: int) -> None:
        rows = table_of([tx.ratings[each] for each in tx.touched if each in tx.ratings])
        pq.write_table(rows, self._folder / f"part-given-up-{number}.parquet")

    def _compact_files(self) -> None:
        self._since_compaction += 1
        if self._since_compaction >= COMPACT_VERSIONS:
            self._since_compaction = 0
            DeltaTable(str(self._folder)).optimize.compact()

    def close(self) -> None:
        """Nothing is open between two transactions."""


def create_table(folder: Path, rows: list[Rating]) -> None:
    """A new table with these ratings."""
    feed = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(str(folder), table_of(rows), configuration=feed)


def table_of(rows: list[Rating]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def plain_row(row: Rating) -> list[Any]:
    """A rating as numbers and text."""
    return [plain_value(row[name]) for name in COLUMNS]


def _changes_since(before: Mapping[int, Rating], tx: LakeTransaction) -> list[Change]:
    found: list[Change] = []
    for number in tx.touched:
        for sign, ratings in ((-1, before), (1, tx.ratings)):
            if number in ratings:
                found.append((TABLE, sign, plain_row(ratings[number])))
    return found


if __name__ == "__main__":
    run_writer(ROLES, LakeSession)
