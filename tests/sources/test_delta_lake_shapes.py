"""A Delta Lake table that changes its shape: what is reported, where, and what can be asked then.

One table of schema changes, each made while the table is followed and while nobody is there. Rows
are written before and after each change, in versions of their own, so that the position of the
change is known. Versions from before it can be read for ever: answers about them stay exact under
the old handle, also where values were not kept; a new handle never reads another column's values.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.schema import Field, PrimitiveType

from tests.sources.shape_reading import BEFORE, changed, plus, scanned
from viewkeeper.errors import BrokenQueryError, GapError, SchemaError
from viewkeeper.sources.delta_lake import DeltaLakeSource, open_source
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.updates.schema_change import ChangeKind, SchemaChange
from viewkeeper.updates.source_protocol import CurrentNames, names_now_of

COLUMNS = ["id", "v"]
PLAIN = pa.table({"id": [1], "v": [1], "w": [""]}).schema
MAPPED = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "9"}
RENAMING = ("rename_column", "drop_column", "change_type", "recreate_table")
FEATURES: dict[str, Any] = {"minReaderVersion": 3, "minWriterVersion": 7}


def source_of(tmp_path: Path) -> DeltaLakeSource:
    home = str(tmp_path / "home")
    settings = SourceSettings("lake", "delta_lake", {"path": "t"}, str(tmp_path), home)
    return open_source(settings, "test")


def write(path: Path, **columns: Any) -> None:
    write_deltalake(path, pa.table(columns), mode="append", schema_mode="merge")


def overwrite(**columns: Any) -> Callable[[Path], None]:
    return lambda path: write_deltalake(
        path, pa.table(columns), mode="overwrite", schema_mode="overwrite"
    )


def add(path: Path) -> None:
    DeltaTable(path).alter.add_columns([Field("a", PrimitiveType("string"))])


def create(path: Path) -> None:
    DeltaTable.create(path, schema=PLAIN, mode="overwrite")


def commit(path: Path, *features: str, **metadata: Any) -> None:
    """A version that only changes the shape, as engines write it that do not rewrite files."""
    version = DeltaTable(path).version()
    known = [
        json.loads(line)["metaData"]
        for number in range(version + 1)
        for line in (path / "_delta_log" / f"{number:020d}.json").read_text().splitlines()
        if "metaData" in line
    ][-1]
    both = {"readerFeatures": list(features), "writerFeatures": list(features)}
    actions: list[Any] = [{"metaData": {**known, **metadata}}]
    if features:
        actions.append({"protocol": {**FEATURES, **both}})
    entry = path / "_delta_log" / f"{version + 1:020d}.json"
    entry.write_text("".join(json.dumps(action) + "\n" for action in actions))


def shape(**columns: str | tuple[str, str]) -> str:
    """A schema: for each column its type, or its type and the name that it has in files."""
    fields = []
    for number, (name, given) in enumerate(columns.items()):
        kind, stored = given if isinstance(given, tuple) else (given, name)
        mapping = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": stored}
        fields.append({"name": name, "type": kind, "nullable": True, "metadata": mapping})
    return json.dumps({"type": "struct", "fields": fields})


def mapped(**columns: str | tuple[str, str]) -> Callable[[Path], None]:
    """The same files, their columns called otherwise."""
    return lambda path: commit(
        path, "columnMapping", schemaString=shape(**columns), configuration=MAPPED
    )


@dataclass(frozen=True)
class Case:
    """A schema change in a version of its own, what is reported of it, and what comes after it.

    `later` are the rows 4 of the next version, as that version calls its columns; none where our
    library cannot write them. `gone` says that the handle's column v is gone.
    """

    change: Callable[[Path], None]
    reported: tuple[tuple[ChangeKind, str, str], ...] = ()
    later: dict[str, Any] | None = None
    v: str = "v"
    gone: bool = False
    table_gone: bool = False
    rows: Counter[Any] | None = None


LONG = {"id": "long", "v": "long", "w": "string"}
CASES = {
    "column added": Case(add, (("add_column", "a", ""),), {"id": [4], "v": [40]}),
    "column added with rows": Case(
        lambda path: write(path, id=[5], v=[50], a=["x"]),
        (("add_column", "a", ""),),
        {"id": [4], "v": [40]},
    ),
    "unused column dropped": Case(
        overwrite(id=[1, 2, 3], v=[10, 20, 30]), (), {"id": [4], "v": [40]}
    ),
    "nothing but a property": Case(
        lambda path: commit(path, configuration={"note": "x"}), (), {"id": [4], "v": [40]}
    ),
    "table overwritten": Case(
        overwrite(id=[1, 2, 3], v=[10, 20, 31], w=["", "", ""]), (), {"id": [4], "v": [40]}
    ),
    "column dropped": Case(
        overwrite(id=[1, 2, 3], w=["", "", ""]),
        (("drop_column", "v", ""),),
        {"id": [4]},
        gone=True,
    ),
    "column of another type": Case(
        overwrite(id=[1, 2, 3], v=["a", "b", "c"], w=["", "", ""]),
        (("change_type", "v", "string"),),
        {"id": [4], "v": ["d"]},
        gone=True,
    ),
    "column of a type that is not kept": Case(
        overwrite(id=[1, 2, 3], v=[[1], [2], [3]], w=["", "", ""]),
        (("change_type", "v", "one that cannot be kept"),),
        {"id": [4], "v": [[4]]},
        gone=True,
    ),
    "wider type, files kept": Case(
        lambda path: commit(
            path, "typeWidening", schemaString=shape(**{**LONG, "v": "decimal(22,2)"})
        ),
        (("widen_type", "v", "decimal128(22, 2)"),),
    ),
    "wider type, rewritten": Case(
        overwrite(id=[1, 2, 3], v=pa.array([10, 20, 30], pa.decimal128(20, 0)), w=["", "", ""]),
        (("widen_type", "v", "decimal128(20, 0)"),),
        {"id": [4], "v": pa.array([40], pa.decimal128(20, 0))},
    ),
    "column renamed": Case(
        mapped(id="long", z=("long", "v"), w="string"), (("rename_column", "v", "z"),), v="z"
    ),
    "columns swapped": Case(
        mapped(v=("long", "id"), id=("long", "v"), w="string"),
        (("rename_column", "id", "v"), ("rename_column", "v", "id")),
        v="id",
    ),
    "mapped column dropped": Case(
        mapped(id="long", w="string"), (("drop_column", "v", ""),), gone=True
    ),
    "names mapped to themselves": Case(mapped(**LONG)),
    "table made again": Case(
        create, (("recreate_table", "", ""),), {"id": [4], "v": [40]}, gone=True, table_gone=True
    ),
}


@pytest.mark.parametrize("down", [False, True], ids=["following", "down"])
@pytest.mark.parametrize("feed", ["false", "true"], ids=["no feed", "feed"])
@pytest.mark.parametrize("name", CASES)
def test_every_schema_change(tmp_path: Path, name: str, feed: str, down: bool) -> None:
    case, path, source = CASES[name], tmp_path / "t", source_of(tmp_path)
    table = pa.table({"id": [1, 2], "v": [10, 20], "w": ["", ""]})
    write_deltalake(path, table, configuration={"delta.enableChangeDataFeed": feed})
    assert source.handle_of("t") == "t"
    start = source.follow_tables({"t": COLUMNS})
    assert source.look_for_transactions(start) == ()
    if down:
        source.close()
    write(path, id=[3], v=[30])
    case.change(path)
    if case.later is not None:
        write(path, **case.later)
    if down:
        source = source_of(tmp_path)
    boundaries = source.look_for_transactions(start)
    assert [each.position for each in boundaries] == list(range(1, 2 + 1 + bool(case.later)))
    reported = tuple(SchemaChange(kind, "t", *rest) for kind, *rest in case.reported)
    expected = [(), reported, ()][: len(boundaries)]
    assert [each.reshaped for each in boundaries] == expected
    check_old_handle(source, case, boundaries[-1].position)
    check_new_handle(source, case, boundaries[-1].position)
    again = source_of(tmp_path)
    assert again.look_for_transactions(start) == boundaries, "a restart finds the same"
    assert [each.reshaped for each in again.look_for_transactions(1)] == expected[1:]
    assert again.look_for_transactions(boundaries[-1].position) == ()


def check_old_handle(source: DeltaLakeSource, case: Case, end: int) -> None:
    """Up to the change everything is exact; beyond it too, unless the column is gone."""
    assert scanned(source, "t", COLUMNS, 0) == dict(BEFORE)
    assert changed(source, {"t": COLUMNS}, 0, 1) == {(3, 30): 1}
    became = names_now_of(source, "t")
    if case.table_gone:
        assert became is None
    elif case.gone:
        assert became == CurrentNames("t", {"id": "id"})
        assert scanned(source, "t", ["id"], end) == {
            (n,): 1 for n in range(1, 5) if n < 4 or case.later
        }
    if case.gone:
        for after, until in ((0, end), (1, 2)):
            with pytest.raises(BrokenQueryError, match='table "t" has changed its shape'):
                changed(source, {"t": COLUMNS}, after, until)
        with pytest.raises(BrokenQueryError, match='table "t" has changed its shape'):
            scanned(source, "t", COLUMNS, end)
        return
    assert became is not None
    assert became.columns["v"] == case.v
    since = Counter(changed(source, {"t": COLUMNS}, 0, end))
    assert since[(3, 30)] + since[(3, 31)] == 1
    assert scanned(source, "t", COLUMNS, end) == plus(BEFORE, since)
    assert {"id", "v"} <= {field.name for field in source.describe_table("t").fields}


def check_new_handle(source: DeltaLakeSource, case: Case, end: int) -> None:
    """A view that is bound again has what there is now, and its past as far as it is its own."""
    handle = source.handle_of("t")
    assert handle == ("t#2" if case.reported and case.reported[0][0] in RENAMING else "t")
    names = {field.name for field in source.describe_table(handle).fields}
    columns = ["v", "id"] if case.v == "id" else ["id", case.v]
    if not names >= set(columns):
        assert case.gone
        return
    assert source.follow_tables({handle: columns, "t": COLUMNS}) == end
    assert source.handle_of("t") == handle
    if case.gone:
        with pytest.raises(BrokenQueryError):
            scanned(source, handle, columns, 1)
        with pytest.raises(BrokenQueryError):
            changed(source, {handle: columns}, 1, end)
        assert sum(scanned(source, handle, columns, end).values()) in (1, 4)
    else:
        assert changed(source, {handle: columns}, 0, end) == changed(source, {"t": COLUMNS}, 0, end)
        for version in range(end + 1):
            assert scanned(source, handle, columns, version) == scanned(
                source, "t", COLUMNS, version
            )


def test_an_added_column_is_null_before(tmp_path: Path) -> None:
    path, source = tmp_path / "t", source_of(tmp_path)
    write_deltalake(path, pa.table({"id": [1], "v": [10]}))
    start = source.follow_tables({"t": COLUMNS})
    write(path, id=[2], v=[20], a=[Decimal("1.5")])
    (boundary,) = source.look_for_transactions(start)
    source.follow_tables({"t": ["id", "a"]})
    assert scanned(source, "t", ["id", "a"], start) == {(1, None): 1}
    both = changed(source, {"t": ["id", "a"]}, start, boundary.position)
    assert both == {(2, Decimal("1.5")): 1}
    overwrite(id=[1], v=[10], a=[Decimal("2.5")])(path)
    (later,) = source.look_for_transactions(boundary.position)
    total = changed(source, {"t": ["id", "a"]}, start, later.position)
    assert total == {(1, None): -1, (1, Decimal("2.5")): 1}


def test_a_column_that_comes_back_is_another_one(tmp_path: Path) -> None:
    path, source = tmp_path / "t", source_of(tmp_path)
    write_deltalake(path, pa.table({"id": [1], "v": [10]}))
    source.follow_tables({"t": COLUMNS})
    overwrite(id=[1])(path)
    write(path, id=[2], v=[20])
    kinds = [[c.kind for c in each.reshaped] for each in source.look_for_transactions(0)]
    assert kinds == [["drop_column"], ["add_column"]]
    assert names_now_of(source, "t") == CurrentNames("t", {"id": "id"})
    assert [field.name for field in source.describe_table("t").fields] == ["id"]
    assert source.handle_of("t") == "t#2"
    source.follow_tables({"t#2": COLUMNS, "t": COLUMNS})
    assert scanned(source, "t#2", COLUMNS, 2) == {(1, None): 1, (2, 20): 1}
    assert scanned(source, "t", COLUMNS, 0) == {(1, 10): 1}
    with pytest.raises(BrokenQueryError, match="column v"):
        scanned(source, "t", COLUMNS, 2)


def test_another_folder_is_a_gap_and_another_name_an_error(tmp_path: Path) -> None:
    path, source = tmp_path / "t", source_of(tmp_path)
    write_deltalake(path, pa.table({"id": [1], "v": [10]}))
    source.follow_tables({"t": COLUMNS})
    write(path, id=[2], v=[20])
    assert len(source.look_for_transactions(0)) == 1
    path.rename(tmp_path / "old")
    write_deltalake(path, pa.table({"id": [1], "v": [10]}))
    with pytest.raises(GapError, match="not of this table"):
        source.look_for_transactions(1)
    assert source.follow_tables({"t": COLUMNS}) == 0
    assert source.handle_of("t") == "t", "everything begins anew"
    with pytest.raises(SchemaError, match='no table "u"'):
        source.handle_of("u")
