"""The difference of two bags is the same however it is taken, and takes bounded memory.

In memory, in parts on disk, and on Spark: random bags with NULL, NaN, zeros of both signs, empty
text, text beyond the basic plane, and every type that a copy can have.
"""

from __future__ import annotations

import datetime
import decimal
import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from viewkeeper.engine.load.folder_difference import differ_on
from viewkeeper.sources.files import FilesSource, open_source
from viewkeeper.sources.files.bag_difference import (
    PARTS,
    add_count,
    hash_rows,
    repeat_by_count,
    sum_signed_rows,
)
from viewkeeper.sources.files.parquet import ParquetInput, cast_exactly, read_rows
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.updates.source_protocol import COUNT

ZONED = datetime.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=datetime.UTC)
VALUES: dict[str, tuple[Any, list[Any]]] = {
    "i": (pa.int64(), [None, 0, -1, 2**63 - 1, -(2**63)]),
    "f": (pa.float64(), [None, 0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324]),
    "g": (pa.float32(), [None, 0.5, math.nan, -0.0]),
    "s": (pa.string(), [None, "", " ", "a", "A", "é", "é", "𝄞", "a\0b"]),
    "y": (pa.binary(), [None, b"", b"\0", b"\xff"]),
    "b": (pa.bool_(), [None, True, False]),
    "d": (pa.date32(), [None, datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]),
    "t": (pa.timestamp("us", "UTC"), [None, ZONED, ZONED.replace(year=1, microsecond=1)]),
    "n": (pa.timestamp("us"), [None, datetime.datetime(1, 1, 1), datetime.datetime(1582, 10, 10)]),
    "m": (pa.decimal128(38, 2), [None, decimal.Decimal("9" * 36 + ".99"), decimal.Decimal(0)]),
}
TYPES: dict[str, pa.DataType] = {name: kind for name, (kind, _) in VALUES.items()}
SIGNED = pa.schema([*TYPES.items(), (COUNT, pa.int64())])

Bag = Counter[tuple[object, ...]]


def random_bag(rng: random.Random, rows: int) -> pa.Table:
    """Rows that meet each other: most values are drawn once for a pool of few rows."""
    pool = [[rng.choice(values) for _, values in VALUES.values()] for _ in range(rows // 2 + 1)]
    picked = [rng.choice(pool) for _ in range(rows)]
    columns = [
        cast_exactly(pa.array([row[i] for row in picked], kind), kind)
        for i, (kind, _) in enumerate(VALUES.values())
    ]
    return pa.table(columns, names=list(VALUES))


def rows_of(table: Any) -> list[tuple[object, ...]]:
    columns = [
        map(repr, table[name].to_pylist()) if name in "fg" else table[name].to_pylist()
        for name in VALUES
    ]
    return list(zip(*columns, strict=True))


def expected(new: pa.Table, old: pa.Table) -> dict[tuple[object, ...], int]:
    total: Bag = Counter(rows_of(new))
    total.subtract(Counter(rows_of(old)))
    return {row: count for row, count in total.items() if count}


def counted(tables: Sequence[Any]) -> dict[tuple[object, ...], int]:
    found: dict[tuple[object, ...], int] = {}
    for table in tables:
        for row, count in zip(rows_of(table), table[COUNT].to_pylist(), strict=True):
            assert row not in found, "each tuple comes once"
            found[row] = count
    return found


def both(new: pa.Table, old: pa.Table, piece: int = 50) -> Iterator[pa.RecordBatch]:
    yield from add_count(old.to_batches(max_chunksize=piece), -1)
    yield from add_count(new.to_batches(max_chunksize=piece), 1)


@pytest.mark.parametrize(
    ("rows", "limit"),
    [(30, 1), (400, 10_000), (400, 1 << 30)],
    ids=["parts of parts", "parts", "memory"],
)
@pytest.mark.parametrize("seed", range(3))
def test_it_is_the_difference_of_bags(tmp_path: Path, seed: int, rows: int, limit: int) -> None:
    rng = random.Random(seed)
    new, old = random_bag(rng, rows), random_bag(rng, rows)
    old = pa.concat_tables([old, new.slice(0, rows // 3)])
    found = list(sum_signed_rows(both(new, old), SIGNED, tmp_path, limit))
    assert counted(found) == expected(new, old)
    assert list(tmp_path.iterdir()) == []
    if limit == 10_000:
        assert len(found) >= PARTS
    spelled = pa.concat_tables([repeat_by_count(table) for table in found])
    assert set(spelled[COUNT].to_pylist()) <= {1, -1}
    assert spelled.num_rows == sum(map(abs, expected(new, old).values()))


def test_on_spark_it_is_the_same(spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(5)
    differ = differ_on(lambda: spark, lambda: tmp_path / "staging", 5)
    tables = [random_bag(rng, 300) for _ in range(4)]
    tables[3] = tables[0].slice(50)
    paths = [str(tmp_path / f"{number}.parquet") for number in range(4)]
    for table, path in zip(tables, paths, strict=True):
        pq.write_table(table, path)
    schema = pa.schema(list(TYPES.items()))
    found = list(differ(paths[:2], paths[2:], schema))
    new, old = pa.concat_tables(tables[:2]), pa.concat_tables(tables[2:])
    assert all(batch.schema.equals(SIGNED) for batch in found)
    assert counted(found) == expected(new, old)
    assert counted(list(differ(paths[:1], [], schema))) == expected(
        tables[0], tables[0].slice(0, 0)
    )
    assert list((tmp_path / "staging").iterdir()) == []


def test_equal_rows_hash_alike_and_others_mostly_do_not() -> None:
    rng = random.Random(1)
    batch = random_bag(rng, 1_000).to_batches()[0]
    hashes = hash_rows(batch, 0)
    by_row: dict[tuple[object, ...], Any] = {}
    for row, number in zip(rows_of(batch), hashes, strict=True):
        assert by_row.setdefault(row, number) == number
    assert len(set(by_row.values())) == len(by_row)
    assert (hash_rows(batch, 1) != hashes).all()


def source_of(folder: Path) -> FilesSource:
    tables = {"t": {"columns": {"id": "bigint", "text": "string"}, "key": ["id"]}}
    options = {"path": "exports", "format": "csv", "tables": tables, "settle_seconds": 0}
    home = str(folder / "home")
    return open_source(SourceSettings("shop", "files", options, str(folder), home), "test")


def write(path: Path, rows: int, step: int) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write("id,text\n")
        for number in range(rows):
            file.write(f"{number},{'x' * 40}{number % step}\n")


def peak_of(folder: Path, rows: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """The memory that accepting a table's second state holds while it reads the first and it."""
    path = folder / "exports" / "t.csv"
    path.parent.mkdir(parents=True)
    write(path, rows, 7)
    source = source_of(folder)
    source.states.memory_bytes = 1 << 20
    start = source.follow_tables({"t": ["id", "text"]})
    write(path, rows, 11)
    pool: Any = pa.default_memory_pool()
    before = pool.bytes_allocated()
    held: list[int] = []

    def sampled(*args: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        for batch in read_rows(*args, **options):
            held.append(pool.bytes_allocated() - before)
            yield batch

    with monkeypatch.context() as patch:
        patch.setattr("viewkeeper.sources.files.acceptor.read_rows", sampled)
        (boundary,) = source.look_for_transactions(start)
    same = sum(number % 7 == number % 11 for number in range(rows))
    assert boundary.changes == 2 * (rows - same)
    return max(held)


def test_a_large_folder_takes_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = peak_of(tmp_path / "small", 75_000, monkeypatch)
    large = peak_of(tmp_path / "large", 300_000, monkeypatch)
    assert large < 2 * small, "four times the rows, and the table was held in memory"


def test_the_differ_takes_large_differences_only(tmp_path: Path) -> None:
    path = tmp_path / "exports" / "t.csv"
    path.parent.mkdir()
    write(path, 100, 7)
    source = source_of(tmp_path)
    asked = []

    def differ(
        came: Sequence[str], went: Sequence[str], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        asked.append((len(came), len(went)))
        types = dict(zip(schema.names, schema.types, strict=True))
        for paths, count in ((came, 1), (went, -1)):
            for each in paths:
                yield from add_count(
                    read_rows("shop", "t", ParquetInput(Path(each), each), types), count
                )

    source.states.differ = differ
    position = source.follow_tables({"t": ["id", "text"]})
    write(path, 99, 7)
    (boundary,) = source.look_for_transactions(position)
    assert asked == []
    source.states.differ_bytes = 0
    write(path, 98, 7)
    (boundary,) = source.look_for_transactions(boundary.position)
    assert asked == [(1, 1)]
    assert boundary.changes == 99 + 98
