"""What reaches the medium before what: a name never before the content that it stands for.

On ext4 a file that was renamed without a sync came back from a power cut with zeros for content, in
one of fifty cuts. What a source remembers was written so, and its views stopped.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from viewkeeper.sources.state_files import FolderStateFiles
from viewkeeper.storage import disk
from viewkeeper.storage.sealed_json import write_sealed


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every sync and every rename from now on, in their order."""
    found: list[str] = []
    sync, rename = os.fsync, os.replace

    def note_sync(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        found.append("sync the folder" if path.is_dir() else "sync the content")
        sync(descriptor)

    def note_rename(old: Path, new: Path) -> None:
        found.append("rename")
        rename(old, new)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "replace", note_rename)
    return found


def test_what_a_source_remembers_is_whole_after_a_power_cut(
    tmp_path: Path, steps: list[str]
) -> None:
    write_sealed(tmp_path / "log.json", "log", {"at": 1}, durable=False)
    assert steps == ["sync the content", "rename"]
    assert FolderStateFiles(tmp_path).read_file("log.json", "log", dict) == {"at": 1}


def test_what_is_durable_is_there_after_a_power_cut(tmp_path: Path, steps: list[str]) -> None:
    write_sealed(tmp_path / "log.json", "log", {"at": 1})
    assert steps == ["sync the content", "rename", "sync the folder"]


def test_what_is_made_again_costs_no_sync(tmp_path: Path, steps: list[str]) -> None:
    disk.replace_file(tmp_path / "index.json", b"{}", durable=False, whole=False)
    assert steps == ["rename"]
