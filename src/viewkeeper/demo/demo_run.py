"""The demo from beginning to end: build, write and maintain at the same time, stop, judge.

The writers start just before `order_lines` is loaded, so its initial load is done under fire. The
maintainer has a thread; the main thread watches, and so is the one that Ctrl-C interrupts. On every
way out the writers are ended first, then the maintainer, then Spark.

Each writer is a program of its own that imports nothing of this package but other writers, so what
it writes and journals cannot lean on Viewkeeper. A writer that ends before it is asked to is an
error, with what it said.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pyarrow as pa

from viewkeeper.demo.demo_world import VIEW, DemoWorld, ledger_view
from viewkeeper.demo.display import DemoMeter, DemoScreen, JournalTally
from viewkeeper.demo.judge.evidence import JudgedClaim, JudgeVerdict
from viewkeeper.demo.judge.independent_judge import judge_claim
from viewkeeper.demo.writers.paced_writer import WriterCounts
from viewkeeper.engine.project import Project, open_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


STOP_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class WriterTotals:
    """What the writers did, by their own count; `writers` are so many per database."""

    writers: Mapping[str, int]
    counts: Mapping[str, WriterCounts]
    seconds: float

    @property
    def total(self) -> WriterCounts:
        """All databases together."""
        found = WriterCounts()
        for counted in self.counts.values():
            found.add_counts(counted)
        return found


class WriterCrew:
    """All writers; a context manager that leaves none running."""

    def __init__(self, world: DemoWorld, seed: int) -> None:
        self._world = world
        self._seed = seed
        self._started = 0.0
        self.processes: dict[str, subprocess.Popen[str]] = {}

    def start_writers(self) -> None:
        """Start all writers, if nobody has."""
        if self.processes:
            return
        self._started = time.perf_counter()
        for number, name in enumerate(self._world.writer_programs()):
            self.processes[name] = subprocess.Popen(
                self._world.writer_command(name, self._seed * 100 + number),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                stdin=subprocess.DEVNULL,
                text=True,
            )

    def check_writers(self) -> None:
        """A ClickException if a writer has ended by itself."""
        for name, process in self.processes.items():
            if process.poll() is not None:
                raise _writer_failure(name, process.stderr.read() if process.stderr else "")

    def stop_writers(self) -> WriterTotals:
        """Ask all writers to stop and wait until their journals are complete."""
        self._world.stop_file.touch()
        programs = self._world.writer_programs()
        counts = {name: WriterCounts() for name in self._world.databases}
        for name, process in self.processes.items():
            output, complaint = process.communicate(timeout=STOP_SECONDS)
            if process.returncode != 0:
                raise _writer_failure(name, complaint)
            counts[programs[name].role.database].add_counts(WriterCounts(*json.loads(output)))
        seconds = time.perf_counter() - self._started
        writers = Counter(program.role.database for program in programs.values())
        return WriterTotals(writers, counts, seconds)

    def __enter__(self) -> WriterCrew:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.communicate()


def _writer_failure(name: str, complaint: str) -> click.ClickException:
    return click.ClickException(f'writer "{name}" failed:\n{complaint.strip()}')


SAMPLE_SECONDS = 0.25
ROWS_SHOWN = 5
MORE_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class DemoResult:
    """Everything that a report can say.

    `captured` says how each database is captured, `reported` how many transactions its commits were
    reported as.
    """

    captured: Mapping[str, str]
    reported: Mapping[str, int]
    written: WriterTotals
    meter: DemoMeter
    rows: int
    examples: pa.Table
    claim: JudgedClaim
    verdict: JudgeVerdict
    judge_seconds: float
    seconds: float

    @property
    def throughput(self) -> float:
        """Changes per second over the time in which the writers wrote."""
        return self.meter.changes / self.written.seconds


def run_demo(
    world: DemoWorld,
    seconds: float,
    seed: int,
    screen: DemoScreen,
    spark: SparkSession | None = None,
) -> DemoResult:
    """Run the demo in an empty folder, on a Spark session of its own if none is given."""
    started = time.perf_counter()
    world.write_project()
    with (
        world.serve_databases(),
        open_project(world.folder, spark) as project,
        WriterCrew(world, seed) as crew,
    ):
        screen.print_text("Starting Spark, and filling the databases meanwhile ...")
        with quiet_start(project, world.folder / "spark.log"):
            world.fill_databases(seed)
        screen.print_text(f"{world.fill_summary()} Loading the views ...")
        meter, written = watch_writers(project, world, crew, seconds, screen)
        screen.print_text("The writers have stopped. Maintaining up to their last commit ...")
        world.prepare_final()
        project.refresh(meter)
        screen.print_text(
            "Judging every state against the copies and the writers' own journals ..."
        )
        judging = time.perf_counter()
        claim = claim_of(project, world)
        verdict = judge_claim(
            project.spark.get_session(), world.judged_databases(), world.question, claim
        )
        ended = time.perf_counter()
    newest = claim.state.sort_by([("order_id", "descending")]).slice(0, ROWS_SHOWN)
    reported = {n: len(set(table["_ts"].to_pylist())) for n, table in claim.ledgers.items()}
    return DemoResult(
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


def watch_writers(
    project: Project, world: DemoWorld, crew: WriterCrew, seconds: float, screen: DemoScreen
) -> tuple[DemoMeter, WriterTotals]:
    """Maintain while the writers write, so long after all views are loaded; then stop both."""
    meter, stop = (
        DemoMeter(time.monotonic(), JournalTally(world.journal_paths())),
        threading.Event(),
    )
    work = MaintenanceThread(project, meter, stop)
    until: float | None = None
    with screen.show_live():
        work.start()
        try:
            while not is_over(meter, until):
                work.raise_failure()
                world.check_servers()
                crew.check_writers()
                if meter.reached == VIEW:
                    crew.start_writers()
                if until is None and meter.loaded_at is not None:
                    until = meter.loaded_at + seconds
                meter.take_sample(project)
                screen.show_meter(meter, until)
                time.sleep(SAMPLE_SECONDS)
            written = crew.stop_writers()
        finally:
            stop.set()
            work.join()
        work.raise_failure()
    return meter, written


def is_over(meter: DemoMeter, until: float | None) -> bool:
    """Whether the time is up; a slow machine gets some more, to show both kinds of batches."""
    if until is None or time.monotonic() < until:
        return False
    return (
        bool(meter.inline_batches and meter.spark_batches)
        or time.monotonic() >= until + MORE_SECONDS
    )


class MaintenanceThread(threading.Thread):
    """The maintainer in a thread of its own; what it dies of is raised by `raise_failure`."""

    def __init__(self, project: Project, meter: DemoMeter, stop: threading.Event) -> None:
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

    def raise_failure(self) -> None:
        if self._error is not None:
            raise self._error


def claim_of(project: Project, world: DemoWorld) -> JudgedClaim:
    """What Viewkeeper says about all states of `order_lines` and all transactions."""
    view = project.view(VIEW)
    ledgers = {
        name: project.view(ledger_view(name)).changes(0).toArrow() for name in world.databases
    }
    head = view.head
    return JudgedClaim(view.changes(0), view.arrow(), ledgers, head.created_ts, head.ts)


@contextmanager
def quiet_start(project: Project, log: Path) -> Iterator[None]:
    """Start Spark beside the body, with what the JVM says while it starts in a log file."""
    if project.spark.is_started:
        yield
        return
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with log.open("w") as file:
            os.dup2(file.fileno(), 2)
        project.spark.begin_start()
        yield
        project.spark.get_session()
    finally:
        os.dup2(kept, 2)
        os.close(kept)
