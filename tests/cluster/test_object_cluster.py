"""A cluster whose machines share no folder: the warehouse is in object storage.

Executors write data files, and the parts of loads, to the bucket, with credentials that they find
in their own environment under the names that the project file has. Each driver has a local folder
of its own, which no other one sees.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster_world import ClusterWorld, driver_of
from tests.cluster.test_cluster import world as world  # the same databases
from tests.objects.s3_server import PrivateS3
from viewkeeper.testing.standalone_cluster import standalone_cluster

pytestmark = pytest.mark.campaign

KEY, SECRET = "VIEWKEEPER_CLUSTER_KEY", "VIEWKEEPER_CLUSTER_SECRET"


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
    """The address of a warehouse, and its `storage:`, without a secret in it."""
    server = PrivateS3(tmp_path / "s3.log")
    monkeypatch.setenv(KEY, server.options["access_key_id"])
    monkeypatch.setenv(SECRET, server.options["secret_access_key"])
    named = {
        **server.options,
        "access_key_id": f"${{{KEY}}}",
        "secret_access_key": f"${{{SECRET}}}",
    }
    pairs = ", ".join(f"{key}: '{value}'" for key, value in named.items())
    yield server.new_url(), f"storage: {{{pairs}}}\n".replace("'true'", "true")
    server.stop()


def test_executors_are_killed_and_another_driver_goes_on(
    world: ClusterWorld,
    bucket: tuple[str, str],
    tmp_path: Path,
) -> None:
    rng, (url, storage) = random.Random(7), bucket
    with standalone_cluster(tmp_path / "cluster", 2) as cluster:
        first = world.make_machine("first", cluster.url, storage, url)
        with driver_of(first) as driver:
            driver.begin("refresh")
            time.sleep(rng.uniform(8.0, 14.0))
            killed = cluster.kill_executors()
            if set(driver.result()["loaded"]) != {"lines", "segments"}:
                assert driver.refresh()["waiting"] == {}
            world.check(first)
            for _ in range(2):
                world.write_some()
                driver.begin("refresh")
                time.sleep(rng.uniform(0.1, 2.0))
                killed += cluster.kill_executors()
                if driver.result()["waiting"]:
                    assert driver.refresh()["waiting"] == {}
                world.check(first)
            assert killed >= 2, "nothing was killed"
            world.write_some()
            driver.begin("refresh")
            time.sleep(rng.uniform(0.2, 1.5))
            driver.process.kill()
        second = world.make_machine("second", cluster.url, storage, url)
        world.write_some()
        with driver_of(second) as driver:
            assert driver.refresh()["waiting"] == {}
            driver.begin("verify")
            assert driver.result() == {"lines": True, "segments": True}
        world.check(second)
    assert not (tmp_path / "shared").exists(), "nobody has a folder that all see"
