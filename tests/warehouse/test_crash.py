"""Killed at any moment: afterwards the state is that of before or after, and redo applies once."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.warehouse.faults import Death, deaths, dying_at
from tests.warehouse.model import VIEW, Row, World, bag, folder_of, opened
from viewkeeper.warehouse.merge import merge_tail
from viewkeeper.warehouse.metadata.head import read_head
from viewkeeper.warehouse.metadata.plan_files import load_records
from viewkeeper.warehouse.metadata.record import Drop, Stop
from viewkeeper.warehouse.retention import clean_warehouse
from viewkeeper.warehouse.rows.view_state import read_state
from viewkeeper.warehouse.store import Store

Step = Callable[[World], object]
CHANGE: dict[Row, int] = {(1, "a"): -1, (7, "new"): 3}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A closed warehouse with a few commits, copied for every death."""
    with opened(tmp_path_factory.mktemp("template") / "warehouse") as world:
        for value in range(3):
            world.append({(value, "t"): 1})
    return world


def reopened(template: World, folder: Path) -> World:
    shutil.copytree(template.store.local_root, folder)
    return World(Store.open(folder, "test", time.time), history=list(template.history))


def die(world: World, step: Step, moment: int, after: bool) -> bool:
    """Run a step that dies at a moment; whether it did."""
    try:
        with dying_at(moment, after):
            step(world)
    except Death:
        return True
    finally:
        world.store.close()
    return False


def test_a_commit_is_all_or_nothing_and_happens_once(template: World, tmp_path: Path) -> None:
    def step(moment: int, after: bool) -> bool:
        folder = tmp_path / f"{moment}{after}"
        world = reopened(template, folder)
        old, ts = world.view, world.view.ts + 1
        died = die(world, lambda w: w.append(CHANGE), moment, after)
        recorded = load_records(folder)[1][-1].n > old_record(template)
        with Store.open(folder, "test", time.time) as store:
            revived = World(store, history=list(template.history))
            assert (revived.view.ts == ts) == recorded, "the record is the commit point"
            if recorded:
                assert store.pending_plan() is None
                revived.history.append((ts, Counter(CHANGE)))
            else:
                assert revived.view == old
                revived.append(CHANGE)
            revived.check()
            assert_no_orphans(revived)
        return died

    assert deaths(step, thorough=True) > 10


def test_a_recovery_that_dies_is_recovered(template: World, tmp_path: Path) -> None:
    """Die just after the record; then die again at every moment of the recovery."""
    source = tmp_path / "recorded"
    world = reopened(template, source)
    at_record = 3 + 3 + 2 + 2
    with suppress(Death), dying_at(at_record, True):
        world.append(CHANGE)
    world.store.close()
    assert read_head(source).record == old_record(template)
    assert load_records(source)[1][-1].n == old_record(template) + 1

    def step(moment: int, after: bool) -> bool:
        folder = tmp_path / f"{moment}{after}"
        shutil.copytree(source, folder)
        died = False
        try:
            with dying_at(moment, after):
                Store.open(folder, "test", time.time).close()
        except Death:
            died = True
        with Store.open(folder, "test", time.time) as store:
            revived = World(store, history=[*template.history, (5, Counter(CHANGE))])
            revived.check()
        return died

    assert deaths(step) > 4


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(lambda w: merge_tail(w.store, VIEW), id="merge"),
        pytest.param(
            lambda w: clean_warehouse(w.store, retention_s=-1, fold_at_least=1), id="clean"
        ),
        pytest.param(lambda w: w.store.commit([Stop(VIEW, "division by zero")]), id="stop"),
    ],
)
def test_what_changes_no_row_changes_none_when_killed(
    template: World, tmp_path: Path, step: Step
) -> None:
    def one(moment: int, after: bool) -> bool:
        folder = tmp_path / f"{moment}{after}"
        died = die(reopened(template, folder), step, moment, after)
        with Store.open(folder, "test", time.time) as store:
            revived = World(store, history=list(template.history))
            revived.check()
            assert_no_orphans(revived)
            step(revived)
            revived.append(CHANGE)
            revived.check()
        return died

    assert deaths(one) > 3


def test_a_view_is_created_whole_or_not_at_all(tmp_path: Path) -> None:
    def step(moment: int, after: bool) -> bool:
        folder = tmp_path / f"{moment}{after}"
        world = World(Store.open(folder, "test", time.time))
        died = die(world, lambda w: w.load({(1, "a"): 1}), moment, after)
        with Store.open(folder, "test", time.time) as store:
            if VIEW in store.head.views:
                assert bag(read_state(folder, store.head.require_view(VIEW))) == {(1, "a"): 1}
            else:
                assert not list((folder / "views").iterdir())
                World(store).load({(1, "a"): 1})
        return died

    assert deaths(step) > 8


def test_a_dropped_view_is_gone_and_its_table_follows(template: World, tmp_path: Path) -> None:
    world = reopened(template, tmp_path / "w")
    folder = folder_of(world.store)
    world.store.commit([Drop(VIEW, world.view.table)])
    assert folder.exists(), "readers may still use it"
    world.store.close()
    with Store.open(tmp_path / "w", "test", time.time) as store:
        assert store.head.views == {}
        assert folder.exists()
        clean_warehouse(store, retention_s=-1)
        assert not folder.exists()


def old_record(template: World) -> int:
    return template.store.head.record


def assert_no_orphans(world: World) -> None:
    """Every data file is in the table or was taken out of it by a record that is still there."""
    active = {file.path for file in world.store.table_of(VIEW).active_files()}
    removed = {
        path
        for record in load_records(world.store.local_root)[1]
        for change in record.changes
        for path in getattr(change, "removes", ())
    }
    found = {path.name for path in folder_of(world.store).glob("*.parquet")}
    assert active <= found <= active | removed
    assert not list((world.store.local_root / "spool").iterdir())
    for name in ("", "records", "plans"):
        assert not list((world.store.local_root / name).glob(".new-*"))
