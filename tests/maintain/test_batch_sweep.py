"""The batch sweep equals recomputation as of every ts, on every carrier, with any cuts.

Must show 2 of the walking skeleton: random schemas, views of 2 to 5 relations, random concurrent
transactions with duplicates and NULLs; never more than 2(m - 1) lookups for a part.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.maintain.worlds import World, random_cut, random_world
from viewkeeper.delta.algebra import TS, Algebra
from viewkeeper.delta.kernel import Kernel
from viewkeeper.delta.reference_carrier import Reference, ReferenceDelta, Row
from viewkeeper.engine.batch.own_relations import OwnRelations
from viewkeeper.engine.batch.part_sweep import (
    Batch,
    BatchMember,
    PartTask,
    run_on_spark,
    sweep_part,
)
from viewkeeper.maintain.sweep_family.batch_sweep import batch_sweep, split_origins
from viewkeeper.maintain.view_change import run_sweep
from viewkeeper.sources.memory import MemorySnapshot
from viewkeeper.updates.queue import BatchChanges
from viewkeeper.updates.source_protocol import Answer, Lookup
from viewkeeper.view.sweep_plan import SweepPlan, sweep_plan_of

SEEDS = st.integers(min_value=0, max_value=2**32)


def swept(
    algebra: Algebra[Any], world: World, rng: random.Random, pending: BatchChanges
) -> list[ReferenceDelta]:
    """The results of all parts, each part with its own cuts."""
    plan = sweep_plan_of(world.view)
    origins = world.origins(pending)
    rows = {place: table.num_rows for place, table in origins.items()}
    results = []
    for part in split_origins(plan, rows, rng.choice([1, 3, 1000])):
        snapshots = random_snapshots(rng, world)
        mine = {s.place: origins[s.place].slice(s.start, s.stop - s.start) for s in part}
        sweep = batch_sweep(algebra, plan, mine, pending)
        result, lookups = run_sweep(sweep, lambda ask, of=snapshots: answered(world, of, ask))  # type: ignore[misc]  # lambdas have no annotations
        assert lookups <= 2 * (len(world.view.places) - 1)
        if result is not None:
            results.append(Reference().lift_table(algebra.lower_delta(result)))
    return results


def random_snapshots(rng: random.Random, world: World, known: int = 0) -> dict[str, MemorySnapshot]:
    return {n: s.open_snapshot(random_cut(rng, world, n, known)) for n, s in world.sources.items()}


def answered(world: World, snapshots: dict[str, MemorySnapshot], lookup: Lookup) -> Answer:
    name = lookup.relation.source
    return snapshots[name].answer_lookup(lookup, world.end(name))


def check(world: World, results: list[ReferenceDelta]) -> None:
    """Every state of the batch, each against its own recomputation."""
    changes: Counter[tuple[Row, int]] = Counter()
    for result in results:
        at = result.columns.index(TS)
        for row, count in result.counts.items():
            changes[row[:at] + row[at + 1 :], row[at]] += count
    state = world.recomputed(world.before)
    for ts in range(world.before + 1, world.until + 1):
        for (row, when), count in changes.items():
            if when == ts:
                state[row] += count
        assert +state == world.recomputed(ts), f"state as of ts {ts}"
        assert not -state, f"negative rows as of ts {ts}"


@pytest.mark.parametrize("algebra", [Reference(), Kernel()], ids=["reference", "arrow"])
@given(seed=SEEDS)
def test_every_state_equals_recomputation(
    algebra: Algebra[Any], tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    rng = random.Random(seed)
    world = random_world(rng)
    folder = tmp_path_factory.mktemp("queue")
    pending = world.pending(str(folder), memory_bytes=rng.choice([1 << 30, 0]))
    check(world, swept(algebra, world, rng, pending))


def test_plan_has_two_steps_per_edge() -> None:
    plan: SweepPlan = sweep_plan_of(random_world(random.Random(7)).view)
    assert len(plan.steps) == 2 * (len(plan.view.places) - 1)


def test_spilled_queue_gives_the_same(tmp_path: Path) -> None:
    world = random_world(random.Random(11))
    in_memory = world.pending(str(tmp_path))
    spilled = world.pending(str(tmp_path), memory_bytes=0)
    for relation, changes in in_memory.relations.items():
        other = spilled.relations[relation]
        assert changes.rows_between(0, changes.rows) == other.rows_between(0, other.rows)


@pytest.mark.parametrize("seed", range(12))
def test_spark_tasks_give_the_same(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """The function that tasks run, in tasks and inline, on worlds of which all is maintained."""
    rng = random.Random(seed)
    world = replace(random_world(rng), before=0)
    pending = world.pending(str(tmp_path), memory_bytes=rng.choice([1 << 30, 0]))
    plan = sweep_plan_of(world.view)
    schema = world.view.schema
    assert schema is not None
    ends = {name: world.end(name) for name in world.sources}
    snapshots = random_snapshots(rng, world)
    openers = {name: partial(snapshots.__getitem__, name) for name in snapshots}
    views = {"v": BatchMember("v", plan, schema, tmp_path)}
    batch = Batch(1, views, pending, ends, openers, "test", OwnRelations(tmp_path, 0, {}, {}))
    rows = {p.index: pending.relations[p.relation].rows for p in world.view.places}
    parts = split_origins(plan, rows, max(1, sum(rows.values()) // 3))
    tasks = [PartTask("v", number, part) for number, part in enumerate(parts)]
    on_spark = run_on_spark(spark, batch, tasks, minutes=5)
    inline = [sweep_part(batch, task) for task in tasks]
    for results in (on_spark, inline):
        assert all(result.error is None for result in results)
        limit = 2 * (len(world.view.places) - 1)
        assert all(sum(result.lookups.values()) <= limit for result in results)
        kept = [result.rows for result in results if result.rows is not None]
        check(world, [Reference().lift_table(table) for table in kept])
