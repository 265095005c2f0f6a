"""Requests and answers that come to harm on the way: nothing is lost, nothing is done twice.

The proxy stands below the library, so its own repetitions take part: a conditional put that was
carried out, and whose answer was lost or was a 503, is sent again by the library or by us, and is
then refused because of itself. A request that was given up may still arrive. Every outcome here is
that of moto's server, looked at without the proxy.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, get_args

import pytest

import viewkeeper
from tests.engine.shop import LINES, Shop, rows_of
from tests.faults.processes import Process
from tests.objects.fault_proxy import FaultProxy, HttpFate, limit_patience
from tests.objects.s3_server import PrivateS3, root_at
from tests.objects.test_object_project import change, lake_bag
from tests.objects.test_object_warehouse import Bucket, group, is_whole
from tests.objects.test_standby import wait_until_right
from tests.samples import keep_some
from tests.warehouse.model import VIEW, World
from viewkeeper.engine import warehouse_lease
from viewkeeper.engine.project import Project
from viewkeeper.errors import RequestTroubleError, WarehouseError
from viewkeeper.storage.objects.object_client import ObjectClient
from viewkeeper.warehouse.lake.data_files import stored_schema
from viewkeeper.warehouse.lake.lake_table import LakeTable
from viewkeeper.warehouse.store import Store

T = TypeVar("T")

ATTEMPTS = 10
FATES = get_args(HttpFate)
SEEDS = range(1, 13)


@pytest.fixture
def proxy(s3: PrivateS3, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    limit_patience(monkeypatch)
    made = FaultProxy(s3)
    yield made
    made.settle()
    made.stop()


class Place:
    """An address as a client sees it through the proxy, and as it is."""

    def __init__(self, proxy: FaultProxy, s3: PrivateS3, local: Path) -> None:
        url = proxy.new_url()
        self.client: ObjectClient = root_at(proxy, url, local).storage.client
        self.truth: ObjectClient = root_at(s3, url, local).storage.client


@pytest.fixture
def place(proxy: FaultProxy, s3: PrivateS3, tmp_path: Path) -> Place:
    return Place(proxy, s3, tmp_path)


@pytest.mark.parametrize("fate", FATES)
def test_a_create_is_understood(place: Place, proxy: FaultProxy, fate: HttpFate) -> None:
    """Ours is ours, also where the second of two equal puts was refused because of the first."""
    proxy.harm_once(fate, "PUT")
    tag = place.client.create("a", b"mine")
    proxy.settle()
    assert proxy.met[fate]
    assert place.truth.read_tagged("a") == (b"mine", tag)
    proxy.harm_once(fate, "PUT")
    with pytest.raises(FileExistsError):
        place.client.create("a", b"another")
    proxy.settle()
    assert place.truth.read_tagged("a") == (b"mine", tag)


@pytest.mark.parametrize("fate", FATES)
def test_a_replacement_is_understood(place: Place, proxy: FaultProxy, fate: HttpFate) -> None:
    first = place.client.create("a", b"first")
    proxy.harm_once(fate, "PUT")
    second = place.client.replace("a", b"second", first)
    proxy.settle()
    assert proxy.met[fate]
    assert place.truth.read_tagged("a") == (b"second", second)
    proxy.harm_once(fate, "PUT")
    assert place.client.replace("a", b"stale", first) is None
    proxy.settle()
    assert place.truth.read("a") == b"second"


@pytest.mark.parametrize("fate", FATES)
def test_reads_lists_and_deletes_are_repeated(
    place: Place, proxy: FaultProxy, fate: HttpFate
) -> None:
    data = random.Random(2).randbytes(100_000)
    place.truth.put("f/a", data)
    place.truth.put("f/b", b"b")
    proxy.harm_once(fate, "GET")
    assert place.client.read("f/a") == data
    proxy.harm_once(fate, "GET")
    assert place.client.read_range("f/a", 10, 90_000) == data[10:90_000]
    proxy.harm_once(fate, "GET")
    assert place.client.read_end("f/a", 7) == (data[-7:], len(data))
    proxy.harm_once(fate, "HEAD")
    assert place.client.find_tag("f/a") == place.truth.find_tag("f/a")
    proxy.harm_once(fate, "GET")
    assert place.client.list_keys("f/") == ["f/a", "f/b"]
    proxy.harm_once(fate, "POST")
    place.client.remove(["f/a", "f/gone"])
    proxy.settle()
    assert place.truth.list_keys("f/") == ["f/b"]


@pytest.mark.parametrize("step", ["uploads", "partNumber=1", "partNumber=2", "uploadId"])
@pytest.mark.parametrize("fate", keep_some([fate for fate in FATES if fate != "fine"], [1, 6]))
def test_a_large_file_arrives_whole(
    place: Place, proxy: FaultProxy, tmp_path: Path, fate: HttpFate, step: str
) -> None:
    """Whatever happens to a step of an upload; a completion finds no parts when it is repeated."""
    path = tmp_path / "large"
    path.write_bytes(random.Random(3).randbytes(20 << 20))
    proxy.harm_once(fate, "PUT" if step.startswith("part") else "POST", step)
    place.client.put("large", path)
    proxy.settle()
    assert proxy.met[fate] == 1
    assert place.truth.read("large") == path.read_bytes()


@pytest.mark.parametrize("count", [2, 100])
def test_a_table_is_not_damaged_by_a_storage_that_gives_no_answer(
    proxy: FaultProxy, tmp_path: Path, count: int
) -> None:
    """A damaged one would stop its view; the library for tables says both by the same error."""
    bucket = Bucket(proxy, tmp_path)
    world = World(bucket.open())
    world.load({(1, "a"): 1})
    group(world)
    world.append({(2, "b"): 1})
    world.store.group.flush_tables()
    left = [count]

    def harm_lists(_: str, path: str) -> HttpFate:
        left[0] -= (is_list := "list-type=2" in path and "_delta_log" in path)
        return "half" if is_list and left[0] >= 0 else "fine"

    proxy.chance = harm_lists
    folder, stored = world.store.folder_of(VIEW), stored_schema(world.schema)
    if count > ATTEMPTS:
        with pytest.raises(RequestTroubleError, match="the storage gives no answer"):
            LakeTable.open(folder, stored)
    else:
        assert LakeTable.open(folder, stored).version >= 1
    assert proxy.met["half"] >= min(count, ATTEMPTS // 2)
    proxy.end()
    world.check()
    world.store.close()


def open_harmed(bucket: Bucket) -> Store:
    """Open the warehouse as who comes next does, again where the storage gives no answer."""
    for _ in range(ATTEMPTS - 1):
        with suppress(WarehouseError):
            return bucket.open()
    return bucket.open()


@pytest.mark.parametrize(("seed", "steps"), keep_some([(0, 16), *((n, 32) for n in SEEDS)], [0]))
def test_commits_flushes_and_takeovers(
    proxy: FaultProxy, tmp_path: Path, seed: int, steps: int
) -> None:
    """Each acknowledged step is there once, and one without an answer once or never."""
    generator, bucket = random.Random(seed), Bucket(proxy, tmp_path)
    world = World(bucket.open())
    world.load({(1, "a"): 2, (2, "b"): 1})
    group(world)
    takeovers = 0
    for step in range(steps):
        proxy.seed(generator, 0.2, slow_share=0.02)
        rows, before = {(step, generator.choice("xyz")): 1}, len(world.history)
        try:
            world.append(rows)
            if generator.random() < 0.3:
                world.store.group.flush_tables()
        except WarehouseError:
            world.store.abandon_store()
            world.store = open_harmed(bucket)
            if len(world.history) == before and world.view.ts > world.history[-1][0]:
                world.history.append((world.view.ts, Counter(rows)))
            group(world)
        if step % 8 == 5:
            old, takeovers = world, takeovers + 1
            # Who takes over meets the same network.
            world = World(open_harmed(bucket), history=list(old.history))
            with pytest.raises(WarehouseError):
                old.append({(-1, "zombie"): 1})
            proxy.settle()
            old.store.abandon_store()
            group(world)
        if step % 4 == 3:
            proxy.settle()
            world.check()
    assert takeovers == steps // 8
    assert proxy.met.total() - proxy.met["fine"] > steps, proxy.met
    world.store.close()
    assert bucket.lake_rows(world) == world.expected(world.view.ts)
    assert is_whole(world.store)


@pytest.fixture
def shop(tmp_path: Path, proxy: FaultProxy) -> Shop:
    made = Shop(tmp_path, {"lines": LINES}, "freshness: 0s\n")
    made.fill()
    file = tmp_path / "viewkeeper.yml"
    file.write_text(file.read_text().replace("./warehouse", proxy.new_url()) + proxy.yaml)
    return made


def insist(step: Callable[[], T]) -> T:
    """Do a step until it is answered; what has failed before may have been done."""
    for _ in range(ATTEMPTS - 1):
        with suppress(WarehouseError):
            return step()
    return step()


def read_rows(project: Project, ts: int) -> Counter[tuple[Any, ...]]:
    return rows_of(project.view("lines"), ts)


@pytest.mark.parametrize(("seed", "rounds"), keep_some([(0, 1), *((n, 4) for n in SEEDS)], [0]))
def test_a_project_is_loaded_maintained_and_read(
    shop: Shop,
    s3: PrivateS3,
    proxy: FaultProxy,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    rounds: int,
) -> None:
    """By `refresh`, each time by a process that has nothing of the one before."""
    monkeypatch.setattr(warehouse_lease, "LEASE_SECONDS", 1.0)
    generator, states = random.Random(seed), dict[int, Counter[tuple[Any, ...]]]()
    for round_number in range(rounds):
        proxy.seed(generator, 0.1, slow_share=0.01)
        with insist(lambda: viewkeeper.open(shop.folder)) as project:
            for step in range(2):
                insist(project.refresh)
                wanted = shop.recomputed(LINES)
                assert insist(lambda: rows_of(project.view("lines"))) == wanted
                states[insist(lambda: project.view("lines").ts)] = wanted
                for ts in states:
                    assert insist(partial(read_rows, project, ts)) == states[ts], f"as of {ts}"
                change(shop, generator, 10 * round_number + step)
        shutil.rmtree(shop.folder / "local")
    proxy.settle()
    with viewkeeper.open(shop.folder) as project:
        project.refresh()
        assert rows_of(project.view("lines")) == shop.recomputed(LINES)
        assert lake_bag(shop, s3, project) == shop.recomputed(LINES)
    assert proxy.met["fine"] < proxy.met.total(), "something came to harm"


@pytest.mark.parametrize(("seed", "rounds"), keep_some([(0, 1), *((n, 4) for n in SEEDS)], [0]))
def test_runs_are_killed_and_taken_over(
    shop: Shop, s3: PrivateS3, proxy: FaultProxy, seed: int, rounds: int
) -> None:
    generator, number = random.Random(seed), 0
    proxy.seed(generator, 0.05)
    for _ in range(rounds):
        with Process("tests.objects.runner", [str(shop.folder), "--standby"]) as process:
            process.wait_for("ready", 120.0)
            for _ in range(2):
                change(shop, generator, number)
                number += 1
                insist(lambda: wait_until_right(shop))
            change(shop, generator, number)
            number += 1
            process.kill()
    proxy.settle()
    with viewkeeper.open(shop.folder) as project:
        project.refresh()
        assert rows_of(project.view("lines")) == shop.recomputed(LINES)
        assert lake_bag(shop, s3, project) == shop.recomputed(LINES)
