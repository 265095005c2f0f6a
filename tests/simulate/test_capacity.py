"""What a machine can keep up with: the simulation against what can be computed by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from viewkeeper.simulate.capacity import (
    CapacityWorld,
    MaintenanceCosts,
    find_ceiling,
    simulate_capacity,
)

COSTS = MaintenanceCosts()


def test_a_rare_change_is_as_old_as_its_batch_takes() -> None:
    world = CapacityWorld(rate=0.5)
    alone = world.batch_seconds(1, COSTS)
    found = simulate_capacity(world, COSTS)
    assert found.keeps_up
    assert found.changes == pytest.approx(1.0, abs=0.1)
    assert alone <= found.p50 <= alone + 0.003


def test_batches_grow_until_they_take_what_comes_meanwhile() -> None:
    """In balance b = rate * T(b), and a change waits for half a batch and then for its own."""
    world = CapacityWorld(rate=20_000)
    found = simulate_capacity(world, COSTS)
    balance = world.batch_seconds(round(found.changes), COSTS)
    assert found.keeps_up
    assert found.changes == pytest.approx(world.rate * balance, rel=0.1)
    assert found.p50 == pytest.approx(1.5 * balance, rel=0.15)
    assert found.p95 == pytest.approx(1.95 * balance, rel=0.15)


def test_what_a_change_costs_bounds_the_rate() -> None:
    each = COSTS.read + COSTS.swept
    inline = replace(CapacityWorld(1.0), inline_rows=10**9)
    ceiling = find_ceiling(inline, COSTS, p95=5.0)
    assert 0.8 / each < ceiling < 1.1 / each
    assert not simulate_capacity(replace(inline, rate=1.3 / each), COSTS).keeps_up


@pytest.mark.parametrize(
    "hard",
    [
        CapacityWorld(1_000, views=10),
        CapacityWorld(1_000, sources=10),
        CapacityWorld(1_000, latency=0.02),
    ],
    ids=["views", "sources", "slow"],
)
def test_more_to_do_lowers_the_ceiling_and_makes_views_older(hard: CapacityWorld) -> None:
    easy = CapacityWorld(1_000)
    assert find_ceiling(hard, COSTS, 0.5) < find_ceiling(easy, COSTS, 0.5)
    assert simulate_capacity(hard, COSTS).p50 > simulate_capacity(easy, COSTS).p50


def test_slots_help_where_batches_are_large() -> None:
    worlds = [CapacityWorld(1.0, views=4, slots=slots) for slots in (2, 16)]
    few, many = (find_ceiling(world, COSTS, 20.0) for world in worlds)
    assert many > 1.5 * few


def test_costs_are_found_again_in_the_batches_that_they_made() -> None:
    made = MaintenanceCosts.from_measured(0.04, 60e-6)
    world = CapacityWorld(1.0)
    fitted = MaintenanceCosts.fit_batches(
        [[(n, world.batch_seconds(n, made))] for n in (10, 99, 400)]
    )
    assert fitted.batch == pytest.approx(made.batch)
    assert fitted.read == pytest.approx(made.read)
    assert fitted.spread == pytest.approx(0.0, abs=1e-6)
    alike = MaintenanceCosts.fit_batches([[(10, 0.02), (10, 0.04)]])
    assert alike.batch == pytest.approx(0.03)
    assert alike.read == 0.0
    assert alike.spread > 0.3


def test_batches_that_differ_make_the_oldest_changes_older() -> None:
    steady = MaintenanceCosts.from_measured(0.04, 60e-6)
    world = CapacityWorld(1_000)
    even, uneven = (
        simulate_capacity(world, replace(steady, spread=spread)) for spread in (0.0, 0.6)
    )
    assert uneven.p95 / uneven.p50 > 1.3 * even.p95 / even.p50
