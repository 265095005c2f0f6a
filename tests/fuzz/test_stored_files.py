"""Whatever bytes the files of a warehouse have: they are read, or refused by an error of ours.

Sealed files are also fuzzed behind their checksum, where a body that makes no sense is read.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fuzz.mutation import fuzz
from tests.warehouse.model import VIEW, bag, opened
from viewkeeper.sources.handles import FILE, SourceHandles
from viewkeeper.storage.sealed_json import seal_body
from viewkeeper.warehouse import merge_tail, read_head, read_state
from viewkeeper.warehouse.metadata.batch_plan import read_plan
from viewkeeper.warehouse.metadata.coordination import (
    Coordination,
    GroupSpan,
    read_coordination,
    write_coordination,
)
from viewkeeper.warehouse.metadata.record import read_record
from viewkeeper.warehouse.metadata.warehouse_identity import make_identity, read_identity

NUMBER = "00000000000000000001.json"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("warehouse")
    make_identity(root)
    with opened(root) as world:
        for k in range(3):
            world.append({(k, "x"): 1, (k, None): 2})
        merge_tail(world.store, VIEW)
        world.append({(9, "é"): 1})
    SourceHandles(root / "sources" / "shop").add_target("orders", "17", {"id": "1", "price": "2"})
    span = GroupSpan("g", "1f", 0, 3, 4)
    write_coordination(root, Coordination("a", (span,)))
    return root


READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "head": ("head.json", lambda path: read_head(path.parent)),
    "plan": (f"plans/{NUMBER}", read_plan),
    "record": (f"records/{NUMBER}", read_record),
    "names": (f"sources/shop/{FILE}", lambda path: SourceHandles(path.parent)),
    "identity": ("identity", lambda path: read_identity(path.parent)),
    "coordination": ("coordination.json", lambda path: read_coordination(path.parent)),
}
readers = pytest.mark.parametrize("kind", READERS)


@readers
def test_a_sealed_file(root: Path, tmp_path: Path, kind: str) -> None:
    name, read = READERS[kind]
    path = tmp_path / Path(name).name

    def reading(data: bytes) -> object:
        path.write_bytes(data)
        return read(path)

    fuzz(reading, [(root / name).read_bytes()], inputs=1000)


@readers
def test_the_body_behind_a_right_checksum(root: Path, tmp_path: Path, kind: str) -> None:
    name, read = READERS[kind]
    path, whole = tmp_path / Path(name).name, (root / name).read_bytes()
    body = whole[whole.index(b'"body":') + 7 : -2]

    def reading(data: bytes) -> object:
        header = b'{"kind":"%b","format":1,"check":%d,"body":' % (kind.encode(), zlib.crc32(data))
        path.write_bytes(header + data + b"}\n")
        return read(path)

    assert seal_body(kind, 1)
    fuzz(reading, [body], inputs=1000, words=[b"null", b"true", b"{}", b"[]", b"-1", b'""'])


@pytest.mark.parametrize("what", ["data", "log", "checkpoint"])
def test_a_file_of_a_view_gives_its_rows_or_an_error(root: Path, what: str) -> None:
    view = read_head(root).require_view(VIEW)
    folder = root / "views" / view.table
    pattern = {
        "data": "b*.parquet",
        "log": "_delta_log/*.json",
        "checkpoint": "_delta_log/*.parquet",
    }
    path = sorted(folder.glob(pattern[what]))[-1]
    good, expected = path.read_bytes(), bag(read_state(root, view))

    def reading(data: bytes) -> object:
        path.write_bytes(data)
        rows = bag(read_state(root, view))
        assert rows == expected, "wrong rows, silently"
        return rows

    try:
        fuzz(reading, [good], inputs=400)
    finally:
        path.write_bytes(good)
