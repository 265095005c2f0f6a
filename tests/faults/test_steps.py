"""A kill before and after every step: of a commit, its aftermath, upkeep, and of a restart."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from tests.faults.deaths import RECOVERY, STEPS, step
from tests.faults.ordeal import ordeal
from tests.faults.shop import copy_project

GROUPS = [list(STEPS)[start : start + 5] for start in range(0, len(STEPS), 5)]
DEEP = {"link": 12, "rename": 8, "fsync": 60, "unlink": 20}
"""System calls are many; these are the highest numbers that a short run surely reaches."""


@pytest.mark.campaign
@pytest.mark.parametrize("names", GROUPS, ids=lambda names: "-".join(names).replace(" ", "_"))
def test_killed_before_and_after_every_step(
    names: list[str], loaded: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    project = copy_project(loaded, tmp_path / "shop", "history: 1s\n")
    with ordeal(project, zlib.crc32(names[0].encode()), request) as case:
        with case.writing() as applications:
            for name in names:
                for side in ("before", "after"):
                    case.die_at(step(name, case.rng.randint(1, DEEP.get(name, 3)), side))
            assert applications.stop() == 0
        case.finish()


@pytest.mark.campaign
@pytest.mark.parametrize("left_by", ["plan", "record", "log entry"])
def test_killed_while_it_recovers(
    left_by: str, loaded: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    project = copy_project(loaded, tmp_path / "shop", "history: 1s\n")
    with ordeal(project, len(left_by), request) as case:
        with case.writing() as applications:
            case.die_at(step(left_by, 3, "after"))
            for name in RECOVERY:
                # Where the last kill left nothing to redo, there is always the step's next time.
                case.die_at(step(name, 1, "before"), step("record", 2, "after"))
                case.die_at(step(name, 1, "after"), step("log entry", 2, "after"))
            assert applications.stop() == 0
        case.finish()
