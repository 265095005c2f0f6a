"""The process that is killed: `run` as users have it, with a way to die at a chosen step.

    python -m tests.faults.runner PROJECT [--spark] [--lane VIEW] [STEP ...]

Without `--spark` no JVM is started: small batches run inline, and that is what these tests are
about. Where the environment lends it a session (`tests.borrowed_spark`) it has that one. It stops
cleanly on SIGTERM, SIGINT or when its standard input ends, and says `ready` once it holds the
warehouse.

What happens rarely in real life happens all the time here: the journal is flushed five times a
second, files are merged after a few commits, records and plans are folded after a few more, what
was replaced is deleted soon. The family of the view that `--lane` names advances apart, slowly, and
what was replaced is then kept for a minute: a lane may still read it. Results become a task's own
file when they are hardly large, except where it is to die at a step of the journal, which takes no
such files.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path

import viewkeeper
from tests.borrowed_spark import borrow_session
from tests.faults.deaths import JOURNAL, arm, name_of_step
from tests.faults.project_clock import follow_file
from viewkeeper.engine import maintainer, upkeep
from viewkeeper.engine.batch import part_sweep
from viewkeeper.engine.lanes import lane_batch, lane_choice
from viewkeeper.engine.loop import SummingObserver, run_until
from viewkeeper.engine.project import Project
from viewkeeper.engine.report import BatchReport, ObserverGroup, SilentObserver
from viewkeeper.errors import ViewkeeperError
from viewkeeper.warehouse.retention import clean_warehouse


class Telling(SilentObserver):
    """Says on standard output what happened, a line each."""

    def on_load_progress(self, view: str, stage: str) -> None:
        print(f"loading {view}", flush=True)

    def on_batch_commit(self, report: BatchReport) -> None:
        print(f"batch {report.number} {report.where}", flush=True)

    def on_trouble(self, error: ViewkeeperError) -> None:
        print(f"trouble {error.message}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("project")
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--lane")
    parser.add_argument("steps", nargs="*")
    options = parser.parse_intermixed_args()
    stop = stopping()
    hurry(retention_seconds=60.0 if options.lane else 0.2)
    if options.lane:
        send_apart(options.lane)
    if not any(name_of_step(step) in JOURNAL for step in options.steps if ":full" not in step):
        part_sweep.RETURN_BYTES = 200
    follow_file(Path(options.project))
    for step in options.steps:
        arm(step)
    try:
        spark = borrow_session()
        with viewkeeper.open(options.project, spark) as project:
            run_on_spark(project, stop) if options.spark else run_inline(project, stop)
            assert options.spark or spark or not project.spark.is_started
    except ViewkeeperError as error:
        print(f"error {error}", flush=True)
        return 2
    return 0


def run_inline(project: Project, stop: threading.Event) -> None:
    summing = SummingObserver()
    with project.open_maintainer("run", ObserverGroup(summing, Telling())) as keeper:
        print("ready", flush=True)
        run_until(keeper, summing.report, stop)


def run_on_spark(project: Project, stop: threading.Event) -> None:
    print("ready", flush=True)
    project.run(Telling(), stop)


def stopping() -> threading.Event:
    """An event that is set by signals, and when whoever started us is gone."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())

    def wait() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=wait, daemon=True).start()
    return stop


def hurry(retention_seconds: float) -> None:
    """Make the rare frequent."""
    maintainer.ACKNOWLEDGE_SECONDS = 0.1
    upkeep.MERGE_FILES = 5
    upkeep.FLUSH_SECONDS = 0.2
    upkeep.ROUTINE_SECONDS = 0.3
    clean = partial(clean_warehouse, retention_s=retention_seconds, fold_at_least=8)
    setattr(upkeep, "clean_warehouse", clean)  # noqa: B010


def send_apart(view: str) -> None:
    """Let the family of a view advance apart whatever it costs, and take its time."""
    rng, sweep = random.Random(), lane_batch.LaneBatch._sweep

    def sweep_slowly(lane: lane_batch.LaneBatch) -> None:
        time.sleep(rng.uniform(0.0, 0.2))
        sweep(lane)

    lane_choice.CHEAPER = 0.0
    setattr(lane_choice, "_only_on_spark", lambda found: found.name == view)  # noqa: B010
    setattr(lane_batch.LaneBatch, "_sweep", sweep_slowly)  # noqa: B010


if __name__ == "__main__":
    sys.exit(main())
