"""The writers of the demo as processes: started together, asked to stop, never left behind.

Each is a program of its own that imports nothing of this package but other writers, so what it
writes and journals cannot lean on Viewkeeper. A writer that ends before it is asked to is an error,
with what it said.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import click

from viewkeeper.demo.demo_world import DemoWorld
from viewkeeper.demo.writers.paced_writer import WriterCounts

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
