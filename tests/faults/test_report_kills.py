"""Reports, killed at every step, while their indexes are lost, torn and swapped.

They have three levels, windows, a deduplication, scalars, exploded texts, and a condition on the
day, which passes meanwhile. Every kept state is judged after each kill, against the applications'
journal. A few kills are in `make test`, the kills before and after every step in `make faults`.
"""

from __future__ import annotations

import random
import shutil
import zlib
from functools import partial
from pathlib import Path

import pytest

from tests.faults.deaths import ONCE, REPORT_STEPS, STEPS, step
from tests.faults.ordeal import Ordeal, ordeal
from tests.faults.shop import copy_project

DEEP = {"link": 20, "rename": 8, "fsync": 40, "unlink": 4}
"""System calls are many; these are the highest numbers that a short run surely reaches."""

NAMES = [*REPORT_STEPS, *STEPS]
GROUPS = [NAMES[start : start + 4] for start in range(0, len(NAMES), 4)]
INDEX_FIRST = ("index made", "index file")
"""What happens only where an index is missing."""
ONCE_HERE = (*ONCE, *INDEX_FIRST, "index opened")


def spoil_indexes(project: Path, rng: random.Random, old: Path) -> None:
    """Do to the indexes what may happen to them while nobody maintains the project."""
    folder = project / "warehouse" / "indexes"
    tables = sorted(folder.iterdir()) if folder.exists() else []
    match rng.choice(["nothing", "lose", "tear", "flip", "keep", "bring back", "swap"]):
        case "lose":
            shutil.rmtree(folder, ignore_errors=True)
        case "tear":
            for file in folder.rglob("*.arrow"):
                file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
        case "flip":
            for file in (path for path in folder.rglob("*") if path.is_file()):
                content = bytearray(file.read_bytes())
                content[len(content) // 2] ^= 0x55
                file.write_bytes(content)
        case "keep" if tables:
            shutil.rmtree(old, ignore_errors=True)
            shutil.copytree(folder, old)
        case "bring back" if old.exists():
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(old, folder)
        case "swap" if len(tables) > 1:
            one, other = rng.sample(tables, 2)
            one.rename(folder / "x")
            other.rename(one)
            (folder / "x").rename(other)


def spoil_for(case: Ordeal, name: str) -> None:
    """Spoil the indexes before a run that dies at a step."""
    if name in INDEX_FIRST:
        shutil.rmtree(case.project / "warehouse" / "indexes", ignore_errors=True)
    else:
        spoil_indexes(case.project, case.rng, case.project.parent / "old-indexes")


def die_at(case: Ordeal, name: str, k: int, side: str) -> None:
    """Spoil the indexes, and die at a step."""
    spoil_for(case, name)
    case.die_at(step(name, k, side))


def highest_call(name: str) -> int:
    return 1 if name in ONCE_HERE else DEEP.get(name, 3)


def test_reports_killed_again_and_again(
    reporting: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    project = copy_project(reporting, tmp_path / "shop", "history: 1s\n")
    with ordeal(project, 4, request) as case:
        with case.writing() as applications:
            die_at(case, "groups advanced", 2, "after")
            die_at(case, "record", 2, "after")
            die_at(case, "log entry", 4, "after")
            die_at(case, "index file", 2, "before")
            die_at(case, "index applied", 1, "before")
            die_at(case, "keys recomputed", 2, "after")
            die_at(case, "tick", 1, "after")
            assert applications.stop() == 0
        case.finish()


@pytest.mark.campaign
@pytest.mark.parametrize("names", GROUPS, ids=lambda names: "-".join(names).replace(" ", "_"))
def test_reports_killed_before_and_after_every_step(
    names: list[str], reporting: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    project = copy_project(reporting, tmp_path / "shop", "history: 1s\n")
    with ordeal(project, zlib.crc32(names[0].encode()), request) as case:
        case.survive_steps(names, highest_call, partial(spoil_for, case))


@pytest.mark.campaign
@pytest.mark.parametrize("left_by", ["groups advanced", "record", "log entry"])
def test_reports_killed_while_they_recover(
    left_by: str, reporting: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    project = copy_project(reporting, tmp_path / "shop", "history: 1s\n")
    with ordeal(project, len(left_by), request) as case:
        case.survive_recovery(left_by)
