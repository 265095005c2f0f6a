"""What a source's handles stand for survives the loss of the file that says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from viewkeeper.errors import SourceError
from viewkeeper.sources.handles import COPY, FILE, Names


@pytest.mark.parametrize("lost", [FILE, COPY])
def test_a_lost_book_is_read_from_its_copy_and_written_again(tmp_path: Path, lost: str) -> None:
    Names(tmp_path).follow("orders", "17", {"id": "1"})
    (tmp_path / lost).unlink()
    names = Names(tmp_path)
    assert names.handle("orders", "18", {"id": "1"}) == "orders#2"
    names.follow("orders", "17", {"id": "1"})
    assert (tmp_path / lost).exists()


def test_a_damaged_book_is_refused(tmp_path: Path) -> None:
    Names(tmp_path).follow("orders", "17", {"id": "1"})
    (tmp_path / FILE).write_bytes(b"")
    with pytest.raises(SourceError, match=FILE):
        Names(tmp_path)


def test_nothing_is_left_of_a_source_that_is_not_followed(tmp_path: Path) -> None:
    names = Names(tmp_path)
    names.follow("orders", "17", {"id": "1"})
    names.clear()
    assert not [*tmp_path.iterdir()]
    assert not [*Names(tmp_path)]
