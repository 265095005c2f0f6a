"""An index finds what the table has, whatever happened to it; or it is not there.

Random changes are applied to an index and to a dictionary, with folds, new beginnings from the
file, colliding hashes and every kind of key. An index that is torn, changed, old or of somebody
else is never opened; a process that dies at any step leaves one that is right as of its ts.
"""

from __future__ import annotations

import math
import os
import random
import stat
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.stages.histories import bag_of
from tests.stages.index_writer import (
    KEYS,
    OWNER,
    change_at,
    open_or_rebuild,
    rows_at,
    table_of_change,
)
from viewkeeper.delta.algebra import COUNT
from viewkeeper.errors import StateError
from viewkeeper.stages import key_index
from viewkeeper.stages.key_index import (
    MANIFEST,
    IndexOwner,
    KeyIndex,
    digest_rows,
    open_index,
    rebuild_index,
)
from viewkeeper.storage import sealed_json

ROOT = Path(__file__).parent.parent.parent
LAST = 1 << 40

COLUMNS: dict[str, pa.DataType] = {
    "a": pa.int32(),
    "b": pa.float64(),
    "c": pa.string(),
    "d": pa.decimal128(30, 2),
    "e": pa.binary(),
    "f": pa.timestamp("us"),
    "g": pa.bool_(),
    "h": pa.date32(),
}
SCHEMA = pa.schema(COLUMNS)
POOLS: list[list[Any]] = [
    [None, 1, -1],
    [None, 0.0, math.nan, 1.5],
    [None, "", "x", "xy", "yx"],
    [None, 0, 10**20],
    [None, b"", b"\x00", b"\x00\x00"],
    [None, 0, -1],
    [None, True, False],
    [None, 0, 1],
]
KEY_SETS = [("a",), ("b",), ("c", "a"), ("d", "e"), ("f", "g", "h"), tuple(SCHEMA.names)]


def table_of(rows: list[tuple[tuple[Any, ...], int]]) -> pa.Table:
    columns: dict[str, Any] = {
        field.name: pa.array([row[i] for row, _ in rows], field.type)
        for i, field in enumerate(SCHEMA)
    }
    columns[COUNT] = pa.array([count for _, count in rows], pa.int64())
    return pa.table(columns)


def draw_row(rnd: random.Random) -> tuple[Any, ...]:
    return tuple(rnd.choice(pool) for pool in POOLS)


def plain_bag(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return bag_of(table, SCHEMA.names)


class IndexedHistory:
    """Random changes of an index and of a bag; what is found is compared."""

    def __init__(self, folder: Path, keys: tuple[str, ...], rnd: random.Random) -> None:
        self._folder, self._rnd = folder, rnd
        self._owner = IndexOwner("t", 1, SCHEMA, keys)
        self._bag: Counter[tuple[Any, ...]] = Counter()
        self._changes: list[pa.Table] = []
        self._index = rebuild_index(folder, self._owner, [], 0)

    def take_steps(self, steps: int) -> None:
        for _ in range(steps):
            self._apply_change()
            if self._rnd.random() < 0.1:
                self._open_again()
            self._compare_found()
        assert self._index.digest == digest_rows(self._changes, SCHEMA)

    def _apply_change(self) -> None:
        rows: list[tuple[tuple[Any, ...], int]] = []
        for _ in range(self._rnd.randint(0, 6)):
            there = [row for row in self._bag if self._bag[row] > 0]
            if there and self._rnd.random() < 0.5:
                row = self._rnd.choice(there)
                count = -self._rnd.randint(1, self._bag[row])
            else:
                row, count = draw_row(self._rnd), self._rnd.randint(1, 2)
            self._bag[row] += count
            rows.append((row, count))
        self._changes.append(table_of(rows))
        self._index.apply_rows(self._changes[-1], len(self._changes))

    def _open_again(self) -> None:
        found = open_index(self._folder, self._owner, 0, len(self._changes))
        assert found is not None
        for ts in range(found.ts + 1, len(self._changes) + 1):
            found.apply_rows(self._changes[ts - 1], ts)
        self._index = found

    def _compare_found(self) -> None:
        there = [row for row in self._bag if self._bag[row] > 0]
        asked = [*self._rnd.sample(there, min(3, len(there))), draw_row(self._rnd)] * 2
        keys = table_of([(row, 1) for row in asked]).select(list(self._owner.keys))
        places = [SCHEMA.names.index(name) for name in self._owner.keys]
        wanted = set(
            bag_of(keys.append_column(COUNT, pa.array([1] * len(asked))), keys.column_names)
        )
        theirs = {
            row: count
            for row, count in plain_bag(table_of(list((+self._bag).items()))).items()
            if tuple(row[i] for i in places) in wanted
        }
        assert dict(plain_bag(self._index.find_rows(keys))) == theirs


@pytest.mark.parametrize("keys", KEY_SETS, ids=lambda keys: "".join(keys))
def test_an_index_finds_what_was_applied(
    tmp_path: Path, keys: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_index, "OVERLAY_MIN", 20)
    for seed in range(3):
        IndexedHistory(tmp_path / str(seed), keys, random.Random(seed)).take_steps(40)


def test_keys_with_one_hash_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def collide(columns: Any, size: int) -> Any:
        return np.arange(size, dtype=np.uint64) // np.uint64(size + 1)

    monkeypatch.setattr(key_index, "hash_rows", collide)
    monkeypatch.setattr(key_index, "OVERLAY_MIN", 5)
    IndexedHistory(tmp_path, ("c", "b"), random.Random(1)).take_steps(25)


def made_index(folder: Path, last: int = 70) -> KeyIndex:
    index = rebuild_index(folder, OWNER, [], 0)
    for ts in range(1, last + 1):
        index.apply_rows(table_of_change(change_at(ts)), ts)
    index.fold_overlay()
    return index


def all_keys() -> pa.Table:
    return pa.table({"k": list(range(KEYS))})


def judge(index: KeyIndex) -> None:
    """The index has exactly the rows of its ts."""
    found = bag_of(index.find_rows(all_keys()), ["k", "v"])
    assert found == rows_at(index.ts)
    assert index.digest.rows == len(rows_at(index.ts))


def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    made_index(folder)
    names = sorted(path.name for path in folder.iterdir())
    assert len(names) == 2
    for path in folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_index_is_opened_as_of_its_ts(tmp_path: Path) -> None:
    made_index(tmp_path)
    found = open_index(tmp_path, OWNER, 70, 70)
    assert found is not None
    assert found.ts == 70
    judge(found)
    assert open_index(tmp_path, OWNER, 71, LAST) is None, "older than what can be replayed"
    assert open_index(tmp_path, OWNER, 0, 69) is None, "beyond what the table has"


@pytest.mark.parametrize(
    "other",
    [
        IndexOwner("other", OWNER.version, OWNER.schema, OWNER.keys),
        IndexOwner(OWNER.table, OWNER.version + 1, OWNER.schema, OWNER.keys),
        IndexOwner(OWNER.table, OWNER.version, OWNER.schema, ("v",)),
        IndexOwner(OWNER.table, OWNER.version, OWNER.schema.remove(1), OWNER.keys),
    ],
)
def test_an_index_of_another_owner_is_not_opened(tmp_path: Path, other: IndexOwner) -> None:
    made_index(tmp_path)
    assert open_index(tmp_path, other, 0, LAST) is None


def test_every_tear_is_seen(tmp_path: Path) -> None:
    made_index(tmp_path)
    rnd = random.Random(5)
    for path in list(tmp_path.iterdir()):
        data = path.read_bytes()
        cuts = [data[: rnd.randrange(len(data))] for _ in range(20)] + [b"", data + b"\0"]
        for _ in range(60):
            at = rnd.randrange(len(data))
            cuts.append(data[:at] + bytes([data[at] ^ 1 << rnd.randrange(8)]) + data[at + 1 :])
        for torn in cuts:
            path.write_bytes(torn)
            assert open_index(tmp_path, OWNER, 0, LAST) is None
        path.unlink()
        assert open_index(tmp_path, OWNER, 0, LAST) is None
        path.write_bytes(data)
    found = open_index(tmp_path, OWNER, 0, LAST)
    assert found is not None


def test_a_manifest_names_files_of_its_folder_only(tmp_path: Path) -> None:
    made_index(tmp_path / "one")
    body = sealed_json.unseal_file(tmp_path / "one" / MANIFEST, key_index.KIND, "")
    body["file"] = f"../one/{body['file']}"
    sealed_json.write_sealed(tmp_path / "two" / MANIFEST, key_index.KIND, body)
    assert open_index(tmp_path / "two", OWNER, 0, LAST) is None


class Death(BaseException):
    """The process ends here."""


class Countdown:
    """Calls that end the process after so many of them."""

    def __init__(self, calls: int) -> None:
        self._left = calls

    def guard_call(self, call: Any) -> Any:
        def guarded(*args: Any, **options: Any) -> Any:
            self._left -= 1
            if self._left == -1:
                raise Death
            return call(*args, **options)

        return guarded


def test_a_death_at_any_step_leaves_a_right_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_index(tmp_path)
    replaced, unlinked, deaths = os.replace, Path.unlink, 0
    for step in range(8):
        left = Countdown(step)
        index = open_index(tmp_path, OWNER, 0, LAST)
        assert index is not None
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", left.guard_call(replaced))
            patch.setattr(Path, "unlink", left.guard_call(unlinked))
            try:
                for ts in range(index.ts + 1, index.ts + 5):
                    index.apply_rows(table_of_change(change_at(ts)), ts)
                index.fold_overlay()
            except Death:
                deaths += 1
        found = open_index(tmp_path, OWNER, 0, LAST)
        assert found is not None
        judge(found)
    assert deaths >= 3


def test_killed_processes_leave_right_indexes(tmp_path: Path) -> None:
    rnd, folder = random.Random(3), tmp_path / "index"
    for _ in range(3):
        begun = ts_of(folder)
        command = [sys.executable, "-m", "tests.stages.index_writer", str(folder)]
        with subprocess.Popen(command, cwd=ROOT) as process:
            limit = time.monotonic() + 60
            while ts_of(folder) < begun + 10 and time.monotonic() < limit:
                time.sleep(0.02)
            time.sleep(rnd.random() * 0.1)
            process.kill()
        index = open_or_rebuild(folder)
        judge(index)
        assert index.ts >= begun + 10


def ts_of(folder: Path) -> int:
    found = open_index(folder, OWNER, 0, LAST)
    return found.ts if found else 0


def test_rows_that_were_never_there_are_refused(tmp_path: Path) -> None:
    index = made_index(tmp_path)
    index.apply_rows(table_of_change([(1, "never", -1)]), 71)
    with pytest.raises(StateError, match="less than no times"):
        index.find_rows(pa.table({"k": [1]}))
    with pytest.raises(StateError):
        index.fold_overlay()
    with pytest.raises(StateError):
        rebuild_index(tmp_path, OWNER, [table_of_change([(1, "never", -1)])], 1)
