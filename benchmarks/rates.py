"""How fresh a view is while changes keep coming: `python -m benchmarks.rates`.

A writer, in a process of its own, commits transactions of ten changes to a PostgreSQL or SQLite
database at a rate, and writes down when each commit returned. The project runs here, as `run` does,
with the default settings: a join of that table with two others, one of them in another database.
Changes are maintained in the order of their commits, so the batch that shows a transaction is
known, and how long that took. Beside it stands what `viewkeeper simulate --capacity` expects of a
rate with the costs of batches that were measured at the *other* rates.

Each rate goes on for `--seconds`; the view is compared with the database at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path

import psycopg

from benchmarks import report
from benchmarks.fan_out import read_status_mb
from viewkeeper.engine.project import Project, open_project
from viewkeeper.engine.report import BatchReport, SilentObserver
from viewkeeper.errors import ViewkeeperError
from viewkeeper.simulate.capacity import CapacityWorld, MaintenanceCosts, simulate_capacity
from viewkeeper.testing.private_servers import PrivatePostgres

ROOT = Path(__file__).resolve().parent.parent
ORDERS = 100_000
CUSTOMERS = 10_000
EACH = 10
"""Changes of a transaction."""
WAIT_SECONDS = 120.0
WARM_SECONDS = 8.0

VIEW = """CREATE MATERIALIZED VIEW lines AS
SELECT i.id, i.amount, o.placed, c.name
FROM shop.item i JOIN shop.orders o ON i.order_id = o.id JOIN crm.customer c
  ON o.customer_id = c.id
"""
TABLES = (
    "CREATE TABLE orders (id bigint PRIMARY KEY, customer_id int, placed text)",
    "CREATE TABLE item (id bigint PRIMARY KEY, order_id bigint, amount int)",
)


@dataclass(frozen=True, slots=True)
class RateFigure:
    """One rate: milliseconds from a commit at the source to the view's, and what it took."""

    kind: str
    rate: int
    reached: float
    """Changes a second that the writer committed."""
    p50: float
    p95: float
    p99: float
    batches: float
    cpu: float
    """Cores that this process used."""
    resident: float
    """Megabytes."""
    files: int
    """Data files of the view at the end."""
    measured: tuple[tuple[int, float], ...]
    """Batches: the changes of each, and the seconds to the next one while there was always work;
    otherwise what it took by itself."""
    expected_p50: float = 0.0
    expected_p95: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.kind:<9}{self.rate:>7,}{self.reached:>9,.0f}{self.p50:>9.0f}{self.p95:>9.0f}"
            f"{self.p99:>9.0f}{self.expected_p50:>9.0f}{self.expected_p95:>9.0f}"
            f"{self.batches:>9.1f}{self.cpu:>7.2f}{self.resident:>8.0f}{self.files:>7}"
        )


HEADER = (
    f"{'source':<9}{'rate':>7}{'reached':>9}{'p50 ms':>9}{'p95 ms':>9}{'p99 ms':>9}"
    f"{'expect50':>9}{'expect95':>9}{'batch/s':>9}{'cores':>7}{'MB':>8}{'files':>7}"
)


class CommitLog(SilentObserver):
    """When how many changes were committed in the warehouse; trouble ends the benchmark."""

    def __init__(self) -> None:
        self.commits: list[tuple[float, int]] = []
        self.seconds: list[float] = []
        """What each batch took by itself."""
        self.trouble: ViewkeeperError | None = None

    @property
    def changes(self) -> int:
        """How many, all together."""
        return self.commits[-1][1] if self.commits else 0

    def on_batch_commit(self, report: BatchReport) -> None:
        self.commits.append((time.time(), self.changes + report.changes))
        self.seconds.append(report.seconds)

    def on_trouble(self, error: ViewkeeperError) -> None:
        self.trouble = error


def write_items(kind: str, place: str, rate: int, seconds: float, first: int) -> None:
    """Commit at a rate; prints when each commit returned."""
    pause, moments = EACH / rate, list[float]()
    with closing(sqlite3.connect(place) if kind == "sqlite" else psycopg.connect(place)) as base:
        mark = "?" if kind == "sqlite" else "%s"
        sql = f"INSERT INTO item VALUES ({mark}, {mark}, {mark})"
        began, number = time.monotonic(), first
        while (late := time.monotonic() - began) < seconds:
            due = len(moments) * pause
            if due > late:
                time.sleep(due - late)
            rows = [(number + n, (number + n) * 7919 % ORDERS, n) for n in range(EACH)]
            number += EACH
            base.cursor().executemany(sql, rows)
            base.commit()
            moments.append(time.time())
    print(json.dumps(moments))


@contextmanager
def made_world(kind: str, folder: Path) -> Iterator[str]:
    """The databases and the project; where the writer finds its database."""
    orders = [(n, n * 31 % CUSTOMERS, "2026-01-01") for n in range(ORDERS)]
    with closing(sqlite3.connect(folder / "crm.db")) as crm:
        crm.execute("PRAGMA journal_mode = WAL")
        crm.execute("CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT)")
        names = ((n, f"customer {n}") for n in range(CUSTOMERS))
        crm.executemany("INSERT INTO customer VALUES (?, ?)", names)
        crm.commit()
    server = None
    if kind == "sqlite":
        place = str(folder / "shop.db")
        source = f"{{kind: sqlite, path: {place}}}"
        with closing(sqlite3.connect(place)) as shop:
            shop.execute("PRAGMA journal_mode = WAL")
            for sql in TABLES:
                shop.execute(sql)
            shop.executemany("INSERT INTO orders VALUES (?, ?, ?)", orders)
            shop.commit()
    else:
        server = PrivatePostgres(folder / "pg")
        server.start()
        place = server.url_of()
        source = f"{{kind: postgres, url: '{place}'}}"
        with psycopg.connect(place) as shop:
            for sql in TABLES:
                shop.execute(sql)
            for table in ("orders", "item"):
                shop.execute(f"ALTER TABLE {table} REPLICA IDENTITY FULL")
            with shop.cursor().copy("COPY orders FROM STDIN") as copy:
                for row in orders:
                    copy.write_row(row)
    (folder / "views").mkdir()
    (folder / "views" / "lines.sql").write_text(VIEW)
    (folder / "viewkeeper.yml").write_text(
        f"warehouse: ./warehouse\nsources:\n  shop: {source}\n"
        "  crm: {kind: sqlite, path: crm.db}\n"
    )
    try:
        yield place
    finally:
        if server is not None:
            server.stop()


def measure_rate(
    kind: str, place: str, project: Project, log: CommitLog, rate: int, seconds: float, first: int
) -> RateFigure:
    """One rate, until all of it is there."""
    done = log.changes
    batches, cpu = len(log.commits), time.process_time()
    words = [sys.executable, "-m", "benchmarks.rates", "--write", kind, place]
    words += [str(rate), str(seconds), str(first)]
    said = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT).stdout
    moments: list[float] = json.loads(said)
    end = time.monotonic() + WAIT_SECONDS
    while (left := done + EACH * len(moments) - log.changes) > 0:
        assert log.trouble is None, log.trouble
        assert time.monotonic() < end, f"{left} changes are missing"
        time.sleep(0.01)
    cpu = (time.process_time() - cpu) / (moments[-1] - moments[0])
    taken = log.commits[batches:]
    ages, at = [], 0
    for number, moment in enumerate(moments, 1):
        while taken[at][1] < done + EACH * number:
            at += 1
        ages.append(1000 * (taken[at][0] - moment))
    ages = ages[len(ages) // 10 :]
    cuts = statistics.quantiles(ages, n=100)
    measured = _measured_batches([(0.0, done), *taken], log.seconds[batches:])
    span = moments[-1] - moments[0]
    return RateFigure(
        kind,
        rate,
        EACH * len(moments) / span,
        cuts[49],
        cuts[94],
        cuts[98],
        len(taken) / span,
        cpu,
        read_status_mb("VmRSS"),
        sum(1 for _ in (project.settings.warehouse / "views").rglob("*.parquet")),
        measured,
    )


def _measured_batches(
    commits: Sequence[tuple[float, int]], seconds: Sequence[float]
) -> tuple[tuple[int, float], ...]:
    """How many changes each batch had, and how long it was."""
    sizes = [after - before for (_, before), (_, after) in pairwise(commits)]
    gaps = [after - before for (before, _), (after, _) in pairwise(commits[1:])]
    if statistics.median(sizes) > EACH:
        return tuple(zip(sizes[1:], gaps, strict=True))
    return tuple(zip(sizes, seconds, strict=True))


def add_expected(figures: Sequence[RateFigure]) -> list[RateFigure]:
    """The same, each with what the simulation expects by the costs of all others."""
    found = []
    for figure in figures:
        others = [other.measured for other in figures if other is not figure]
        if not others:
            return [*figures]
        costs = MaintenanceCosts.fit_batches(others)
        expected = simulate_capacity(CapacityWorld(figure.reached), costs)
        ages = 1000 * expected.p50, 1000 * expected.p95
        found.append(replace(figure, expected_p50=ages[0], expected_p95=ages[1]))
    return found


def measure_kind(kind: str, rates: Sequence[int], seconds: float) -> Iterator[RateFigure]:
    with tempfile.TemporaryDirectory(prefix="viewkeeper-rates-") as name:
        folder = Path(name)
        with made_world(kind, folder) as place, open_project(folder) as project:
            project.refresh()
            log, stop = CommitLog(), threading.Event()
            runner = threading.Thread(target=lambda: project.run(log, stop))
            runner.start()
            project.spark.get_session()
            first = 0
            try:
                warm = (rates[0], min(seconds, WARM_SECONDS))
                for rate, length in (warm, *((rate, seconds) for rate in rates)):
                    figure = measure_rate(kind, place, project, log, rate, length, first)
                    if first:
                        yield figure
                    first += 10_000_000
            finally:
                stop.set()
                runner.join()
            check_rows(kind, place, project)


def check_rows(kind: str, place: str, project: Project) -> None:
    """The view has every item, once."""
    with closing(sqlite3.connect(place) if kind == "sqlite" else psycopg.connect(place)) as base:
        wanted = sorted(base.execute("SELECT id, amount FROM item").fetchall())
    rows = project.view("lines").arrow(columns=["id", "amount"])
    found = sorted(zip(rows["id"].to_pylist(), rows["amount"].to_pylist(), strict=True))
    assert found == wanted, f"the view has {len(found)} rows of {len(wanted)}"


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rates", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "out")
    parser.add_argument("--kinds", nargs="+", default=["sqlite", "postgres"])
    parser.add_argument("--rates", type=int, nargs="+", default=[100, 1_000, 5_000, 20_000])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--quick", action="store_true", help="few seconds, to see that it works")
    parser.add_argument("--write", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.write:
        kind, place, rate, seconds, first = options.write
        write_items(kind, place, int(rate), float(seconds), int(first))
        return
    found = []
    print(f"load {os.getloadavg()[0]:.1f}\n{HEADER}", flush=True)
    for kind in options.kinds:
        seconds = 3.0 if options.quick else options.seconds
        measured = []
        for figure in measure_kind(kind, options.rates, seconds):
            measured.append(figure)
            print(figure, flush=True)
        print(f"{kind}, with what is expected of each rate by the costs of the others:")
        found += add_expected(measured)
        print(*found[-len(measured) :], sep="\n", flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    listed = [asdict(replace(figure, measured=())) for figure in found]
    body = {**report.environment(), "figures": listed}
    (options.out / "rates.json").write_text(json.dumps(body, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
