"""A writer that sleeps while another takes the warehouse over commits nothing when it wakes.

While the lock holds nobody gets in. Here somebody removes the lock file, or a file server has given
the lock away; the second writer commits, folds and forgets, so that even the numbers of the first
one's plans and records are free again. The first wakes before or after any of its system calls. The
same for writers that commit to the journal, from one that a killed process left unflushed.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.warehouse.faults import CALLS
from tests.warehouse.journal_world import SYNCS
from tests.warehouse.model import World, opened
from viewkeeper.errors import LockedError, WarehouseError
from viewkeeper.warehouse.merge import merge_tail
from viewkeeper.warehouse.metadata.head import read_head
from viewkeeper.warehouse.retention import clean_warehouse
from viewkeeper.warehouse.store import Store

ROWS = {(7, "first"): 1}


@contextmanager
def sleeping_at(
    moment: int, after: bool, meanwhile: Callable[[], None], calls: Sequence[str]
) -> Iterator[None]:
    """Let something happen before or after the given system call of the block."""
    done = 0
    asleep = False

    def sleep() -> None:
        nonlocal asleep
        asleep = True
        meanwhile()
        asleep = False

    def sleepy(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            nonlocal done
            done += not asleep
            now = done == moment and not asleep
            if now and not after:
                sleep()
            try:
                return real(*args, **options)
            finally:
                if now and after:
                    sleep()

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in calls:
            patch.setattr(os, name, sleepy(getattr(os, name)))
        yield


@pytest.fixture
def template(tmp_path: Path) -> World:
    with opened(tmp_path / "template") as made:
        made.append({(4, "d"): 1})
        made.append({(5, "e"): 1})
    return made


@pytest.fixture
def unflushed(tmp_path: Path) -> World:
    """A warehouse whose writer was killed when its last commit was in the journal alone."""
    with opened(tmp_path / "template") as made:
        made.store.group.begin(nullcontext)
        made.append({(4, "d"): 1})
        made.store.group.flush_tables()
        made.append({(5, "e"): 1})
        made.store.abandon_store()
    return made


class Second:
    """Whoever takes over: it finds out what the first has committed, and goes far beyond."""

    def __init__(self, root: Path, template: World, journal: bool = False) -> None:
        self._root = root
        self._journal = journal
        self._history = list(template.history)
        self._known = template.view.ts
        self.world: World | None = None

    def take_over(self) -> None:
        (self._root / "lock").unlink()
        store = Store.open(self._root, "second", time.time)
        self.world = World(store, history=self._history)
        if self.world.view.ts > self._known:
            self._history.append((self.world.view.ts, Counter(ROWS)))
        if self._journal:
            store.group.begin(nullcontext)
        for number in range(3):
            self.world.append({(number, "second"): 1})
        merge_tail(store, self.world.view.view)
        clean_warehouse(store, retention_s=-1.0, fold_at_least=1)
        self.world.append({(8, "second"): 1})


def attempts(
    template: World,
    root: Path,
    work: Callable[[World], None],
    stride: int,
    calls: Sequence[str] = CALLS,
) -> int:
    """Sleep at every so many calls of some work, or at all; how many calls there were."""
    for number, moment in enumerate(range(1, 1000, stride)):
        for after in (False, True) if stride == 1 else (number % 2 == 0,):
            shutil.rmtree(root, ignore_errors=True)
            shutil.copytree(template.store.local_root, root)
            second = Second(root, template, journal=calls is SYNCS)
            with (
                suppress(WarehouseError),
                sleeping_at(moment, after, second.take_over, calls),
                Store.open(root, "first", time.time) as store,
            ):
                work(World(store, history=list(template.history)))
            if second.world is None:
                return moment - 1
            check_second(second)
    raise AssertionError("it never ended")


def check_second(second: Second) -> None:
    """It is where it was, goes on, and so does the next."""
    assert second.world is not None
    second.world.check()
    second.world.append({(9, "later"): 1})
    second.world.check()
    second.world.store.close()
    with Store.open(second.world.store.local_root, "third", time.time) as store:
        World(store, history=second.world.history).check()


STRIDES = pytest.mark.parametrize("stride", [8, pytest.param(1, marks=pytest.mark.campaign)])


@STRIDES
def test_a_writer_that_slept_commits_nothing(stride: int, template: World, tmp_path: Path) -> None:
    assert attempts(template, tmp_path / "w", lambda world: world.append(ROWS), stride) > 10


@STRIDES
def test_a_writer_that_slept_folds_nothing(stride: int, template: World, tmp_path: Path) -> None:
    def tidy(world: World) -> None:
        merge_tail(world.store, world.view.view)
        clean_warehouse(world.store, retention_s=-1.0, fold_at_least=1)

    assert attempts(template, tmp_path / "w", tidy, stride) > 10


@STRIDES
def test_a_writer_that_slept_in_a_small_commit_or_its_flush_commits_nothing(
    stride: int, unflushed: World, tmp_path: Path
) -> None:
    def commit_small(world: World) -> None:
        world.store.group.begin(nullcontext)
        world.append(ROWS)
        world.store.group.flush_tables()

    assert attempts(unflushed, tmp_path / "w", commit_small, stride, SYNCS) > 20


def test_numbers_that_are_free_again_let_nobody_back_in(template: World, tmp_path: Path) -> None:
    root = tmp_path / "w"
    shutil.copytree(template.store.local_root, root)
    with Store.open(root, "first", time.time) as store:
        first = World(store, history=list(template.history))
        second = Second(root, template)
        second.take_over()
        with pytest.raises(LockedError, match="another process has taken it over") as refused:
            first.append(ROWS)
        assert "(second), since" in str(refused.value)
    assert second.world is not None
    assert read_head(root) == second.world.store.head
    check_second(second)
