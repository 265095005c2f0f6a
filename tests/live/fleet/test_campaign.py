"""Fleets of all shapes, with members and the registry's service killed at random moments.

Every round does one thing to the fleet: a kill, a stop, an absence, or nothing at all. Writers go
on all the time. In the end all must be there, and every state that is kept is judged.
"""

from __future__ import annotations

import random
import time

import pytest
from pyspark.sql import SparkSession

from tests.live.fleet.bases import Writers
from tests.live.fleet.conftest import MakeFleet
from tests.live.fleet.fleet import SERVICE, Fleet
from tests.live.fleet.judge import finish
from tests.live.fleet.shapes import SHAPES
from viewkeeper.testing.private_servers import free_port

ROUNDS, SEEDS = 20, 2


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("shape", SHAPES)
def test_kills_at_random_moments(
    shape: str, seed: int, make_fleet: MakeFleet, spark: SparkSession
) -> None:
    rng = random.Random(f"{shape} {seed}")
    kinds = {base: rng.choice(("sqlite", "postgres")) for base in ("a", "b")}
    served = rng.random() < 0.5
    registry = f"http://127.0.0.1:{free_port()}" if served else "../registry.db"
    fleet = make_fleet(*SHAPES[shape], registry=registry, **kinds)
    if served:
        fleet.serve()
    if rng.random() < 0.5:
        fleet.enrol()
    fleet.load(spark)
    fleet.start()
    kills = 0
    with Writers(fleet.bases.values(), seed, pause_seconds_max=0.2):
        for _ in range(ROUNDS):
            time.sleep(rng.uniform(0, 4))
            kills += trouble(fleet, rng)
        for name in fleet.members:
            if name not in fleet.processes:
                fleet.start(name)
    found = finish(fleet)
    assert found.states > len(fleet.members)
    print(f"{shape} {seed} {kinds} {registry.partition(':')[0]}: {kills} kills, {found}")


def trouble(fleet: Fleet, rng: random.Random) -> int:
    """Do one thing to a fleet; how many processes that killed."""
    away = [name for name in fleet.members if name not in fleet.processes]
    if away and (len(away) == len(fleet.members) or rng.random() < 0.6):
        fleet.start(rng.choice(away))
        return 0
    name = rng.choice(list(fleet.processes))
    if name == SERVICE:
        fleet.kill(name)
        time.sleep(rng.choice((0.0, 0.5, 3.0)))
        fleet.serve()
        return 1
    if rng.random() < 0.2:
        fleet.stop(name)
        return 0
    if rng.random() < 0.8:
        # It has begun to work, or soon will have.
        fleet.wait(f"{name} to start", lambda: bool(fleet.processes[name].lines))
        time.sleep(rng.uniform(0, 2))
    fleet.kill(name)
    if rng.random() < 0.7:
        fleet.start(name)
    return 1
