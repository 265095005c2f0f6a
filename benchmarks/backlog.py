"""A large backlog in bounded memory: `python -m benchmarks.backlog --changes 10000000`.

After a long absence, or one bulk UPDATE, millions of changes wait at once. They are made here by a
few large transactions on the followed tables, with SQL alone, and then maintained. What must hold:
memory is bounded by the parts and not by the backlog, so that the driver, the JVM and the Python
workers together stay within a few GB; and the view equals recomputation in the end.

An update is two changes, a row taken and a row added. The backlog changes columns that the view
shows, of items and of products, over and over: every change reaches the view.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.maintenance import Bench, prepared
from benchmarks.memory import size, watched
from benchmarks.report import environment
from benchmarks.world import RELATIONS, VIEW

ROOT = Path(__file__).resolve().parent.parent
MEMORY_MAX = 6 << 30
"""Bytes; what "a few GB" means."""

_UPDATES = {
    "item": "UPDATE item SET quantity = quantity % 9 + 1",
    "product": "UPDATE product SET cents = cents + 1",
}


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    folder = Path(tempfile.mkdtemp(prefix="viewkeeper-backlog-", dir=options.dir))
    try:
        with prepared(folder / "world", options.rows) as bench:
            print(f"initial load: {bench.load():.1f} s", flush=True)
            bytes_max = measure(bench, options.changes, options.out)
            if options.verify:
                verify(bench)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if bytes_max <= MEMORY_MAX else 1


def measure(bench: Bench, changes: int, out: Path) -> int:
    """Make the backlog and maintain it; the most memory that was in use at once."""
    maintainer, observer = bench.maintainer(0)
    started = time.perf_counter()
    made = make_backlog(bench, changes)
    print(f"backlog: {made:,} changes made in {time.perf_counter() - started:.1f} s", flush=True)
    with watched(bench.store.local_root / "spool") as peaks:
        started = time.perf_counter()
        maintainer.see_commits()
        maintainer.maintain_views()
        seconds = time.perf_counter() - started
    report = observer.last
    assert report is not None
    assert report.changes == made
    print(
        f"maintained: {report.changes:,} changes, {report.transactions} transactions, "
        f"{report.parts} parts in {seconds:.1f} s: {made / seconds:,.0f} changes/s "
        f"(load {os.getloadavg()[0]:.1f})\n"
        f"written: {report.rows:,} rows, {size(bench.table_folder) >> 20:,} MB; "
        f"lookups {sum(report.lookups.values())}; spooled {peaks.folder_bytes >> 20:,} MB\n"
        f"memory: {peaks}",
        flush=True,
    )
    out.mkdir(parents=True, exist_ok=True)
    figures = {"changes": made, "seconds": seconds, "bytes_max": peaks.total}
    (out / "backlog.json").write_text(
        json.dumps(environment() | figures | {"spooled": peaks.folder_bytes}, indent=2) + "\n"
    )
    return peaks.total


def verify(bench: Bench) -> None:
    """Compare the view with recomputation, row by row."""
    started = time.perf_counter()
    (found,) = bench.project.verify([VIEW])
    assert found.ok, found
    print(f"verified against recomputation in {time.perf_counter() - started:.1f} s")


def make_backlog(bench: Bench, changes: int) -> int:
    """Commit so many changes, a whole table per transaction; how many they are exactly."""
    made, turn = 0, 0
    tables = [r for r in RELATIONS if r.table in _UPDATES]
    while made < changes:
        relation = tables[turn % len(tables)]
        rest = -(-(changes - made) // 2)
        done = bench.world.connection(relation).execute(
            f"{_UPDATES[relation.table]} WHERE id <= ?", (rest,)
        )
        made, turn = made + 2 * done.rowcount, turn + 1
    return made


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.backlog", description=__doc__)
    parser.add_argument("--changes", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int, default=200_000, help="rows of each relation")
    parser.add_argument("--dir", type=Path, help="where the world goes; needs 1 GB per million")
    parser.add_argument("--verify", action="store_true", help="compare with recomputation")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "out")
    parser.add_argument("--quick", action="store_true", help="a small world, to see that it works")
    options = parser.parse_args(arguments)
    if options.quick:
        options.rows, options.changes = 2_000, 10_000
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
