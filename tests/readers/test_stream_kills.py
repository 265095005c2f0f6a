"""A stream that is killed again and again, while a maintainer and writers go on: nothing is lost,
and nothing comes twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.readers.bank import Bank
from tests.readers.stream_job import start_stream
from tests.readers.test_changes_feed_command import maintaining

ROOT = Path(__file__).parents[2]
PATIENCE = 300
KILLS = 2


@contextmanager
def streaming(bank: Bank, out: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A job that is killed at the end of the block, with its JVM."""
    command = [
        sys.executable,
        "-m",
        "tests.readers.stream_job",
        str(bank.folder),
        "evens",
        str(out),
    ]
    log = (out.parent / "job.log").open("ab")
    with log, subprocess.Popen(command, cwd=ROOT, process_group=0, stderr=log) as job:
        try:
            yield job
        finally:
            os.killpg(job.pid, signal.SIGKILL)


def count_batches(out: Path) -> int:
    return len(list((out / "checkpoint" / "commits").glob("[0-9]*")))


def test_a_stream_that_is_killed_loses_nothing_and_repeats_nothing(
    tmp_path: Path, spark: SparkSession
) -> None:
    project, out = tmp_path / "bank", tmp_path / "out"
    project.mkdir()
    bank = Bank(project)
    bank.refresh()
    with bank.writing(seed=2, pause=0.1):
        for kill in range(KILLS):
            with maintaining(bank), streaming(bank, out) as job:
                wanted, deadline = count_batches(out) + 3 + kill, time.monotonic() + PATIENCE
                while count_batches(out) < wanted:
                    assert time.monotonic() < deadline
                    assert job.poll() is None, (tmp_path / "job.log").read_text()[-4000:]
                    time.sleep(0.05)
    bank.refresh()
    query = start_stream(spark, bank.folder, "evens", out, is_bounded=True)
    assert query.awaitTermination(PATIENCE)
    total = Counter[tuple[Any, ...]]()
    for *row, count, _ in spark.read.parquet(str(out / "rows")).collect():
        total[tuple(row)] += count
    assert set(total.values()) <= {0, 1}
    assert +total == bank.state_of("evens")
    assert count_batches(out) >= 3 * KILLS
