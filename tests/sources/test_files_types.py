"""Every type of CSV, JSON and Parquet files: a value arrives exactly, or it is named and refused.

Extremes, NULL against empty text, text beyond the basic plane, 38 digits, microseconds and zones,
NaN and infinities; and what looks like a value but is none.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from viewkeeper.errors import ConversionError
from viewkeeper.sources.files import FilesSource, open_source
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.updates.source_protocol import Lookup
from viewkeeper.view.definition import Relation

UTC = datetime.UTC
LONG = decimal.Decimal("9" * 38)

# Per type: texts, and the values that they are.
GOOD: dict[str, list[tuple[str, Any]]] = {
    "bigint": [("9223372036854775807", 2**63 - 1), ("-9223372036854775808", -(2**63)), ("+7", 7)],
    "int": [("007", 7), ("0", 0)],
    "double": [("1e308", 1e308), ("5e-324", 5e-324), ("NaN", math.nan), ("-inf", -math.inf)],
    "float": [("0.5", 0.5), ("Infinity", math.inf), ("-0.0", 0.0)],
    "decimal(38,0)": [("9" * 38, LONG), ("-" + "9" * 38, decimal.Decimal("-" + "9" * 38))],
    "decimal(38,38)": [("0." + "1" * 38, decimal.Decimal("0." + "1" * 38))],
    "decimal(10,2)": [("1.5", decimal.Decimal("1.50")), ("1e3", decimal.Decimal("1000.00"))],
    "decimal(38,2)": [("9" * 36 + ".990", decimal.Decimal("9" * 36 + ".99"))],
    "string": [("é", "é"), ("e\u0301", "e\u0301"), ("𝄞", "𝄞"), (" x ", " x "), ("", "")],
    "boolean": [("true", True), ("FALSE", False)],
    "date": [("0001-01-01", datetime.date(1, 1, 1)), ("9999-12-31", datetime.date(9999, 12, 31))],
    "timestamp": [
        ("2024-01-31 10:00:00+02:00", datetime.datetime(2024, 1, 31, 8, tzinfo=UTC)),
        ("2024-01-31T10:00:00.123456Z", datetime.datetime(2024, 1, 31, 10, 0, 0, 123456, UTC)),
        ("2024-01-31", datetime.datetime(2024, 1, 31, tzinfo=UTC)),
        ("0001-01-01 00:00:00", datetime.datetime(1, 1, 1, tzinfo=UTC)),
    ],
    "timestamp_ntz": [
        ("9999-12-31 23:59:59.999999", datetime.datetime(9999, 12, 31, 23, 59, 59, 999999)),
        ("2024-03-31T02:30:00", datetime.datetime(2024, 3, 31, 2, 30)),
    ],
    "binary": [("AP8=", b"\x00\xff"), ("", b"")],
}
BAD: dict[str, list[str]] = {
    "bigint": ["9223372036854775808", "1.0", "0x1F", " 1", "", "1e3"],
    "double": ["1e400", "1,5", "0x1p3", " 1", "nan(1)"],
    "decimal(10,2)": ["1.005", "123456789.00", "NaN", "1 ", "1e-41", "1e-99999999", "1_0", "٣"],
    "decimal(38,2)": ["9" * 37 + ".99", "1e40", "1e-99999999"],
    "boolean": ["yes", "2"],
    "date": ["2024-02-30", "2024-1-1", "0000-01-01", "2024-01-01 00:00:00"],
    "timestamp": ["2024-01-31 10:00:00.1234567", "noon", "9999-12-31 23:59:59-01:00"],
    "timestamp_ntz": ["2024-01-31 10:00:00Z", "2024-01-31 24:00:00"],
    "binary": ["AP8", "*"],
}
NUMERIC = ("bigint", "int", "double", "float", "decimal")


def source_of(folder: Path, format: str, columns: dict[str, str]) -> FilesSource:
    tables = {} if format == "parquet" else {"t": {"columns": columns}}
    options = {"path": "exports", "format": format, "tables": tables, "settle_seconds": 0}
    home = str(folder / "home")
    return open_source(SourceSettings("shop", "files", options, str(folder), home), "test")


def values(source: FilesSource, column: str = "v") -> list[Any]:
    tables = {"t": [column]}
    position = source.follow_tables(tables)
    with source.prepare_snapshots(position, tables) as opener:
        lookup = Lookup(0, Relation("shop", "t"), (column,), (), (), None)
        return opener().answer_lookup(lookup, position).rows[column].to_pylist()


def write_csv(folder: Path, texts: Sequence[str | None]) -> None:
    rows = ["" if text is None else '"' + text.replace('"', '""') + '"' for text in texts]
    folder.joinpath("exports").mkdir(exist_ok=True)
    lines = [f"{number},{row}\n" for number, row in enumerate(rows)]
    (folder / "exports" / "t.csv").write_text("n,v\n" + "".join(lines), encoding="utf-8")


def write_json(folder: Path, kind: str, texts: Sequence[str | None]) -> None:
    folder.joinpath("exports").mkdir(exist_ok=True)
    lines = []
    for text in texts:
        plain = kind.startswith(NUMERIC) and text and text[0] in "-0123456789" and text != "007"
        written = text if plain and text != "-inf" else json.dumps(text)
        lines.append(f'{{"v": {written}}}\n' if text is not None else "{}\n")
    (folder / "exports" / "t.json").write_text("".join(lines), encoding="utf-8")


def same(found: object, wanted: object) -> bool:
    if isinstance(wanted, float) and isinstance(found, float):
        return repr(found) == repr(wanted)
    return found == wanted and type(found) is type(wanted)


@pytest.mark.parametrize("kind", GOOD)
def test_csv_arrives_exactly(tmp_path: Path, kind: str) -> None:
    write_csv(tmp_path, [*(text for text, _ in GOOD[kind]), None])
    found = values(source_of(tmp_path, "csv", {"n": "bigint", "v": kind}))
    wanted = [*(value for _, value in GOOD[kind]), None]
    assert len(found) == len(wanted)
    assert all(map(same, found, wanted)), found


@pytest.mark.parametrize("kind", GOOD)
def test_json_arrives_exactly(tmp_path: Path, kind: str) -> None:
    integers = kind in ("bigint", "int")
    pairs = [(t, v) for t, v in GOOD[kind] if not (integers and t in ("+7", "007"))]
    write_json(tmp_path, kind, [*(text for text, _ in pairs), None])
    found = values(source_of(tmp_path, "json", {"v": kind}))
    wanted = [*(value for _, value in pairs), None]
    assert len(found) == len(wanted)
    assert all(map(same, found, wanted)), found


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind in BAD for text in BAD[kind]])
def test_what_is_no_value_is_named(tmp_path: Path, kind: str, text: str) -> None:
    write_csv(tmp_path, [GOOD[kind][0][0], text])
    source = source_of(tmp_path, "csv", {"n": "bigint", "v": kind})
    with pytest.raises(ConversionError) as caught:
        values(source)
    assert f'file t.csv, row 2, column "v": {text!r} is not a value of type' in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("bigint", '{"v": "1"}'),
        ("bigint", '{"v": 1.5}'),
        ("bigint", '{"v": true}'),
        ("string", '{"v": 1}'),
        ("string", '{"v": ["a"]}'),
        ("string", r'{"v": "\ud800"}'),
        ("boolean", '{"v": 1}'),
        ("string", '{"v": "a"'),
        ("string", '["a"]'),
    ],
)
def test_json_of_another_type_is_named(tmp_path: Path, kind: str, line: str) -> None:
    (tmp_path / "exports").mkdir()
    (tmp_path / "exports" / "t.json").write_text("\n{}\n" + line + "\n")
    source = source_of(tmp_path, "json", {"v": kind})
    with pytest.raises(ConversionError, match=r"t\.json(?s:.*)line 3"):
        values(source)


def test_null_and_empty_text_differ(tmp_path: Path) -> None:
    (tmp_path / "exports").mkdir()
    (tmp_path / "exports" / "t.csv").write_text('n,v\n1,\n2,""\n3,NULL\n4,"a ""b""\nc"\n')
    assert values(source_of(tmp_path, "csv", {})) == [None, "", "NULL", 'a "b"\nc']
    assert values(source_of(tmp_path, "csv", {}), "n") == ["1", "2", "3", "4"]


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    (tmp_path / "exports").mkdir()
    (tmp_path / "exports" / "t.csv").write_bytes(b"n,v\n1,\xff\n")
    with pytest.raises(ConversionError, match="invalid UTF8"):
        values(source_of(tmp_path, "csv", {}))


def parquet(folder: Path, table: pa.Table, **options: Any) -> FilesSource:
    (folder / "exports").mkdir()
    pq.write_table(table, folder / "exports" / "t.parquet", **options)
    return source_of(folder, "parquet", {})


EPOCH = datetime.datetime(1970, 1, 1)
STORED: list[tuple[Any, list[Any], pa.DataType, list[Any]]] = [
    (pa.int8(), [-128, 127, None], pa.int64(), [-128, 127, None]),
    (pa.uint32(), [2**32 - 1], pa.int64(), [2**32 - 1]),
    (pa.uint64(), [2**64 - 1], pa.decimal128(20, 0), [decimal.Decimal(2**64 - 1)]),
    (pa.float32(), [-0.0, math.nan], pa.float32(), [0.0, math.nan]),
    (pa.large_string(), ["𝄞", "", None], pa.string(), ["𝄞", "", None]),
    (pa.dictionary(pa.int32(), pa.string()), ["a", None], pa.string(), ["a", None]),
    (pa.binary(2), [b"\x00\xff"], pa.binary(), [b"\x00\xff"]),
    (pa.decimal256(38, 0), [LONG], pa.decimal128(38, 0), [LONG]),
    (
        pa.timestamp("ms", "Europe/Vienna"),
        [0],
        pa.timestamp("us", "UTC"),
        [EPOCH.replace(tzinfo=UTC)],
    ),
    (pa.timestamp("ns"), [1_000], pa.timestamp("us"), [EPOCH.replace(microsecond=1)]),
    (pa.date64(), [datetime.date(2024, 1, 31)], pa.date32(), [datetime.date(2024, 1, 31)]),
]


@pytest.mark.parametrize(
    ("stored", "given", "kept", "wanted"), STORED, ids=[str(case[0]) for case in STORED]
)
def test_parquet_arrives_exactly(
    tmp_path: Path, stored: Any, given: list[Any], kept: pa.DataType, wanted: list[Any]
) -> None:
    source = parquet(tmp_path, pa.table({"v": pa.array(given, stored)}))
    assert source.describe_table("t").fields[0].type == kept
    found = values(source)
    assert len(found) == len(wanted)
    assert all(map(same, found, wanted)), found


def test_timestamps_of_twelve_bytes_keep_their_year(tmp_path: Path) -> None:
    moments = [datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31, 23, 59, 59, 999999)]
    table = pa.table({"v": pa.array(moments, pa.timestamp("us"))})
    source = parquet(tmp_path, table, use_deprecated_int96_timestamps=True)
    assert values(source) == moments


@pytest.mark.parametrize(
    ("array", "told"),
    [
        (pa.array([1_001], pa.timestamp("ns")), "is not timestamp"),
        (pa.array([2_932_897], pa.int32()).cast(pa.date32()), "in the years 1 to 9999"),
        (pa.array([-(10**17)], pa.int64()).cast(pa.timestamp("us")), "in the years 1 to 9999"),
    ],
)
def test_parquet_values_that_do_not_fit_are_named(tmp_path: Path, array: Any, told: str) -> None:
    source = parquet(tmp_path, pa.table({"v": array}))
    with pytest.raises(ConversionError, match=told):
        values(source)


def test_nested_columns_are_refused(tmp_path: Path) -> None:
    table = pa.table({"v": [1], "l": [[1]], "s": [{"a": 1}], "t": pa.array([1], pa.time64("us"))})
    source = parquet(tmp_path, table)
    assert [field.name for field in source.describe_table("t").fields] == ["v"]
    assert set(source.describe_table("t").refused) == {"l", "s", "t"}
    assert "cannot be kept" in source.describe_table("t").refused["l"]
    assert values(source) == [1]


def test_files_that_disagree_refuse_a_column(tmp_path: Path) -> None:
    folder = tmp_path / "exports" / "t"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"a": [1], "b": ["x"], "c": [1.0]}), folder / "1.parquet")
    pq.write_table(pa.table({"a": np.array([2], np.int16), "b": [1]}), folder / "2.parquet")
    source = source_of(tmp_path, "parquet", {})
    assert [field.name for field in source.describe_table("t").fields] == ["a"]
    assert "another file" in source.describe_table("t").refused["b"]
    assert "does not have it" in source.describe_table("t").refused["c"]
    assert sorted(values(source, "a")) == [1, 2]


def test_base64_is_what_binary_columns_hold(tmp_path: Path) -> None:
    content = bytes(range(256))
    write_csv(tmp_path, [base64.b64encode(content).decode()])
    assert values(source_of(tmp_path, "csv", {"v": "binary"})) == [content]
