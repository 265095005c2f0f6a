"""Example 1 with real processes: two warehouses over two databases, a third over both."""

from __future__ import annotations

import time

from pyspark.sql import SparkSession

from tests.live.fleet.bases import Writers
from tests.live.fleet.conftest import MakeFleet
from tests.live.fleet.fleet import SERVICE
from tests.live.fleet.judge import finish, late
from tests.live.fleet.shapes import DIAMOND
from viewkeeper.testing.private_servers import free_port


def test_a_diamond_agrees_whoever_is_killed(make_fleet: MakeFleet, spark: SparkSession) -> None:
    """Over SQLite and PostgreSQL, with a registry that is a process too."""
    registry = f"http://127.0.0.1:{free_port()}"
    fleet = make_fleet(*DIAMOND, registry=registry, a="sqlite", b="postgres")
    fleet.serve()
    fleet.enrol()
    fleet.load(spark)
    fleet.start()
    with Writers(fleet.bases.values(), seed=1):
        for name in ("v1", "v0", "v2"):
            fleet.wait_states(states=3)
            fleet.kill(name)
            fleet.start(name)
        fleet.wait_states(states=3)
        fleet.kill(SERVICE)
        time.sleep(0.5)
        fleet.serve()
        fleet.wait_states(states=3)
    found = finish(fleet)
    assert found.groups == 1
    assert found.agreements > 20
    assert not late(fleet)
