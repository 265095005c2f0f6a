"""A kill before and after every step: of a commit, its aftermath, upkeep, and of a restart."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from tests.faults.deaths import ONCE, STEPS
from tests.faults.ordeal import ordeal
from tests.faults.shop import copy_project

GROUPS = [list(STEPS)[start : start + 5] for start in range(0, len(STEPS), 5)]
DEEP = {"link": 12, "rename": 8, "fsync": 60, "unlink": 20}
"""System calls are many; these are the highest numbers that a short run surely reaches."""


def highest_call(name: str) -> int:
    return 1 if name in ONCE else DEEP.get(name, 3)


@pytest.mark.campaign
@pytest.mark.parametrize("names", GROUPS, ids=lambda names: "-".join(names).replace(" ", "_"))
def test_killed_before_and_after_every_step(
    names: list[str], loaded: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    project = copy_project(loaded, tmp_path / "shop", "history: 1s\n")
    with ordeal(project, zlib.crc32(names[0].encode()), request) as case:
        case.survive_steps(names, highest_call, lambda _: None)


@pytest.mark.campaign
@pytest.mark.parametrize("left_by", ["plan", "record", "log entry"])
def test_killed_while_it_recovers(
    left_by: str, loaded: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    project = copy_project(loaded, tmp_path / "shop", "history: 1s\n")
    with ordeal(project, len(left_by), request) as case:
        case.survive_recovery(left_by)
