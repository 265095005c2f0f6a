"""Kills at random moments, many of them, each seed a project of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.ordeal import Ordeal, ordeal
from tests.faults.shop import copy_project

SEEDS, KILLS = 5, 8


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(SEEDS))
def test_killed_at_random_moments(
    seed: int, reporting: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    project = copy_project(reporting, tmp_path / "shop", "history: 1s\n")
    with ordeal(project, seed, request) as case:
        with case.writing() as applications:
            for _ in range(KILLS):
                kill_sometime(case)
            assert applications.stop() == 0
        case.finish()


@pytest.mark.campaign
@pytest.mark.parametrize("algorithm", ["sweep", "nested_sweep", "pvm", "pvm_cc"])
def test_killed_under_another_algorithm(
    algorithm: str, loaded: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The join by a machine of its own, the ledgers beside it in batches."""
    chosen = f"{{algorithm: {algorithm}, level: convergence}}"
    project = copy_project(loaded, tmp_path / "shop", f"history: 1s\nviews:\n  lines: {chosen}\n")
    with ordeal(project, 17, request) as case:
        with case.writing() as applications:
            for _ in range(KILLS):
                kill_sometime(case)
            assert applications.stop() == 0
        case.finish()


def kill_sometime(case: Ordeal) -> None:
    """While it starts, soon after, or in full flight."""
    line, most = case.rng.choice([("", 1.5), ("ready", 0.3), ("ready", 1.0), ("batch", 2.0)])
    case.kill_after(line, case.rng.uniform(0, most))
