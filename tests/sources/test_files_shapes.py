"""A folder of files that changes its shape: what is reported, and what can be asked then.

One table of schema changes, each made while the source is followed and while nobody is there, in
CSV and Parquet. Rows come and go in the same state as the change. Changes of columns that stay are
exact across it; states that are kept answer for what they had; everything else is refused.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.sources.shape_reading import BEFORE, changed, plus, scanned
from viewkeeper.errors import BrokenQueryError, SchemaError, SourceAwayError
from viewkeeper.sources.files import FilesSource, open_source
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.updates.schema_change import ChangeKind, SchemaChange
from viewkeeper.updates.source_protocol import CurrentNames, names_now_of

COLUMNS = ["id", "v"]
TYPES: dict[str, Any] = {"id": "bigint", "v": "bigint"}
Rows = Mapping[str, Any]
FIRST: Rows = {"id": [1, 2], "v": [10, 20], "w": ["x", "y"]}


class Shop:
    """A folder with the tables t and other, and sources that follow it one after the other."""

    def __init__(self, folder: Path, format: str) -> None:
        self.folder = folder
        self.format = format

    def opened(self, **declared: Any) -> FilesSource:
        table = {"columns": {**TYPES, **declared.pop("columns", {})}, **declared}
        if self.format == "parquet":
            table.pop("columns")
        options = {"path": "exports", "format": self.format, "settle_seconds": 0}
        options["tables"] = {"t": table}
        home = str(self.folder / "home")
        settings = SourceSettings("shop", "files", options, str(self.folder), home)
        source = open_source(settings, "test")
        source.states.gone_seconds = 0
        return source

    def write(self, table: str, rows: Rows, name: str = "a") -> None:
        path = self.folder / "exports" / table / f"{name}.{self.format}"
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name("_new")
        if self.format == "parquet":
            pq.write_table(pa.table(dict(rows)), temporary)
        else:
            with open(temporary, "w", newline="") as file:
                writer = csv.writer(file)
                writer.writerow(rows)
                writer.writerows(zip(*rows.values(), strict=True))
        temporary.rename(path)

    def remove(self, table: str) -> None:
        path = self.folder / "exports" / table / f"a.{self.format}"
        path.unlink()
        path.parent.rmdir()


@dataclass(frozen=True)
class Case:
    """What the files of t are next; None if they are gone. `kept`: the column v goes on."""

    rows: Rows | None
    reported: tuple[tuple[ChangeKind, str, str], ...] = ()
    kept: bool = True
    extra: Rows | None = None


IDS = [1, 3]
CASES = {
    "only rows": Case({"id": IDS, "v": [10, 30], "w": ["x", "z"]}),
    "columns in another order": Case({"w": ["x", "z"], "v": [10, 30], "id": IDS}),
    "unused column dropped": Case({"id": IDS, "v": [10, 30]}),
    "filled column added": Case(
        {"id": IDS, "v": [10, 30], "w": ["x", "z"], "a": ["p", "q"]},
        (("add_filled_column", "a", ""),),
    ),
    "empty column added": Case(
        {"id": IDS, "v": [10, 30], "w": ["x", "z"], "a": pa.nulls(2, pa.string())},
        (("add_column", "a", ""),),
    ),
    "column dropped": Case({"id": IDS, "w": ["x", "z"]}, (("drop_column", "v", ""),), kept=False),
    "column renamed": Case(
        {"id": IDS, "z": ["10", "30"], "w": ["x", "z"]},
        (("drop_column", "v", ""), ("add_filled_column", "z", "")),
        kept=False,
    ),
    "not in all files": Case(
        {"id": IDS, "v": [10, 30], "w": ["x", "z"]},
        (("change_type", "v", "one that cannot be kept"),),
        kept=False,
        extra={"id": [4], "w": ["w"]},
    ),
    "table gone": Case(None, (("drop_table", "", ""),), kept=False),
}


@pytest.fixture(params=["csv", "parquet"])
def shop(tmp_path: Path, request: pytest.FixtureRequest) -> Shop:
    made = Shop(tmp_path, request.param)
    made.write("t", FIRST)
    made.write("other", {"x": ["1"]})
    return made


def texts(rows: Rows) -> Rows:
    """Empty fields of a CSV file are NULL."""
    return {n: ["" if v is None else v for v in pa.array(c).to_pylist()] for n, c in rows.items()}


@pytest.mark.parametrize("down", [False, True], ids=["following", "down"])
@pytest.mark.parametrize("name", CASES)
def test_every_schema_change(shop: Shop, name: str, down: bool) -> None:
    case, source = CASES[name], shop.opened()
    assert [source.handle_of(table) for table in ("t", "other")] == ["t", "other"]
    start = source.follow_tables({"t": COLUMNS, "other": ["x"]})
    assert source.look_for_transactions(start) == ()
    if down:
        source.close()
    if case.rows is None:
        shop.remove("t")
    else:
        shop.write("t", case.rows if shop.format == "parquet" else texts(case.rows))
    if case.extra is not None:
        shop.write("t", case.extra, "b")
    shop.write("other", {"x": ["1", "2"]})
    if down:
        source = shop.opened()
    (boundary,) = source.look_for_transactions(start)
    reported = tuple(SchemaChange(kind, "t", *rest) for kind, *rest in case.reported)
    assert boundary.reshaped == reported
    assert changed(source, {"other": ["x"]}, start, boundary.position) == {("2",): 1}
    check_old_handle(source, case, start, boundary.position)
    check_new_handle(source, case, start, boundary.position)
    again = shop.opened()
    (found,) = again.look_for_transactions(start)
    known = tuple(each for each in found.reshaped if each.table == "t")
    assert replace(found, reshaped=known) == boundary, "a restart finds the same"
    assert again.look_for_transactions(boundary.position) == ()
    shop.write("other", {"x": ["2"]})
    (later,) = again.look_for_transactions(boundary.position)
    assert later.reshaped == ()
    assert changed(again, {"other": ["x"]}, boundary.position, later.position) == {("1",): -1}


def check_old_handle(source: FilesSource, case: Case, start: int, end: int) -> None:
    assert scanned(source, "t", COLUMNS, start) == dict(BEFORE)
    became = names_now_of(source, "t")
    if not case.kept:
        assert became == (None if case.rows is None else CurrentNames("t", {"id": "id"}))
        with pytest.raises(BrokenQueryError, match='table "t" has changed its shape'):
            changed(source, {"t": COLUMNS}, start, end)
        with pytest.raises(BrokenQueryError, match='table "t" has changed its shape'):
            scanned(source, "t", COLUMNS, end)
        if case.rows is not None:
            went = changed(source, {"t": ["id"]}, start, end)
            assert plus(Counter({(1,): 1, (2,): 1}), Counter(went)) == scanned(
                source, "t", ["id"], end
            )
        return
    assert became == CurrentNames("t", {"id": "id", "v": "v"})
    assert changed(source, {"t": COLUMNS}, start, end) == {(2, 20): -1, (3, 30): 1}
    assert scanned(source, "t", COLUMNS, end) == {(1, 10): 1, (3, 30): 1}


def check_new_handle(source: FilesSource, case: Case, start: int, end: int) -> None:
    if case.rows is None:
        with pytest.raises(SchemaError, match='no table "t"'):
            source.handle_of("t")
        with pytest.raises(SchemaError, match='no table "t"'):
            source.describe_table("t")
        assert source.follow_tables({"t": COLUMNS, "other": ["x"]}) == end, (
            "what is gone is passed over"
        )
        return
    handle = source.handle_of("t")
    assert handle == ("t" if case.kept else "t#2")
    columns = [field.name for field in source.describe_table(handle).fields]
    assert ("v" in columns) == case.kept
    assert source.follow_tables({handle: columns, "t": COLUMNS}) == end
    assert source.handle_of("t") == handle
    assert len(scanned(source, handle, ["id"], end)) == 2 + (case.extra is not None)


def test_a_column_that_was_added_without_values_is_null_before(shop: Shop) -> None:
    source = shop.opened()
    start = source.follow_tables({"t": COLUMNS})
    empty: Rows = {"id": [1, 2], "v": [10, 20], "a": pa.nulls(2, pa.string())}
    shop.write("t", empty if shop.format == "parquet" else texts(empty))
    (added,) = source.look_for_transactions(start)
    source.follow_tables({"t": ["a"]})
    shop.write("t", {"id": [1, 2], "v": [10, 20], "a": ["p", "q"]})
    (filled,) = source.look_for_transactions(added.position)
    assert scanned(source, "t", ["id", "a"], start) == {(1, None): 1, (2, None): 1}
    assert changed(source, {"t": ["id", "a"]}, start, filled.position) == {
        (1, None): -1,
        (2, None): -1,
        (1, "p"): 1,
        (2, "q"): 1,
    }


def test_a_column_that_was_added_with_values_is_asked_for_from_there_on(shop: Shop) -> None:
    source = shop.opened()
    start = source.follow_tables({"t": COLUMNS})
    shop.write("t", {"id": [1], "v": [10], "a": ["p"]})
    (added,) = source.look_for_transactions(start)
    source.follow_tables({"t": ["a"]})
    with pytest.raises(BrokenQueryError, match="column a was added with values"):
        changed(source, {"t": ["id", "a"]}, start, added.position)
    shop.write("t", {"id": [1], "v": [10], "a": ["q"]})
    (later,) = source.look_for_transactions(added.position)
    assert changed(source, {"t": ["id", "a"]}, added.position, later.position) == {
        (1, "p"): -1,
        (1, "q"): 1,
    }


def test_types_change_by_the_files_or_by_the_declaration(shop: Shop) -> None:
    source = shop.opened()
    start = source.follow_tables({"t": COLUMNS})
    wide = {"id": [1, 3], "v": pa.array([10, 30], pa.decimal128(20, 1)), "w": ["x", "z"]}
    shop.write("t", wide if shop.format == "parquet" else {**wide, "v": [10, 30]})
    source = shop.opened(columns={"v": "decimal(20,1)"})
    (wider,) = source.look_for_transactions(start)
    assert wider.reshaped == (SchemaChange("widen_type", "t", "v", "decimal(20,1)"),)
    assert source.handle_of("t") == "t"
    found = changed(source, {"t": COLUMNS}, start, wider.position)
    assert found == {(2, Decimal("20.0")): -1, (3, Decimal("30.0")): 1}
    assert scanned(source, "t", COLUMNS, start) == {(1, Decimal(10)): 1, (2, Decimal(20)): 1}
    shop.write("t", {"id": [1], "v": ["ten"], "w": ["x"]})
    source = shop.opened(columns={"v": "string"})
    (other,) = source.look_for_transactions(wider.position)
    assert other.reshaped == (SchemaChange("change_type", "t", "v", "string"),)
    with pytest.raises(BrokenQueryError, match="column v"):
        scanned(source, "t", COLUMNS, other.position)
    assert source.handle_of("t") == "t#2"
    source.follow_tables({"t#2": COLUMNS})
    assert scanned(source, "t#2", COLUMNS, other.position) == {(1, "ten"): 1}
    with pytest.raises(BrokenQueryError, match="column v has another type there"):
        scanned(source, "t#2", COLUMNS, start)


def test_a_key_goes_with_its_column(shop: Shop) -> None:
    source = shop.opened(key=["v"])
    start = source.follow_tables({"t": COLUMNS})
    assert source.describe_table("t").key == ("v",)
    shop.write("t", {"id": [1, 1], "w": ["x", "x"]})
    (boundary,) = source.look_for_transactions(start)
    kinds = [each.kind for each in boundary.reshaped]
    assert kinds == ["drop_column", "change_key"]
    assert source.describe_table("t").key == ()
    shop.write("t", {"id": [1, 1], "v": [10, 10], "w": ["x", "x"]})
    with pytest.raises(SourceAwayError, match="the key v = 10 occurs more than once"):
        source.look_for_transactions(boundary.position)


def test_a_key_of_another_type_is_looked_through_again(shop: Shop) -> None:
    source = shop.opened(key=["id"])
    start = source.follow_tables({"t": COLUMNS})
    source = shop.opened(key=["id"], columns={"id": "string"})
    shop.write("t", {"id": ["1", "1"], "v": [10, 20]})
    with pytest.raises(SourceAwayError, match="the key id = '1' occurs more than once"):
        source.look_for_transactions(start)
    shop.write("t", {"id": ["1", "01"], "v": [10, 20]})
    (boundary,) = source.look_for_transactions(start)
    assert boundary.reshaped == (SchemaChange("change_type", "t", "id", "string"),)


def test_files_that_come_back_are_another_table(shop: Shop) -> None:
    source = shop.opened()
    start = source.follow_tables({"t": COLUMNS, "other": ["x"]})
    shop.remove("t")
    (gone,) = source.look_for_transactions(start)
    shop.write("t", {"id": [1], "v": [11]})
    (back,) = source.look_for_transactions(gone.position)
    assert back.reshaped == (), "the handle's table is gone already"
    assert names_now_of(source, "t") is None
    assert source.handle_of("t") == "t#2"
    position = source.follow_tables({"t#2": COLUMNS, "t": COLUMNS})
    assert scanned(source, "t#2", COLUMNS, position) == {(1, 11): 1}
    with pytest.raises(BrokenQueryError, match="gone"):
        scanned(source, "t", COLUMNS, position)
    shop.write("t", {"id": [1], "v": [12]})
    (boundary,) = source.look_for_transactions(position)
    since = changed(source, {"t#2": COLUMNS}, position, boundary.position)
    assert since == {(1, 11): -1, (1, 12): 1}


def test_files_that_are_missing_for_a_moment_are_away(shop: Shop) -> None:
    source = shop.opened()
    start = source.follow_tables({"t": COLUMNS})
    source.states.gone_seconds = None
    shop.remove("t")
    with pytest.raises(SourceAwayError, match='files of table "t" are not there'):
        source.look_for_transactions(start)
    shop.write("t", {"id": [1, 2], "v": [10, 21], "w": ["x", "y"]})
    (boundary,) = source.look_for_transactions(start)
    assert boundary.reshaped == ()
    assert changed(source, {"t": COLUMNS}, start, boundary.position) == {(2, 20): -1, (2, 21): 1}
