"""What an expensive view costs a cheap one beside it: `python -m benchmarks.lanes`.

Two databases, and a writer that changes a row of one of them every so many milliseconds. The cheap
view joins both. The expensive one joins the same tables with an expression that only Spark
evaluates, so that each of its batches is a Spark job. `Project.run()` goes on for some seconds in
three projects, one after the other in one process with one Spark session:

- `alone`: the cheap view by itself;
- `lanes`: both, the expensive one apart (`lanes: auto`, as it is by default);
- `together`: both in one batch and one record (`lanes: never`).

The figures are the freshness of the cheap view: the seconds from the commit at the source to the
commit here of the oldest change of each batch. How fresh the expensive view was is printed beside
it. In the end both views are verified.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks import report
from viewkeeper.engine.batch.batch_runner import percentiles_of
from viewkeeper.engine.project import Project, open_project
from viewkeeper.engine.report import BatchReport, SilentObserver
from viewkeeper.errors import ViewkeeperError

CHEAP = """SELECT o.id AS order_id, c.city FROM shop.orders o
JOIN crm.customer c ON c.id = o.customer_id"""
EXPENSIVE = """SELECT o.id AS order_id, soundex(c.name) AS sound FROM shop.orders o
JOIN crm.customer c ON c.id = o.customer_id"""
WAYS = {
    "alone": ({"cheap": CHEAP}, "auto"),
    "lanes": ({"cheap": CHEAP, "expensive": EXPENSIVE}, "auto"),
    "together": ({"cheap": CHEAP, "expensive": EXPENSIVE}, "never"),
}
ROOT = Path(__file__).resolve().parent.parent
ROWS = 10_000
PAUSE_SECONDS = 0.05
WAIT_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Figure:
    """How fresh the views of one way were, in seconds: median, 95th and 99th percentile."""

    way: str
    batches: int
    cheap: tuple[float, ...]
    expensive_batches: int
    expensive: tuple[float, ...]

    def __str__(self) -> str:
        said = [f"{1000 * each:>9.0f}" for each in (*self.cheap[:2], *self.expensive[:2])]
        rest = f"{self.expensive_batches:>9}{''.join(said[2:])}" if self.expensive else ""
        return f"{self.way:<10}{self.batches:>9}{said[0]}{said[1]}{rest}"


HEADER = (
    f"{'':<10}{'batches':>9}{'p50 ms':>9}{'p95 ms':>9}   and of the expensive view the same three"
)


class Watcher(SilentObserver):
    """Notes how fresh each view was; trouble ends the benchmark."""

    def __init__(self) -> None:
        self.ages: dict[str, list[float]] = {"cheap": [], "expensive": []}

    def on_batch_commit(self, report: BatchReport) -> None:
        for view in report.views:
            self.ages[view].append(report.freshness or 0.0)

    def on_trouble(self, error: ViewkeeperError) -> None:
        raise error


def measure(
    folder: Path, seconds: float, rows: int = ROWS, spark: SparkSession | None = None
) -> list[Figure]:
    """Each way for so many seconds."""
    figures = []
    for way, (views, lanes) in WAYS.items():
        make_world(folder / way, views, lanes, rows)
        with open_project(folder / way, spark) as project:
            project.refresh()
            figures.append(_measure_way(project, way, seconds))
            for found in project.verify():
                assert found.ok, f"{way}: {found.view} is not what its query says"
        print(figures[-1], flush=True)
    return figures


def make_world(folder: Path, views: dict[str, str], lanes: str, rows: int) -> None:
    """A project with its databases."""
    (folder / "views").mkdir(parents=True)
    for name, sql in views.items():
        text = f"CREATE MATERIALIZED VIEW {name} AS\n{sql};\n"
        (folder / "views" / f"{name}.sql").write_text(text)
    (folder / "viewkeeper.yml").write_text(
        f"warehouse: ./warehouse\nlanes: {lanes}\nsources:\n"
        "  shop: {kind: sqlite, path: shop.db}\n  crm: {kind: sqlite, path: crm.db}\n"
    )
    with closing(sqlite3.connect(folder / "shop.db")) as shop:
        shop.execute("PRAGMA journal_mode = wal")
        shop.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER)")
        shop.execute("CREATE INDEX by_customer ON orders (customer_id)")
        orders = ((number, number % (rows // 10)) for number in range(rows))
        shop.executemany("INSERT INTO orders VALUES (?, ?)", orders)
        shop.commit()
    with closing(sqlite3.connect(folder / "crm.db")) as crm:
        crm.execute("PRAGMA journal_mode = wal")
        crm.execute("CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT, city TEXT)")
        customers = ((number, f"name {number}", "here") for number in range(rows // 10))
        crm.executemany("INSERT INTO customer VALUES (?, ?, ?)", customers)
        crm.commit()


def _measure_way(project: Project, way: str, seconds: float) -> Figure:
    watcher = Watcher()
    # The first job on Spark of a process is slower than all others.
    _run_for(project, Watcher(), min(seconds, 2.0))
    _run_for(project, watcher, seconds)
    cheap, expensive = watcher.ages["cheap"], watcher.ages["expensive"]
    ages = percentiles_of(cheap), percentiles_of(expensive)
    return Figure(way, len(cheap), ages[0], len(expensive), ages[1])


def _run_for(project: Project, watcher: Watcher, seconds: float) -> None:
    """Maintain while a writer writes for some seconds, and until all of it is there."""
    stop, raised = threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            project.run(watcher, stop)
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        _write_for(project.settings.folder, seconds)
        _wait_until_there(project, thread)
    finally:
        stop.set()
        thread.join(WAIT_SECONDS)
    if raised:
        raise raised[0]


def _write_for(folder: Path, seconds: float) -> None:
    end, numbers = time.monotonic() + seconds, count()
    with closing(sqlite3.connect(folder / "shop.db", timeout=30)) as shop:
        while time.monotonic() < end:
            number = next(numbers)
            statement = "UPDATE orders SET customer_id = customer_id + 1 WHERE id = ?"
            shop.execute(statement, (number % 1000,))
            shop.commit()
            time.sleep(PAUSE_SECONDS)


def _wait_until_there(project: Project, thread: threading.Thread) -> None:
    """Until nothing has been committed for a while, and all views are at one ts."""
    end, last, since = time.monotonic() + WAIT_SECONDS, -1, time.monotonic()
    while thread.is_alive() and time.monotonic() < end:
        head = project.newest_head()
        if head.record != last:
            last, since = head.record, time.monotonic()
        quiet = time.monotonic() - since > 1.0
        if quiet and len({view.ts for view in head.shown_views.values()}) == 1:
            return
        time.sleep(0.05)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lanes")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "out")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seconds", type=float)
    options = parser.parse_args(arguments)
    seconds = options.seconds or (5.0 if options.quick else 30.0)
    facts = report.environment() | {"rows": ROWS, "seconds": seconds, "load": os.getloadavg()[0]}
    print(" ".join(f"{name}={value}" for name, value in facts.items()), flush=True)
    print(HEADER)
    with tempfile.TemporaryDirectory(prefix="viewkeeper-lanes-") as folder:
        figures = measure(Path(folder), seconds)
    by_way = {figure.way: figure.cheap for figure in figures}
    for way in ("lanes", "together"):
        ratios = [a / max(b, 0.001) for a, b in zip(by_way[way], by_way["alone"], strict=True)]
        print(f"{way}, times alone: p50 {ratios[0]:.1f}, p95 {ratios[1]:.1f}")
    facts["load_after"] = os.getloadavg()[0]
    options.out.mkdir(parents=True, exist_ok=True)
    written = {"facts": facts, "figures": [asdict(figure) for figure in figures]}
    (options.out / "lanes.json").write_text(json.dumps(written, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
