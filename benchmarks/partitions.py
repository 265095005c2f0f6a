"""Windows over many partitions: what the driver takes to compute the touched ones again.

No source and no Spark: the rows of the touched partitions as of before the batch are there; what
is measured is `advance_recompute`, in CPU and in memory, for `row_number` and a running sum by
partition. Each measurement is a process of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from benchmarks.fan_out import read_status_mb, reset_peak
from viewkeeper.delta.algebra import COUNT, TS
from viewkeeper.stages.key_recompute import advance_recompute
from viewkeeper.stages.window_calls import window_result_type
from viewkeeper.view.definition import (
    Field,
    KeyRecompute,
    Output,
    Relation,
    SortKey,
    WindowCall,
    WindowFrame,
)
from viewkeeper.view.expression import Column

KEY, ID, AMOUNT = (Field(name, pa.int64()) for name in ("k", "id", "amount"))


def make_node() -> KeyRecompute:
    """`row_number()` and `sum(amount)` OVER (PARTITION BY k ORDER BY id)."""
    order = (SortKey("id"),)
    frame = WindowFrame("rows", None, "0")
    number = WindowCall("n", "row_number", (), pa.int32(), frame)
    kind = window_result_type("sum", [AMOUNT.type])
    assert kind is not None, "a sum of whole numbers"
    total = WindowCall("total", "sum", (AMOUNT,), kind, frame)
    read = (AMOUNT, ID, KEY)
    shown = [*read, Field("n", pa.int32()), Field("total", kind)]
    outputs = tuple(Output(f.name, Column(0, f.name, f.type)) for f in shown)
    source = Relation("", "#9")
    return KeyRecompute(0, source, read, ("k",), order, (), (number, total), outputs, False)


def measure_recompute(changes: int, partitions: int, rows: int, stamps: int) -> dict[str, object]:
    """So many changed rows, spread over partitions of so many rows, at so many ts."""
    size = partitions * rows
    ids = np.arange(size)
    before = pa.table(
        {"amount": ids % 1000, "id": ids, "k": ids % partitions, COUNT: np.ones(size, np.int64)}
    )
    new = np.arange(changes)
    delta = pa.table(
        {
            "amount": new % 1000,
            "id": size + new,
            "k": new % partitions,
            TS: new // partitions % stamps + 1,
            COUNT: np.ones(changes, np.int64),
        }
    )
    node = make_node()
    reset_peak()
    grown, started = read_status_mb("VmRSS"), time.process_time()
    made = advance_recompute(node, delta, before)
    return {
        "changes": changes,
        "partitions": partitions,
        "rows": rows,
        "stamps": stamps,
        "made": made.num_rows,
        "cpu_seconds": round(time.process_time() - started, 2),
        "grown_mb": round(read_status_mb("VmHWM") - grown),
    }


CASES = (
    (1_000, 1_000, 20, 1),
    (100_000, 10_000, 20, 1),
    (100_000, 10_000, 20, 10),
    (100_000, 10_000, 200, 1),
    (1_000_000, 100_000, 20, 1),
    (1_000_000, 100_000, 20, 10),
)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.partitions")
    parser.add_argument("--one", type=int, nargs=4)
    options = parser.parse_args(arguments)
    if options.one:
        print(json.dumps(measure_recompute(*options.one)), flush=True)
        return
    for case in CASES:
        words = [sys.executable, "-m", "benchmarks.partitions", "--one", *map(str, case)]
        subprocess.run(words, check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
