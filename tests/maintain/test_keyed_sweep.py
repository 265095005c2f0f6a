"""A sweep through keyed places equals recomputation as of every ts, on both carriers.

Random views (`tests.maintain.keyed_worlds`), random histories and random cuts with holes; parts of
any size; never more than 2(m - 1) lookups for a part and one for each touched place without a
unique key.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.maintain.keyed_worlds import random_keyed_world, recompute_keyed
from tests.maintain.test_batch_sweep import answered, random_snapshots
from tests.maintain.worlds import World
from viewkeeper.delta.algebra import TS, Algebra
from viewkeeper.delta.kernel import Kernel
from viewkeeper.delta.reference_carrier import Reference, ReferenceDelta, Row
from viewkeeper.engine.batch.own_relations import OwnRelations
from viewkeeper.engine.batch.part_sweep import Batch, BatchMember, PartTask, sweep_part
from viewkeeper.maintain.probe import probe_in_pages
from viewkeeper.maintain.sweep_family import batch_sweep as parts
from viewkeeper.maintain.sweep_family.batch_sweep import Part, batch_sweep, split_origins
from viewkeeper.maintain.view_change import run_pages, run_sweep
from viewkeeper.updates.answer_pages import Paging
from viewkeeper.updates.queue import RelationChanges
from viewkeeper.updates.source_protocol import Answer, Lookup
from viewkeeper.view.definition import ViewDefinition
from viewkeeper.view.expression import Column, type_of
from viewkeeper.view.sweep_plan import SweepPlan, sweep_plan_of

SEEDS = st.integers(min_value=0, max_value=2**32)
CARRIERS = pytest.mark.parametrize("algebra", [Reference(), Kernel()], ids=["reference", "arrow"])


def sweep_parts(
    algebra: Algebra[Any], world: World, rng: random.Random, folder: str
) -> list[ReferenceDelta]:
    """The results of all parts, each part with its own cuts; either nothing is known of what
    precedes the batch, and no cut lacks it, or everything."""
    known = rng.choice([0, world.before])
    pending = world.pending(folder, memory_bytes=rng.choice([1 << 30, 0]), known=known)
    plan = sweep_plan_of(world.view)
    origins = {p: RelationChanges(len(t), t) for p, t in world.origins(pending).items()}
    rows = {place: changes.rows for place, changes in origins.items()}
    results = []
    for part in split_origins(plan, rows, rng.choice([1, 2, 5, 1000, 1000])):
        snapshots = random_snapshots(rng, world, known)
        mine = {s.place: parts.slice_origins(plan, s, origins[s.place]) for s in part}
        sweep = batch_sweep(algebra, plan, mine, pending)
        result, lookups = run_sweep(sweep, lambda ask, of=snapshots: answered(world, of, ask))  # type: ignore[misc]  # lambdas have no annotations
        assert lookups <= most_lookups(plan, part)
        if result is not None:
            results.append(Reference().lift_table(algebra.lower_delta(result)))
    return results


def most_lookups(plan: SweepPlan, part: Part) -> int:
    touched = [m for piece in part if (m := plan.match_at(piece.place)) and not m.join.unique]
    return 2 * (len(plan.view.places) - 1) + len(touched)


def check_states(world: World, results: list[ReferenceDelta]) -> None:
    """Every state of the batch, each against its own recomputation."""
    changes: Counter[tuple[Row, int]] = Counter()
    for result in results:
        at = result.columns.index(TS)
        for row, count in result.counts.items():
            changes[row[:at] + row[at + 1 :], row[at]] += count
    state = recompute_keyed(world, world.before)
    for ts in range(world.before + 1, world.until + 1):
        for (row, when), count in changes.items():
            if when == ts:
                state[row] += count
        assert +state == recompute_keyed(world, ts), f"state as of ts {ts}"
        assert not -state, f"negative rows as of ts {ts}"


def run_seed(
    algebra: Algebra[Any], seed: int, folder: str, kinds: Sequence[str] | None = None
) -> None:
    """A batch in parts, judged at every ts."""
    rng = random.Random(seed)
    world = random_keyed_world(rng, kinds)
    check_states(world, sweep_parts(algebra, world, rng, folder))


def run_probe(
    algebra: Algebra[Any], seed: int, folder: str, kinds: Sequence[str] | None = None
) -> None:
    """The view as of before the batch, for keys that it has and keys that it has not."""
    rng = random.Random(seed)
    world = random_keyed_world(rng, kinds)
    plan = sweep_plan_of(world.view)
    known = rng.choice([0, world.before])
    pending = world.pending(folder, memory_bytes=rng.choice([1 << 30, 0]), known=known)
    plain = [o.name for o in world.view.outputs if isinstance(o.expression, Column)]
    on = rng.sample(plain, min(len(plain), rng.choice([0, 1, 1, 1, 2, 3])))
    names = [o.name for o in world.view.outputs]
    everything = recompute_keyed(world, world.before)
    keys = random_keys(rng, world.view, on, everything)
    snapshots = random_snapshots(rng, world, known)
    asked_for = list[Lookup]()

    def answer(lookup: Lookup) -> Answer:
        asked_for.append(lookup)
        return answered(world, snapshots, lookup)

    whole = Paging(1 << 30)
    probe = probe_in_pages(algebra, plan, on, keys, pending, world.before, whole)
    pieces = list(run_pages(probe, answer))
    assert len(pieces) <= 1
    assert len(asked_for) <= len(world.view.places)
    total: Counter[Row] = Counter()
    for found in pieces:
        rows = Reference().lift_table(algebra.lower_delta(found))
        assert rows.columns == (*names, TS)
        assert all(row[-1] == world.before for row in rows.counts)
        total.update({row[:-1]: count for row, count in rows.counts.items()})
    asked = {tuple(key.values()) for key in keys.to_pylist()}
    at = [names.index(name) for name in on]
    wanted = {r: n for r, n in everything.items() if not on or tuple(r[i] for i in at) in asked}
    assert total == Counter(wanted)


def random_keys(
    rng: random.Random, view: ViewDefinition, on: Sequence[str], rows: Counter[Row]
) -> pa.Table:
    names = [o.name for o in view.outputs]
    types = {o.name: type_of(o.expression) for o in view.outputs}
    present = [tuple(row[names.index(name)] for name in on) for row in rows]
    keys = [key for key in present if rng.random() < 0.4]
    for _ in range(rng.randint(0, 2)):
        values = {pa.int64(): 1, pa.string(): "x", pa.float64(): 0.5, pa.bool_(): True}
        keys.append(tuple(rng.choice([values[types[name]], None]) for name in on))
    if rng.random() < 0.5:
        keys = [key for key in keys if None not in key]
    columns = zip(*keys, strict=True) if keys and on else ((),) * len(on)
    return pa.table(
        [pa.array(c, types[n]) for c, n in zip(columns, on, strict=True)], names=list(on)
    )


@CARRIERS
@given(seed=SEEDS)
def test_a_probe_is_the_view_before_the_batch(
    algebra: Algebra[Any], tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    run_probe(algebra, seed, str(tmp_path_factory.mktemp("queue")))


@CARRIERS
@given(seed=SEEDS)
def test_every_state_equals_recomputation(
    algebra: Algebra[Any], tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    run_seed(algebra, seed, str(tmp_path_factory.mktemp("queue")))


@pytest.mark.parametrize("seed", range(30))
def test_tasks_take_whole_touches(tmp_path: Path, seed: int) -> None:
    """The function that tasks run, over parts of a few rows each."""
    rng = random.Random(seed)
    world = replace(random_keyed_world(rng), before=0)
    plan, schema = sweep_plan_of(world.view), world.view.schema
    assert schema is not None
    pending = world.pending(str(tmp_path), memory_bytes=rng.choice([1 << 30, 0]))
    snapshots = random_snapshots(rng, world)
    openers = {name: partial(snapshots.__getitem__, name) for name in snapshots}
    ends = {name: world.end(name) for name in world.sources}
    views = {"v": BatchMember("v", plan, schema, tmp_path)}
    batch = Batch(1, views, pending, ends, openers, "test", OwnRelations(tmp_path, 0, {}, {}))
    rows = {p.index: pending.relations[p.relation].rows for p in world.view.places}
    pieces = split_origins(plan, rows, rng.choice([2, 3, 7]))
    results = [sweep_part(batch, PartTask("v", n, part)) for n, part in enumerate(pieces)]
    assert not any(result.error for result in results)
    kept = [result.rows for result in results if result.rows is not None]
    check_states(world, [Reference().lift_table(table) for table in kept])
