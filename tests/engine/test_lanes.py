"""Lanes: expensive views advance apart, cheap ones do not wait, and every state is exact.

The expensive view has an expression that only Spark evaluates. A gate before its job makes its
batches as long as a test wants.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.cli.conftest import call
from tests.engine.by_hand import load_by_hand
from tests.engine.shop import LINES, Shop, rows_of
from tests.engine.test_run import eventually, running
from tests.live.judge import feed
from viewkeeper.engine import upkeep
from viewkeeper.engine.batch import batch_runner, part_sweep
from viewkeeper.engine.lanes import lane_batch, lane_choice
from viewkeeper.engine.maintainer import Maintainer
from viewkeeper.engine.project import Project
from viewkeeper.engine.report import BatchReport, SilentObserver
from viewkeeper.errors import ViewkeeperError
from viewkeeper.warehouse.activity import read_activity
from viewkeeper.warehouse.metadata.record import Stop

CITIES = """SELECT c.city, o.id AS order_id FROM crm.customer c
JOIN shop.orders o ON o.customer_id = c.id"""
SOUNDS = """SELECT o.id AS order_id, soundex(c.name) AS sound FROM crm.customer c
JOIN shop.orders o ON o.customer_id = c.id"""
COUNTS = "SELECT s.sound, count(*) AS orders FROM sounds s GROUP BY s.sound"
SECONDS = 120.0
STATES = 60
ONLY_SPARK = "only Spark evaluates some of its expressions"


class Watch(SilentObserver):
    """Remembers batches and troubles."""

    def __init__(self) -> None:
        self.batches: list[BatchReport] = []
        self.troubles: list[ViewkeeperError] = []

    def on_batch_commit(self, report: BatchReport) -> None:
        self.batches.append(report)

    def on_trouble(self, error: ViewkeeperError) -> None:
        self.troubles.append(error)


class Gate:
    """The jobs of views that need Spark wait until they may go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.open = threading.Event(), threading.Event()
        self.threads: set[str] = set()
        inner = part_sweep.run_late

        def slow(*arguments: Any) -> Any:
            self.threads.add(threading.current_thread().name)
            self.reached.set()
            assert self.open.wait(timeout=SECONDS)
            return inner(*arguments)

        monkeypatch.setattr(batch_runner, "run_late", slow)


@pytest.fixture
def shop(tmp_path: Path, spark: SparkSession) -> Shop:
    """A shop with a cheap and an expensive view, both loaded."""
    shop = Shop(tmp_path, {"cities": CITIES, "sounds": SOUNDS})
    shop.fill()
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
    return shop


def write_once(shop: Shop, number: int) -> None:
    """One transaction in each database that both views read."""
    shop.execute("crm", f"UPDATE customer SET name = 'n{number}', city = 'c{number}' WHERE id < 4")
    shop.execute("shop", f"UPDATE orders SET customer_id = {number % 8} WHERE id = {number % 40}")


def is_fresh(project: Project, shop: Shop) -> Callable[[], bool]:
    return lambda: rows_of(project.view("cities")) == shop.recomputed(CITIES)


def ts_of(project: Project, name: str) -> int:
    return project.newest_head().views[name].ts


def is_caught_up(project: Project, *names: str) -> Callable[[], bool]:
    return lambda: len({ts_of(project, name) for name in (*names, "cities")}) == 1


def verify_all(project: Project) -> None:
    """Every state of every view is what its query says of the sources as of then."""
    for found in project.verify(every_state=True):
        assert found.ok, str(found)


def test_a_cheap_view_commits_while_an_expensive_one_computes(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, watch = Gate(monkeypatch), Watch()
    project = viewkeeper.open(shop.folder, spark=spark)
    began = ts_of(project, "sounds")
    with running(project, watch):
        for number in range(8):
            write_once(shop, number)
            eventually(is_fresh(project, shop))
        assert gate.reached.is_set()
        assert ts_of(project, "sounds") == began
        alone = [each for each in watch.batches if each.views == ("cities",)]
        assert len(alone) >= 8
        gate.open.set()
        eventually(is_caught_up(project, "sounds"))
        assert ts_of(project, "sounds") > began
    apart = [each for each in watch.batches if each.views == ("sounds",)]
    # What came while the first batch computed was taken by the second, together.
    assert len(apart) < len(alone)
    assert sum(each.transactions for each in apart) == sum(e.transactions for e in alone)
    assert gate.threads == {"lane sounds"}
    assert watch.troubles == []
    verify_all(project)
    project.close()


def test_without_lanes_all_views_advance_together(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = shop.folder / "viewkeeper.yml"
    file.write_text(file.read_text() + "lanes: never\n")
    gate, watch = Gate(monkeypatch), Watch()
    gate.open.set()
    project = viewkeeper.open(shop.folder, spark=spark)
    with running(project, watch):
        write_once(shop, 1)
        eventually(is_fresh(project, shop))
    assert {each.views for each in watch.batches} == {("cities", "sounds")}
    project.close()


def test_a_refresh_has_no_lanes(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    gate.open.set()
    with viewkeeper.open(shop.folder, spark=spark) as project:
        write_once(shop, 1)
        assert project.refresh().waiting == {}
        assert is_caught_up(project, "sounds")()
    assert not any(name.startswith("lane") for name in gate.threads)


def test_children_stay_with_an_expensive_parent(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child that is added while its parent is in a lane is loaded, although writers go on; then
    both are always at one ts."""
    shop.define("counts", COUNTS)
    gate, watch = Gate(monkeypatch), Watch()
    wrong, ended = list[object](), threading.Event()
    gate.open.set()
    project = viewkeeper.open(shop.folder, spark=spark)

    def look() -> None:
        while not ended.wait(0.01):
            views = project.newest_head().views
            if "counts" in views and views["counts"].ts != views["sounds"].ts:
                wrong.append((views["counts"].ts, views["sounds"].ts))

    with running(project, watch):
        number = 0

        def write_until(holds: Callable[[], bool]) -> None:
            nonlocal number
            until = time.monotonic() + SECONDS
            while not holds():
                assert time.monotonic() < until, "it never came"
                write_once(shop, number := number + 1)

        write_until(lambda: "counts" in project.newest_head().views)
        # It catches up with what its parent has stored, and from then on they go together.
        write_until(lambda: any({*b.views} == {"sounds", "counts"} for b in watch.batches))
        watcher = threading.Thread(target=look)
        watcher.start()
        last = number
        write_until(lambda: number > last + 30)
        eventually(is_caught_up(project, "sounds", "counts"))
        ended.set()
        watcher.join(timeout=SECONDS)
    assert wrong == []
    verify_all(project)
    project.close()


def test_a_schema_change_waits_for_the_lane_and_is_followed(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    project = viewkeeper.open(shop.folder, spark=spark)
    with running(project):
        write_once(shop, 1)
        assert gate.reached.wait(timeout=SECONDS)
        shop.execute("crm", "ALTER TABLE customer RENAME COLUMN name TO called")
        shop.execute("crm", "UPDATE customer SET called = 'after', city = 'after' WHERE id = 2")
        eventually(is_fresh(project, shop))
        gate.open.set()
        eventually(is_caught_up(project, "sounds"))
        eventually(lambda: len(project.newest_head().views["sounds"].versions) == 2)
    assert project.newest_head().views["sounds"].stopped is None
    verify_all(project)
    project.close()


def test_a_stop_gives_up_what_a_lane_computes(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane_batch, "LEAVE_SECONDS", 0.5)
    gate, watch = Gate(monkeypatch), Watch()
    with viewkeeper.open(shop.folder, spark=spark) as project:
        began = ts_of(project, "sounds")
        with running(project, watch):
            write_once(shop, 1)
            assert gate.reached.wait(timeout=SECONDS)
            eventually(is_fresh(project, shop))
        assert ts_of(project, "sounds") == began
        gate.open.set()
        assert project.refresh().waiting == {}
        assert is_caught_up(project, "sounds")()
        verify_all(project)


def test_a_lane_that_fails_is_the_trouble_of_its_views(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> object:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(batch_runner, "run_late", fail)
    watch = Watch()
    project = viewkeeper.open(shop.folder, spark=spark)
    with running(project, watch):
        write_once(shop, 1)
        eventually(lambda: project.newest_head().views["sounds"].stopped is not None)
        for number in range(3):
            write_once(shop, number)
            eventually(is_fresh(project, shop))
    assert "out of luck" in str(project.newest_head().views["sounds"].stopped)
    assert project.newest_head().views["cities"].stopped is None
    assert len(watch.troubles) == 1
    project.close()


@contextmanager
def stepping(shop: Shop, spark: SparkSession) -> Iterator[tuple[Project, Maintainer]]:
    """A maintainer with lanes that does a step when it is told to."""
    with (
        viewkeeper.open(shop.folder, spark=spark) as project,
        project.open_maintainer("test", SilentObserver()) as keeper,
    ):
        keeper.start_run()
        keeper.plans.lanes.allow_lanes()
        try:
            yield project, keeper
        finally:
            keeper.plans.end_lanes()


def step_until_ended(keeper: Maintainer) -> None:
    eventually(lambda: keeper.plans.lanes.has_ended)
    keeper.maintain_views()


def begin_lane(shop: Shop, keeper: Maintainer, gate: Gate) -> None:
    write_once(shop, 1)
    keeper.see_commits()
    keeper.maintain_views()
    assert gate.reached.wait(timeout=SECONDS)


def test_what_a_lane_brings_is_forgotten_if_its_view_was_stopped(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    with stepping(shop, spark) as (_, keeper):
        begun = keeper.store.head.views["sounds"]
        begin_lane(shop, keeper, gate)
        keeper.store.commit([Stop("sounds", "somebody wanted it")])
        gate.open.set()
        step_until_ended(keeper)
        found = keeper.store.head.views["sounds"]
        assert (found.ts, found.stopped) == (begun.ts, "somebody wanted it")
        assert keeper.store.head.views["cities"].ts > begun.ts


def test_no_log_is_trimmed_that_a_lane_needs(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    with stepping(shop, spark) as (_, keeper):
        before = dict(keeper.store.head.views["sounds"].positions)
        begin_lane(shop, keeper, gate)
        lane = keeper.workspace.connections
        told: dict[str, int] = {}
        for name in before:
            source = lane.get_source(name)
            monkeypatch.setattr(
                source.inner,
                "acknowledge_position",
                lambda position, name=name: told.update({name: position}),
            )
        write_once(shop, 2)
        keeper.see_commits()
        keeper.maintain_views()
        keeper.acknowledge_commits(now=True)
        assert told == before
        gate.open.set()
        step_until_ended(keeper)
        keeper.see_commits()
        keeper.maintain_views()
        step_until_ended(keeper)
        keeper.acknowledge_commits(now=True)
        assert told == keeper.store.head.views["sounds"].positions != before


def test_a_view_in_a_lane_does_not_become_stale(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = shop.folder / "viewkeeper.yml"
    file.write_text(file.read_text() + "batch: {wait_rows: 10}\n")
    gate = Gate(monkeypatch)
    with stepping(shop, spark) as (_, keeper):
        begin_lane(shop, keeper, gate)
        for number in range(10):
            write_once(shop, number)
            keeper.see_commits()
            keeper.maintain_views()
        keeper.acknowledge_commits(now=True)
        assert keeper.store.head.views["sounds"].stopped is None
        gate.open.set()
        step_until_ended(keeper)


def test_many_changes_of_one_source_do_not_hold_up_views_of_others(
    tmp_path: Path, spark: SparkSession
) -> None:
    """A batch that is a job on Spark for its size is computed beside those that are not."""
    views = {
        "quantities": "SELECT i.product_id, sum(i.quantity) AS n FROM shop.item i GROUP BY 1",
        "names": "SELECT c.id, c.name FROM crm.customer c",
    }
    shop = Shop(tmp_path, views, "batch: {inline_rows: 500}\n")
    shop.fill()
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
    with stepping(shop, spark) as (project, keeper):
        with shop.database("shop") as database:
            rows = [(i % 40, i % 5, 1) for i in range(2_000)]
            database.executemany("INSERT INTO item VALUES (?, ?, ?)", rows)
        shop.execute("crm", "UPDATE customer SET name = 'x' WHERE id = 1")
        keeper.see_commits()
        keeper.maintain_views()
        views_now = keeper.store.head.views
        newest = keeper.store.ledger.next_ts - 1
        assert (views_now["names"].ts, views_now["quantities"].ts < newest) == (newest, True)
        step_until_ended(keeper)
        assert keeper.store.head.views["quantities"].ts == newest
        # Small again: both go together.
        shop.execute("shop", "INSERT INTO item VALUES (1, 1, 1)")
        keeper.see_commits()
        keeper.maintain_views()
        assert {view.ts for view in keeper.store.head.views.values()} == {newest + 1}
        for name in views:
            assert rows_of(project.view(name)) == shop.recomputed(views[name])


def test_a_lane_gives_the_states_that_the_others_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two views with one text, of which one advances apart, without Spark: what each ts did to one
    it did to the other, while files are merged and the journal is flushed beside the lane."""
    shop = Shop(tmp_path, {"cities": LINES, "sounds": LINES}, "batch: {page_rows: 20}\n")
    shop.fill()
    load_by_hand(shop)
    sweep = lane_batch.LaneBatch._sweep

    def sweep_slowly(lane: lane_batch.LaneBatch) -> None:
        time.sleep(0.05)
        sweep(lane)

    monkeypatch.setattr(lane_batch.LaneBatch, "_sweep", sweep_slowly)
    monkeypatch.setattr(lane_choice, "CHEAPER", 0.0)
    monkeypatch.setattr(lane_choice, "_only_on_spark", lambda view: view.name == "sounds")
    monkeypatch.setattr(upkeep, "MERGE_FILES", 3)
    monkeypatch.setattr(upkeep, "FLUSH_SECONDS", 0.05)
    watch = Watch()
    with viewkeeper.open(shop.folder) as project:
        monkeypatch.setattr(project.spark, "begin_start", lambda: None)
        with running(project, watch):
            first, number, until = ts_of(project, "cities"), 0, time.monotonic() + SECONDS
            while ts_of(project, "cities") < first + STATES:
                assert time.monotonic() < until, "it never came"
                number += 1
                write_once(shop, number)
                shop.execute("shop", f"INSERT INTO item VALUES ({number % 40}, 1, {number % 5})")
                shop.execute("shop", f"DELETE FROM item WHERE order_id = {(7 * number) % 40}")
            eventually(lambda: rows_of(project.view("cities")) == shop.recomputed(LINES))
            eventually(is_caught_up(project, "sounds"))
        assert watch.troubles == []
        assert {each.views for each in watch.batches} == {("cities",), ("sounds",)}
        known = read_activity(shop.folder / "warehouse")
        assert (known["cities"].apart, known["sounds"].apart) == ("", ONLY_SPARK)
        one, other = feed(project, "cities"), feed(project, "sounds")
        assert len(one) > STATES / 2
        assert one == other


@pytest.mark.parametrize("asked", ["refresh", "edit", "drop"])
def test_what_is_asked_of_a_view_in_a_lane_is_done(
    asked: str, shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is loaded again, also with other SQL, or dropped, while a batch of it computes."""
    gate, folder = Gate(monkeypatch), str(shop.folder)
    project = viewkeeper.open(shop.folder, spark=spark)
    with running(project, Watch()):
        write_once(shop, 1)
        assert gate.reached.wait(timeout=SECONDS)
        if asked == "edit":
            shop.define("sounds", SOUNDS + " WHERE o.id > 5")
        words = ("drop", "sounds", "--file", "--yes") if asked == "drop" else ("refresh", "sounds")
        no_wait = () if asked == "drop" else ("--no-wait",)
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(call, "-p", folder, *words, *no_wait)
            write_once(shop, 2)
            eventually(is_fresh(project, shop))
            gate.open.set()
            assert done.result(SECONDS).exit_code == 0, done.result().output
        write_once(shop, 3)
        if asked == "drop":
            eventually(lambda: "sounds" not in project.newest_head().views)
        else:
            rows = 34 if asked == "edit" else 40
            eventually(lambda: project.view("sounds").arrow().num_rows == rows)
            eventually(is_caught_up(project, "sounds"))
        eventually(is_fresh(project, shop))
    verify_all(project)
    project.close()


def test_indexes_of_a_view_that_no_file_defines_now_are_compared_beside_a_lane(
    tmp_path: Path,
) -> None:
    """A view whose source is gone from the project is refused, and stays stored."""
    customers = "SELECT id, name FROM crm.customer"
    products = "SELECT id, title FROM catalogue.product"
    shop = Shop(tmp_path, {"customers": customers, "products": products})
    shop.fill()
    load_by_hand(shop)
    settings = shop.folder / "viewkeeper.yml"
    settings.write_text(settings.read_text().replace("  catalogue: {kind", "  other: {kind"))
    with viewkeeper.open(shop.folder) as project:
        assert "products" not in project.catalogue
        with project.open_maintainer("test", SilentObserver()) as keeper:
            keeper.start_run()
            keeper.see_commits()
            lanes, ts = keeper.plans.lanes.under_way, keeper.store.head.views["customers"].ts
            work = keeper.plans.commits.plan_work(["customers"], ts, ts)
            lanes.begin_batch(work, frozenset({"customers"}))
            for table in keeper.store.head.views:
                lanes.compare_indexes(table)
            lanes.abandon_lanes()
