"""Warehouses at Google and Azure: the rules of both, on servers of our own that speak as they do.

What the library sends, and what it makes of refusals, is that of the real services; the servers are
ours (`cloud_servers`). So these tests say that we ask rightly, not that a service answers so.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import viewkeeper
from tests.engine.shop import LINES, Shop, rows_of
from tests.faults.processes import Process
from tests.objects import cloud_servers
from tests.objects.cloud_servers import PrivateAzure, PrivateGoogle
from tests.objects.s3_server import root_at
from tests.objects.test_object_client import put_large_file
from tests.objects.test_object_project import change, lake_bag
from tests.objects.test_object_warehouse import (
    Bucket,
    check_a_zombie_cannot_commit,
    group,
    is_whole,
    reopen,
    zombie_of,
)
from tests.objects.test_standby import wait_until_right
from tests.warehouse.model import World
from viewkeeper.errors import LockedError, ProjectError
from viewkeeper.storage.objects.object_client import ObjectClient

Service = PrivateGoogle | PrivateAzure


@pytest.fixture(params=["gs", "az"])
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    made = PrivateGoogle(tmp_path) if request.param == "gs" else PrivateAzure()
    yield made
    made.server.stop_serving()


@pytest.fixture
def client(service: Service, tmp_path: Path) -> ObjectClient:
    return root_at(service, service.new_url(), tmp_path).storage.client


@pytest.fixture
def bucket(service: Service, tmp_path: Path) -> Bucket:
    return Bucket(service, tmp_path)


def test_an_object_is_created_once(client: ObjectClient, service: Service) -> None:
    tag = client.create("a/b", b"mine")
    assert client.read_tagged("a/b") == (b"mine", tag)
    assert client.find_tag("a/b") == tag
    with pytest.raises(FileExistsError):
        client.create("a/b", b"another")
    assert client.create("a/b", b"mine") == tag, "what is there is ours"
    assert client.read("a/b") == b"mine"
    assert len(service.server.refused) == 2


def test_an_object_is_replaced_by_who_saw_it_last(client: ObjectClient, service: Service) -> None:
    first = client.create("a", b"first")
    second = client.replace("a", b"second", first)
    assert second is not None
    assert client.replace("a", b"late", first) is None
    assert client.read_tagged("a") == (b"second", second)
    # The same content again is not the same object: who saw the first must not replace this one.
    assert client.replace("a", b"first", second) not in (None, first)
    assert client.replace("a", b"late", first) is None
    assert client.replace("missing", b"x", first) is None
    assert client.read("a") == b"first"
    assert len(service.server.refused) >= 3


def test_objects_are_read_in_parts(client: ObjectClient) -> None:
    client.put("a", b"0123456789")
    assert client.read_range("a", 2, 5) == b"234"
    assert client.read_end("a", 4) == (b"6789", 10)
    assert client.read_end("a", 400) == (b"0123456789", 10)
    assert client.find_tag("missing") is None
    with pytest.raises(FileNotFoundError, match="missing"):
        client.read("missing")
    with pytest.raises(FileNotFoundError, match="missing"):
        client.read_end("missing", 1)


def test_objects_are_listed_and_removed(
    client: ObjectClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In pages; what is not there is no reason to keep what is."""
    monkeypatch.setattr(cloud_servers, "PAGE", 7)
    keys = [f"a/{number:03d}" for number in range(20)]
    for key in [*keys, "a/b/c", "ab"]:
        client.put(key, b"x")
    assert client.list_keys("a/") == [*keys, "a/b/c"]
    # The library asks for as many pages as there are.
    assert set(client.list_folder("a/")) == {*keys, "a/b"}
    client.remove(["a/gone", *keys, "gone too", "ab"])
    assert client.list_keys("") == ["a/b/c"]
    client.remove(keys)


def test_a_large_file_goes_in_parts(client: ObjectClient, tmp_path: Path) -> None:
    put_large_file(client, tmp_path)


def test_commits_flushes_and_a_takeover(bucket: Bucket) -> None:
    world = World(bucket.open())
    world.load({(1, "a"): 2, (2, "b"): 1})
    group(world)
    for step in range(4):
        world.append({(step, "x"): 1})
        world.check()
        if step % 2:
            world.store.group.flush_tables()
            assert bucket.lake_rows(world) == world.expected(world.view.ts)
    world.store.close()
    assert is_whole(world.store)
    reopen(world, bucket)
    world.append({(9, "y"): 1})
    world.check()
    assert world.store.lock.epoch == 2
    world.store.close()


def test_a_zombie_cannot_commit(bucket: Bucket) -> None:
    check_a_zombie_cannot_commit(bucket)


def test_a_zombie_cannot_replace_head_or_lock(bucket: Bucket) -> None:
    old, new = zombie_of(bucket)
    with pytest.raises(LockedError):
        old.store.group.journal.write_head(old.store.group._flushed)
    with pytest.raises(LockedError, match="another process has taken it over"):
        old.store.lock.renew_lease()
    new.store.lock.renew_lease()
    new.check()
    new.store.close()


@pytest.fixture
def shop(tmp_path: Path, service: Service) -> Shop:
    made = Shop(tmp_path, {"lines": LINES}, "freshness: 0s\n")
    made.fill()
    file = tmp_path / "viewkeeper.yml"
    file.write_text(file.read_text().replace("./warehouse", service.new_url()) + service.yaml)
    return made


def test_a_project_lives_there(shop: Shop, service: Service, spark: SparkSession) -> None:
    """Loaded, changed, killed while it runs, gone on with from another machine."""
    generator = random.Random(5)
    with viewkeeper.open(shop.folder) as project:
        for number in range(3):
            project.refresh()
            assert rows_of(project.view("lines")) == shop.recomputed(LINES)
            change(shop, generator, number)
    with Process("tests.objects.runner", [str(shop.folder)]) as process:
        process.wait_for("ready", 90.0)
        wait_until_right(shop)
        change(shop, generator, 3)
        process.wait_for("batch", 60.0)
        process.kill()
    shutil.rmtree(shop.folder / "local")
    with viewkeeper.open(shop.folder, spark) as project:
        project.refresh()
        assert rows_of(project.view("lines")) == shop.recomputed(LINES)
        project.compact()
        assert rows_of(project.view("lines")) == shop.recomputed(LINES)
        assert lake_bag(shop, service, project) == shop.recomputed(LINES)
        project.publish(["lines"])
        where = f"{project.settings.warehouse}/published/lines"
        table = DeltaTable(where, storage_options=service.lake_options)
        assert table.to_pyarrow_table().num_rows == sum(shop.recomputed(LINES).values())


def test_a_stopped_holder_is_taken_over_from(shop: Shop) -> None:
    with Process("tests.objects.runner", [str(shop.folder)]) as first:
        assert first.wait_for("ready", 90.0) == "ready epoch 1"
        wait_until_right(shop)
        with Process("tests.objects.runner", [str(shop.folder), "--standby"]) as second:
            second.wait_for("begins", 60.0)
            os.kill(first.pid, signal.SIGSTOP)
            change(shop, random.Random(6), 1)
            assert second.wait_for("ready", 60.0) == "ready epoch 2"
            second.wait_for("batch", 60.0)
            os.kill(first.pid, signal.SIGCONT)
            assert first.ended() == 2
            first.listened()
            assert "another process has taken it over" in first.output, first.output
            assert second.stop(signal.SIGTERM) == 0
    with viewkeeper.open(shop.folder) as project:
        project.refresh()
        assert rows_of(project.view("lines")) == shop.recomputed(LINES)


def test_storage_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    file = tmp_path / "viewkeeper.yml"
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "v.sql").write_text("CREATE MATERIALIZED VIEW v AS SELECT c.a FROM crm.c")
    file.write_text(
        "warehouse: gs://bucket/w\nstorage: {service_account: no-such-file.json}\n"
        "sources: {crm: {kind: sqlite, path: crm.db}}\n"
    )
    with pytest.raises(ProjectError, match="its storage cannot be opened") as caught:
        viewkeeper.open(tmp_path)
    assert "no-such-file.json" in str(caught.value)
