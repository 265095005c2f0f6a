"""A fleet whose registry is a PostgreSQL database, under kills of members and of the server.

The server has nothing but the registry, so that what stops with it is the order alone. Members
apply what is ordered, wait, and go on when it is back.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.live.fleet.bases import Writers
from tests.live.fleet.conftest import MakeFleet
from tests.live.fleet.judge import finish
from tests.live.fleet.shapes import SHAPES
from tests.live.fleet.test_campaign import trouble
from viewkeeper.testing.private_servers import PrivatePostgres

ROUNDS = 16


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PrivatePostgres]:
    made = PrivatePostgres(tmp_path / "registry-server", {"wal_level": "replica"})
    made.start()
    yield made
    made.stop()


@pytest.mark.campaign
@pytest.mark.parametrize("shape", ["diamond", "beside"])
def test_members_and_the_server_are_killed(
    shape: str, make_fleet: MakeFleet, spark: SparkSession, server: PrivatePostgres
) -> None:
    rng = random.Random(f"{shape} postgres")
    fleet = make_fleet(*SHAPES[shape], registry=server.url_of(), a="sqlite", b="sqlite")
    fleet.load(spark)
    fleet.start()
    kills = outages = 0
    with Writers(fleet.bases.values(), seed=9, pause_seconds_max=0.2):
        for turn in range(ROUNDS):
            time.sleep(rng.uniform(0, 3))
            if turn % 3:
                kills += trouble(fleet, rng)
                continue
            outages += 1
            server.kill() if rng.random() < 0.7 else server.stop()
            time.sleep(rng.choice((0.0, 0.5, 3.0)))
            if rng.random() < 0.5 and fleet.processes:
                kills += trouble(fleet, rng)
            server.start()
        for name in fleet.members:
            if name not in fleet.processes:
                fleet.start(name)
    found = finish(fleet)
    assert found.states > len(fleet.members)
    print(f"{shape}: {kills} kills of members, {outages} of the server, {found}")
