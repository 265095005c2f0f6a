"""What `scripts/setup` brings in is one version of each package, told by its hashes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SETUP = (ROOT / "scripts" / "setup").read_text(encoding="utf-8")


def test_everything_is_installed_by_hash() -> None:
    joined = SETUP.replace("\\\n", " ")
    installs = [line for line in joined.splitlines() if re.search(r"pip (install|sync)\b", line)]
    foreign = [line for line in installs if " --offline " not in line and " -e " not in line]
    assert len(foreign) >= 3
    assert all("--require-hashes" in line for line in foreign), foreign


def test_the_uv_that_is_installed_is_pinned() -> None:
    lines = (ROOT / "scripts" / "uv-requirements.txt").read_text(encoding="utf-8")
    assert re.search(r"^uv==\d+\.\d+\.\d+ \\$", lines, re.MULTILINE)
    # Wheels for Linux and macOS on both processors, at the least.
    assert len(re.findall(r"--hash=sha256:[0-9a-f]{64}", lines)) >= 4
    assert "://" not in lines
    assert '-r "$uv_requirements"' in SETUP


@pytest.mark.xdist_group("told")
def test_groups_are_told_to_the_scheduler(request: pytest.FixtureRequest) -> None:
    is_shared = bool(request.config.getoption("loadgroup", default=False))
    assert request.node.nodeid.endswith("@told") == is_shared
