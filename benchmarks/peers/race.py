"""The race: `python -m benchmarks.peers.race`, or `make bench ONLY=peers`.

Every contestant keeps the same four-way join while items are deleted and inserted, n of each at a
time, and is compared with SQLite's own answer in the end. They run one after the other, each alone,
over a fresh copy of the databases; one that cannot run here has a row that says why. Warm-ups are
not counted; figures are medians with the fastest and the slowest.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks import report
from benchmarks.peers.contestant_process import ContestantError, ContestantProcess
from benchmarks.peers.installation import CONTESTANTS, ROOT, Contestant, InstallationError
from benchmarks.peers.workload import Sizes, Workload

FULL: Mapping[int, int] = {1: 30, 1_000: 9, 10_000: 7, 100_000: 3}
QUICK: Mapping[int, int] = {1: 5, 100: 3}
WARM_UPS = 3


@dataclass(slots=True)
class Result:
    """What a contestant did; `error` where it did not come to the end."""

    name: str
    load_seconds: float | None = None
    seconds: dict[int, list[float]] = field(default_factory=dict)
    memory_mb: int = 0
    is_right: bool = False
    error: str = ""
    load: float = 0.0
    """The load average of the machine at the end."""


def main(arguments: Sequence[str]) -> None:
    options = _options(arguments)
    sizes, items = (QUICK, 2_000) if options.quick else (FULL, options.items)
    chosen = [c for c in CONTESTANTS if not options.only or c.name.split(",")[0] in options.only]
    results = []
    for contestant in chosen:
        results.append(run_contestant(contestant, items, sizes))
        print(_line(results[-1]), flush=True)
    print(table_of(results, sizes))
    options.out.mkdir(parents=True, exist_ok=True)
    body = {**report.environment(), "items": items, "results": [asdict(r) for r in results]}
    (options.out / "peers.json").write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")
    if wrong := [r.name for r in results if not r.error and not r.is_right]:
        sys.exit(f"wrong answers: {', '.join(wrong)}")


def run_contestant(contestant: Contestant, items: int, sizes: Mapping[int, int]) -> Result:
    """One contestant through the whole workload, over a fresh copy of the databases."""
    result = Result(contestant.name)
    with tempfile.TemporaryDirectory(prefix="viewkeeper-race-") as folder:
        workload = Workload(Path(folder, "made"), Sizes.of(items))
        workload.create_databases()
        try:
            _measure(contestant, workload, sizes, result)
        except (ContestantError, InstallationError, BrokenPipeError) as error:
            result.error = str(error) or type(error).__name__
    result.load = os.getloadavg()[0]
    return result


def _measure(
    contestant: Contestant, workload: Workload, sizes: Mapping[int, int], result: Result
) -> None:
    changes = []
    folder = workload.copy_databases(workload.folder.parent / "race")
    with ContestantProcess(contestant, folder) as process:
        result.load_seconds = process.wait_for_load()
        for size, repetitions in sizes.items():
            took = []
            for number in range(WARM_UPS + repetitions):
                changes.append(workload.next_change(size))
                seconds = process.apply_change(changes[-1])
                took += [seconds] if number >= WARM_UPS else []
            result.seconds[size] = took
        result.is_right = process.check_view() == workload.answer_after(changes)
        result.memory_mb = process.memory_mb_max


def table_of(results: Sequence[Result], sizes: Mapping[int, int]) -> str:
    """The race as a Markdown table: milliseconds, median (fastest, slowest)."""
    heads = [
        "contestant",
        "load, s",
        *(f"n = {size:,}, ms" for size in sizes),
        "memory, MB",
        "right",
    ]
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    for result in results:
        if result.error:
            cells = [result.name, f"did not run: {result.error}", *[""] * (len(heads) - 2)]
        else:
            times = [_cell(result.seconds[size]) for size in sizes]
            right = "yes" if result.is_right else "NO"
            cells = [
                result.name,
                f"{result.load_seconds:.1f}",
                *times,
                f"{result.memory_mb:,}",
                right,
            ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(seconds: Sequence[float]) -> str:
    middle, least, most = statistics.median(seconds), min(seconds), max(seconds)
    return f"{1000 * middle:,.1f} ({1000 * least:,.1f} - {1000 * most:,.1f})"


def _line(result: Result) -> str:
    if result.error:
        return f"{result.name}: did not run: {result.error}"
    times = ", ".join(f"n={n}: {_cell(took)} ms" for n, took in result.seconds.items())
    return f"{result.name}: load {result.load_seconds:.1f} s, {times}, {result.memory_mb} MB"


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.peers.race", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    parser.add_argument("--items", type=int, default=100_000, help="rows of the view")
    parser.add_argument("--only", nargs="+", help="contestants, by the first word of their names")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "out")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
