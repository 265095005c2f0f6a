"""States as of every ts are what a Counter says, whatever appends and merges came before."""

from __future__ import annotations

import random
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.warehouse.model import VIEW, Bag, Row, World, bag, opened, per_ts, world
from viewkeeper.errors import HorizonError, WarehouseError
from viewkeeper.warehouse.merge import merge_tail
from viewkeeper.warehouse.metadata.head import read_head
from viewkeeper.warehouse.metadata.plan_files import load_ledger
from viewkeeper.warehouse.rows.view_state import read_counted, read_state, read_view_changes
from viewkeeper.warehouse.store import Store

__all__ = ["world"]

ROWS: tuple[Row, ...] = ((1, "a"), (2, None), (3, ""), (None, "b"), (None, None))
STEPS = st.lists(
    st.one_of(
        st.lists(st.sampled_from(ROWS), max_size=4),
        st.just("merge"),
        st.just("reopen"),
    ),
    max_size=12,
)


def signed_rows(world: World, touched: list[Row]) -> Bag:
    """Delete what is there and insert what is not, so that no state ever goes below zero."""
    present = world.expected(world.view.ts)
    change: Counter[Row] = Counter()
    for row in touched:
        change[row] += -1 if present[row] + change[row] > 0 else 2
    return change


@settings(max_examples=12)
@given(STEPS)
def test_every_state_is_the_sum_of_what_came_before(steps: list[list[Row] | str]) -> None:
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder)) as world:
        for step in steps:
            match step:
                case "merge":
                    merge_tail(world.store, VIEW)
                case "reopen":
                    world.store.close()
                    world.store = Store.open(Path(folder), "test", time.time)
                case list():
                    world.append(signed_rows(world, step))
        world.check()


TELLING: dict[str, tuple[pa.DataType, Sequence[object]]] = {
    "int": (pa.int32(), range(20)),
    "text": (pa.string(), [f"t{n}" for n in range(20)]),
    "day": (pa.date32(), [date(2024, 1, n + 1) for n in range(20)]),
    "moment": (pa.timestamp("us", "UTC"), [datetime(2024, 1, 1, n, tzinfo=UTC) for n in range(20)]),
    "decimal": (pa.decimal128(20, 2), [Decimal(n) / 4 for n in range(20)]),
    "double": (pa.float64(), [n / 8 for n in range(20)]),
    "bool": (pa.bool_(), [True, False]),
}


@pytest.mark.parametrize("kinds", [["int", "double"], ["day"], *([kind] for kind in TELLING)])
def test_few_changes_of_many_rows_are_found_by_any_column(
    tmp_path: Path, kinds: Sequence[str]
) -> None:
    rng = random.Random(repr(kinds))
    schema = pa.schema([(kind, TELLING[kind][0]) for kind in kinds])

    def any_row() -> Row:
        return tuple(rng.choice([None, *TELLING[kind][1]]) for kind in kinds)

    with Store.open(tmp_path, "test", time.time) as store:
        world = World(store, schema)
        world.load(Counter(any_row() for _ in range(60)))
        for _ in range(4):
            there = sorted(world.expected(world.view.ts), key=repr)
            world.append(Counter(any_row() for _ in range(3)))
            world.append({rng.choice(there): -1})
        world.check()


def test_duplicates_are_repeated_and_counted(world: World) -> None:
    assert bag(read_state(world.store.root, world.view)) == {(1, "a"): 1, (2, None): 2, (3, ""): 1}
    rows = read_counted(world.store.root, world.view).to_pylist()
    assert {(row["k"], row["s"]): row["_count"] for row in rows} == world.expected(1)


def test_changes_since_zero_start_with_the_initial_load(world: World) -> None:
    world.append({(1, "a"): -1})
    found = per_ts(read_view_changes(world.store.root, world.view, 0))
    assert found == {1: {(1, "a"): 1, (2, None): 2, (3, ""): 1}, 2: {(1, "a"): -1}}
    assert per_ts(read_view_changes(world.store.root, world.view, 0, 1)).keys() == {1}


@pytest.mark.parametrize("as_of", [0, 3, -1])
def test_a_state_outside_the_window_is_refused_with_the_window(world: World, as_of: int) -> None:
    world.append({(9, "z"): 1})
    with pytest.raises(HorizonError, match=r"from ts 1 \(the horizon\) to ts 2 \(the newest\)"):
        read_state(world.store.root, world.view, as_of)
    with pytest.raises(HorizonError):
        read_view_changes(world.store.root, world.view, 7)


def test_a_reader_needs_no_lock_and_finds_the_positions_of_every_ts(world: World) -> None:
    for value in range(4):
        world.append({(value, "x"): 1})
    view = read_head(world.store.root).require_view(VIEW)
    ledger = load_ledger(world.store.root)
    assert [ledger.positions_at(view.positions, ts) for ts in range(1, 6)] == [
        {"shop": ts - 1} for ts in range(1, 6)
    ]
    assert [entry.ts for entry in ledger.entries_between(2, 4)] == [3, 4]


def test_an_unknown_view_is_named_with_the_known_ones(world: World) -> None:
    with pytest.raises(WarehouseError, match="views there: v"):
        world.store.head.require_view("w")
