"""A sweep in pages equals recomputation as of every ts, and holds no more than it may.

The worlds are those of the other sweeps: random views with keyed places, random histories, random
cuts with holes. Pages have one to five rows, so that every step of every world is cut somewhere.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.maintain.keyed_worlds import random_keyed_world, recompute_keyed
from tests.maintain.test_batch_sweep import answered, random_snapshots
from tests.maintain.test_keyed_sweep import check_states, random_keys
from tests.maintain.worlds import World
from viewkeeper.delta.algebra import TS, Algebra
from viewkeeper.delta.kernel import Kernel
from viewkeeper.delta.reference_carrier import Reference, ReferenceDelta, Row
from viewkeeper.maintain import view_change
from viewkeeper.maintain.probe import probe_in_pages
from viewkeeper.maintain.sweep_family.batch_sweep import slice_origins, split_origins
from viewkeeper.maintain.view_change import (
    PagedSweeper,
    change_in_pages,
    project_outputs,
    run_pages,
)
from viewkeeper.sources.memory import MemorySnapshot
from viewkeeper.updates.answer_pages import Paging, gather_pages
from viewkeeper.updates.queue import RelationChanges
from viewkeeper.updates.source_protocol import COUNT, Answer, Lookup
from viewkeeper.view.expression import Column
from viewkeeper.view.sweep_plan import sweep_plan_of

SEEDS = st.integers(min_value=0, max_value=2**32)


def answer_in_pages(world: World, snapshots: dict[str, MemorySnapshot], lookup: Lookup) -> Answer:
    """What a source that pages would answer; sometimes with rows that cancel in other pages."""
    answer = answered(world, snapshots, lookup)
    batches = answer.rows.to_batches(max_chunksize=2)
    if batches and answer.rows.num_rows % 3 == 0:
        batches = list(_signed_batches(answer.rows))
    rows, pages = gather_pages(batches, answer.rows.schema, lookup.paging)
    if COUNT in rows.column_names:
        rows = answer.rows
    return replace(answer, rows=rows, pages=pages)


def _signed_batches(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    for count in (1, -1, 1):
        signed = rows.append_column(COUNT, pa.array([count] * rows.num_rows, pa.int64()))
        yield from signed.to_batches(max_chunksize=2)


def sweep_pieces(
    algebra: Algebra[Any], world: World, rng: random.Random, folder: str
) -> list[ReferenceDelta]:
    known = rng.choice([0, world.before])
    pending = world.pending(folder, memory_bytes=rng.choice([1 << 30, 0]), known=known)
    plan = sweep_plan_of(world.view)
    origins = {p: RelationChanges(len(t), t) for p, t in world.origins(pending).items()}
    results = []
    for part in split_origins(plan, {p: c.rows for p, c in origins.items()}, rng.choice([4, 1000])):
        snapshots = random_snapshots(rng, world, known)
        mine = {s.place: slice_origins(plan, s, origins[s.place]) for s in part}
        paging = Paging(rng.choice([2, 3, 5]), folder)
        finish = partial(project_outputs, algebra, plan)
        sweep = change_in_pages(algebra, plan, mine, pending, paging, finish)
        found = run_pages(sweep, lambda ask, of=snapshots: answer_in_pages(world, of, ask))  # type: ignore[misc]  # lambdas have no annotations
        results += [Reference().lift_table(algebra.lower_delta(piece)) for piece in found]
    return results


@settings(max_examples=25)
@given(seed=SEEDS)
def test_pieces_add_up_to_every_state(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    rng = random.Random(seed)
    world = random_keyed_world(rng)
    check_states(
        world, sweep_pieces(Reference(), world, rng, str(tmp_path_factory.mktemp("queue")))
    )


@pytest.mark.parametrize("seed", range(12))
def test_the_kernel_has_the_same_pieces(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    world = random_keyed_world(rng)
    check_states(world, sweep_pieces(Kernel(), world, rng, str(tmp_path)))


@settings(max_examples=25)
@given(seed=SEEDS)
def test_a_probe_in_pages_is_the_view_before_the_batch(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    algebra = Reference()
    rng = random.Random(seed)
    world = random_keyed_world(rng)
    plan = sweep_plan_of(world.view)
    pending = world.pending(str(tmp_path_factory.mktemp("queue")))
    names = [o.name for o in world.view.outputs]
    plain = [o.name for o in world.view.outputs if isinstance(o.expression, Column)]
    on = rng.sample(plain, min(len(plain), rng.choice([0, 1, 2])))
    everything = recompute_keyed(world, world.before)
    keys = random_keys(rng, world.view, on, everything)
    snapshots = random_snapshots(rng, world)
    probe = probe_in_pages(algebra, plan, on, keys, pending, world.before, Paging(3))
    total: Counter[Row] = Counter()
    for piece in run_pages(probe, lambda ask: answer_in_pages(world, snapshots, ask)):
        rows = Reference().lift_table(algebra.lower_delta(piece))
        assert rows.columns == (*names, TS)
        for row, count in rows.counts.items():
            total[row[:-1]] += count
    asked = {tuple(key.values()) for key in keys.to_pylist()}
    at = [names.index(name) for name in on]
    wanted = {r: n for r, n in everything.items() if not on or tuple(r[i] for i in at) in asked}
    assert {row: count for row, count in total.items() if count} == wanted


@pytest.mark.parametrize("mistake", ["pads of each page", "corrections of each page"])
def test_mistakes_are_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory, mistake: str
) -> None:
    """A left place that pads what one page does not match; corrections made once for each page."""
    join = PagedSweeper._join_rest

    def wrong(self: Any, step: Any, versions: Any, waiting: Mapping[int, Any]) -> Any:
        if mistake == "pads of each page":
            return join(self, step, replace(versions, pages=[*versions.pages][:1]), waiting)
        twice = {p: self.algebra.add([rows, rows]) for p, rows in waiting.items()}
        return join(self, step, versions, twice)

    monkeypatch.setattr(view_change.PagedSweeper, "_join_rest", wrong)
    for seed in range(60):
        rng = random.Random(seed)
        world = random_keyed_world(rng)
        folder = str(tmp_path_factory.mktemp("queue"))
        try:
            check_states(world, sweep_pieces(Reference(), world, rng, folder))
        except AssertionError:
            return
    pytest.fail("nobody noticed")
