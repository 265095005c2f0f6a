"""A scrub reads every file once and names what is damaged; what we make is ours alone to read."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.warehouse.model import VIEW, opened
from viewkeeper.cli.invocation import Invocation
from viewkeeper.cli.main import cli
from viewkeeper.errors import CorruptError
from viewkeeper.sources.handles import SourceHandles
from viewkeeper.sources.state_files import FolderStateFiles
from viewkeeper.storage import disk
from viewkeeper.warehouse.merge import merge_tail
from viewkeeper.warehouse.metadata.head import read_head
from viewkeeper.warehouse.metadata.warehouse_identity import known_identity, make_identity
from viewkeeper.warehouse.rows.view_state import files_of
from viewkeeper.warehouse.scrub import find_damage, scrub_warehouse

PROJECT = "warehouse: ./warehouse\nsources: {shop: {kind: sqlite, path: shop.db}}\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "viewkeeper.yml").write_text(PROJECT)
    root = tmp_path / "warehouse"
    make_identity(root)
    with opened(root) as world:
        for k in range(4):
            world.append({(k, "x"): 1})
        merge_tail(world.store, VIEW)
        world.append({(9, "y"): 1})
        SourceHandles(FolderStateFiles(root / "sources" / "shop")).add_target(
            "orders", "17", {"id": "1"}
        )
    return tmp_path


def kept_files(root: Path) -> list[Path]:
    return sorted(p for p in root.rglob("*") if p.is_file() and p.name != "lock")


def test_a_scrub_of_a_whole_warehouse_finds_nothing(project: Path) -> None:
    found = scrub_warehouse(project / "warehouse", (), lambda _: None)
    assert found.is_whole
    assert found.files >= 8


def test_a_scrub_names_whatever_file_is_damaged(project: Path) -> None:
    root = project / "warehouse"
    head = json.loads((root / "head.json").read_bytes())["body"]["views"][0]
    replaced = head["location"][1]
    for path in kept_files(root):
        version = path.name.partition(".")[0]
        if path.parent.name == "_delta_log" and (not version.isdigit() or int(version) < replaced):
            # The hint, and what a checkpoint has replaced: nobody reads it any more.
            continue
        if (
            path.suffix == ".parquet"
            and path.name.startswith("b")
            and path.name not in active(root)
        ):
            continue
        good = path.read_bytes()
        path.write_bytes(good[: len(good) // 2])
        found = scrub_warehouse(root, (), lambda _: None)
        assert not found.is_whole, path
        assert all(error.hint for error in found.damaged), path
        path.write_bytes(good)
    assert scrub_warehouse(root, (), lambda _: None).is_whole


def active(root: Path) -> set[str]:
    """The names of the files that the head names."""
    view = read_head(root).require_view(VIEW)
    return {file.path for file in files_of(root / "views" / view.table, view)}


def verify_files(project: Path, *words: str) -> Result:
    command = ["--project", str(project), "verify", "--files", *words]
    return CliRunner().invoke(cli, command, obj=Invocation())


def test_verify_files_says_what_mends_and_exits_with_one(project: Path) -> None:
    assert verify_files(project).exit_code == 0
    [path, *_] = sorted((project / "warehouse" / "views").rglob("b*.parquet"))[-1:]
    data = bytearray(path.read_bytes())
    data[20] ^= 4
    path.write_bytes(data)
    result = verify_files(project)
    assert result.exit_code == 1
    assert path.name in result.output
    assert f"viewkeeper refresh {VIEW}" in result.output
    body = json.loads(verify_files(project, "--json").stdout)
    assert not body["ok"]
    assert path.name in body["damaged"][0]["message"]


def test_what_costs_nothing_is_noticed_without_reading(project: Path, tmp_path: Path) -> None:
    root = project / "warehouse"
    view = read_head(root).require_view(VIEW)
    assert find_damage(root, view) is None
    [path] = [p for p in (root / "views").rglob("b*.parquet") if p.name in active(root)][-1:]
    path.write_bytes(b"")
    assert path.name in str(find_damage(root, view))


def modes(root: Path) -> set[str]:
    found = set()
    for path in [root, *root.rglob("*")]:
        found.add(f"{'d' if path.is_dir() else '-'}{stat.S_IMODE(path.stat().st_mode):o}")
    return found


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_nobody_else_may_read_what_we_make(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with opened(tmp_path / "own") as world:
            world.append({(1, "x"): 1})
            world.append({(2, "x"): 1})
            merge_tail(world.store, VIEW)
        assert modes(tmp_path / "own") == {"d700", "-600"}
        disk.make_folder(tmp_path / "shared")
        disk.open_to(tmp_path / "shared", group=True)
        with opened(tmp_path / "shared") as world:
            world.append({(1, "x"): 1})
            world.append({(2, "x"): 1})
            merge_tail(world.store, VIEW)
        assert modes(tmp_path / "shared") - {"-600"} == {"d750", "-640"}
    finally:
        os.umask(before)


def test_a_warehouse_of_before_is_closed_to_others(tmp_path: Path) -> None:
    with opened(tmp_path / "w") as world:
        world.append({(1, "x"): 1})
    for path in [tmp_path / "w", *(tmp_path / "w").rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    disk.open_to(tmp_path / "w", group=False)
    assert modes(tmp_path / "w") == {"d700", "-600"}
    disk.open_to(tmp_path / "w", group=True)
    assert modes(tmp_path / "w") == {"d750", "-640"}


def test_a_lost_identity_is_never_a_new_one(tmp_path: Path) -> None:
    assert make_identity(tmp_path / "new") == known_identity(tmp_path / "new")
    with opened(tmp_path / "w") as world:
        root = world.store.local_root
        with pytest.raises(CorruptError, match="identity") as refused:
            make_identity(root)
        assert "uuidgen >" in (refused.value.hint or "")
        assert not scrub_warehouse(root, (), lambda _: None).is_whole
        (root / "identity").write_text("1b4e28ba-2fa1-11d2-883f-0016d3cca427\n")
        assert make_identity(root) == "1b4e28ba-2fa1-11d2-883f-0016d3cca427"
        assert scrub_warehouse(root, (), lambda _: None).is_whole
