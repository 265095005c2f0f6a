"""The writers of the demo as processes: started together, asked to stop, never left behind.

Each is run from its file, without this package, so what it writes and journals cannot lean on
Viewkeeper. A writer that ends before it is asked to is an error, with what it said.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import click

from viewkeeper.cli import demo_writers
from viewkeeper.cli.demo_shop import Shop

STOP_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Written:
    """What the writers did, by their own count."""

    writers: int
    transactions: int
    changes: int
    rolled_back: int
    seconds: float


class Crew:
    """All writers; a context manager that leaves none running."""

    def __init__(self, shop: Shop, seed: int) -> None:
        self._shop = shop
        self._seed = seed
        self._started = 0.0
        self.processes: dict[str, subprocess.Popen[str]] = {}

    def start(self) -> None:
        """Start all writers, if nobody has."""
        if self.processes:
            return
        self._started = time.perf_counter()
        for number, (name, role) in enumerate(demo_writers.ROLES.items()):
            options = {
                "database": self._shop.database(role.database),
                "journal": self._shop.journal(name),
                "stop": self._shop.stop_file,
                "seed": self._seed * 100 + number,
                "parent": os.getpid(),
                "customers": self._shop.sizes.customers,
                "products": self._shop.sizes.products,
                "import": self._shop.sizes.imported,
            }
            # -P: a script's own folder is no place to import from.
            command = [sys.executable, "-P", str(Path(demo_writers.__file__)), name]
            self.processes[name] = subprocess.Popen(
                [*command, *(f"--{key}={value}" for key, value in options.items())],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                stdin=subprocess.DEVNULL,
                text=True,
            )

    def check(self) -> None:
        """A ClickException if a writer has ended by itself."""
        for name, process in self.processes.items():
            if process.poll() is not None:
                raise _failure(name, process.stderr.read() if process.stderr else "")

    def stop(self) -> Written:
        """Ask all writers to stop and wait until their journals are complete."""
        self._shop.stop_file.touch()
        counts = []
        for name, process in self.processes.items():
            output, complaint = process.communicate(timeout=STOP_SECONDS)
            if process.returncode != 0:
                raise _failure(name, complaint)
            counts.append(json.loads(output))
        transactions, changes, rolled_back = map(sum, zip(*counts, strict=True))
        seconds = time.perf_counter() - self._started
        return Written(len(counts), transactions, changes, rolled_back, seconds)

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.communicate()


def _failure(name: str, complaint: str) -> click.ClickException:
    return click.ClickException(f'writer "{name}" failed:\n{complaint.strip()}')
