"""Readers in other processes against a writer that commits, merges and cleans without a pause.

Small commits go to the journal, others into files. A reader holds no lock: between its listing of a
log and its reading of a file, upkeep may have replaced and removed what was listed. It reads again,
from the next head if need be, and never calls anything damaged.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.warehouse.model import VIEW, World, bag, folder_of, opened
from viewkeeper.warehouse.merge import merge_tail
from viewkeeper.warehouse.retention import clean_warehouse
from viewkeeper.warehouse.rows.view_state import newest_state, read_state

READS = 25
LIMIT_SECONDS = 300.0
WAYS = pytest.mark.parametrize("journal", [False, True], ids=["files", "journal"])


def read_on(root: Path, reads: int, results: multiprocessing.SimpleQueue[object]) -> None:
    """Read the newest state again and again; every one must hold as many rows as its head says."""
    try:
        for _ in range(reads):
            view, rows = newest_state(root, VIEW)
            assert rows.num_rows == view.rows
            assert bag(rows)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told
        results.put(f"{type(error).__name__}: {error}")
        return
    results.put(reads)


def hammer(root: Path, reads: int, journal: bool) -> list[object]:
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    with opened(root) as world:
        if journal:
            world.store.group.begin(nullcontext)
        world.append({(0, "x"): 1})
        readers = [context.Process(target=read_on, args=(root, reads, results)) for _ in range(2)]
        for reader in readers:
            reader.start()
        write_on(world, lambda: any(reader.is_alive() for reader in readers))
        for reader in readers:
            reader.kill()
            reader.join()
    return [results.get() for _ in readers]


def write_on(world: World, wanted: Callable[[], bool]) -> None:
    """Commit, flush, merge and clean up; nothing that was replaced is kept for a second."""
    end, number = time.monotonic() + LIMIT_SECONDS, 0
    while wanted() and time.monotonic() < end:
        number += 1
        world.append({(number, "x"): 1})
        if number % 5 == 0:
            world.store.group.flush_tables()
        if number % (12 if world.store.group.is_on else 3) == 0:
            merge_tail(world.store, VIEW)
            clean_warehouse(world.store, retention_s=0.2, fold_at_least=5)


@WAYS
def test_readers_survive_upkeep(tmp_path: Path, journal: bool) -> None:
    assert hammer(tmp_path, READS, journal) == [READS, READS]


@pytest.mark.campaign
@WAYS
def test_readers_survive_upkeep_for_long(tmp_path: Path, journal: bool) -> None:
    assert hammer(tmp_path, 40 * READS, journal) == [40 * READS, 40 * READS]


def test_what_the_log_named_within_the_retention_stays(tmp_path: Path) -> None:
    """A reader that has just listed the log opens what it listed, however old that is."""
    with opened(tmp_path) as world:
        for k in range(3):
            world.append({(k, "x"): 1})
        merge_tail(world.store, VIEW)
        log = folder_of(world.store) / "_delta_log"
        listed = {path.name for path in log.iterdir()}
        long_ago = time.time() - 7200
        for path in log.iterdir():
            os.utime(path, (long_ago, long_ago))
        before = world.view
        for k in range(3):
            world.append({(k + 10, "x"): 1})
        merge_tail(world.store, VIEW)
        clean_warehouse(world.store, retention_s=3600)
        gone = listed - {path.name for path in log.iterdir()}
        checkpoint = before.location.checkpoint
        assert checkpoint is not None
        assert all(int(name[:20]) < checkpoint for name in gone), gone
        assert bag(read_state(tmp_path, before)) == world.expected(before.ts)
