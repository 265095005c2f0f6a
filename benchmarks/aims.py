"""What a machine is meant to reach, measured in one run: `python -m benchmarks.aims`.

One table: what was measured, what it was on two quiet cores before small batches went to a journal
(the first round of Viewkeeper), the aim, and the figure of this run. Commands and first loads are
measured here, each in a process of its own that begins with nothing; the rest are figures of other
benchmarks, which are run one after the other. An aim that is missed is a figure like the others.

`--only` takes some parts, `--into FILE` writes the table between the markers of a page.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.world import VIEW, World
from viewkeeper.simulate.campaigns.algorithm_table import insert_marked

ROOT = Path(__file__).resolve().parent.parent
VIEWKEEPER = Path(sys.executable).with_name("viewkeeper")
COMMAND_SAMPLES = 9
LOAD_ROWS = 100_000
FEW_ROWS = 8
MARKER = "aims"


@dataclass(frozen=True, slots=True)
class AimedFigure:
    """One line of the table; `value` and `limit` in one unit, `is_least` where more is better."""

    what: str
    before: str
    value: float
    limit: float
    unit: str
    note: str = ""
    is_least: bool = False

    @property
    def holds(self) -> bool:
        return self.value >= self.limit if self.is_least else self.value <= self.limit

    def __str__(self) -> str:
        aim = f"{'at least' if self.is_least else 'at most'} {self.limit:g} {self.unit}".rstrip()
        now = f"{_rounded(self.value)} {self.unit}".rstrip() + (f" ({self.note})" * bool(self.note))
        verdict = "yes" if self.holds else "**no**"
        return f"| {self.what} | {self.before} | {aim} | {now} | {verdict} |"


HEADER = "| what | before | aim | now | reached |\n| --- | --- | --- | --- | --- |"


def _rounded(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


# -- figures of other benchmarks ------------------------------------------------------------------


def run_benchmark(name: str, out: Path, *words: str) -> dict[str, Any]:
    """Run another benchmark in a process of its own: what it wrote."""
    command = [sys.executable, "-m", f"benchmarks.{name}", "--out", str(out), *words]
    subprocess.run(command, check=True, cwd=ROOT)
    return dict(json.loads((out / f"{name}.json").read_text()))


def measure_small_batches(out: Path) -> Iterator[AimedFigure]:
    found = {each["name"]: each for each in run_benchmark("small_batches", out)["figures"]}
    idle, later = found["refresh, idle"], found["refresh, idle again"]
    yield AimedFigure("`refresh()` with nothing to do", "57 to 68 ms", idle["median"], 3, "ms")
    yield AimedFigure("the same after more than 300 records", "197 ms", later["median"], 3, "ms")
    yield AimedFigure(
        "`refresh()`, n = 1,000", "130 to 168 ms", _median(found, "n = 1,000"), 60, "ms"
    )
    yield AimedFigure(
        "`refresh()`, n = 10,000", "311 to 372 ms", _median(found, "n = 10,000"), 200, "ms"
    )
    for name, words, limit in (("run, often", "often", 15), ("run, from idle", "from idle", 25)):
        each = found[name]
        what = f"`run` by default, one row, {words}: from its commit to the view, p50"
        yield AimedFigure(what, "1,015 ms", each["median"], limit, "ms")
        ratio, note = each["p95"] / each["median"], f"p95 {each['p95']:.0f} ms"
        yield AimedFigure(f"{words}: p95 against p50", "", ratio, 2, "times", note)


def _median(found: dict[str, dict[str, float]], name: str) -> float:
    return found[f"refresh, {name}"]["median"]


LIMITS = {"tail": 2.0, "folded": 1.3}


def measure_reading(out: Path) -> Iterator[AimedFigure]:
    for each in run_benchmark("reading", out)["timings"]:
        limit = LIMITS.get(each["stage"])
        # A plain file has no key to look in: reading one row is compared in `benchmarks.reading`.
        if limit is None or "key" in each["what"]:
            continue
        ratio = each["ours_ms"] / each["plain_ms"]
        note = f"{each['ours_ms']:.0f} and {each['plain_ms']:.0f} ms"
        words = {"tail": "with a tail of 1 %"}.get(each["stage"], each["stage"])
        what = f"{each['what']} of 1,000,000 rows, {words}, against plain Parquet"
        yield AimedFigure(what, "", ratio, limit, "times", note)


def measure_loads(out: Path) -> Iterator[AimedFigure]:
    for each in run_benchmark("loads", out)["figures"]:
        if each["what"] == "table":
            what = f"load of 1,000,000 rows from {each['source']}, per core, of reading them alone"
            yield AimedFigure(what, "", 100 * each["share"], 60, "%", is_least=True)


def measure_cluster(out: Path) -> Iterator[AimedFigure]:
    workers = run_benchmark("cluster", out)["workers"]
    for key, words in (("load", "a load"), ("batch", "a batch of 100,000 changes")):
        one, two = (statistics.median(each[key] for each in workers[n]) for n in ("1", "2"))
        what = f"two workers against one, {words}"
        yield AimedFigure(what, "", one / two, 1.7, "times", f"{one:.1f} and {two:.1f} s", True)


# -- processes that begin with nothing ------------------------------------------------------------


def time_command(folder: Path, *words: str) -> float:
    """The seconds of a command, by the clock."""
    started = time.perf_counter()
    run = subprocess.run([VIEWKEEPER, *words], cwd=folder, capture_output=True, text=True)
    seconds = time.perf_counter() - started
    assert run.returncode == 0, f"{words}: {run.stdout}{run.stderr}"
    return seconds


def measure_commands(out: Path) -> Iterator[AimedFigure]:
    """Commands in the sample project, whose files are in the system's cache: medians."""
    with tempfile.TemporaryDirectory(prefix="viewkeeper-aims-") as name:
        time_command(Path(name), "init", "sample")
        sample = Path(name) / "sample"
        time_command(sample, "run", "--once")
        rows = "SELECT customer, sum(cents) FROM order_lines GROUP BY customer"
        for words, before, limit in (
            (("status",), "1.7 s", 0.5),
            (("explain", "order_lines"), "1.9 s", 0.5),
            (("query", rows), "19 s", 1.0),
        ):
            taken = [time_command(sample, *words) for _ in range(COMMAND_SAMPLES + 1)][1:]
            note = f"least {min(taken):.2f} s"
            yield AimedFigure(
                f"`viewkeeper {words[0]}`, from nothing",
                before,
                statistics.median(taken),
                limit,
                "s",
                note,
            )


def measure_first_loads(out: Path) -> Iterator[AimedFigure]:
    """`viewkeeper run --once` for the four-way join, in a new project."""
    for rows, before, limit in ((LOAD_ROWS, "23 s", 12.0), (FEW_ROWS, "21 s", 2.0)):
        taken = []
        for _ in range(3):
            with tempfile.TemporaryDirectory(prefix="viewkeeper-aims-") as name:
                with closing(World(Path(name) / "world", rows)):
                    pass
                taken.append(time_command(Path(name) / "world", "run", "--once"))
        what = f"first load of {VIEW}, {rows:,} rows in each of its four tables, from nothing"
        yield AimedFigure(what, before, statistics.median(taken), limit, "s")


PARTS: dict[str, Callable[[Path], Iterator[AimedFigure]]] = {
    "small_batches": measure_small_batches,
    "reading": measure_reading,
    "first_loads": measure_first_loads,
    "commands": measure_commands,
    "loads": measure_loads,
    "cluster": measure_cluster,
}


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.aims", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "out")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--into", type=Path, help="a page with the markers of this table")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    load, found = os.getloadavg()[0], list[AimedFigure]()
    for name in options.only:
        for figure in PARTS[name](options.out):
            found.append(figure)
            print(figure, flush=True)
    missed = sum(not figure.holds for figure in found)
    print(f"{len(found) - missed} of {len(found)} aims are reached; load at the start {load:.1f}")
    body = {**report.environment(), "figures": [asdict(figure) for figure in found]}
    (options.out / "aims.json").write_text(json.dumps(body, indent=2) + "\n")
    if options.into is not None:
        table = "\n".join([HEADER, *map(str, found)])
        text = options.into.read_text(encoding="utf-8")
        options.into.write_text(
            insert_marked(text, {MARKER: table}, str(options.into)), encoding="utf-8"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
