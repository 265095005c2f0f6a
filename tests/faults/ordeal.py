"""A project under attack: writers write all the time, the maintainer is killed again and again.

After every kill the judge looks at what is there; at the end the writers stop, the maintainer runs
in peace until it has caught up, and everything must be shown, once. A failure says which seed and
which kills led to it, and the command that replays them.
"""

from __future__ import annotations

import random
import signal
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults import tally
from tests.faults.deaths import DIED, RECOVERY, name_of_step, step
from tests.faults.judge import Judge
from tests.faults.processes import PATIENCE_SECONDS, Process, maintainer, writers
from tests.faults.shop import LEDGERS, TABLES
from viewkeeper.warehouse.metadata.head import read_head


class Ordeal:
    """One project, its writers and its judge."""

    def __init__(self, project: Path, seed: int) -> None:
        self.project = project
        self.rng = random.Random(seed)
        self.judge = Judge(project)
        self.kills: list[str] = []
        self._seed = seed

    def die_at(self, *steps: str, options: tuple[str, ...] = ()) -> None:
        """Run until the first of these steps ends it."""
        self.kills.append(" or ".join(steps))
        with tally.step_of(name_of_step(each) for each in steps) as met:
            with maintainer(self.project, *options, *steps) as process:
                code = process.ended()
                assert code == -signal.SIGKILL, f"exit code {code}:\n{process.output}"
                process.listened()
                met += [name_of_step(line[len(DIED) :]) for line in process.lines if DIED in line]
            self.judge.check()

    def survive_steps(
        self, names: Iterable[str], highest: Callable[[str], int], prepare: Callable[[str], None]
    ) -> None:
        """Die before and after each of these steps, under writers, then run in peace.

        `highest` says which call of a step is surely reached, and `prepare` is called before a run.
        """
        with self.writing() as applications:
            for name in names:
                for side in ("before", "after"):
                    k = self.rng.randint(1, highest(name))
                    prepare(name)
                    self.die_at(step(name, k, side))
            assert applications.stop() == 0
        self.finish()

    def survive_recovery(self, left_by: str) -> None:
        """Die at a step, then before and after each step of the restart."""
        with self.writing() as applications:
            self.die_at(step(left_by, 3, "after"))
            for name in RECOVERY:
                for side, other in (("before", "record"), ("after", "log entry")):
                    if name == "plan replayed":
                        self.die_at(step("plan", 2, "after"))
                    # Where nothing was left to redo, there is always the step's next time.
                    self.die_at(step(name, 1, side), step(other, 2, "after"))
            assert applications.stop() == 0
        self.finish()

    def kill_after(self, line: str, seconds: float, options: tuple[str, ...] = ()) -> None:
        """Kill it some time after it said something; "" is when it was started."""
        self.kills.append(f"{seconds * 1000:.0f} ms after {line or 'its start'}")
        with maintainer(self.project, *options) as process:
            if line:
                process.wait_for(line)
            time.sleep(seconds)
            process.kill()
        self.judge.check()

    def refused(self, step: str) -> str:
        """Run until a full disk ends it; what it said then."""
        self.kills.append(step)
        with maintainer(self.project, step) as process:
            code = process.ended()
            assert code == 2, f"exit code {code}:\n{process.output}"
            said = process.output
        self.judge.check()
        return said

    def writing(self, *databases: str, pause_seconds_max: float = 0.06) -> Process:
        seed = self.rng.randrange(1 << 30)
        return writers(self.project, seed, *databases, pause_seconds_max=pause_seconds_max)

    def finish(self, options: tuple[str, ...] = ()) -> None:
        """Nobody writes any more: run until all is shown, stop cleanly, judge."""
        self.catch_up(options)
        self.judge.check_end()
        for name in TABLES:
            assert self.ask(name, "SELECT count(*) FROM _viewkeeper_log") <= 1, f"{name}: no trim"

    def catch_up(self, options: tuple[str, ...] = ()) -> None:
        """Run until all is shown, and stop cleanly."""
        with maintainer(self.project, *options) as process:
            self.wait_until(self.is_caught_up, process)
            assert process.stop() == 0, process.output

    def wait_until(self, true: Callable[[], bool], process: Process) -> None:
        """Wait for something that the maintainer shall do."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not true():
            assert time.monotonic() < end, f"it never came to that:\n{process.output}"
            time.sleep(0.02)

    def is_caught_up(self) -> bool:
        views = read_head(self.project / "warehouse").views
        shown = [name for name in views if "#" not in name]
        if len(shown) != len(self.judge.views) + len(LEDGERS):
            return False
        if len({view.ts for view in views.values()}) != 1:
            return False
        return all(
            views[view].rows == self.ask(name, "SELECT count(*) FROM ledger")
            for view, name in LEDGERS.items()
        )

    def ts(self, view: str) -> int:
        return read_head(self.project / "warehouse").views[view].ts

    def ask(self, database: str, query: str) -> int:
        connection = sqlite3.connect(self.project / f"{database}.db", timeout=30)
        try:
            return int(connection.execute(query).fetchone()[0])
        finally:
            connection.close()


@contextmanager
def ordeal(project: Path, seed: int, request: pytest.FixtureRequest) -> Iterator[Ordeal]:
    """An ordeal; a failure inside tells how to have it again."""
    case = Ordeal(project, seed)
    marked = " -m campaign" if request.node.get_closest_marker("campaign") else ""
    try:
        yield case
    except BaseException as error:
        error.add_note(f"seed {seed}; kills, in order:")
        for kill in case.kills:
            error.add_note(f"  {kill}")
        error.add_note(f"again: .venv/bin/python -m pytest{marked} '{request.node.nodeid}'")
        raise
