"""The same program on a standalone cluster, whose machines die in the middle of its work.

Executors ask PostgreSQL and MariaDB themselves, over TCP, and write data files to the warehouse,
which all machines share. Whatever is killed, the views are what both databases say.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster_world import ClusterWorld, driver_of
from viewkeeper.testing.private_servers import PrivateMariadb, PrivatePostgres
from viewkeeper.testing.standalone_cluster import standalone_cluster

pytestmark = pytest.mark.campaign


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ClusterWorld]:
    postgres, mariadb = PrivatePostgres(tmp_path / "pg"), PrivateMariadb(tmp_path / "maria")
    try:
        postgres.start()
        mariadb.start()
        made = ClusterWorld(tmp_path, postgres, mariadb)
        yield made
        made.close()
    finally:
        postgres.stop()
        mariadb.stop()


@pytest.mark.parametrize("workers", [2, 3])
def test_load_batches_and_verification_run_on_the_workers(
    workers: int, world: ClusterWorld, tmp_path: Path
) -> None:
    with standalone_cluster(tmp_path / "cluster", workers) as cluster:
        project = world.make_machine("driver", cluster.url)
        with driver_of(project) as driver:
            assert set(driver.refresh()["loaded"]) == {"lines", "segments"}
            world.write_some()
            report = driver.refresh()
            assert report["on_spark"] == report["batches"] > 0
            assert report["waiting"] == {}
            driver.begin("verify")
            assert driver.result() == {"lines": True, "segments": True}
        world.check(project)


def test_executors_and_workers_are_killed_in_the_middle(
    world: ClusterWorld, tmp_path: Path
) -> None:
    """Tasks are tried again, on other executors; the job goes on, or the next refresh does it."""
    rng = random.Random(3)
    with standalone_cluster(tmp_path / "cluster", 2) as cluster:
        project = world.make_machine("driver", cluster.url)
        with driver_of(project) as driver:
            driver.begin("refresh")
            time.sleep(rng.uniform(8.0, 14.0))
            cluster.kill_executors()
            loaded = driver.result()["loaded"]
            if set(loaded) != {"lines", "segments"}:
                driver.refresh()
            world.check(project)
            killed = 0
            for number in range(4):
                world.write_some()
                driver.begin("refresh")
                time.sleep(rng.uniform(0.1, 2.0))
                if number % 2:
                    cluster.kill_worker()
                    cluster.add_worker()
                    killed += 1
                else:
                    killed += cluster.kill_executors()
                report = driver.result()
                if report["waiting"]:
                    assert driver.refresh()["waiting"] == {}
                world.check(project)
            assert killed >= 4, "nothing was killed"


def test_another_machine_goes_on_where_a_killed_driver_was(
    world: ClusterWorld, tmp_path: Path
) -> None:
    """It has the warehouse and the databases, and nothing else of the first one."""
    rng = random.Random(5)
    with standalone_cluster(tmp_path / "cluster", 2) as cluster:
        first = world.make_machine("first", cluster.url)
        with driver_of(first) as driver:
            driver.refresh()
            world.check(first)
            world.write_some()
            driver.begin("refresh")
            time.sleep(rng.uniform(0.2, 1.5))
            driver.process.kill()
        for name in ("second", "third"):
            project = world.make_machine(name, cluster.url)
            world.write_some()
            with driver_of(project) as driver:
                driver.begin("refresh")
                if name == "second":
                    time.sleep(rng.uniform(5.0, 9.0))
                    driver.process.kill()
                else:
                    assert driver.result()["waiting"] == {}
                    driver.begin("verify")
                    assert driver.result() == {"lines": True, "segments": True}
        world.check(project)
