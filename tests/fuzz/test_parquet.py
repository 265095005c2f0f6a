"""Damaged Parquet files: read, or refused by an error that names the file.

Arrow is not always a match for bytes that it did not write, so this runs in a process of its own.
"""

from __future__ import annotations

import datetime
import decimal
import io
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.fuzz.isolation import fuzz_isolated
from tests.fuzz.mutation import fuzz
from viewkeeper.sources.files.file_parser import FileParser
from viewkeeper.sources.files.parquet import (
    Keys,
    ParquetInput,
    UnreadableFileError,
    count_rows,
    read_rows,
)
from viewkeeper.sources.files.settings import Dialect, TableSettings

ROWS = 200


def table() -> pa.Table:
    day = datetime.date(2024, 1, 1)
    return pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "small": pa.array([n % 7 for n in range(ROWS)], pa.int8()),
            "price": pa.array([decimal.Decimal(n) / 4 for n in range(ROWS)], pa.decimal128(20, 2)),
            "weight": pa.array([n / 3 for n in range(ROWS)]),
            "name": [None if n % 11 == 0 else f"name {n % 13}" for n in range(ROWS)],
            "blob": pa.array([b"\xff" * (n % 5) for n in range(ROWS)]),
            "day": [day + datetime.timedelta(days=n) for n in range(ROWS)],
            "at": pa.array([n * 10**9 for n in range(ROWS)], pa.timestamp("us", "UTC")),
            "on": [n % 2 == 0 for n in range(ROWS)],
        }
    )


def good() -> Iterator[bytes]:
    options: tuple[dict[str, Any], ...] = (
        {"compression": "none", "use_dictionary": False},
        {"compression": "zstd", "write_page_checksum": True},
        {"compression": "snappy", "row_group_size": 50, "data_page_size": 256},
        {"version": "1.0", "data_page_version": "2.0", "use_deprecated_int96_timestamps": True},
        {"column_encoding": {"id": "DELTA_BINARY_PACKED"}, "use_dictionary": False},
    )
    for each in options:
        target = io.BytesIO()
        pq.write_table(table(), target, **each)
        yield target.getvalue()


def attack(folder: Path) -> None:
    parser = FileParser("shop", "parquet", TableSettings("t", {}, (), Dialect()))
    path, keys = folder / "t.parquet", Keys({"id": pa.array([3, 150], pa.int64())})

    def read(data: bytes) -> None:
        path.write_bytes(data)
        columns = parser.read_columns(path, "t.parquet")
        for batch in parser.read_batches(path, "t.parquet", columns):
            batch.validate(full=True)
        with suppress(UnreadableFileError):
            count_rows(path)
            for _ in read_rows(
                "shop", "t", ParquetInput(path, "t.parquet"), columns.types_by_name(), keys
            ):
                pass

    fuzz(read, list(good()), inputs=2000)


def test_damaged_parquet(scratch: Path, tmp_path: Path) -> None:
    fuzz_isolated("tests.fuzz.test_parquet", scratch, tmp_path)
