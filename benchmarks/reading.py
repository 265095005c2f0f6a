"""What reading a view costs beside plain Parquet: `python -m benchmarks.reading`.

One view of 1,000,000 rows, of which 1 % were replaced since by ten commits, is read beside a plain
Parquet file of the very rows that it shows, with the same compression: by Arrow, by Spark, and one
row by its key. Then it is compacted, once so that it sorts only and once so that it folds, and is
read again. The ways take turns, so that they see the same load of the machine; figures are medians
of milliseconds, and ratios against plain Parquet of the same run, of time and of the processor's
time in Python and the JVM, which says more on a machine that has other work.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import report
from viewkeeper.delta.arrow_compute import pc
from viewkeeper.engine.settings.project_file import SparkSettings
from viewkeeper.engine.spark.spark_session import SparkHandle
from viewkeeper.engine.view import View
from viewkeeper.updates.source_protocol import COUNT, TS
from viewkeeper.warehouse.compact import compact_view
from viewkeeper.warehouse.lake.data_files import write_rows
from viewkeeper.warehouse.metadata.plan_files import BatchPlan, LedgerEntry
from viewkeeper.warehouse.metadata.record import Advance, Create
from viewkeeper.warehouse.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

VIEW = "lines"
COMMITS = 10
STAGES = ("tail", "sorted", "folded")
Way = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Timing:
    """One way of reading in one stage: milliseconds by us and by plain Parquet."""

    stage: str
    what: str
    ours_ms: float
    ours_cpu_ms: float
    plain_ms: float
    plain_cpu_ms: float

    def __str__(self) -> str:
        return (
            f"{self.stage:7} {self.what:20} {self.ours_ms:6.0f} ms, plain {self.plain_ms:6.0f}: "
            f"{self.ours_ms / self.plain_ms:5.2f}; cpu {self.ours_cpu_ms:6.0f}, plain "
            f"{self.plain_cpu_ms:6.0f}: {self.ours_cpu_ms / self.plain_cpu_ms:5.2f}"
        )


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=STAGES)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out"))
    parser.add_argument("--quick", action="store_true", help="few rows, to see that it works")
    options = parser.parse_args(arguments)
    if options.quick:
        options.rows, options.repetitions = 20_000, 2
    handle = SparkHandle(SparkSettings())
    try:
        with tempfile.TemporaryDirectory(prefix="viewkeeper-bench-") as folder:
            stages = measure_reading(Path(folder), handle, options)
            timings = [timing for stage in stages for timing in stage]
    finally:
        handle.stop_session()
    options.out.mkdir(parents=True, exist_ok=True)
    facts = report.environment() | {"rows": options.rows}
    written = {"facts": facts, "timings": [asdict(timing) for timing in timings]}
    (options.out / "reading.json").write_text(json.dumps(written, indent=1))


def measure_reading(
    folder: Path, handle: SparkHandle, options: argparse.Namespace
) -> Iterator[list[Timing]]:
    """Every way of reading, of the view with its tail, put in order, and folded."""
    with Store.open(folder / "warehouse", "benchmark", time.time) as store:
        fill_store(store, options.rows)
        plain, spark = folder / "plain.parquet", handle.get_session()
        view = View(VIEW, store.root, handle)
        pq.write_table(view.arrow(), plain, compression="zstd")
        for stage in STAGES:
            if stage == "sorted":
                compact_view(store, spark, VIEW, view.head.horizon)
            elif stage == "folded":
                compact_view(store, spark, VIEW, view.ts)
            if stage in options.stages:
                yield _measure_stage(stage, view, spark, plain, options.repetitions)


def fill_store(store: Store, rows: int) -> None:
    """A view of so many rows, of which commits have replaced one in a hundred."""
    chance = np.random.default_rng(7)
    keys = chance.permutation(rows)
    loaded = _order_lines(keys, 0)
    table = store.new_table(VIEW)
    file = write_rows(store.table_folder(table), loaded.schema, _signed(loaded, 1, 1), 1, 0)
    store.commit(
        [Create(VIEW, table, "SELECT ...", loaded.schema, 1, {"shop": 0}, (file,), distinct=True)]
    )
    replaced = chance.choice(rows, rows // 100, replace=False)
    for ts, some in enumerate(np.array_split(replaced, COMMITS), start=2):
        entry = LedgerEntry(ts, "shop", ts - 2, ts - 1, 100.0 + ts, 1)
        plan = BatchPlan(store.next_plan, (entry,), {VIEW: (ts - 1, ts)})
        store.write_plan(plan)
        old, new = _order_lines(some, 0), _order_lines(some, ts)
        signed = pa.concat_tables([_signed(old, -1, ts), _signed(new, 1, ts)])
        file = write_rows(store.folder_of(VIEW), loaded.schema, signed, store.head.record + 1, 0)
        store.commit([Advance(VIEW, ts, {"shop": ts - 1}, (file,))], plan.n)


def _order_lines(keys: Any, version: int) -> pa.Table:
    """Rows of four joined tables, as far as these keys go: texts, numbers, a date."""
    return pa.table(
        {
            "line": pa.array(keys, pa.int64()),
            "customer": pa.array(keys % 9973, pa.int64()),
            "x": pa.array([f"line {key} in version {version}" for key in keys]),
            "city": pa.array([f"city {key % 211}" for key in keys]),
            "cents": pa.array(keys * 37 % 100_003, pa.int64()),
            "day": pa.array((20_000 + keys % 365).astype("int32"), pa.date32()),
        }
    )


def _signed(rows: pa.Table, count: int, ts: int) -> pa.Table:
    counts = pa.array(np.full(rows.num_rows, count, np.int64))
    stamps = pa.array(np.full(rows.num_rows, ts, np.int64))
    return rows.append_column(COUNT, counts).append_column(TS, stamps)


def _measure_stage(
    stage: str, view: View, spark: SparkSession, plain: Path, repetitions: int
) -> list[Timing]:
    key = view.arrow(columns=["line"])["line"][0].as_py()
    by_key = pc.field("line") == key

    def read_plain() -> DataFrame:
        return spark.read.schema(view.df().schema).parquet(str(plain))

    ways: dict[str, tuple[Way, Way]] = {
        "arrow()": (view.arrow, lambda: pq.read_table(plain)),
        "arrow(columns=[x])": (
            lambda: view.arrow(columns=["x"]),
            lambda: pq.read_table(plain, columns=["x"]),
        ),
        "arrow(where=key)": (
            lambda: view.arrow(where=by_key),
            lambda: pq.read_table(plain, filters=by_key),
        ),
        "df().count()": (lambda: view.df().count(), lambda: read_plain().count()),
        "df() sum(length(x))": (
            lambda: view.df().selectExpr("sum(length(x))").collect(),
            lambda: read_plain().selectExpr("sum(length(x))").collect(),
        ),
        "df() all columns": (
            lambda: _digest_all(view.df()),
            lambda: _digest_all(read_plain()),
        ),
        "df() where key": (
            lambda: view.df().where(f"line = {key}").collect(),
            lambda: read_plain().where(f"line = {key}").collect(),
        ),
    }
    timings = []
    for what, (ours, theirs) in ways.items():
        _assert_same(what, ours(), theirs())
        taken = [(*time_way(ours), *time_way(theirs)) for _ in range(repetitions)]
        medians = [statistics.median(each) for each in zip(*taken, strict=True)]
        timings.append(Timing(stage, what, *medians))
        print(f"{timings[-1]} (load {os.getloadavg()[0]:.1f})", flush=True)
    return timings


def _digest_all(frame: DataFrame) -> list[Row]:
    """A number that every value of every row is in."""
    return frame.selectExpr("sum(hash(*)) AS digest", "count(*) AS rows").collect()


def _assert_same(what: str, ours: object, theirs: object) -> None:
    if isinstance(ours, pa.Table) and isinstance(theirs, pa.Table):
        first = ours.column_names[0]
        ours, theirs = ours.sort_by(first), theirs.sort_by(first)
        assert ours.equals(theirs), f"{what}: other rows than plain Parquet"
    else:
        assert ours == theirs, f"{what}: {ours} is not {theirs}"


def time_way(way: Way) -> tuple[float, float]:
    """Milliseconds, and those of processors in this process and all below it."""
    started, used = time.perf_counter(), _used_ms()
    way()
    return (time.perf_counter() - started) * 1000, _used_ms() - used


def _used_ms() -> float:
    """Linux tells it in ticks, of its own processes only."""
    parents, ticks = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            facts = path.read_text().rpartition(")")[2].split()
            parents[int(path.parent.name)] = int(facts[1])
            ticks[int(path.parent.name)] = int(facts[11]) + int(facts[12])
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    used: float = 1000 * sum(ticks.get(pid, 0) for pid in ours) / os.sysconf("SC_CLK_TCK")
    return used


if __name__ == "__main__":
    main(sys.argv[1:])
