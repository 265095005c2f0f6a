"""What a source's handles stand for survives the loss of the file that says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from viewkeeper.errors import SourceError
from viewkeeper.sources.handles import COPY, FILE, SourceHandles
from viewkeeper.sources.state_files import FolderStateFiles


@pytest.mark.parametrize("lost", [FILE, COPY])
def test_a_lost_book_is_read_from_its_copy_and_written_again(tmp_path: Path, lost: str) -> None:
    SourceHandles(FolderStateFiles(tmp_path)).add_target("orders", "17", {"id": "1"})
    (tmp_path / lost).unlink()
    names = SourceHandles(FolderStateFiles(tmp_path))
    assert names.choose_handle("orders", "18", {"id": "1"}) == "orders#2"
    names.add_target("orders", "17", {"id": "1"})
    assert (tmp_path / lost).exists()


def test_a_damaged_book_is_refused(tmp_path: Path) -> None:
    SourceHandles(FolderStateFiles(tmp_path)).add_target("orders", "17", {"id": "1"})
    (tmp_path / FILE).write_bytes(b"")
    with pytest.raises(SourceError, match=FILE):
        SourceHandles(FolderStateFiles(tmp_path))


def test_nothing_is_left_of_a_source_that_is_not_followed(tmp_path: Path) -> None:
    names = SourceHandles(FolderStateFiles(tmp_path))
    names.add_target("orders", "17", {"id": "1"})
    names.forget_all()
    assert not [*tmp_path.iterdir()]
    assert not [*SourceHandles(FolderStateFiles(tmp_path))]


def test_handles_that_cannot_be_read_again_stay(tmp_path: Path) -> None:
    """Without them a handle would be a table's name."""
    names = SourceHandles(FolderStateFiles(tmp_path))
    names.add_target("orders", "17", {"id": "1"})
    whole = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(b"")
    with pytest.raises(SourceError, match=FILE):
        names.reload_handles()
    assert [*names] == ["orders"]
    (tmp_path / FILE).write_bytes(whole)
    names.reload_handles()
    assert [*names] == ["orders"]
