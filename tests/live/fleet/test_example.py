"""The fleet in examples/fleet, as its page tells to use it: in turn, without a process running."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from examples.fleet.make import make, write
from pyspark.sql import SparkSession

import viewkeeper
from tests.faults.shop import ROOT
from viewkeeper.engine import loop

PROJECTS = ("sales", "crm", "report")


def test_the_example_agrees(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "OTHERS_SECONDS", 1.0)
    folder = tmp_path / "fleet"
    shutil.copytree(ROOT / "examples" / "fleet", folder)
    make(folder)
    rng = random.Random(7)
    for _ in range(3):
        for _ in range(5):
            write(folder, rng)
        for name in PROJECTS:
            with viewkeeper.open(folder / name, spark=spark) as project:
                report = project.refresh(strict=False)
    assert not report.waiting
    with viewkeeper.open(folder / "report", spark=spark) as project:
        deals = project.view("deals").arrow().to_pylist()
    assert deals
    assert all(deal["city"] == deal["lives_in"] for deal in deals)
