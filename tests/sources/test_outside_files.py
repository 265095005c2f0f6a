"""Whoever may write into a source's folder cannot show us other files of the machine.

A Delta Lake log names its files as it likes, and a folder of files may have links in it. What lies
outside of the folder is refused, however it is spelled, unless the source allows it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from viewkeeper.errors import ConversionError, ProjectError, SchemaError, SourceAwayError
from viewkeeper.sources import delta_lake, files
from viewkeeper.sources.delta_lake import DeltaLakeSource
from viewkeeper.sources.files import FilesSource
from viewkeeper.sources.kinds import check_settings
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.updates.source_protocol import Lookup
from viewkeeper.view.definition import Relation

TABLES = {"t": ["id"]}


def lake(folder: Path, **options: object) -> DeltaLakeSource:
    given = {"path": "t", **options}
    home = str(folder / "home")
    return delta_lake.open_source(
        SourceSettings("lake", "delta_lake", given, str(folder), home), "test"
    )


def exports(folder: Path, format: str = "csv", **options: object) -> FilesSource:
    given = {"path": "exports", "format": format, "settle_seconds": 0, **options}
    home = str(folder / "home")
    return files.open_source(SourceSettings("exports", "files", given, str(folder), home), "test")


def rows(source: Any, position: int) -> list[Any]:
    with source.prepare_snapshots(position, TABLES) as opener:
        lookup = Lookup(0, Relation(source.name, "t"), ("id",), (), (), None)
        return sorted(opener().answer_lookup(lookup, position).rows["id"].to_pylist())


def scanned(source: Any, position: int) -> list[Any]:
    with source.prepare_snapshots(position, TABLES) as opener:
        scan = opener().scan_relation(Relation(source.name, "t"), ["id"], position)
        return sorted(value for batch in scan.batches for value in batch["id"].to_pylist())


def changed(source: Any, after: int, until: int) -> list[Any]:
    found = source.read_changes(TABLES, after, until)
    return sorted(value for _, batch in found for value in batch["id"].to_pylist())


def commit(table: Path, version: int, **action: object) -> None:
    """A log entry that adds one file, as an engine of another language may write it."""
    add = {"size": 1, "modificationTime": 1, "dataChange": True, "partitionValues": {}, **action}
    path = table / "_delta_log" / f"{version:020d}.json"
    path.write_text(json.dumps({"add": add}) + "\n")


SPELLINGS = (
    "../secret.parquet",
    "x/../../secret.parquet",
    "%2e%2e/secret.parquet",
    "{folder}/secret.parquet",
    "file://{folder}/secret.parquet",
    "file:{folder}/t/../secret.parquet",
    "file:../secret.parquet",
    "link.parquet",
    "linked/secret.parquet",
    "..",
)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    write_deltalake(tmp_path / "t", pa.table({"id": [1, 2]}))
    pq.write_table(pa.table({"id": [77]}), tmp_path / "secret.parquet")
    (tmp_path / "t" / "link.parquet").symlink_to(tmp_path / "secret.parquet")
    (tmp_path / "t" / "linked").symlink_to(tmp_path)
    (tmp_path / "t" / "x").mkdir()
    return tmp_path / "t"


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_log_that_names_a_foreign_file_is_refused(
    tmp_path: Path, table: Path, spelling: str
) -> None:
    source = lake(tmp_path)
    start = source.follow_tables(TABLES)
    stats = json.dumps({"numRecords": 1})
    commit(table, start + 1, path=spelling.format(folder=tmp_path), stats=stats)
    with pytest.raises(SchemaError, match=r"(?s)outside of the table's folder.*allow_outside"):
        source.look_for_transactions(start)
    for read in (rows, scanned, lambda s, p: changed(s, p - 1, p)):
        with pytest.raises(SchemaError, match="outside of the table's folder"):
            read(source, start + 1)
    (found,) = (f for f in source.diagnose_source(TABLES) if f.state == "bad")
    assert "outside of the table's folder" in found.text


def test_a_clone_is_read_where_it_is_allowed(tmp_path: Path, table: Path) -> None:
    source = lake(tmp_path, allow_outside=True)
    start = source.follow_tables(TABLES)
    commit(table, start + 1, path=f"file://{tmp_path}/secret.parquet")
    assert [b.position for b in source.look_for_transactions(start)] == [start + 1]
    assert rows(source, start + 1) == [1, 2, 77]
    assert changed(source, start, start + 1) == [77]


def test_links_within_the_folder_are_no_matter(tmp_path: Path) -> None:
    """Neither those of the table itself, nor of its files."""
    write_deltalake(tmp_path / "real", pa.table({"id": [1, 2]}))
    (tmp_path / "t").symlink_to(tmp_path / "real")
    (stored,) = (tmp_path / "real").glob("*.parquet")
    (tmp_path / "real" / "data").mkdir()
    stored.rename(tmp_path / "real" / "data" / "x")
    stored.symlink_to("data/x")
    source = lake(tmp_path)
    assert rows(source, source.follow_tables(TABLES)) == [1, 2]


@pytest.mark.parametrize("format", ["csv", "json", "parquet"])
def test_a_linked_file_is_not_taken(tmp_path: Path, format: str) -> None:
    folder, secret = tmp_path / "exports" / "t", tmp_path / f"secret.{format}"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"id": [77]}), tmp_path / "secret.parquet")
    (tmp_path / "secret.csv").write_text("id\n77\n")
    (tmp_path / "secret.json").write_text('{"id": 77}\n')
    tables = {} if format == "parquet" else {"t": {"columns": {"id": "bigint"}}}
    (folder / f"a.{format}").symlink_to(secret)
    with pytest.raises(ConversionError, match=r"(?s)leads out of the source's folder.*allow_outs"):
        exports(tmp_path, format, tables=tables).follow_tables(TABLES)
    source = exports(tmp_path, format, tables=tables, allow_outside=True)
    assert rows(source, source.follow_tables(TABLES)) == [77]


def test_a_link_that_comes_later_is_waited_out(tmp_path: Path) -> None:
    folder = tmp_path / "exports" / "t"
    folder.mkdir(parents=True)
    (folder / "a.csv").write_text("id\n1\n")
    (tmp_path / "secret.csv").write_text("id\n77\n")
    source = exports(tmp_path)
    start = source.follow_tables(TABLES)
    (folder / "b.csv").symlink_to(tmp_path / "secret.csv")
    with pytest.raises(SourceAwayError, match="leads out of the source's folder"):
        source.look_for_transactions(start)
    (folder / "b.csv").unlink()
    (folder / "b.csv").write_text("id\n2\n")
    (boundary,) = source.look_for_transactions(start)
    assert rows(source, boundary.position) == ["1", "2"]


def test_links_among_exports_are_no_matter(tmp_path: Path) -> None:
    """A folder of a table may be a link to another one of the same source."""
    (tmp_path / "exports" / "real").mkdir(parents=True)
    (tmp_path / "exports" / "real" / "a.csv").write_text("id\n1\n")
    (tmp_path / "exports" / "t").symlink_to("real")
    source = exports(tmp_path)
    assert rows(source, source.follow_tables(TABLES)) == ["1"]


@pytest.mark.parametrize("value", ["yes", 1, None])
def test_the_option_is_true_or_false(tmp_path: Path, value: object) -> None:
    options = {"path": "t", "allow_outside": value}
    with pytest.raises(ProjectError, match="must be true or false"):
        check_settings(SourceSettings("lake", "delta_lake", options, str(tmp_path)))
