"""What one row costs in object storage: `python -m benchmarks.object_commits`.

Four SQLite databases and a view that joins all of them, as in `small_batches`, whose warehouse lies
in a private S3 server; every put takes so many milliseconds more (`--delays`), as it does over a
network. One row at a time is changed while the project runs: as soon as the last one is there, and
after a rest. Beside it stands what one put takes, measured in the same run: a small commit is one
put, so that is the least that is possible.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from tests.objects.s3_server import PrivateS3, root_at

from benchmarks import report
from benchmarks.small_batches import StatementCount, measure_run, verify_rows
from benchmarks.world import World
from viewkeeper.engine.project import open_project
from viewkeeper.storage.objects.object_requests import ObstoreRequests

ROOT = Path(__file__).resolve().parent.parent
PUTS = 20
PUT_BYTES = 4_096


@dataclass(frozen=True, slots=True)
class ObjectCommit:
    """One delay: milliseconds of a put, and from a commit at the source to the bucket's."""

    delay_ms: int
    what: str
    put: float
    p50: float
    p95: float

    def __str__(self) -> str:
        return (
            f"{self.delay_ms:>5} ms {self.what:<18}{self.put:>8.1f}{self.p50:>9.1f}{self.p95:>9.1f}"
            f"{self.p50 / self.put:>9.2f}"
        )


HEADER = f"{'delay and what':<27}{'a put':>8}{'p50 ms':>9}{'p95 ms':>9}{'of a put':>9}"


@contextmanager
def slow_puts(milliseconds: int) -> Iterator[None]:
    """Every put takes so much longer."""
    put = ObstoreRequests.put

    def put_later(requests: ObstoreRequests, *arguments: Any) -> str:
        time.sleep(milliseconds / 1000)
        return put(requests, *arguments)

    with mock.patch.object(ObstoreRequests, "put", put_later):
        yield


def time_put(server: PrivateS3, folder: Path) -> float:
    """Milliseconds of one put, in the median."""
    client = root_at(server, server.new_url(), folder).storage.client
    taken = []
    for number in range(PUTS):
        started = time.perf_counter()
        client.put(f"object-{number}", os.urandom(PUT_BYTES))
        taken.append(1000 * (time.perf_counter() - started))
    return statistics.median(taken)


def measure_delay(
    server: PrivateS3, folder: Path, delay: int, options: argparse.Namespace
) -> Iterator[ObjectCommit]:
    """One row at a time, with puts of one delay."""
    with closing(World(folder, options.rows)) as world, slow_puts(delay):
        settings = folder / "viewkeeper.yml"
        text = settings.read_text().replace("./warehouse", server.new_url())
        settings.write_text(
            f"{text}batch: {{inline_rows: {4 * options.rows}}}\n{server.yaml}local: ./local\n"
        )
        put = time_put(server, folder / "local")
        with open_project(folder) as project:
            project.refresh()
            for figure in measure_run(project, world, StatementCount(), options.samples):
                if figure.name != "run, idle second":
                    yield ObjectCommit(delay, figure.name, put, figure.median, figure.p95)
            verify_rows(project, world)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.object_commits", description=__doc__)
    parser.add_argument("--delays", nargs="+", type=int, default=[0, 20, 50], metavar="MS")
    parser.add_argument("--rows", type=int, default=5_000)
    parser.add_argument("--samples", type=int, default=30)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "out")
    parser.add_argument("--quick", action="store_true", help="a small world, to see that it works")
    options = parser.parse_args(arguments)
    if options.quick:
        options.delays, options.rows, options.samples = [20], 500, 3
    print(f"load {os.getloadavg()[0]:.1f}\n{HEADER}", flush=True)
    found = []
    with tempfile.TemporaryDirectory(prefix="viewkeeper-objects-") as folder:
        server = PrivateS3(Path(folder) / "server.log")
        try:
            for delay in options.delays:
                for figure in measure_delay(server, Path(folder) / f"{delay}", delay, options):
                    found.append(figure)
                    print(figure, flush=True)
        finally:
            server.stop()
    options.out.mkdir(parents=True, exist_ok=True)
    body = {**report.environment(), "figures": [asdict(figure) for figure in found]}
    (options.out / "object_commits.json").write_text(json.dumps(body, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
