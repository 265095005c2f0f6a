"""The demo from beginning to end: build, write and maintain at the same time, stop, judge.

The writers start just before `order_lines` is loaded, so its initial load is done under fire. The
maintainer has a thread; the main thread watches, and so is the one that Ctrl-C interrupts. On every
way out the writers are ended first, then the maintainer, then Spark.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from viewkeeper.demo.crew import Crew, Written
from viewkeeper.demo.demo_world import VIEW, World, ledger_view
from viewkeeper.demo.display import Meter, Screen, Tally
from viewkeeper.demo.judge.evidence import Claim, Verdict
from viewkeeper.demo.judge.independent_judge import judge
from viewkeeper.engine.project import Project, open_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAMPLE_SECONDS = 0.25
ROWS_SHOWN = 5
MORE_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Result:
    """Everything that a report can say.

    `captured` says how each database is captured, `reported` how many transactions its commits were
    reported as.
    """

    captured: Mapping[str, str]
    reported: Mapping[str, int]
    written: Written
    meter: Meter
    rows: int
    examples: pa.Table
    claim: Claim
    verdict: Verdict
    judge_seconds: float
    seconds: float

    @property
    def throughput(self) -> float:
        """Changes per second over the time in which the writers wrote."""
        return self.meter.changes / self.written.seconds


def run_demo(
    world: World, seconds: float, seed: int, screen: Screen, spark: SparkSession | None = None
) -> Result:
    """Run the demo in an empty folder, on a Spark session of its own if none is given."""
    started = time.perf_counter()
    world.write_project()
    with (
        world.serving(),
        open_project(world.folder, spark) as project,
        Crew(world, seed) as crew,
    ):
        screen.say("Starting Spark, and filling the databases meanwhile ...")
        with quiet_start(project, world.folder / "spark.log"):
            world.fill(seed)
        screen.say(f"{world.filled()} Loading the views ...")
        meter, written = watch(project, world, crew, seconds, screen)
        screen.say("The writers have stopped. Maintaining up to their last commit ...")
        world.conclude()
        project.refresh(meter)
        screen.say("Judging every state against the copies and the writers' own journals ...")
        judging = time.perf_counter()
        claim = claim_of(project, world)
        verdict = judge(project.spark.get(), world.evidence(), world.question, claim)
        ended = time.perf_counter()
    newest = claim.state.sort_by([("order_id", "descending")]).slice(0, ROWS_SHOWN)
    reported = {n: len(set(table["_ts"].to_pylist())) for n, table in claim.ledgers.items()}
    return Result(
        world.databases,
        reported,
        written,
        meter,
        claim.state.num_rows,
        newest.select(world.shown),
        claim,
        verdict,
        ended - judging,
        ended - started,
    )


def watch(
    project: Project, world: World, crew: Crew, seconds: float, screen: Screen
) -> tuple[Meter, Written]:
    """Maintain while the writers write, so long after all views are loaded; then stop both."""
    meter, stop = Meter(time.monotonic(), Tally(world.journals())), threading.Event()
    work = Maintenance(project, meter, stop)
    until: float | None = None
    with screen.watching():
        work.start()
        try:
            while not over(meter, until):
                work.check()
                world.check()
                crew.check()
                if meter.reached == VIEW:
                    crew.start()
                if until is None and meter.loaded_at is not None:
                    until = meter.loaded_at + seconds
                meter.sample(project)
                screen.show(meter, until)
                time.sleep(SAMPLE_SECONDS)
            written = crew.stop()
        finally:
            stop.set()
            work.join()
        work.check()
    return meter, written


def over(meter: Meter, until: float | None) -> bool:
    """Whether the time is up; a slow machine gets some more, to show both kinds of batches."""
    if until is None or time.monotonic() < until:
        return False
    return bool(meter.inline and meter.on_spark) or time.monotonic() >= until + MORE_SECONDS


class Maintenance(threading.Thread):
    """The maintainer in a thread of its own; what it dies of is raised by `check`."""

    def __init__(self, project: Project, meter: Meter, stop: threading.Event) -> None:
        super().__init__(name="maintainer", daemon=True)
        self._project = project
        self._meter = meter
        self._stopped = stop
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._project.run(self._meter, self._stopped)
        except BaseException as error:  # noqa: BLE001 - raised again in the main thread
            self._error = error

    def check(self) -> None:
        if self._error is not None:
            raise self._error


def claim_of(project: Project, world: World) -> Claim:
    """What Viewkeeper says about all states of `order_lines` and all transactions."""
    view = project.view(VIEW)
    ledgers = {
        name: project.view(ledger_view(name)).changes(0).toArrow() for name in world.databases
    }
    head = view.head
    return Claim(view.changes(0), view.arrow(), ledgers, head.created_ts, head.ts)


@contextmanager
def quiet_start(project: Project, log: Path) -> Iterator[None]:
    """Start Spark beside the body, with what the JVM says while it starts in a log file."""
    if project.spark.started:
        yield
        return
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with log.open("w") as file:
            os.dup2(file.fileno(), 2)
        project.spark.begin()
        yield
        project.spark.get()
    finally:
        os.dup2(kept, 2)
        os.close(kept)
