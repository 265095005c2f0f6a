"""Every type of a Delta Lake table: values arrive exactly, in rows, in changes and in partitions.

Extremes, NULL against empty text, text beyond the basic plane, 38 digits, microseconds, NaN and
infinities; nested columns are refused, and so are partitions whose text could be read in two ways.
"""

from __future__ import annotations

import datetime
import decimal
import math
import zoneinfo
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from viewkeeper.errors import ConversionError, SchemaError
from viewkeeper.sources.delta_lake import DeltaLakeSource, open_source
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.updates.source_protocol import COUNT, Lookup
from viewkeeper.view.definition import Relation

UTC = zoneinfo.ZoneInfo("UTC")
NINES = decimal.Decimal("9" * 38)
VALUES: dict[str, tuple[Any, pa.DataType, list[Any]]] = {
    "byte": (pa.int8(), pa.int64(), [-128, 127]),
    "short": (pa.int16(), pa.int64(), [-(2**15), 2**15 - 1]),
    "integer": (pa.int32(), pa.int64(), [-(2**31), 2**31 - 1]),
    "long": (pa.int64(), pa.int64(), [-(2**63), 2**63 - 1]),
    "float": (pa.float32(), pa.float32(), [0.0, 0.5, math.nan, math.inf]),
    "double": (pa.float64(), pa.float64(), [0.0, 5e-324, 1.7e308, math.nan, -math.inf]),
    "decimal": (pa.decimal128(38, 0), pa.decimal128(38, 0), [NINES, decimal.Decimal(0)]),
    "string": (pa.string(), pa.string(), ["", " ", "é", "e\u0301", "𝄞", "a\0b", "x" * 50]),
    "binary": (pa.binary(), pa.binary(), [b"", b"\x00\xff"]),
    "boolean": (pa.bool_(), pa.bool_(), [True, False]),
    "date": (pa.date32(), pa.date32(), [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        pa.timestamp("us", "UTC"),
        [
            datetime.datetime(1, 1, 1, tzinfo=UTC),
            datetime.datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
            datetime.datetime(2024, 3, 31, 1, 30, 0, 1, UTC),
        ],
    ),
    "timestamp_ntz": (
        pa.timestamp("us"),
        pa.timestamp("us"),
        [datetime.datetime(1582, 10, 10), datetime.datetime(2024, 3, 31, 2, 30, 0, 999999)],
    ),
}
# Those that the library can write a partition of, and that have one text each.
PARTITIONS = (
    "integer",
    "long",
    "string",
    "boolean",
    "date",
    "decimal",
    "timestamp",
    "timestamp_ntz",
)


def source_of(folder: Path) -> DeltaLakeSource:
    home = str(folder / "home")
    settings = SourceSettings("lake", "delta_lake", {"path": "t"}, str(folder), home)
    return open_source(settings, "test")


def shown(values: list[Any]) -> list[str]:
    return sorted(map(repr, values))


def asked(source: DeltaLakeSource, after: int, keys: pa.Table | None = None) -> list[Any]:
    on, safe = (("v",), (True,)) if keys is not None else ((), ())
    with source.prepare_snapshots(after, {"t": ["v"]}) as opener:
        lookup = Lookup(0, Relation("lake", "t"), ("v",), on, safe, keys)
        return opener().answer_lookup(lookup, after).rows["v"].to_pylist()


@pytest.mark.parametrize("feed", ["true", "false"], ids=["feed", "no feed"])
@pytest.mark.parametrize("name", VALUES)
def test_values_arrive_exactly(tmp_path: Path, name: str, feed: str) -> None:
    stored, kept, values = VALUES[name]
    given: list[Any] = [*values, None]
    table = pa.table({"n": list(range(len(given))), "v": pa.array(given, stored)})
    settings = {"delta.enableChangeDataFeed": feed}
    write_deltalake(tmp_path / "t", table, configuration=settings)
    source = source_of(tmp_path)
    start = source.follow_tables({"t": ["v"]})
    assert {field.name: field.type for field in source.describe_table("t").fields}["v"] == kept
    assert shown(asked(source, start)) == shown(given)
    DeltaTable(str(tmp_path / "t")).delete("n >= 1")
    (boundary,) = source.look_for_transactions(start)
    found = [batch for _, batch in source.read_changes({"t": ["v"]}, start, boundary.position)]
    assert shown([v for batch in found for v in batch["v"].to_pylist()]) == shown(given[1:])
    assert {count for batch in found for count in batch[COUNT].to_pylist()} == {-1}


@pytest.mark.parametrize("name", VALUES)
def test_every_value_is_found_by_key(tmp_path: Path, name: str) -> None:
    stored, kept, values = VALUES[name]
    for value in [*values, None]:
        write_deltalake(tmp_path / "t", pa.table({"v": pa.array([value], stored)}), mode="append")
    source = source_of(tmp_path)
    start = source.follow_tables({"t": ["v"]})
    assert source.describe_table("t").can_find_by_key(["v"]) is not name.startswith(
        ("float", "double")
    )
    for value in [*values, None]:
        found = asked(source, start, pa.table({"v": pa.array([value], kept)}))
        assert repr(value) in map(repr, found)


@pytest.mark.parametrize("name", PARTITIONS)
def test_partitions_arrive_exactly(tmp_path: Path, name: str) -> None:
    stored, kept, values = VALUES[name]
    # A partition's text cannot tell the empty text from NULL, nor hold a zero byte on disk.
    given: list[Any] = [*(v for v in values if v not in ("", "a\0b")), None]
    table = pa.table({"n": list(range(len(given))), "v": pa.array(given, stored)})
    write_deltalake(tmp_path / "t", table, partition_by=["v"])
    source = source_of(tmp_path)
    start = source.follow_tables({"t": ["v", "n"]})
    assert shown(asked(source, start)) == shown(given)
    for value in given:
        assert shown(asked(source, start, pa.table({"v": pa.array([value], kept)}))) == shown(
            [value]
        )
    DeltaTable(str(tmp_path / "t")).delete("n >= 0")
    (boundary,) = source.look_for_transactions(start)
    went = [batch for _, batch in source.read_changes({"t": ["v"]}, start, boundary.position)]
    assert shown([v for batch in went for v in batch["v"].to_pylist()]) == shown(given)


def test_unsure_partitions_and_nested_columns_are_refused(tmp_path: Path) -> None:
    table = pa.table({"a": [1], "p": [0.5], "l": [[1]], "s": [{"x": 1}]})
    write_deltalake(tmp_path / "t", table, partition_by=["p"])
    source = source_of(tmp_path)
    assert [field.name for field in source.describe_table("t").fields] == ["a"]
    assert set(source.describe_table("t").refused) == {"p", "l", "s"}
    assert "partitioned by it" in source.describe_table("t").refused["p"]
    with pytest.raises(SchemaError, match='column "l": values of type array cannot be kept'):
        source.follow_tables({"t": ["l"]})


def test_zero_has_no_sign(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", pa.table({"v": [-0.0]}))
    source = source_of(tmp_path)
    assert shown(asked(source, source.follow_tables({"t": ["v"]}))) == ["0.0"]


def rewrite(folder: Path, table: pa.Table, **options: Any) -> None:
    """Put other rows into the table's only file, as another engine would write them."""
    (uri,) = DeltaTable(str(folder)).file_uris()
    pq.write_table(table, uri, **options)


def test_files_of_other_engines(tmp_path: Path) -> None:
    moments = [datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31, 23, 59, 59, 999999)]
    zoned = [moment.replace(tzinfo=UTC) for moment in moments]
    table = pa.table({"v": pa.array(zoned, pa.timestamp("us", "UTC"))})
    write_deltalake(tmp_path / "t", table)
    naive = pa.table({"v": pa.array(moments, pa.timestamp("us"))})
    rewrite(tmp_path / "t", naive, use_deprecated_int96_timestamps=True)
    source = source_of(tmp_path)
    assert asked(source, source.follow_tables({"t": ["v"]})) == zoned


def test_a_value_that_does_not_fit_is_named(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", pa.table({"v": [datetime.date(2024, 1, 1)]}))
    rewrite(tmp_path / "t", pa.table({"v": pa.array([2_932_897], pa.int32()).cast(pa.date32())}))
    source = source_of(tmp_path)
    start = source.follow_tables({"t": ["v"]})
    with pytest.raises(ConversionError, match=r'table "t", column "v".*in the years 1 to 9999'):
        asked(source, start)
