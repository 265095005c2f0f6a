"""A warehouse in object storage against the model of one: deaths, lost answers, zombies."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.objects.faulty_requests import DeathError, Faults
from tests.objects.s3_server import ObjectServer, PrivateS3, root_at
from tests.warehouse.model import VIEW, Row, World
from viewkeeper.errors import LockedError, WarehouseError
from viewkeeper.storage.stored_files import storage_of
from viewkeeper.warehouse.lasting_recovery import remove_earlier
from viewkeeper.warehouse.merge import merge_tail
from viewkeeper.warehouse.metadata.head import read_head
from viewkeeper.warehouse.retention import clean_warehouse
from viewkeeper.warehouse.scrub import scrub_warehouse
from viewkeeper.warehouse.store import Store


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    return Faults(monkeypatch)


class Bucket:
    """A warehouse's address, and the stores that were opened in it."""

    def __init__(self, server: ObjectServer, local: Path) -> None:
        self.server, self.url, self._local = server, server.new_url(), local
        self._numbers = itertools.count()

    def open(self, over: object = None) -> Store:
        """Open the warehouse as another process, on another machine; take over what is held."""
        root = root_at(self.server, self.url, self._local / f"local{next(self._numbers)}")
        try:
            return Store.open(root, "test", time.time, time.monotonic, over)
        except LockedError as error:
            if error.seen is None or over is not None:
                raise
            return self.open(error.seen)

    def lake_rows(self, world: World) -> Counter[Row]:
        """What another reader of the Delta Lake table sees."""
        folder = world.store.folder_of(VIEW)
        table = DeltaTable(str(folder), storage_options=self.server.lake_options)
        rows = pa.table(table.to_pyarrow_table())
        found: Counter[Row] = Counter()
        for row in rows.to_pylist():
            found[row["k"], row["s"]] += row["_count"]
        return +found


@pytest.fixture
def bucket(s3: PrivateS3, tmp_path: Path, faults: Faults) -> Bucket:
    return Bucket(s3, tmp_path)


def reopen(world: World, bucket: Bucket) -> None:
    """Go on as a process that knows nothing of the last one; the model forgets what died."""
    world.store = bucket.open()
    ts = world.store.head.views[VIEW].ts if VIEW in world.store.head.views else 0
    world.history = [(at, rows) for at, rows in world.history if at <= ts]


def is_whole(store: Store) -> bool:
    damaged = scrub_warehouse(store.root, (), lambda _: None).damaged
    return all("identity" in str(error) for error in damaged)


def group(world: World) -> None:
    world.store.group.begin(threading.RLock)


def test_commits_flushes_merges_and_readers(bucket: Bucket, faults: Faults) -> None:
    world = World(bucket.open())
    world.load({(1, "a"): 2, (2, "b"): 1})
    world.check()
    group(world)
    for step in range(6):
        world.append({(step, "x"): 1})
        world.check()
        if step % 2:
            world.store.group.flush_tables()
            assert bucket.lake_rows(world) == world.expected(world.view.ts)
    world.store.group.end()
    world.append({(2, "b"): -1})
    merge_tail(world.store, VIEW)
    clean_warehouse(world.store, 0.0, 1)
    world.check()
    world.store.close()
    assert is_whole(world.store)
    reopen(world, bucket)
    world.check()
    assert world.store.lock.epoch == 2
    world.store.close()


def test_a_small_commit_is_one_request(bucket: Bucket, faults: Faults) -> None:
    world = World(bucket.open())
    world.load({(1, "a"): 1})
    group(world)
    world.append({(2, "b"): 1})
    before = faults.counts
    for step in range(5):
        world.append({(step, "c"): 1})
    assert faults.counts - before == Counter({"put": 5})
    before = faults.counts
    world.store.group.flush_tables()
    spent = faults.counts - before
    assert spent["list"] == 0, "nothing is listed while it works"
    assert spent["put"] <= 6, "data file, frame, plans, records, log entry, head"
    world.store.group.end()
    world.store.close()


def scenario(world: World) -> None:
    """Everything that commits, in one short life; what is acknowledged is in the model."""
    if VIEW not in world.store.head.views:
        world.load({(1, "a"): 2, (2, "b"): 1})
    group(world)
    world.append({(1, "a"): -1, (3, "c"): 1})
    world.append({(4, "d"): 1})
    world.store.group.flush_tables()
    world.append({(5, "e"): 1})
    merge_tail(world.store, VIEW)
    world.append({(3, "c"): -1})
    world.store.close()


@pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.campaign)])
def test_a_death_after_a_change_loses_nothing(
    s3: PrivateS3, tmp_path: Path, faults: Faults, stride: int
) -> None:
    """Whoever comes next finds everything that was acknowledged, and at most the step under way."""
    for number in itertools.count(0, stride):
        bucket = Bucket(s3, tmp_path / str(number))
        world = World(bucket.open())
        faults.die_after(number)
        with suppress(DeathError):
            scenario(world)
        is_over = faults.chance("get") == "fine"
        acknowledged = list(world.history)
        faults.end()
        world.store = bucket.open()
        if VIEW in world.store.head.views:
            check_after_death(world, acknowledged)
            world.append({(9, "z"): 1})
            world.check()
        else:
            assert not acknowledged
        world.store.close()
        if is_over:
            break
    assert number > 20, "there were more changes than that"


def check_after_death(world: World, acknowledged: list[tuple[int, Counter[Row]]]) -> None:
    """The state is that of all acknowledged steps, or of one more, which then is the model."""
    ts = world.view.ts
    last = acknowledged[-1][0] if acknowledged else 0
    assert last <= ts <= last + 1, "what was acknowledged is there, and one step at most beyond"
    if ts > last:
        under_way = {
            0: Counter({(1, "a"): 2, (2, "b"): 1}),
            1: Counter({(1, "a"): -1, (3, "c"): 1}),
            2: Counter({(4, "d"): 1}),
            3: Counter({(5, "e"): 1}),
            4: Counter({(3, "c"): -1}),
        }[len(acknowledged)]
        world.history = [*acknowledged, (ts, under_way)]
    world.check()
    assert is_whole(world.store)


CAMPAIGN = [pytest.param(seed, marks=pytest.mark.campaign) for seed in range(1, 20)]


@pytest.mark.parametrize("seed", [0, *CAMPAIGN])
def test_refused_requests_and_lost_answers(bucket: Bucket, faults: Faults, seed: int) -> None:
    """With one request in five failing, every step is done, or is settled by opening again."""
    generator = random.Random(seed)
    world = World(bucket.open())
    world.load({(1, "a"): 2, (2, "b"): 1})
    group(world)
    for step in range(16):
        faults.seed(generator, 0.2)
        rows = {(step, generator.choice("xyz")): 1}
        before = len(world.history)
        try:
            world.append(rows)
            if generator.random() < 0.3:
                world.store.group.flush_tables()
        except WarehouseError:
            faults.end()
            world.store.abandon_store()
            world.store = bucket.open()
            ts = world.view.ts
            if len(world.history) == before and ts > world.history[-1][0]:
                world.history.append((ts, Counter(rows)))
            group(world)
        faults.end()
        if step % 4 == 3:
            world.check()
    world.store.close()
    assert bucket.lake_rows(world) == world.expected(world.view.ts)
    assert is_whole(world.store)


def zombie_of(bucket: Bucket) -> tuple[World, World]:
    """A process that sleeps through a takeover, and its successor, which knows all that it did."""
    old = World(bucket.open())
    old.load({(1, "a"): 1})
    group(old)
    old.append({(2, "b"): 1})
    new = World(bucket.open(), history=list(old.history))
    return old, new


def check_a_zombie_cannot_commit(bucket: Bucket) -> None:
    old, new = zombie_of(bucket)
    assert new.store.lock.epoch == 2
    # Its lease was renewed a moment ago, so that only the journal can refuse it.
    with pytest.raises(LockedError, match="another process has taken it over"):
        old.append({(3, "zombie"): 1})
    with pytest.raises(WarehouseError, match="an earlier commit was interrupted"):
        old.store.confirm_usable()
    old.store.abandon_store()
    new.append({(4, "d"): 1})
    new.check()
    new.store.close()
    reopen(new, bucket)
    new.check()
    new.store.close()


def test_a_zombie_cannot_commit(bucket: Bucket) -> None:
    check_a_zombie_cannot_commit(bucket)


def test_a_zombie_cannot_commit_long_after_its_journal_was_removed(bucket: Bucket) -> None:
    old, new = zombie_of(bucket)
    group(new)
    for step in range(6):
        new.append({(step, "n"): 1})
        new.store.group.flush_tables()
    new.store.close()
    reopen(new, bucket)
    with pytest.raises(LockedError):
        old.append({(3, "zombie"): 1})
    new.check()
    new.store.close()


@pytest.mark.parametrize("what", ["flush", "merge", "head"])
def test_a_zombie_cannot_change_tables_or_head(bucket: Bucket, what: str) -> None:
    old, new = zombie_of(bucket)
    group(new)
    new.append({(7, "n"): 1})
    new.store.group.flush_tables()
    acts: dict[str, Callable[[], object]] = {
        "flush": old.store.group.flush_tables,
        "merge": lambda: merge_tail(old.store, VIEW),
        "head": lambda: old.store.group.journal.write_head(old.store.group._flushed),
    }
    with pytest.raises(WarehouseError):
        acts[what]()
    old.store.abandon_store()
    new.check()
    assert bucket.lake_rows(new) == new.expected(new.view.ts)
    new.append({(8, "n"): 1})
    new.store.close()
    reopen(new, bucket)
    new.check()
    assert is_whole(new.store)
    new.store.close()


def test_a_zombie_in_its_start_removes_nothing_of_its_successor(bucket: Bucket) -> None:
    first = World(bucket.open())
    first.load({(1, "a"): 1})
    folder = first.store.folder_of(VIEW)
    orphan = first.files(folder, {(9, "o"): 1}, 2)[0].path
    first.store.abandon_store()
    old = bucket.open()
    assert orphan not in {path.name for path in folder.glob("b*.parquet")}, "an earlier epoch's"
    new = World(bucket.open(), history=list(first.history))
    young = new.files(new.store.folder_of(VIEW), {(9, "y"): 1}, 2)[0].path
    remove_earlier(old._tables, old.root, old.head, [], lambda: None)
    assert young in {path.name for path in folder.glob("b*.parquet")}
    new.store.close()


def test_the_lease_is_given_back_and_seen(bucket: Bucket) -> None:
    store = bucket.open()
    holder = storage_of(store.root).commits.running_holder(store.root, time.time())
    assert holder is not None
    assert holder.epoch == 1
    store.lock.renew_lease()
    store.confirm_lock()
    store.close()
    assert storage_of(store.root).commits.running_holder(store.root, time.time()) is None
    assert bucket.open().lock.epoch == 2


def test_readers_see_the_newest_commit_while_it_is_flushed(bucket: Bucket) -> None:
    """A reader between two flushes never sees less than was there when it began."""
    world = World(bucket.open())
    world.load({(1, "a"): 1})
    group(world)
    for step in range(10):
        world.append({(step, "r"): 1})
        assert read_head(world.store.root).record == world.store.head.record
        if step % 3 == 2:
            world.store.group.flush_tables()
            assert read_head(world.store.root).record == world.store.head.record
    world.store.group.end()
    world.store.close()
