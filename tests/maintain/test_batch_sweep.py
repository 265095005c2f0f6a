"""The batch sweep equals recomputation as of every ts, on every carrier, with any cuts.

Must show 2 of the walking skeleton: random schemas, views of 2 to 5 relations, random concurrent
transactions with duplicates and NULLs; never more than 2(m - 1) lookups for a part.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.maintain.worlds import World, random_cut, random_world
from viewkeeper.delta.algebra import TS, Algebra
from viewkeeper.delta.kernel import Kernel
from viewkeeper.delta.reference import Reference, Row, Rows
from viewkeeper.maintain.batch_sweep import batch_sweep, drive, split
from viewkeeper.updates.protocol import Answer, Lookup
from viewkeeper.updates.queue import BatchChanges
from viewkeeper.view.plan import SweepPlan, sweep_plan

SEEDS = st.integers(min_value=0, max_value=2**32)


def swept(
    algebra: Algebra[object], world: World, rng: random.Random, pending: BatchChanges
) -> list[Rows]:
    """The results of all parts, each part with its own cuts."""
    plan = sweep_plan(world.view)
    origins = world.origins(pending)
    rows = {place: table.num_rows for place, table in origins.items()}
    results = []
    for part in split(plan, rows, rng.choice([1, 3, 1000])):
        cuts = {name: random_cut(rng, world, name) for name in world.sources}

        def ask(lookup: Lookup, cuts: dict[str, object] = cuts) -> Answer:  # type: ignore[assignment]  # a snapshot of this part's own
            name = lookup.relation.source
            snapshot = world.sources[name].snapshot(cuts[name])  # type: ignore[arg-type]  # see above
            return snapshot.ask(lookup, world.end(name))

        mine = {s.place: origins[s.place].slice(s.start, s.stop - s.start) for s in part}
        result, lookups = drive(batch_sweep(algebra, plan, mine, pending), ask)
        assert lookups <= 2 * (len(world.view.places) - 1)
        if result is not None:
            results.append(Reference().lift(algebra.lower(result)))
    return results


def check(world: World, results: list[Rows]) -> None:
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
    algebra: Algebra[object], tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    rng = random.Random(seed)
    world = random_world(rng)
    folder = tmp_path_factory.mktemp("queue")
    pending = world.pending(str(folder), memory_bytes=rng.choice([1 << 30, 0]))
    check(world, swept(algebra, world, rng, pending))


def test_plan_has_two_steps_per_edge() -> None:
    plan: SweepPlan = sweep_plan(random_world(random.Random(7)).view)
    assert len(plan.steps) == 2 * (len(plan.view.places) - 1)


def test_spilled_queue_gives_the_same(tmp_path: Path) -> None:
    world = random_world(random.Random(11))
    in_memory = world.pending(str(tmp_path))
    spilled = world.pending(str(tmp_path), memory_bytes=0)
    for relation, changes in in_memory.relations.items():
        other = spilled.relations[relation]
        assert changes.slice(0, changes.rows) == other.slice(0, other.rows)
