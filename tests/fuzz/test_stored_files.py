"""Whatever bytes the files of a warehouse have: they are read, or refused by an error of ours.

Sealed files are also fuzzed behind their checksum, where a body that makes no sense is read.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fuzz.isolation import fuzz_isolated
from tests.fuzz.mutation import fuzz
from tests.warehouse.model import VIEW, bag, opened
from viewkeeper.sources.handles import FILE, SourceHandles
from viewkeeper.sources.state_files import FolderStateFiles
from viewkeeper.storage.sealed_json import seal_body
from viewkeeper.warehouse.lake import lake_table
from viewkeeper.warehouse.merge import merge_tail
from viewkeeper.warehouse.metadata.coordination import (
    Coordination,
    GroupSpan,
    read_coordination,
    write_coordination,
)
from viewkeeper.warehouse.metadata.head import read_head
from viewkeeper.warehouse.metadata.plan_files import read_plan
from viewkeeper.warehouse.metadata.record import read_record
from viewkeeper.warehouse.metadata.warehouse_identity import make_identity, read_identity
from viewkeeper.warehouse.rows import view_state
from viewkeeper.warehouse.rows.view_state import files_of, read_state

NUMBER = "00000000000000000001.json"


@pytest.fixture(scope="module")
def root(memory: Path) -> Path:
    return make_warehouse(memory / "warehouse")


def make_warehouse(root: Path) -> Path:
    """A warehouse with one view, whose table has a checkpoint and an entry after it."""
    root.mkdir()
    make_identity(root)
    with opened(root) as world:
        for k in range(3):
            world.append({(k, "x"): 1, (k, None): 2})
        merge_tail(world.store, VIEW)
        world.append({(9, "é"): 1})
    SourceHandles(FolderStateFiles(root / "sources" / "shop")).add_target(
        "orders", "17", {"id": "1", "price": "2"}
    )
    span = GroupSpan("g", "1f", 0, 3, 4)
    write_coordination(root, Coordination("a", (span,)))
    return root


READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "head": ("head.json", lambda path: read_head(path.parent)),
    "plan": (f"plans/{NUMBER}", read_plan),
    "record": (f"records/{NUMBER}", read_record),
    "names": (f"sources/shop/{FILE}", lambda path: SourceHandles(FolderStateFiles(path.parent))),
    "identity": ("identity", lambda path: read_identity(path.parent)),
    "coordination": ("coordination.json", lambda path: read_coordination(path.parent)),
}
readers = pytest.mark.parametrize("kind", READERS)


@readers
def test_a_sealed_file(root: Path, scratch: Path, kind: str) -> None:
    name, read = READERS[kind]
    path = scratch / Path(name).name

    def reading(data: bytes) -> object:
        path.write_bytes(data)
        return read(path)

    fuzz(reading, [(root / name).read_bytes()], inputs=1000)


@readers
def test_the_body_behind_a_right_checksum(root: Path, scratch: Path, kind: str) -> None:
    name, read = READERS[kind]
    path, whole = scratch / Path(name).name, (root / name).read_bytes()
    body = whole[whole.index(b'"body":') + 7 : -2]

    def reading(data: bytes) -> object:
        header = b'{"kind":"%b","format":1,"check":%d,"body":' % (kind.encode(), zlib.crc32(data))
        path.write_bytes(header + data + b"}\n")
        return read(path)

    assert seal_body(kind, 1)
    fuzz(reading, [body], inputs=1000, words=[b"null", b"true", b"{}", b"[]", b"-1", b'""'])


def test_a_data_file_of_a_view_gives_its_rows_or_an_error(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = read_head(root).require_view(VIEW)
    folder = root / "views" / view.table
    files, expected = files_of(folder, view), bag(read_state(root, view))
    # The log is sound, so it is read once for all.
    monkeypatch.setattr(view_state, "files_of", lambda _folder, _view: files)
    path = sorted(folder.glob("b*.parquet"))[-1]
    good = path.read_bytes()

    def reading(data: bytes) -> None:
        path.write_bytes(data)
        assert bag(read_state(root, view)) == expected, "wrong rows, silently"

    fuzz(reading, [good], inputs=2000)
    path.write_bytes(good)


def test_the_log_of_a_view_gives_its_rows_or_an_error(scratch: Path, tmp_path: Path) -> None:
    """By the library for logs, which panics: in a process of its own."""
    fuzz_isolated("tests.fuzz.test_stored_files", scratch, tmp_path)


def attack(folder: Path) -> None:
    # Nobody writes beside us, so the first look at the log is as good as the fifth.
    lake_table.ATTEMPTS = 1
    root = make_warehouse(folder / "warehouse")
    fuzz_log(root, "*.json", "entry")
    fuzz_log(root, "*.parquet", "checkpoint")


def fuzz_log(root: Path, pattern: str, label: str) -> None:
    """Damage the newest of these files of a log; rows are right, or there are none."""
    view = read_head(root).require_view(VIEW)
    folder = root / "views" / view.table
    path = sorted((folder / "_delta_log").glob(pattern))[-1]
    good, files, expected = path.read_bytes(), files_of(folder, view), bag(read_state(root, view))

    def reading(data: bytes) -> None:
        path.write_bytes(data)
        # The rows of the same files are the same: no data file is damaged here.
        if files_of(folder, view) != files:
            assert bag(read_state(root, view)) == expected, "wrong rows, silently"

    fuzz(reading, [good], inputs=1000, label=label)
    path.write_bytes(good)
