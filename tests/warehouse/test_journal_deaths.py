"""Killed at any moment of a small commit, a flush or a start: nothing lost, nothing doubled."""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

from tests.warehouse.faults import Death, deaths, dying_at
from tests.warehouse.journal_world import SYNCS, is_whole, lake_rows, segments
from tests.warehouse.model import VIEW, Row, World, bag, folder_of, opened
from viewkeeper.errors import CorruptError
from viewkeeper.storage.journal_file import PAGE
from viewkeeper.warehouse import group_commit
from viewkeeper.warehouse.merge import merge_tail
from viewkeeper.warehouse.metadata.head import read_head
from viewkeeper.warehouse.metadata.record import Resume, Stop
from viewkeeper.warehouse.retention import clean_warehouse
from viewkeeper.warehouse.rows.view_state import read_state
from viewkeeper.warehouse.store import Store

CHANGE: dict[Row, int] = {(1, "a"): -1, (7, "new"): 3}
MANY: dict[Row, int] = {(n, "many"): 1 for n in range(5_001)}


@pytest.fixture(autouse=True, scope="module")
def short_segments() -> Iterator[None]:
    """Segments that are quickly copied."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_commit, "SEGMENT_BYTES", 64 << 10)
        yield


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A warehouse whose maintainer was killed: some commits flushed, some in the journal."""
    with opened(tmp_path_factory.mktemp("template") / "warehouse") as world:
        world.store.group.begin(nullcontext)
        for value in range(3):
            world.append({(value, "t"): 1})
        world.store.group.flush_tables()
        for value in range(2):
            world.append({(value, "u"): 1, (value, "t"): -1})
        world.store.abandon_store()
    return world


def copied(template: World, folder: Path) -> World:
    shutil.copytree(template.store.local_root, folder)
    return World(Store.open(folder, "test", time.time), history=list(template.history))


def test_a_killed_maintainer_left_everything(template: World, tmp_path: Path) -> None:
    shutil.copytree(template.store.local_root, tmp_path / "w")
    view = read_head(tmp_path / "w").require_view(VIEW)
    assert bag(read_state(tmp_path / "w", view)) == template.expected(view.ts)
    with Store.open(tmp_path / "w", "test", time.time) as store:
        revived = World(store, history=list(template.history))
        revived.check()
        assert lake_rows(revived) == revived.expected(revived.view.ts)
        assert segments(revived) == []
        assert store.head.record == 6
        assert is_whole(store.local_root)


ACTS: dict[str, Callable[[World], object]] = {
    "commit": lambda world: world.append(CHANGE),
    "flush": lambda world: world.store.group.flush_tables(),
    "rotation": lambda world: world.store.group.flush_tables(),
    "end": lambda world: world.store.group.end(),
    "large": lambda world: world.append(MANY),
    "merge": lambda world: merge_tail(world.store, VIEW),
}
WAYS = [
    pytest.param("commit", False, id="commit"),
    pytest.param("flush", False, id="flush"),
    *(pytest.param(name, True, id=f"{name}-all", marks=pytest.mark.campaign) for name in ACTS),
]


@pytest.mark.parametrize(("name", "thorough"), WAYS)
def test_killed_at_any_moment(template: World, tmp_path: Path, name: str, thorough: bool) -> None:
    """The state is that of before or after, and what was acknowledged is there."""

    def step(moment: int, after: bool) -> bool:
        folder = tmp_path / f"{moment}{after}"
        world = copied(template, folder)
        with pytest.MonkeyPatch.context() as patch:
            if name == "rotation":
                patch.setattr(group_commit, "SEGMENT_END", PAGE)
            world.store.group.begin(nullcontext)
            if name != "commit" or moment % 2:
                world.append({(50, "before"): 1})
            promised, died = list(world.history), False
            try:
                with dying_at(moment, after, SYNCS):
                    ACTS[name](world)
            except Death:
                died = True
            finally:
                world.store.abandon_store()
        check_revived(folder, promised, MANY if name == "large" else CHANGE, world)
        shutil.rmtree(folder)
        return died

    assert deaths(step, thorough=thorough) > 2


def check_revived(
    folder: Path, promised: list[tuple[int, Counter[Row]]], change: dict[Row, int], world: World
) -> None:
    """What was promised is there, or one change more; the next start goes on from there."""
    seen = read_head(folder).require_view(VIEW)
    with Store.open(folder, "test", time.time) as store:
        revived = World(store, history=list(promised))
        ts = revived.view.ts
        assert promised[-1][0] <= seen.ts <= ts
        if len(world.history) > len(promised) or ts > promised[-1][0]:
            revived.history.append((promised[-1][0] + 1, Counter(change)))
        assert ts == revived.history[-1][0]
        revived.check()
        assert lake_rows(revived) == revived.expected(ts)
        assert segments(revived) == []
        pending = store.pending_plan()
        assert pending is None or pending.entries[-1].ts == ts + 1
        revived.append({(99, "on"): 1})
        revived.check()
        assert is_whole(folder)


def test_a_recovery_that_dies_is_recovered(template: World, tmp_path: Path) -> None:
    def step(moment: int, after: bool) -> bool:
        folder = tmp_path / f"{moment}{after}"
        shutil.copytree(template.store.local_root, folder)
        died = False
        try:
            with dying_at(moment, after, SYNCS):
                Store.open(folder, "test", time.time).close()
        except Death:
            died = True
        check_revived(folder, list(template.history), CHANGE, template)
        shutil.rmtree(folder)
        return died

    assert deaths(step) > 10


def test_a_version_of_a_table_never_changes(template: World, tmp_path: Path) -> None:
    """A flush that dies after some log entries writes the very same bytes when it is finished."""
    moment, checked = 0, 0
    while True:
        moment += 1
        folder = tmp_path / str(moment)
        world = copied(template, folder)
        world.store.group.begin(nullcontext)
        world.append({(50, "before"): 1})
        log = folder_of(world.store) / "_delta_log"
        try:
            with dying_at(moment, True, SYNCS):
                world.store.group.flush_tables()
            break
        except Death:
            pass
        finally:
            world.store.abandon_store()
        seen = {path.name: path.read_bytes() for path in log.glob("0*.json")}
        with Store.open(folder, "test", time.time):
            checked += len(seen)
            assert all((log / name).read_bytes() == data for name, data in seen.items())
    assert checked > 10


@pytest.mark.parametrize(
    ("way", "step"),
    [
        ("cut", 97),
        ("zeroed", 97),
        pytest.param("cut", 1, marks=pytest.mark.campaign),
        pytest.param("zeroed", 1, marks=pytest.mark.campaign),
    ],
)
def test_every_byte_of_the_last_commit(tmp_path: Path, way: str, step: int) -> None:
    """Frames that were never shown: a torn end costs the commit that it belongs to, no other."""
    with opened(tmp_path / "w") as world:
        world.store.group.begin(nullcontext)
        world.append({(1, "t"): 1})
        promised = list(world.history)
        (path,) = segments(world)
        before = path.read_bytes()
        world.append({(2, "t"): 1})
        world.store.abandon_store()
    # As if the process had died after the sync and before the mark.
    whole = before[:PAGE] + path.read_bytes()[PAGE:]
    used = len(whole.rstrip(b"\0"))
    start = len(before.rstrip(b"\0"))
    root = world.store.local_root
    for at in (*range(start, used, step), used):
        left = whole[:at]
        path.write_bytes(left.ljust(len(whole), b"\0") if way == "zeroed" else left)
        folder = tmp_path / f"{way}{at}"
        shutil.copytree(root, folder)
        with Store.open(folder, "test", time.time) as store:
            complete = at >= used
            revived = World(store, history=list(world.history) if complete else list(promised))
            revived.check()
        shutil.rmtree(folder)


def test_what_was_shown_and_is_lost_is_refused(template: World, tmp_path: Path) -> None:
    shutil.copytree(template.store.local_root, tmp_path / "w")
    (path,) = (tmp_path / "w" / "journal").glob("*.vkj")
    whole = path.read_bytes()
    used = len(whole.rstrip(b"\0"))
    for at in (0, 20, PAGE, used - 200, used - 1):
        path.write_bytes(whole[:at])
        with pytest.raises(CorruptError, match="journal"):
            Store.open(tmp_path / "w", "test", time.time)
        with pytest.raises(CorruptError, match="journal"):
            read_head(tmp_path / "w")
        assert not is_whole(tmp_path / "w")
    path.unlink()
    with pytest.raises(CorruptError, match="missing"):
        Store.open(tmp_path / "w", "test", time.time)
    path.write_bytes(whole)
    with Store.open(tmp_path / "w", "test", time.time) as store:
        World(store, history=list(template.history)).check()


SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.campaign) for seed in range(1, 40))]


@pytest.mark.parametrize("seed", SEEDS)
def test_random_commits_flushes_kills_and_upkeep_agree_with_the_model(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(group_commit, "UNFLUSHED_ROWS", 200)
    monkeypatch.setattr(group_commit, "SEGMENT_END", PAGE + 20_000)
    with opened(tmp_path) as world:
        world.store.abandon_store()
        world.store = Store.open(tmp_path, "test", time.time)
        for _ in range(100):
            act_at_random(world, rng)
            if rng.random() < 0.2:
                world.check()
        world.check()
        world.store.close()


def act_at_random(world: World, rng: random.Random) -> None:
    store, group = world.store, world.store.group
    words = ["commit", "flush", "kill", "group", "merge", "clean", "die", "stop"]
    match rng.choices(words, [60, 10, 6, 8, 3, 3, 6, 3])[0]:
        case "commit":
            world.append(random_rows(rng, world))
        case "flush":
            group.flush_tables()
        case "kill":
            store.abandon_store() if rng.random() < 0.6 else store.close()
            world.store = Store.open(store.local_root, "test", time.time)
        case "group" if group.is_on:
            group.end()
        case "group":
            group.begin(nullcontext, plans_first=rng.random() < 0.3)
        case "merge":
            merge_tail(store, VIEW)
        case "clean":
            clean_warehouse(store, retention_s=-1, fold_at_least=rng.randrange(1, 20))
        case "stop":
            store.commit([Stop(VIEW, "x")])
            store.commit([Resume(VIEW)])
        case "die":
            die_at_random(world, rng)


def die_at_random(world: World, rng: random.Random) -> None:
    rows, before = random_rows(rng, world), len(world.history)
    with suppress(Death), dying_at(rng.randrange(1, 14), rng.random() < 0.5, SYNCS):
        world.append(rows)
        if rng.random() < 0.5:
            world.store.group.flush_tables()
    world.store.abandon_store()
    world.store = Store.open(world.store.local_root, "test", time.time)
    if len(world.history) == before and world.view.ts > world.history[-1][0]:
        world.history.append((world.view.ts, Counter(rows)))


def random_rows(rng: random.Random, world: World) -> dict[Row, int]:
    """Some rows that come, and some that go."""
    come = {
        (rng.randrange(20), rng.choice(["a", "b", None])): rng.choice([1, 1, 2])
        for _ in range(rng.randrange(40))
    }
    there = world.expected(world.view.ts)
    gone = rng.sample(sorted(there, key=str), min(len(there), rng.randrange(10)))
    return {**come, **dict.fromkeys(gone, -1)}
