"""Kills while Spark works: in the initial load, in a batch that runs as a job, in compaction; and
the program itself, killed and stopped by a signal.

Only the driver is killed. Its JVM and workers live on for a moment and may still write files, which
nobody will ever name; the next process starts at once beside them.

The project has reports, but where the program itself runs: that follows the machine's clock, and
the condition on the day the project's own.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.faults.deaths import step
from tests.faults.ordeal import ordeal
from tests.faults.processes import command
from tests.faults.shop import copy_project, make_project, write_settings
from viewkeeper.warehouse.metadata.head import read_head

pytestmark = pytest.mark.campaign

SPARK = ("--spark",)
# Starting Spark takes long; meanwhile not too much should pile up.
PAUSE_SECONDS_MAX = 0.3
JOBS = "batch: {inline_rows: 0}\nspark: {master: 'local[2,3]', memory: 1g}\n"


def test_killed_while_it_loads(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    project = make_project(tmp_path / "shop", JOBS, reports=True)
    with ordeal(project, 20, request) as case:
        with case.writing(pause_seconds_max=PAUSE_SECONDS_MAX) as applications:
            case.kill_after("loading lines", case.rng.uniform(0, 0.5), SPARK)
            assert "lines" not in read_head(project / "warehouse").views
            case.die_at(step("load", 2, "after"), options=SPARK)
            assert applications.stop() == 0
        write_settings(project, "spark: {master: 'local[2,3]', memory: 1g}\n")
        # A load goes on in the folder of the killed one. What that had written there and kept as no
        # part is nobody's file, and goes when the next process starts.
        case.catch_up(SPARK)
        case.judge.check()
        case.finish()


def test_killed_while_a_batch_is_a_job(
    reporting: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    project = copy_project(reporting, tmp_path / "shop", JOBS)
    with ordeal(project, 21, request) as case:
        with case.writing(pause_seconds_max=PAUSE_SECONDS_MAX) as applications:
            case.kill_after("batch", case.rng.uniform(0, 0.5), SPARK)
            case.die_at(step("job", 2, "after"), options=SPARK)
            assert applications.stop() == 0
        # What a plan promised to a job may as well be replayed inline.
        write_settings(project, "")
        case.finish()


def test_killed_while_it_compacts(
    reporting: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    folding = "retention: 1s\nhistory: 1s\nspark: {master: 'local[2,3]', memory: 1g}\n"
    project = copy_project(reporting, tmp_path / "shop", folding)
    with ordeal(project, 22, request) as case:
        with case.writing(pause_seconds_max=PAUSE_SECONDS_MAX) as applications:
            case.die_at(step("compaction", 3, "after"), options=SPARK)
            case.die_at(step("compacted log", 4, "before"), options=SPARK)
            assert applications.stop() == 0
        write_settings(project, "")
        case.finish()
        horizons = [view.horizon for view in read_head(project / "warehouse").views.values()]
        assert max(horizons) > 0, "nothing was folded"


def test_the_program_killed_and_then_stopped_by_a_signal(
    loaded: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    project = copy_project(loaded, tmp_path / "shop", "spark: {memory: 1g}\n")
    with ordeal(project, 23, request) as case:
        with case.writing(pause_seconds_max=PAUSE_SECONDS_MAX) as applications:
            with command(project, "run") as process:
                start = case.ts("lines")
                case.wait_until(lambda: case.ts("lines") > start, process)
                process.kill()
            case.judge.check()
            with command(project, "run") as process:
                start = case.ts("lines")
                case.wait_until(lambda: case.ts("lines") > start, process)
                assert process.stop(signal.SIGTERM) == 0, process.output
            assert applications.stop() == 0
        case.judge.check_no_orphans(case.judge.check())
        case.finish()
