"""Random damage of a finished warehouse: whatever the store reads then is right, or refused.

A warehouse with several views, merged and folded, is copied, as it is and as a killed maintainer
left it, with its last commits in the journal alone; one file of it, of any kind, is flipped, cut,
zeroed, doubled, emptied or removed. Then it is looked at as `status` does, read by
Arrow, scrubbed, opened, given another batch and read again; `test_damaged_projects` has sources and
Spark. Every outcome is the right rows or an error of ours: *silently wrong* is 0, and so are
other exceptions.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.faults.damage import Outcome, damage_one, relative_files
from tests.warehouse.model import SCHEMA, bag, signed
from viewkeeper.engine.connections.open_sources import reader_of
from viewkeeper.errors import ViewkeeperError
from viewkeeper.sources.handles import SourceHandles
from viewkeeper.sources.state_files import FolderStateFiles
from viewkeeper.warehouse import group_commit
from viewkeeper.warehouse.merge import merge_tail
from viewkeeper.warehouse.metadata.head import Head, read_flushed_head, read_head
from viewkeeper.warehouse.metadata.plan_files import BatchPlan, LedgerEntry
from viewkeeper.warehouse.metadata.record import Advance, Create, DataFile
from viewkeeper.warehouse.metadata.warehouse_identity import make_identity
from viewkeeper.warehouse.retention import clean_warehouse
from viewkeeper.warehouse.rows.view_state import read_state
from viewkeeper.warehouse.scrub import find_damage, scrub_warehouse
from viewkeeper.warehouse.store import Store

VIEWS = ("orders", "lines", "totals")
DAMAGES = int(os.environ.get("VIEWKEEPER_DAMAGES", "1000"))
UNFLUSHED = 8
SEED = int(os.environ.get("VIEWKEEPER_FAULT_SEED", "1"))

Rows = Counter[tuple[object, ...]]


def rows_at(store: Store, view: str, table: str, ts: int) -> tuple[DataFile, ...]:
    rows: dict[tuple[object, ...], int] = {(ts, view): 1, (ts, None): 2}
    if ts > 3:
        rows[(ts - 2, view)] = -1
    folder, number = store.table_folder(table), store.head.record + 1
    return (store.group.keep_rows(folder, SCHEMA, signed(SCHEMA, rows, ts), number, 0),)


def append(store: Store, views: list[str]) -> None:
    """One batch of one transaction, for these views."""
    ts = max(store.ledger.next_ts, 2)
    entry = LedgerEntry(ts, "shop", ts - 2, ts - 1, 100.0 + ts, 1)
    plan = BatchPlan(store.next_plan, (entry,), dict.fromkeys(views, (ts - 1, ts)))
    store.write_plan(plan)
    changes = [
        Advance(v, ts, {"shop": ts - 1}, rows_at(store, v, store.head.require_view(v).table, ts))
        for v in views
    ]
    store.commit(changes, plan.n)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("finished") / "warehouse"
    make_identity(root)
    with Store.open(root, "test", time.time) as store:
        for view in VIEWS:
            table = store.new_table(view)
            files = rows_at(store, view, table, 1)
            create = Create(view, table, "SELECT ...", SCHEMA, 1, {"shop": 0}, files, True)
            store.commit([create])
        for number in range(14):
            append(store, list(VIEWS))
            if number == 5:
                merge_tail(store, "orders")
            if number == 8:
                clean_warehouse(store, retention_s=0.0, fold_at_least=1)
        SourceHandles(FolderStateFiles(root / "sources" / "shop")).add_target(
            "orders", "17", {"id": "1"}
        )
    return root


@pytest.fixture(scope="module")
def journaled(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, whose maintainer was killed after commits that only the journal has."""
    root = tmp_path_factory.mktemp("journaled") / "warehouse"
    shutil.copytree(finished, root)
    with pytest.MonkeyPatch.context() as patch:
        # Else most damages would be of room that nothing is written to yet.
        patch.setattr(group_commit, "SEGMENT_BYTES", 32 << 10)
        with Store.open(root, "test", time.time) as store:
            store.group.begin(nullcontext)
            append(store, list(VIEWS))
            store.group.flush_tables()
            for _ in range(UNFLUSHED):
                append(store, list(VIEWS))
            store.abandon_store()
    assert read_flushed_head(root).record == read_head(root).record - UNFLUSHED
    return root


def expected_rows(root: Path) -> dict[str, Rows]:
    return {view: bag(read_state(root, read_head(root).require_view(view))) for view in VIEWS}


def after_batch(expected: Rows, view: str, ts: int) -> Rows:
    rows = Counter(expected)
    rows.update({(ts, view): 1, (ts, None): 2})
    rows[(ts - 2, view)] -= 1
    return +rows


@dataclass
class Ordeal:
    """One damaged copy, and what may be seen of it."""

    root: Path
    expected: dict[str, Rows]
    journal: bool = False
    """Whether whoever goes on commits to the journal."""
    refusals: int = 0

    def run(self) -> bool:
        """Whether anything was refused; an AssertionError if something was wrong silently."""
        heads = self._heads()
        self._try(lambda: scrub_warehouse(self.root, (), lambda _: None).is_whole)
        self._try(lambda: bool(reader_of(self.root)))
        self._try(
            lambda: bool(list(SourceHandles(FolderStateFiles(self.root / "sources" / "shop"))))
        )
        self._read(heads, self.expected)
        self._try(self._continue)
        return self.refusals > 0

    def _heads(self) -> Head:
        try:
            return read_head(self.root)
        except ViewkeeperError:
            self.refusals += 1
            return Head()

    def _read(self, head: Head, expected: dict[str, Rows]) -> None:
        for view in VIEWS:
            if view not in head.views or head.views[view].stopped:
                self.refusals += 1
                continue
            if find_damage(self.root, head.views[view]) is not None:
                self.refusals += 1
            self._try(partial(self._arrow, head, view, expected[view]))

    def _arrow(self, head: Head, view: str, expected: Rows) -> bool:
        rows = bag(read_state(self.root, head.require_view(view)))
        assert rows == expected, f"{view}: silently wrong by Arrow"
        return True

    def _continue(self) -> bool:
        with Store.open(self.root, "test", time.time) as store:
            if self.journal:
                store.group.begin(nullcontext)
            # A head that was rebuilt from the records may be an older one: nothing is lost then.
            able = [
                v for v in VIEWS if v in store.head.views and not store.head.require_view(v).stopped
            ]
            ts = store.ledger.next_ts
            if able:
                append(store, able)
            head = store.head
        later = {view: after_batch(self.expected[view], view, ts) for view in able}
        for view in able:
            self._try(partial(self._arrow, head, view, later[view]))
        self.refusals += len(VIEWS) - len(able)
        return True

    def _try(self, action: Callable[[], bool]) -> None:
        try:
            if not action():
                self.refusals += 1
        except ViewkeeperError:
            self.refusals += 1


def damage_often(finished: Path, folder: Path, count: int, inside: str = "") -> Outcome:
    """Damage that many copies, in files below a folder; every failure names its number, its file
    and its kind."""
    chance, expected = random.Random(SEED), expected_rows(finished)
    paths = [path for path in relative_files(finished) if f"{path}".startswith(inside)]
    outcome = Outcome()
    for number in range(count):
        root = folder / "copy"
        shutil.copytree(finished, root)
        kind, path = damage_one(root, paths, chance)
        try:
            refused = Ordeal(root, expected, journal=bool(number % 2)).run()
        except Exception as error:
            message = f"damage {number} of seed {SEED}: {kind} of {path}: {error!r}"
            raise AssertionError(message) from error
        (outcome.refused if refused else outcome.harmless)[kind] += 1
        shutil.rmtree(root)
    return outcome


def test_a_few_damages_are_noticed_or_harmless(finished: Path, tmp_path: Path) -> None:
    assert sum(damage_often(finished, tmp_path, 40).refused.values()) > 20


def test_a_few_damages_of_a_journal_are_noticed_or_harmless(
    journaled: Path, tmp_path: Path
) -> None:
    assert sum(damage_often(journaled, tmp_path, 30, "journal/").refused.values()) > 10


@pytest.mark.campaign
def test_many_damages_without_spark(finished: Path, tmp_path: Path) -> None:
    print(damage_often(finished, tmp_path, DAMAGES))


@pytest.mark.campaign
@pytest.mark.parametrize("inside", ["", "journal/"], ids=["anywhere", "in the journal"])
def test_many_damages_of_what_a_killed_maintainer_left(
    journaled: Path, tmp_path: Path, inside: str
) -> None:
    print(damage_often(journaled, tmp_path, DAMAGES, inside))


def test_a_lost_plan_is_noticed(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "copy")
    sorted((tmp_path / "copy" / "plans").glob("[0-9]*.json"))[-1].unlink()
    with pytest.raises(ViewkeeperError, match="plans"):
        Store.open(tmp_path / "copy", "test", time.time)
