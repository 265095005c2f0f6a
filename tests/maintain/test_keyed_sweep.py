"""A sweep through keyed places equals recomputation as of every ts, on both carriers.

Random views (`tests.maintain.keyed_worlds`), random histories and random cuts with holes; parts of
any size; never more than 2(m - 1) lookups for a part and one for each touched place without a
unique key.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.maintain.keyed_worlds import random_keyed_world, recompute_keyed
from tests.maintain.test_batch_sweep import answered, random_snapshots
from tests.maintain.worlds import World
from viewkeeper.delta.algebra import TS, Algebra
from viewkeeper.delta.kernel import Kernel
from viewkeeper.delta.reference_carrier import Reference, ReferenceDelta, Row
from viewkeeper.maintain.sweep_family.batch_sweep import (
    Part,
    batch_sweep,
    slice_origins,
    split_origins,
)
from viewkeeper.maintain.view_change import run_sweep
from viewkeeper.updates.queue import BatchChanges, RelationChanges
from viewkeeper.view.sweep_plan import SweepPlan, sweep_plan_of

SEEDS = st.integers(min_value=0, max_value=2**32)
CARRIERS = pytest.mark.parametrize("algebra", [Reference(), Kernel()], ids=["reference", "arrow"])


def sweep_parts(
    algebra: Algebra[Any], world: World, rng: random.Random, pending: BatchChanges
) -> list[ReferenceDelta]:
    """The results of all parts, each part with its own cuts."""
    plan = sweep_plan_of(world.view)
    origins = {p: RelationChanges(len(t), t) for p, t in world.origins(pending).items()}
    rows = {place: changes.rows for place, changes in origins.items()}
    results = []
    for part in split_origins(plan, rows, rng.choice([1, 2, 5, 1000, 1000])):
        snapshots = random_snapshots(rng, world)
        mine = {piece.place: slice_origins(plan, piece, origins[piece.place]) for piece in part}
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


def run_seed(algebra: Algebra[Any], seed: int, folder: str) -> None:
    rng = random.Random(seed)
    world = random_keyed_world(rng)
    pending = world.pending(folder, memory_bytes=rng.choice([1 << 30, 0]))
    check_states(world, sweep_parts(algebra, world, rng, pending))


@CARRIERS
@given(seed=SEEDS)
def test_every_state_equals_recomputation(
    algebra: Algebra[Any], tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    run_seed(algebra, seed, str(tmp_path_factory.mktemp("queue")))
