"""What a folder of files may do to us, and what we say: wait, stop with the cause, never guess.

Files half written, broken, taken away; keys twice; columns gone; kept copies lost; a crash between
any two steps of accepting a state.
"""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from viewkeeper.errors import (
    ConversionError,
    GapError,
    ProjectError,
    SchemaError,
    SourceAwayError,
    SourceError,
    WarehouseError,
)
from viewkeeper.sources.files import FilesSource, open_source
from viewkeeper.sources.files.accepted_states import StateFolder
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.updates.source_protocol import COUNT
from viewkeeper.view.definition import Relation

DECLARED: dict[str, Any] = {"columns": {"sku": "string", "price": "decimal(10,2)"}}
TABLES = {"price": ["sku", "price"]}


def source_of(folder: Path, settle: float = 0, format: str = "csv", **table: object) -> FilesSource:
    tables = {"price": {**({} if format == "parquet" else DECLARED), **table}}
    options = {"path": "exports", "format": format, "tables": tables, "settle_seconds": settle}
    home = str(folder / "home")
    return open_source(SourceSettings("shop", "files", options, str(folder), home), "test")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "exports" / "price" / "a.csv"
    path.parent.mkdir(parents=True)
    path.write_text("sku,price\na,1.00\nb,2.00\n")
    return path


def rewritten(path: Path, text: str) -> None:
    temporary = path.with_name("_new")
    temporary.write_text(text)
    temporary.rename(path)


def changes(source: FilesSource, after: int, until: int) -> list[tuple[str, str, int]]:
    return sorted(
        (row["sku"], str(row["price"]), row[COUNT])
        for _, batch in source.read_changes(TABLES, after, until)
        for row in batch.to_pylist()
    )


BROKEN: dict[str, tuple[str, str]] = {
    "value": ("sku,price\na,1.00\nb,cheap\n", "file price/a.csv, row 2, column \"price\": 'cheap'"),
    "digits": ("sku,price\na,1.005\n", "'1.005' is not a value of type decimal(10,2)"),
    "columns": ("sku,price\na,1.00,x\n", "Expected 2 columns, got 3"),
    "cut off": ('sku,price\na,"1', "a quoted text is not closed"),
    "empty": ("", "Empty CSV file"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_views_wait_for_a_broken_file_to_be_mended(tmp_path: Path, file: Path, name: str) -> None:
    text, told = BROKEN[name]
    source = source_of(tmp_path)
    start = source.follow_tables(TABLES)
    rewritten(file, text)
    for _ in range(2):
        with pytest.raises(SourceAwayError) as caught:
            source.look_for_transactions(start)
        assert told in str(caught.value)
        assert "go on by themselves" in str(caught.value)
    assert told in source.read_health([start]).warnings[0]
    assert "bad" in {finding.state for finding in source.diagnose_source(TABLES)}
    rewritten(file, "sku,price\na,5.00\nb,2.00\n")
    (boundary,) = source.look_for_transactions(start)
    assert changes(source, start, boundary.position) == [("a", "1.00", -1), ("a", "5.00", 1)]
    assert source.read_health([start]).warnings == ()


def test_a_broken_file_is_not_followed_at_all(tmp_path: Path, file: Path) -> None:
    file.write_text("sku,price\na,cheap\n")
    with pytest.raises(ConversionError, match="'cheap' is not a value of type decimal"):
        source_of(tmp_path).follow_tables(TABLES)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("a,1\na,1\n", None, "the key sku = 'a' occurs more than once"),
        ("a,1\n", "a,1\na,2\n", "the key sku = 'a' occurs more than once"),
        ("a,1\n", "a,1\n,2\n", "the key sku = None is NULL"),
        ("a,1\n", "b,1\n", None),
        ("a,1\nb,1\n", "b,1\na,1\n", None),
    ],
)
def test_a_key_is_unique_in_every_state(
    tmp_path: Path, file: Path, before: str, after: str | None, told: str | None
) -> None:
    file.write_text(f"sku,price\n{before}")
    source = source_of(tmp_path, key=["sku"])
    if after is None:
        with pytest.raises(ConversionError, match=told):
            source.follow_tables(TABLES)
        return
    start = source.follow_tables(TABLES)
    assert source.describe_table("price").key == ("sku",)
    rewritten(file, f"sku,price\n{after}")
    if told is None:
        assert len(source.look_for_transactions(start)) == 1
    else:
        with pytest.raises(SourceAwayError, match=told):
            source.look_for_transactions(start)


def test_a_key_is_unique_over_all_files(tmp_path: Path, file: Path) -> None:
    source = source_of(tmp_path, key=["sku"])
    start = source.follow_tables(TABLES)
    other = file.with_name("b.csv")
    other.write_text("sku,price\nb,9.00\n")
    with pytest.raises(SourceAwayError, match="the key sku = 'b' occurs more than once"):
        source.look_for_transactions(start)
    rewritten(file, "sku,price\na,1.00\n")
    (boundary,) = source.look_for_transactions(start)
    assert changes(source, start, boundary.position) == [("b", "2.00", -1), ("b", "9.00", 1)]


def test_integers_of_all_widths_are_one_type(tmp_path: Path) -> None:
    path = tmp_path / "exports" / "price.parquet"
    path.parent.mkdir()
    pq.write_table(pa.table({"sku": ["a"], "price": pa.array([1], pa.int32())}), path)
    source = source_of(tmp_path, format="parquet")
    start = source.follow_tables(TABLES)
    pq.write_table(pa.table({"sku": ["a"], "price": pa.array([1], pa.int64())}), path)
    (boundary,) = source.look_for_transactions(start)
    assert (boundary.changes, boundary.reshaped) == (0, ())


def test_a_new_column_can_be_followed_at_once(tmp_path: Path, file: Path) -> None:
    source = source_of(tmp_path, columns={})
    start = source.follow_tables(TABLES)
    rewritten(file, "sku,price,more\na,1.00,x\nb,2.00,y\n")
    later = source.follow_tables({"price": ["more"]})
    assert later > start
    rewritten(file, "sku,price,more\na,1.00,z\nb,2.00,y\n")
    (boundary,) = source.look_for_transactions(later)
    assert boundary.changes == 2


def test_what_is_not_there_is_a_schema_error(tmp_path: Path, file: Path) -> None:
    source = source_of(tmp_path)
    with pytest.raises(SchemaError, match='did you mean "price"'):
        source.follow_tables({"prices": ["sku"]})
    with pytest.raises(SchemaError, match='no column "skus"'):
        source.follow_tables({"price": ["skus"]})
    with pytest.raises(SchemaError, match="cannot be the name"):
        source.describe_table("../exports/price")
    (tmp_path / "exports" / "stock.json").write_text("{}\n")
    untyped = source_of(tmp_path, format="json")
    with pytest.raises(SchemaError, match="no declared columns"):
        untyped.describe_table("stock")


def test_files_that_are_taken_away_are_waited_for(tmp_path: Path, file: Path) -> None:
    source = source_of(tmp_path)
    start = source.follow_tables(TABLES)
    file.parent.rename(tmp_path / "elsewhere")
    with pytest.raises(SourceAwayError, match='the files of table "price" are not there'):
        source.look_for_transactions(start)
    with pytest.raises(SourceAwayError):
        source.read_health([start])
    with source.prepare_snapshots(start, TABLES) as opener:
        scan = opener().scan_relation(Relation("shop", "price"), ["sku"], start)
        assert sum(batch.num_rows for batch in scan.batches) == 2
    (tmp_path / "elsewhere").rename(file.parent)
    assert source.look_for_transactions(start) == ()


def lose_all(home: Path) -> None:
    shutil.rmtree(home)


def lose_copies(home: Path) -> None:
    shutil.rmtree(home / "copies")


def lose_newest_state(home: Path) -> None:
    max((home / "states").iterdir()).unlink()


def damage_state(home: Path) -> None:
    max((home / "states").iterdir()).write_text("{")


@pytest.mark.parametrize("lose", [lose_all, lose_copies, lose_newest_state, damage_state])
def test_lost_copies_are_a_gap(tmp_path: Path, file: Path, lose: Callable[[Path], None]) -> None:
    source = source_of(tmp_path)
    start = source.follow_tables(TABLES)
    rewritten(file, "sku,price\na,5.00\n")
    (boundary,) = source.look_for_transactions(start)
    lose(tmp_path / "home")
    again = source_of(tmp_path)
    with pytest.raises(GapError, match=r"(?s)not kept any more.*viewkeeper refresh"):
        again.look_for_transactions(boundary.position)
    anew = again.follow_tables(TABLES)
    assert anew > boundary.position
    assert again.look_for_transactions(anew) == ()
    with again.prepare_snapshots(anew, TABLES) as opener:
        scan = opener().scan_relation(Relation("shop", "price"), ["sku"], anew)
        assert sum(batch.num_rows for batch in scan.batches) == 1


def test_a_folder_begun_anew_is_not_mistaken_for_the_old_one(tmp_path: Path, file: Path) -> None:
    source = source_of(tmp_path)
    start = source.follow_tables(TABLES)
    assert source.detach_source().was_following
    assert not (tmp_path / "home").exists()
    again = source_of(tmp_path)
    assert again.follow_tables(TABLES) > start
    with pytest.raises(GapError):
        again.look_for_transactions(start)


def test_a_state_that_is_missing_in_between_is_a_gap(tmp_path: Path, file: Path) -> None:
    source = source_of(tmp_path)
    positions = [source.follow_tables(TABLES)]
    for price in range(3):
        rewritten(file, f"sku,price\na,{price}\n")
        positions += [boundary.position for boundary in source.look_for_transactions(positions[-1])]
    (tmp_path / "home" / "states" / f"{positions[2]}.json").unlink()
    with pytest.raises(GapError, match=str(positions[1])):
        changes(source, positions[1], positions[3])
    with pytest.raises(GapError):
        source.look_for_transactions(positions[0])
    with pytest.raises(GapError):
        changes(source, positions[0], positions[2])
    assert changes(source, positions[0], positions[1]) != []


class Crash(BaseException):
    """Ends a step at its beginning, as kill -9 would."""


@pytest.mark.parametrize("step", ["write_state", "write_problem", "changes", "copies"])
def test_a_crash_between_steps_loses_and_doubles_nothing(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    source = source_of(tmp_path)
    start = source.follow_tables(TABLES)
    rewritten(file, "sku,price\na,5.00\nb,2.00\n")
    with monkeypatch.context() as patch:
        if step.startswith("write"):
            patch.setattr(StateFolder, step, lambda *_: crash())
        else:
            rename = os.rename
            patch.setattr(os, "rename", lambda a, b: crash() if step in str(b) else rename(a, b))
        with pytest.raises(Crash):
            source.look_for_transactions(start)
    (tmp_path / "home" / "copies" / "left over.parquet").write_bytes(b"half")
    again = source_of(tmp_path)
    (boundary,) = again.look_for_transactions(start)
    assert changes(again, start, boundary.position) == [("a", "1.00", -1), ("a", "5.00", 1)]
    again.acknowledge_position(boundary.position)
    left = [path.name for path in (tmp_path / "home").rglob("*") if path.is_file()]
    assert len([name for name in left if name.endswith(".parquet")]) == 1
    assert not [name for name in left if name.endswith(".tmp")]


def crash() -> None:
    raise Crash


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        ({"price": {"colums": {}}}, 'did you mean "columns"'),
        ({"price": {"columns": {"sku": "map"}}}, "unknown type map"),
        ({"price": {"columns": {"sku": "decimal(39,2)"}}}, "unknown type decimal"),
        ({"price": {"key": "sku"}}, "key must be a list"),
        ({"price": {"columns": {"a": "double"}, "key": ["a"]}}, "floating-point"),
        ({"price": {"header": "yes"}}, "must be true or false"),
        ({"price": {"delimiter": "||"}}, "one character"),
        ({"price": {"header": False}}, "must be declared, in order"),
        ({"price": ["sku"]}, "must be a mapping"),
    ],
)
def test_wrong_settings_are_named(tmp_path: Path, tables: object, told: str) -> None:
    options = {"path": "exports", "format": "csv", "tables": tables}
    settings = SourceSettings("shop", "files", options, str(tmp_path), str(tmp_path / "home"))
    with pytest.raises(ProjectError, match=r'source "shop": table "price"') as caught:
        open_source(settings, "test")
    assert told in str(caught.value)


def test_another_declaration_reads_the_files_again(tmp_path: Path, file: Path) -> None:
    start = source_of(tmp_path).follow_tables(TABLES)
    other = source_of(tmp_path, columns={"sku": "string", "price": "decimal(12,2)"})
    (wider,) = other.look_for_transactions(start)
    assert [each.kind for each in wider.reshaped] == ["widen_type"]
    other = source_of(tmp_path, key=["sku"])
    (keyed,) = other.look_for_transactions(wider.position)
    assert [each.kind for each in keyed.reshaped] == ["change_type", "change_key"]
    assert (wider.changes, keyed.changes) == (0, 0)


def test_doctor_finds_nothing_wrong_with_good_files(tmp_path: Path, file: Path) -> None:
    source = source_of(tmp_path)
    assert not source.read_health([]).followed
    source.follow_tables(TABLES)
    findings = source.diagnose_source(TABLES)
    assert {finding.state for finding in findings} == {"good"}
    assert "2 rows" in " ".join(finding.text for finding in findings)


def test_errors_never_escape_untyped(tmp_path: Path, file: Path) -> None:
    source = source_of(tmp_path)
    start = source.follow_tables(TABLES)
    copy = next((tmp_path / "home" / "copies").iterdir())
    copy.write_bytes(b"PAR1 broken PAR1")
    with source.prepare_snapshots(start, TABLES) as opener, pytest.raises(SourceError):
        list(opener().scan_relation(Relation("shop", "price"), ["sku"], start).batches)


@contextmanager
def small_files(size: int) -> Iterator[None]:
    """Inside, no file can become larger."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("size", [2, 300, 1800])
def test_a_disk_that_refuses_a_copy_is_the_warehouse_s_trouble(
    tmp_path: Path, file: Path, size: int
) -> None:
    """At the first bytes, at the rows or at the footer; later the same state is accepted."""
    source = source_of(tmp_path)
    start = source.follow_tables(TABLES)
    rewritten(file, "sku,price\n" + "".join(f"{k * 7919 % 100_003},1.00\n" for k in range(300)))
    with small_files(size), pytest.raises(WarehouseError, match="cannot write") as refused:
        source.look_for_transactions(start)
    assert refused.value.hint
    assert not list((tmp_path / "home").rglob("*.tmp"))
    (boundary,) = source.look_for_transactions(start)
    assert len(changes(source, start, boundary.position)) == 302
