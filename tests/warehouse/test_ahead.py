"""Commits out of order: the newest state is the sum of all, the mark says what is complete.

A history of deltas is fixed first, each with its ts, as a plan makes it durable; then they are
committed in any order. Deaths in between leave the ts committed or not, never twice.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.warehouse.faults import Death, dying_at
from tests.warehouse.model import LOADED, SCHEMA, VIEW, Bag, Row, World, bag, opened, per_ts, signed
from viewkeeper.errors import HorizonError
from viewkeeper.storage.sealed_json import seal_body
from viewkeeper.warehouse.compact import compact_view
from viewkeeper.warehouse.lake.data_files import write_rows
from viewkeeper.warehouse.merge import merge_tail
from viewkeeper.warehouse.metadata.head import NAME, ViewHead, read_head
from viewkeeper.warehouse.metadata.plan_files import BatchPlan, LedgerEntry
from viewkeeper.warehouse.metadata.record import Advance, DataFile, read_record
from viewkeeper.warehouse.publish import publish_view
from viewkeeper.warehouse.rows.spark_frames import changes_frame, state_frame
from viewkeeper.warehouse.rows.view_state import read_counted, read_state, read_view_changes
from viewkeeper.warehouse.store import Store

ROWS: tuple[Row, ...] = ((1, "a"), (2, None), (3, ""), (None, "b"))


class Race:
    """A view whose deltas are all known and stamped, and of which any is committed next."""

    def __init__(self, world: World, deltas: list[Counter[Row]]) -> None:
        self.world = world
        self.deltas = dict(enumerate(deltas, LOADED + 1))
        entries = tuple(LedgerEntry(ts, "shop", ts - 2, ts - 1, 100.0, 1) for ts in self.deltas)
        plan = BatchPlan(self.store.next_plan, entries, {})
        self.store.write_plan(plan)
        # The ts are given for good; from here on each is finished on its own.
        self.store.commit([], plan.n)

    @property
    def store(self) -> Store:
        return self.world.store

    @property
    def view(self) -> ViewHead:
        return self.world.view

    @property
    def done(self) -> set[int]:
        return {*range(LOADED, self.view.ts + 1), *self.view.ahead}

    def commit(self, *stamps: int) -> None:
        """Commit these ts in one record, with one file for all of them."""
        done = self.done | {*stamps}
        mark = next(ts for ts in range(LOADED, 1000) if ts + 1 not in done)
        ahead = tuple(sorted(ts for ts in done if ts > mark))
        files = one_file(self.world, {ts: self.deltas[ts] for ts in stamps})
        self.store.commit([Advance(VIEW, mark, {"shop": mark - 1}, files, ahead)])

    def reopen(self) -> None:
        self.store.close()
        self.world.store = Store.open(self.store.root, "test", time.time)

    def total(self, stamps: set[int]) -> Counter[Row]:
        total = Counter(self.world.history[0][1])
        for ts in stamps - {LOADED}:
            total.update(self.deltas[ts])
        return +total

    def check(self) -> None:
        view, root = read_head(self.store.root).require_view(VIEW), self.store.root
        assert view == self.view
        assert bag(read_state(root, view)) == self.total(self.done)
        assert all(row["_count"] > 0 for row in read_counted(root, view).to_pylist())
        for ts in range(view.horizon, view.ts + 1):
            assert bag(read_state(root, view, ts)) == self.total({*range(LOADED, ts + 1)})
        span = range(view.horizon + 1, view.ts + 1)
        moved = {ts: {r: n for r, n in self.deltas[ts].items() if n} for ts in span}
        assert per_ts(read_view_changes(root, view, view.horizon)) == {
            t: d for t, d in moved.items() if d
        }
        for beyond in (view.ts + 1, *view.ahead):
            with pytest.raises(HorizonError, match="mark" if view.ahead else "newest"):
                read_state(root, view, beyond)
            with pytest.raises(HorizonError):
                read_view_changes(root, view, view.horizon, beyond)

    def check_in_order(self) -> None:
        """Nothing shows any more in which order the commits came."""
        assert self.view.ahead == ()
        self.check()
        self.world.history += self.deltas.items()
        self.world.check()


def one_file(world: World, deltas: Mapping[int, Bag]) -> tuple[DataFile, ...]:
    pieces = [signed(SCHEMA, delta, ts) for ts, delta in deltas.items()]
    rows = pa.concat_tables(pieces)
    folder, number = world.store.folder_of(VIEW), world.store.head.record + 1
    return (write_rows(folder, SCHEMA, rows, number, 0),) if rows.num_rows else ()


def walk(chance: random.Random, present: Counter[Row], steps: int) -> list[Counter[Row]]:
    """Deltas that keep every count at or above zero, if they come in order."""
    present, deltas = Counter(present), []
    for _ in range(steps):
        delta: Counter[Row] = Counter()
        for row in chance.choices(ROWS, k=chance.randint(0, 3)):
            here = present[row] + delta[row]
            delta[row] += chance.randint(-here, 2) if here else chance.randint(1, 2)
        present.update(delta)
        deltas.append(Counter({row: count for row, count in delta.items() if count}))
    return deltas


@settings(max_examples=15)
@given(st.integers(0, 2**32))
def test_any_order_with_deaths_and_merges_ends_as_in_order(seed: int) -> None:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder)) as world:
        race = Race(world, walk(chance, world.expected(LOADED), 8))
        while missing := sorted(race.deltas.keys() - race.done):
            some = chance.sample(missing[:5], k=min(len(missing[:5]), chance.choice([1, 1, 2])))
            try:
                with dying_at(chance.randint(1, 25), chance.random() < 0.5):
                    race.commit(*some)
            except Death:
                race.reopen()
            if chance.random() < 0.3:
                merge_tail(race.store, VIEW)
            race.check()
        race.check_in_order()


DELETED_FIRST: list[Counter[Row]] = [
    Counter({(9, "z"): 1}),
    Counter({(9, "z"): -1, (1, "a"): 1}),
    Counter({(1, "a"): -2, (8, "y"): 3}),
]


def test_what_is_deleted_before_it_came_is_not_shown(tmp_path: Path) -> None:
    with opened(tmp_path) as world:
        race = Race(world, DELETED_FIRST)
        race.commit(3)
        assert (race.view.ts, race.view.ahead, race.view.reach_ts) == (1, (3,), 3)
        assert bag(read_state(tmp_path, race.view)) == {(1, "a"): 2, (2, None): 2, (3, ""): 1}
        assert race.view.rows == 4, "five rows are shown, and one count is below zero"
        race.commit(4)
        assert race.view.ahead == (3, 4)
        race.commit(2)
        assert (race.view.ts, race.view.rows) == (4, 6)
        race.check_in_order()


def test_a_file_may_hold_what_fills_a_gap_and_what_is_ahead(tmp_path: Path) -> None:
    with opened(tmp_path) as world:
        race = Race(world, [*DELETED_FIRST, Counter({(7, "x"): 1})])
        race.commit(3)
        race.commit(2, 5)
        assert (race.view.ts, race.view.ahead) == (3, (5,))
        race.commit(4)
        race.check_in_order()


@pytest.mark.parametrize(
    ("stamps", "mark", "ahead", "why"),
    [
        ((3,), 2, (3, 4), "ts 3 is there already"),
        ((2, 3), 4, (), "ts 3 is there already"),
        ((5,), 1, (3, 4), "ts 5 is above the mark"),
        ((2, 4, 5), 3, (5,), "ts 4 is above the mark"),
        ((2,), 2, (4,), "nothing is taken back"),
        ((9,), 1, (3, 9), "only what has its ts"),
        ((1,), 2, (3,), "up to the mark is there"),
        ((2,), 2, (4, 3), "in ts order"),
        ((2,), 2, (2, 3), "above the mark"),
    ],
)
def test_a_ts_is_committed_once_and_never_taken_back(
    tmp_path: Path, stamps: tuple[int, ...], mark: int, ahead: tuple[int, ...], why: str
) -> None:
    with opened(tmp_path) as world:
        race = Race(world, [*DELETED_FIRST, Counter({(7, "x"): 1})])
        race.commit(3)
        before = race.view
        files = one_file(world, {ts: {(5, "e"): 1} for ts in stamps})
        with pytest.raises(AssertionError, match=why):
            world.store.commit([Advance(VIEW, mark, {}, files, ahead)])
        assert read_head(tmp_path).require_view(VIEW) == before
        race.check()


def test_heads_and_records_from_before_there_was_anything_ahead_are_read(tmp_path: Path) -> None:
    with opened(tmp_path) as world:
        world.append({(9, "z"): 1})
    for path, kind, part in (
        (tmp_path / NAME, "head", "views"),
        (tmp_path / "records" / f"{2:020d}.json", "record", "changes"),
    ):
        body = json.loads(path.read_bytes())["body"]
        assert [each.pop("ahead") for each in body[part]] == [[]]
        path.write_bytes(seal_body(kind, body))
    assert [getattr(change, "ahead", None) for change in read_record(path).changes] == [()]
    with Store.open(tmp_path, "test", time.time) as store:
        World(store, history=world.history).check()


def test_spark_reads_and_compacts_up_to_the_mark_and_publishes_everything(
    spark: SparkSession, tmp_path: Path
) -> None:
    chance, staging = random.Random(7), tmp_path / "staging"
    with opened(tmp_path / "warehouse") as world:
        race = Race(world, walk(chance, world.expected(LOADED), 9))
        for some in ((2, 4), (7,), (3, 8), (6,), (10,)):
            race.commit(*some)
        assert (race.view.ts, race.view.ahead) == (4, (6, 7, 8, 10))
        for horizon in (3, 4):
            merge_tail(race.store, VIEW)
            compact_view(race.store, spark, VIEW, horizon)
            race.check()
            newest = state_frame(spark, race.store.root, race.view, staging)
            assert bag(newest.toArrow().cast(SCHEMA)) == race.total(race.done)
            marked = state_frame(spark, race.store.root, race.view, staging, 4)
            assert bag(marked.toArrow().cast(SCHEMA)) == race.total({1, 2, 3, 4})
            moved = changes_frame(spark, race.store.root, race.view, staging, horizon).toArrow()
            assert per_ts(moved) == per_ts(read_view_changes(race.store.root, race.view, horizon))
        with pytest.raises(HorizonError):
            compact_view(race.store, spark, VIEW, 6)
        publish_view(race.store, spark, VIEW)
        table = DeltaTable(str(race.store.root / "published" / VIEW))
        assert bag(pq.read_table(table.file_uris())) == race.total(race.done)
        facts = table.history(1)[0]
        assert (facts["viewkeeper_ts"], facts["viewkeeper_ahead"]) == (4, [6, 7, 8, 10])
        race.commit(5)
        race.commit(9)
        race.check_in_order()


def test_a_count_below_zero_in_the_body_is_kept_and_not_shown(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Only a view that was maintained wrongly has one; a later row must still meet it."""
    with opened(tmp_path / "warehouse") as world:
        world.append({(9, "z"): -1, (1, "a"): -1})
        compact_view(world.store, spark, VIEW, 2)
        root, staging = world.store.root, tmp_path / "staging"
        for expected in (0, 0, 1):
            shown = state_frame(spark, root, world.view, staging).toArrow().cast(SCHEMA)
            assert bag(shown) == bag(read_state(root, world.view))
            assert bag(shown)[9, "z"] == expected
            world.append({(9, "z"): 1})
