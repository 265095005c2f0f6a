"""Files with rows that sources spill, and the registry's file, are their owner's only."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from viewkeeper.order.store.sqlite_store import SqliteStore
from viewkeeper.sources.postgres.decoding import spool_reader
from viewkeeper.sources.stream.stage import TransactionStage


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes(root: Path) -> set[str]:
    return {f"{stat.S_IMODE(path.stat().st_mode):o}" for path in root.rglob("*")}


def test_spilled_rows_are_the_owner_s_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"id": [1, 2, 3]})
    monkeypatch.setattr(spool_reader, "INLINE_BYTES", 0)
    assert isinstance(spool_reader._pack_changes(rows, tmp_path / "postgres"), Path)
    stage = TransactionStage(tmp_path / "mariadb", memory_bytes=0)
    stage.add_batch("orders", rows.to_batches()[0])
    assert modes(tmp_path) == {"700", "600"}
    assert not list((tmp_path / "mariadb").iterdir()), "what is staged has no name"


@pytest.mark.parametrize(("folder", "file"), [(0o755, "600"), (0o770, "660"), (0o777, "600")])
def test_the_registry_s_file_is_for_whoever_may_write_its_folder(
    tmp_path: Path, folder: int, file: str
) -> None:
    (tmp_path / "fleet").mkdir()
    (tmp_path / "fleet").chmod(folder)
    with SqliteStore(tmp_path / "fleet" / "registry.db")._ensure_connection(create=True):
        assert modes(tmp_path / "fleet") == {file}
