"""Key deletes, inserts and replacements against a dictionary, on stored views of every type.

Row groups are made tiny, so that every search has some to leave out; rows come in several files,
with counts that were added up and taken away again.
"""

from __future__ import annotations

import math
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.warehouse.model import VIEW, Row, World, folder_of
from viewkeeper.errors import CorruptError
from viewkeeper.updates.view_actions import DeleteKeys, InsertMissing, ReplaceRows, StoredAction
from viewkeeper.warehouse.lake import data_files
from viewkeeper.warehouse.merge import merge_tail
from viewkeeper.warehouse.rows import file_search, stored_actions
from viewkeeper.warehouse.rows.view_state import read_stored
from viewkeeper.warehouse.store import Store

NAN = math.nan
DOMAINS: dict[str, tuple[pa.DataType, Sequence[Any]]] = {
    "k": (pa.int64(), (1, 2, 3, 4, 5, None)),
    "a `text`.x": (pa.string(), ("", "a", "ü", None)),
    ".f": (pa.float64(), (0.0, NAN, math.inf, 1.5, None)),
    "[d": (pa.date32(), (date(1, 1, 1), date(2024, 2, 29), None)),
    "exact": (pa.decimal128(20, 2), (Decimal("0.10"), Decimal("-7.00"))),
    "at": (pa.timestamp("us", "UTC"), (datetime(2024, 3, 31, tzinfo=UTC), None)),
    "b": (pa.binary(), (b"", b"\x00", None)),
    "flag": (pa.bool_(), (True, False)),
    "small": (pa.int16(), (-1, 0)),
}
SCHEMA = pa.schema({name: kind for name, (kind, _) in DOMAINS.items()})


def some_rows(chance: random.Random, count: int) -> list[Row]:
    return [tuple(chance.choice(d) for _, d in DOMAINS.values()) for _ in range(count)]


def table(rows: Sequence[Row], fields: Sequence[pa.Field[Any]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(fields)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, fields, strict=True)]
    return pa.table(arrays, names=[field.name for field in fields])


def counted(rows: Mapping[Row, int]) -> pa.Table:
    fields = [*SCHEMA, pa.field("_count", pa.int64())]
    return table([(*row, count) for row, count in rows.items()], fields)


def some_action(chance: random.Random, pool: Sequence[Row]) -> StoredAction:
    rows = chance.choices(pool, k=chance.randint(0, 4))
    match chance.choice("ddddiiiirr"):
        case "d":
            names = chance.sample(SCHEMA.names, k=chance.randint(1, 3))
            at = [SCHEMA.names.index(name) for name in names]
            keys = [tuple(row[i] for i in at) for row in rows]
            return DeleteKeys(tuple(names), table(keys, [SCHEMA.field(i) for i in at]))
        case "i":
            return InsertMissing(table([*rows, *rows[:1]], list(SCHEMA)))
        case _:
            return ReplaceRows(counted({row: chance.randint(1, 2) for row in rows}))


def meant(rows: Counter[Row], action: StoredAction) -> Counter[Row]:
    """The state that an action leaves, by definition."""
    rows = Counter(rows)
    match action:
        case DeleteKeys(columns, keys):
            at = [SCHEMA.names.index(name) for name in columns]
            gone = {tuple(key.values()) for key in known(keys)}
            rows = Counter({r: n for r, n in rows.items() if tuple(r[i] for i in at) not in gone})
        case InsertMissing(new):
            for values in known(new):
                row = tuple(values.values())
                rows[row] = max(rows[row], 1)
        case ReplaceRows(bag):
            rows = bag_of(bag)
    return Counter({row: count for row, count in rows.items() if count})


def known(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows as Python values, all NaN being the same object, which then equals itself."""
    return [
        {n: NAN if isinstance(v, float) and math.isnan(v) else v for n, v in row.items()}
        for row in rows.to_pylist()
    ]


def bag_of(rows: pa.Table) -> Counter[Row]:
    """Counted rows as a Counter; each tuple may be there once, and never with a zero."""
    found: Counter[Row] = Counter()
    for values in known(rows):
        count = values.pop("_count")
        assert count != 0
        assert tuple(values.values()) not in found, "a row twice"
        found[tuple(values.values())] = count
    return found


@contextmanager
def prepared(chance: random.Random, pool: Sequence[Row]) -> Iterator[World]:
    """A view of several files of tiny row groups."""
    with (
        tempfile.TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as patch,
        Store.open(Path(folder), "test", time.time) as store,
    ):
        patch.setattr(data_files, "ROWS_PER_GROUP", 2)
        patch.setattr(file_search, "FEW", 2)
        world = World(store, SCHEMA, hidden=(".f",))
        world.load(Counter(chance.choices(pool, k=8)))
        for _ in range(3):
            world.append({row: chance.choice([-2, -1, 1]) for row in chance.sample(pool, k=3)})
        yield world


def changed(rows: pa.Table) -> dict[Row, int]:
    return dict(bag_of(rows))


@settings(max_examples=40)
@given(st.integers(0, 2**32))
def test_actions_leave_what_a_dictionary_says(seed: int) -> None:
    chance = random.Random(seed)
    # A small pool, so that rows meet again.
    pool = some_rows(chance, 8)
    with prepared(chance, pool) as world:
        for _ in range(3):
            before = bag_of(read_stored(world.store.local_root, world.view))
            todo = [some_action(chance, pool) for _ in range(chance.randint(0, 5))]
            after = before
            for action in todo:
                after = meant(after, action)
            signed = stored_actions.evaluate_actions(world.store.local_root, world.view, todo)
            assert signed.schema.names == [*SCHEMA.names, "_count"]
            least = {row: after[row] - before[row] for row in after.keys() | before.keys()}
            assert changed(signed) == {row: count for row, count in least.items() if count}
            world.append(changed(signed))
            assert bag_of(read_stored(world.store.local_root, world.view)) == after
            if chance.random() < 0.3:
                merge_tail(world.store, VIEW)


def test_only_what_can_match_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    read: list[tuple[str, ...]] = []
    columns = file_search._read_columns

    def watched(file: Any, names: Sequence[str]) -> pa.Table:
        read.append(tuple(names))
        return columns(file, names)

    monkeypatch.setattr(data_files, "ROWS_PER_GROUP", 10)
    monkeypatch.setattr(file_search, "_read_columns", watched)
    kinds: dict[str, pa.DataType] = {"k": pa.int64(), "odd": pa.int64(), "text": pa.string()}
    with Store.open(tmp_path, "test", time.time) as store:
        world = World(store, pa.schema(kinds))
        world.load({(k, k % 2 * 100, f"t{k}"): 1 for k in range(100)})

        def delete(column: str, *keys: int) -> dict[Row, int]:
            read.clear()
            action = DeleteKeys((column,), pa.table({column: pa.array(keys, pa.int64())}))
            return changed(stored_actions.evaluate_actions(store.local_root, world.view, [action]))

        assert delete("k", 42, 43) == {(42, 0, "t42"): -1, (43, 100, "t43"): -1}
        assert read == [("k",), ("odd", "text", "_count")], "one row group of ten"
        assert delete("k", 500) == {}
        assert read == [], "statistics say that it is nowhere"
        assert delete("odd", 50) == {}
        assert read == [("odd",)] * 10, "the key column alone says that it is nowhere"
        assert delete("k", *range(60, 200)).keys() == {
            (k, k % 2 * 100, f"t{k}") for k in range(60, 100)
        }
        assert len(read) == 2 * 4, "many keys are held against statistics as a range"
        assert stored_actions.evaluate_actions(store.local_root, world.view, []).num_rows == 0


def test_keys_of_several_relations_and_inserts_are_one_pass(tmp_path: Path) -> None:
    """A row that two actions look for is found once, so it is deleted once."""
    schema = pa.schema({"a": pa.int64(), "b": pa.int64()})
    with Store.open(tmp_path, "test", time.time) as store:
        world = World(store, schema)
        world.load({(1, 1): 1, (1, 2): 1, (2, 2): 1})
        todo: list[StoredAction] = [
            DeleteKeys(("a",), pa.table({"a": [1]})),
            DeleteKeys(("b",), pa.table({"b": [2, 2]})),
            InsertMissing(pa.table({"b": [2, 9], "a": [1, 9]})),
            DeleteKeys(("a", "b"), pa.table({"a": [9], "b": [8]})),
        ]
        assert {
            tuple(row.values())
            for row in stored_actions.evaluate_actions(
                store.local_root, world.view, todo
            ).to_pylist()
        } == {(1, 1, -1), (2, 2, -1), (9, 9, 1)}


def test_floating_point_values_are_compared_by_meaning(tmp_path: Path) -> None:
    schema = pa.schema({"f": pa.float64()})
    other_nan = pa.array([0x7FF8000000000001], pa.int64()).view(pa.float64())
    with Store.open(tmp_path, "test", time.time) as store:
        world = World(store, schema)
        world.load({(0.0,): 1, (NAN,): 1, (2.0,): 1})
        same = pa.table([pa.concat_arrays([other_nan, pa.array([-0.0, 2.0])])], schema=schema)
        assert (
            stored_actions.evaluate_actions(
                store.local_root, world.view, [InsertMissing(same)]
            ).num_rows
            == 0
        )
        gone = stored_actions.evaluate_actions(
            store.local_root, world.view, [DeleteKeys(("f",), same)]
        )
        assert changed(gone) == {(0.0,): -1, (NAN,): -1, (2.0,): -1}
        bag = same.append_column("_count", pa.array([1, 1, 1]))
        assert (
            stored_actions.evaluate_actions(
                store.local_root, world.view, [ReplaceRows(bag)]
            ).num_rows
            == 0
        )


def test_nulls_beside_a_range_of_keys_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_search, "FEW", 2)
    with Store.open(tmp_path, "test", time.time) as store:
        world = World(store, pa.schema({"k": pa.int64()}))
        world.load({(None,): 1, (900,): 1})
        keys = pa.table({"k": [None, 1, 2, 3]})
        gone = stored_actions.evaluate_actions(
            store.local_root, world.view, [DeleteKeys(("k",), keys)]
        )
        assert changed(gone) == {(None,): -1}


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    chance = random.Random(1)
    with prepared(chance, some_rows(chance, 8)) as world:
        next(folder_of(world.store).glob("*.parquet")).unlink()
        with pytest.raises(CorruptError, match="cannot be believed"):
            stored_actions.evaluate_actions(
                world.store.local_root,
                world.view,
                [InsertMissing(table([], list(SCHEMA))), DeleteKeys(("k",), pa.table({"k": [1]}))],
            )
