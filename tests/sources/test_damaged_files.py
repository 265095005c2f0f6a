"""Damaged and hostile files of folders and Delta Lake tables: a typed error that names the file.

Bad pages, footers that lie, types that are not the table's, texts that are no UTF-8, encryption,
JSON that is nested, doubled or endless, CSV with odd bytes. Never an error of Arrow's, never
another value; and what was damaged of our own copies can be begun anew.
"""

from __future__ import annotations

import decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from deltalake import write_deltalake

from tests.sources.test_outside_files import (
    TABLES,
    changed,
    commit,
    exports,
    lake,
    rows,
    scanned,
)
from viewkeeper.errors import ConversionError, GapError, ProjectError, SchemaError, SourceAwayError
from viewkeeper.sources.files import file_parser

DECLARED = {"tables": {"t": {"columns": {"id": "string"}}}}


def put(folder: Path, name: str, content: bytes) -> Path:
    path = folder / "exports" / "t" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(data)


# -- Delta Lake ------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["page", "footer", "empty", "text"])
def test_a_damaged_data_file_is_that_sources_trouble(tmp_path: Path, damage: str) -> None:
    write_deltalake(tmp_path / "t", pa.table({"id": list(range(2000))}))
    source = lake(tmp_path)
    start = source.follow_tables(TABLES)
    write_deltalake(tmp_path / "t", pa.table({"id": list(range(3000))}), mode="append")
    (until,) = (boundary.position for boundary in source.look_for_transactions(start))
    newest = max((tmp_path / "t").glob("*.parquet"), key=lambda path: path.stat().st_size)
    if damage == "page":
        newest.write_bytes(b"PAR1" + b"\xff" * 400 + newest.read_bytes()[404:])
    elif damage == "footer":
        flip(newest, newest.stat().st_size - 6)
    else:
        newest.write_bytes(b"" if damage == "empty" else b"not a Parquet file, for sure")
    for read in (rows, scanned, lambda s, p: changed(s, start, p)):
        with pytest.raises(SourceAwayError, match="data file of version") as caught:
            read(source, until)
        assert newest.name in str(caught.value)


ENTRIES = {
    "a list": "[1, 2]",
    "a number": "7",
    "no object": '{"add": 7}',
    "no path": '{"add": {"dataChange": true}}',
    "a path that is no text": '{"add": {"path": 7, "dataChange": true}}',
    "a file twice": '{"add": {"path": "a"}}\n{"add": {"path": "a"}}',
    "a key twice": '{"add": {"path": "a", "path": "b"}}',
    "two actions": '{"add": {"path": "a"}, "remove": {"path": "b"}}',
    "a partition that is no object": '{"add": {"path": "a", "partitionValues": [1]}}',
    "no schema": '{"metaData": {"id": "x", "schemaString": "{}"}}',
    "no time": '{"commitInfo": {"timestamp": "noon"}}',
    "a time beyond all times": '{"commitInfo": {"timestamp": 1' + "0" * 400 + "}}",
    "nesting": '{"add": ' + "[" * 100_000,
    "no UTF-8": '{"add": {"path": "\udcff"}}',
    "a deletion vector": '{"add": {"path": "a", "deletionVector": {"storageType": "u"}}}',
}


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_an_odd_entry_of_the_log_cannot_be_read(tmp_path: Path, entry: str) -> None:
    write_deltalake(tmp_path / "t", pa.table({"id": [1]}))
    source = lake(tmp_path)
    start = source.follow_tables(TABLES)
    assert source.look_for_transactions(start) == ()
    path = tmp_path / "t" / "_delta_log" / f"{start + 1:020d}.json"
    path.write_bytes(entry.encode("utf-8", "surrogateescape"))
    with pytest.raises(SourceAwayError, match=f"log entry of version {start + 1} cannot be read"):
        source.look_for_transactions(start)
    path.unlink()
    assert source.look_for_transactions(start) == ()


@pytest.mark.parametrize("value", ["1_0", "٣", "1.5", "x"])
def test_a_partition_is_a_value_of_its_type(tmp_path: Path, value: str) -> None:
    write_deltalake(tmp_path / "t", pa.table({"id": [1], "n": [1]}), partition_by=["id"])
    source = lake(tmp_path)
    start = source.follow_tables(TABLES)
    assert source.look_for_transactions(start) == ()
    pq.write_table(pa.table({"n": [5]}), tmp_path / "t" / "x.parquet")
    commit(tmp_path / "t", start + 1, path="x.parquet", partitionValues={"id": value})
    source.look_for_transactions(start)
    with pytest.raises(ConversionError, match=r'(?s)column "id": .* is not a value.*x\.parquet'):
        changed(source, start, start + 1)


@pytest.mark.parametrize(
    ("declared", "stored"),
    [
        (pa.array([decimal.Decimal("1.50")], pa.decimal128(10, 2)), pa.array([1.234])),
        (pa.array([1.5], pa.float32()), pa.array([0.1])),
        (pa.array([1]), pa.array(["7"])),
        (pa.array(["a"]), pa.array([7])),
    ],
    ids=["decimal", "float", "bigint", "string"],
)
def test_a_file_of_other_types_is_refused(
    tmp_path: Path, declared: pa.Array[Any], stored: pa.Array[Any]
) -> None:
    """Arrow would round, or read numbers out of texts."""
    write_deltalake(tmp_path / "t", pa.table({"id": declared}))
    source = lake(tmp_path)
    start = source.follow_tables(TABLES)
    pq.write_table(pa.table({"id": stored}), tmp_path / "t" / "x.parquet")
    commit(tmp_path / "t", start + 1, path="x.parquet")
    source.look_for_transactions(start)
    with pytest.raises(ConversionError, match=r"file x\.parquet has values of type"):
        changed(source, start, start + 1)


# -- Parquet ---------------------------------------------------------------------------------------


def test_texts_that_are_no_utf8_are_refused(tmp_path: Path) -> None:
    broken = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")]
    )
    path = put(tmp_path, "a.parquet", b"")
    pq.write_table(pa.table({"id": broken}), path)
    with pytest.raises(ConversionError, match=r'column "id": b.\\xff\\xfe. is not string'):
        exports(tmp_path, "parquet").follow_tables(TABLES)


def test_decimals_with_more_digits_than_their_type_are_refused(tmp_path: Path) -> None:
    wide = pa.array([decimal.Decimal(10**20)], pa.decimal128(38, 0))
    lying = pa.Array.from_buffers(pa.decimal128(5, 0), 1, wide.buffers())
    path = put(tmp_path, "a.parquet", b"")
    pq.write_table(pa.table({"id": lying}), path)
    with pytest.raises(ConversionError, match=r"(?s)a\.parquet"):
        exports(tmp_path, "parquet").follow_tables(TABLES)


def test_an_encrypted_file_is_named(tmp_path: Path) -> None:
    class Keys(pe.KmsClient):
        def wrap_key(self, key: bytes, name: str) -> Any:
            return key.hex().encode()

        def unwrap_key(self, wrapped: Any, name: str) -> Any:
            return bytes.fromhex(wrapped.decode())

    factory = pe.CryptoFactory(lambda _: Keys())
    options = pe.EncryptionConfiguration(footer_key="k", column_keys={"k": ["id"]})
    properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), options)
    path, content = put(tmp_path, "a.parquet", b""), pa.table({"id": [1]})
    with pq.ParquetWriter(path, content.schema, encryption_properties=properties) as writer:
        writer.write_table(content)
    with pytest.raises(ConversionError, match=r"file t/a\.parquet cannot be read"):
        exports(tmp_path, "parquet").follow_tables(TABLES)


def test_a_damaged_page_is_waited_out(tmp_path: Path) -> None:
    source = exports(tmp_path, "parquet")
    path = put(tmp_path, "a.parquet", b"")
    pq.write_table(pa.table({"id": [1]}), path)
    start = source.follow_tables(TABLES)
    good = put(tmp_path, "b.parquet", b"")
    pq.write_table(pa.table({"id": list(range(5000))}), good, write_page_checksum=True)
    content = good.read_bytes()
    flip(good, 3000)
    with pytest.raises(SourceAwayError, match=r"b\.parquet"):
        source.look_for_transactions(start)
    good.write_bytes(content)
    (boundary,) = source.look_for_transactions(start)
    assert len(rows(source, boundary.position)) == 5001


@pytest.mark.parametrize("at", [200, -40], ids=["page", "footer"])
def test_a_damaged_copy_is_a_gap_and_is_made_anew(tmp_path: Path, at: int) -> None:
    """Every byte of its pages and its footer counts: a flipped one is no other number."""
    put(tmp_path, "a.csv", b"id\n" + b"".join(b"%d\n" % (n * 7919) for n in range(500)))
    source = exports(tmp_path, tables={"t": {"columns": {"id": "bigint"}}})
    start = source.follow_tables(TABLES)
    before = rows(source, start)
    (copy,) = (tmp_path / "home" / "copies").glob("*.parquet")
    flip(copy, at)
    with pytest.raises(GapError, match=r"(?s)damaged.*viewkeeper refresh"):
        rows(source, start)
    assert rows(source, source.follow_tables(TABLES)) == before


# -- CSV and JSON ----------------------------------------------------------------------------------

JSON = {
    "nesting": (b'{"id": ' + b"[" * 100_000, "line 1 is nested too deeply"),
    "a key twice": (b'{"id": "a", "id": "b"}', "the key 'id' occurs twice"),
    "no UTF-8": (b'{"id": "\xff"}', "utf-8"),
    "no object": (b"[1]", "is not an object"),
    "cut off": (b'{"id": "a', "is not JSON"),
}


@pytest.mark.parametrize(("content", "detail"), JSON.values(), ids=JSON)
def test_what_is_wrong_with_json_is_said(tmp_path: Path, content: bytes, detail: str) -> None:
    put(tmp_path, "a.json", content)
    with pytest.raises(ConversionError, match=r"t/a\.json cannot be read") as caught:
        exports(tmp_path, "json", **DECLARED).follow_tables(TABLES)
    assert detail in str(caught.value)


def test_a_line_without_an_end_is_not_taken_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_parser, "LINE_CHARACTERS", 1 << 20)
    with put(tmp_path, "a.json", b"").open("r+b") as file:
        file.truncate(1 << 27)
    with pytest.raises(ConversionError, match="line 1 has more than 1 million characters"):
        exports(tmp_path, "json", **DECLARED).follow_tables(TABLES)


CSV = {
    "no UTF-8": b"id\n\xff\n",
    "ragged": b"id,x\n1\n",
    "too many": b"id\n1,2\n",
    "an open quote": b'id\n"1\n',
    "a row of 3 MB": b"id\n" + b"x" * (3 << 20) + b"\n",
}


@pytest.mark.parametrize("content", CSV.values(), ids=CSV)
def test_what_is_wrong_with_csv_is_said(tmp_path: Path, content: bytes) -> None:
    put(tmp_path, "a.csv", content)
    with pytest.raises(ConversionError, match=r"t/a\.csv cannot be read"):
        exports(tmp_path).follow_tables(TABLES)


def test_odd_bytes_that_are_text_arrive(tmp_path: Path) -> None:
    """A mark at the beginning is no part of a name, and a zero byte is one of a text."""
    put(tmp_path, "a.csv", b"\xef\xbb\xbfid\na\0b\n\x1f\n")
    source = exports(tmp_path)
    assert rows(source, source.follow_tables(TABLES)) == ["\x1f", "a\0b"]


def test_a_name_twice_in_a_header_is_said(tmp_path: Path) -> None:
    put(tmp_path, "a.csv", b"id,id\n1,2\n")
    with pytest.raises(SchemaError, match=r't/a\.csv names "id" twice'):
        exports(tmp_path).follow_tables(TABLES)


def test_texts_in_two_bytes_are_read(tmp_path: Path) -> None:
    table = {"columns": {"id": "string"}, "encoding": "utf-16"}
    put(tmp_path, "a.csv", 'id\n"é"\n'.encode("utf-16"))
    source = exports(tmp_path, tables={"t": table})
    start = source.follow_tables(TABLES)
    assert rows(source, start) == ["é"]
    put(tmp_path, "a.csv", 'id\n"é\n'.encode("utf-16"))
    with pytest.raises(SourceAwayError, match="a quoted text is not closed"):
        source.look_for_transactions(start)


@pytest.mark.parametrize(
    "wrong",
    [
        {"encoding": "klingon"},
        {"encoding": "hex"},
        {"encoding": "a\0b"},
        {"delimiter": "\n"},
        {"delimiter": "é"},
        {"quote": ","},
        {"escape": "ab"},
        {"null": 7},
        {"header": "no"},
        {"columns": {"id": "decimal(0,0)"}},
        {"columns": {"id": "decimal(" + "9" * 5000 + ")"}},
        {"columns": {"id": ["string"]}},
        {"columns": {"": "string"}},
        {"columns": {None: "string"}},
        {"key": [[1]]},
        {"key": [""]},
        {7: True},
    ],
    ids=lambda wrong: str(wrong)[:30],
)
def test_odd_settings_are_project_errors(tmp_path: Path, wrong: dict[Any, Any]) -> None:
    with pytest.raises(ProjectError, match='source "exports": table "t"'):
        exports(tmp_path, tables={"t": wrong})
