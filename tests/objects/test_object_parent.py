"""A project in object storage as the parent of another: its views are sources there.

The child's view has the rows of the parent's, whatever is committed, killed, compacted and refused
meanwhile; what the child still needs is held by a lease in the bucket.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.cli.conftest import call
from tests.engine.shop import LINES, Shop, rows_of
from tests.faults.processes import Process
from tests.objects.faulty_requests import Faults
from tests.objects.s3_server import PrivateS3
from tests.objects.test_object_project import change
from tests.samples import keep_some
from viewkeeper.engine.project import Project
from viewkeeper.errors import SourceAwayError
from viewkeeper.upstream import parent_project
from viewkeeper.upstream.leases import ChildLeases, active_leases
from viewkeeper.upstream.parent_project import (
    LOOKS_IN_VAIN,
    REST_SECONDS,
    ParentFiles,
    ParentProject,
    RestingLooks,
)
from viewkeeper.upstream.snapshot import ViewReader

CHILD = "CREATE MATERIALIZED VIEW copied AS\nSELECT * FROM up.lines;\n"
PATIENCE_SECONDS = 120.0


@pytest.fixture
def shop(tmp_path: Path, s3: PrivateS3) -> Shop:
    (tmp_path / "parent").mkdir()
    made = Shop(tmp_path / "parent", {"lines": LINES}, "freshness: 0s\nretention: 0s\n")
    made.fill()
    file = made.folder / "viewkeeper.yml"
    file.write_text(file.read_text().replace("./warehouse", s3.new_url()) + s3.yaml)
    with viewkeeper.open(made.folder) as project:
        project.refresh()
    return made


@pytest.fixture
def child(tmp_path: Path, shop: Shop) -> Iterator[Project]:
    folder = tmp_path / "child"
    (folder / "views").mkdir(parents=True)
    (folder / "views" / "copied.sql").write_text(CHILD)
    (folder / "viewkeeper.yml").write_text(
        "warehouse: ./warehouse\nsources: {up: {kind: warehouse, path: ../parent}}\n"
    )
    with viewkeeper.open(folder) as project:
        project.refresh()
        yield project


def commit(shop: Shop, generator: random.Random, number: int) -> None:
    """A change, taken into the parent's view."""
    change(shop, generator, number)
    with viewkeeper.open(shop.folder) as project:
        project.refresh()


def wait_until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < end, "it never was"
        time.sleep(0.05)


def test_a_child_follows_every_state(shop: Shop, child: Project, spark: SparkSession) -> None:
    generator = random.Random(3)
    states = {child.view("copied").ts: shop.recomputed(LINES)}
    for number in range(4):
        commit(shop, generator, number)
        child.refresh()
        states[child.view("copied").ts] = shop.recomputed(LINES)
        assert rows_of(child.view("copied")) == shop.recomputed(LINES)
    assert len(states) == 5
    for ts, wanted in states.items():
        assert rows_of(child.view("copied"), ts) == wanted, f"as of {ts}"
    with viewkeeper.open(child.settings.folder, spark) as judged:
        (verdict,) = judged.verify(["copied"])
    assert verdict.ok, verdict


def test_a_lease_in_the_bucket_holds_what_a_child_needs(shop: Shop, child: Project) -> None:
    generator = random.Random(4)
    with viewkeeper.open(shop.folder) as parent:
        root = parent.settings.warehouse
        (lease,) = active_leases(root, time.time())
        assert lease.project == str(child.settings.folder)
        for number in range(3):
            change(shop, generator, number)
            parent.refresh()
        parent.compact()
        assert parent.view("lines").head.horizon <= lease.ts < parent.view("lines").ts
    child.refresh()
    assert rows_of(child.view("copied")) == shop.recomputed(LINES)
    assert call("--project", str(child.settings.folder), "doctor").exit_code == 0
    child.close()
    assert call("--project", str(child.settings.folder), "detach", "--yes").exit_code == 0
    assert not active_leases(root, time.time())


def test_a_child_goes_on_while_its_parent_is_killed(shop: Shop, child: Project) -> None:
    generator, stop = random.Random(5), threading.Event()
    runner = threading.Thread(target=lambda: child.run(stop=stop))
    runner.start()
    try:
        for number in range(3):
            with Process("tests.objects.runner", [str(shop.folder)]) as process:
                process.wait_for("ready", PATIENCE_SECONDS)
                change(shop, generator, number)
                process.wait_for("batch", PATIENCE_SECONDS)
                process.kill()
            wait_until(lambda: rows_of(child.view("copied")) == shop.recomputed(LINES))
    finally:
        stop.set()
        runner.join()


def test_a_bucket_that_refuses_is_a_source_that_is_away(
    shop: Shop, child: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(shop, random.Random(6), 0)
    folder = child.settings.folder
    child.close()
    faults = Faults(monkeypatch)
    with viewkeeper.open(folder) as project:
        before = rows_of(project.view("copied"))
        faults.chance = lambda _: "refused"
        report = project.refresh()
        assert "up" in str(report.waiting), report
        assert rows_of(project.view("copied")) == before
        faults.end()
        wait_until(lambda: not project.refresh().waiting)
        assert rows_of(project.view("copied")) == shop.recomputed(LINES)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("s3://", "s3://no-such-"),
        ("secret_access_key: secret", "secret_access_key: ${NOBODY_SET_IT}"),
    ],
)
def test_what_a_parent_s_storage_refuses_is_trouble_of_the_source(
    tmp_path: Path, s3: PrivateS3, right: str, wrong: str
) -> None:
    text = f"warehouse: {s3.new_url()}\nsources: {{shop: {{kind: sqlite, path: a}}}}\n{s3.yaml}"
    assert right in text
    (tmp_path / "viewkeeper.yml").write_text(text.replace(right, wrong))
    parent = ParentProject("up", tmp_path)
    leases = ChildLeases(parent, "child", "folder")
    reader = ViewReader(parent)
    for ask in (
        parent.load_head,
        parent.read_ledger,
        ParentFiles(parent, time.monotonic).current_head,
        lambda: reader.apply_to_view("v", [], 0, str),
        leases.own_lease,
        lambda: leases.move_lease(1),
        lambda: leases.end_all(True, 0.0),
    ):
        with pytest.raises(SourceAwayError, match='source "up"'):
            ask()


@pytest.mark.parametrize("seed", keep_some(range(3), [0]))
def test_requests_that_fail_now_and_then(
    shop: Shop, child: Project, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    folder, generator = child.settings.folder, random.Random(seed)
    child.close()
    faults = Faults(monkeypatch)
    with viewkeeper.open(folder) as project:
        for number in range(4):
            commit(shop, generator, number)
            faults.seed(generator, 0.2)
            project.refresh()
            faults.end()
            wait_until(lambda: not project.refresh().waiting)
            assert rows_of(project.view("copied")) == shop.recomputed(LINES)


def test_only_who_asks_all_the_time_rests() -> None:
    now = [100.0]
    looks = RestingLooks(lambda: now[0])
    looks.note_look(is_news=True)
    for _ in range(LOOKS_IN_VAIN):
        assert looks.is_due()
        looks.note_look(is_news=False)
        now[0] += 0.02
    assert not looks.is_due(), "it asks on and on"
    now[0] += REST_SECONDS
    assert looks.is_due()
    looks.note_look(is_news=True)
    assert looks.is_due(), "news may follow news"
    for _ in range(3 * LOOKS_IN_VAIN):
        now[0] += 3 * REST_SECONDS
        assert looks.is_due(), "a refresh now and then does not wait"
        looks.note_look(is_news=False)


def test_an_idle_child_sends_few_requests(
    shop: Shop, child: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same looks with and without rests, so that the machine's speed says nothing."""
    child.close()
    faults = Faults(monkeypatch)
    files = parent_project.ParentFiles(
        parent_project.ParentProject("up", shop.folder), time.monotonic
    )
    files.current_head()
    # The first reading told where the journal goes on.
    files.current_head()
    before = faults.counts["head"]
    for _ in range(LOOKS_IN_VAIN):
        files.current_head()
    often = faults.counts["head"] - before
    assert often == 2 * LOOKS_IN_VAIN
    monkeypatch.setattr(parent_project, "REST_SECONDS", 3_600.0)
    for _ in range(1_000):
        files.current_head()
    assert faults.counts["head"] - before - often <= 2
