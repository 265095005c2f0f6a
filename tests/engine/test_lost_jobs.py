"""A job on Spark that is cancelled, by its time limit or by somebody: its views are tried again in
the same run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.engine.running_project import running, wait_until
from tests.engine.shop import LINES, Shop, rows_of
from viewkeeper.engine.batch import batch_runner, part_sweep
from viewkeeper.engine.spark import job_control

NAMES = "SELECT o.id, c.name FROM shop.orders o JOIN crm.customer c ON c.id = o.customer_id"
LATE = NAMES.replace("c.name", "reverse(c.name) AS name")
"""Its last expression is for Spark alone: it has a job of its own."""


@pytest.mark.parametrize(("way", "view"), [("run_on_spark", NAMES), ("run_late", LATE)])
def test_a_batch_whose_job_takes_too_long_is_tried_again(
    way: str,
    view: str,
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(job_control, "CANCEL_SECONDS", 0.01)
    run, attempts = getattr(batch_runner, way), list[float]()

    def run_with_limit(*given: Any) -> Any:
        attempts.append(given[-1])
        return run(*given[:-1], 0.0 if len(attempts) == 1 else given[-1])

    monkeypatch.setattr(batch_runner, way, run_with_limit)
    shop = Shop(tmp_path, {"names": view, "lines": LINES}, "batch: {inline_rows: 1}\n")
    shop.fill()
    with running(tmp_path, spark) as project:
        wait_until(lambda: project.newest_head().views.keys() == {"names", "lines"})
        shop.execute("shop", *(f"UPDATE orders SET customer_id = {n % 3}" for n in range(2)))
        wait_until(lambda: len(attempts) > 1)
        wanted = shop.recomputed(NAMES)
        if way == "run_late":
            wanted = type(wanted)({(n, name[::-1]): count for (n, name), count in wanted.items()})
        wait_until(lambda: rows_of(project.view("names")) == wanted)
        wait_until(lambda: rows_of(project.view("lines")) == shop.recomputed(LINES))
    assert "a job on Spark took longer than 0 minutes, and was cancelled" in caplog.text


def test_a_batch_whose_job_somebody_cancels_is_tried_again(
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    run, attempts = part_sweep.run_on_spark, list[int]()

    def run_and_cancel(*given: Any) -> Any:
        attempts.append(len(attempts))
        return cancelled(spark, lambda: run(*given)) if len(attempts) == 1 else run(*given)

    monkeypatch.setattr(batch_runner, "run_on_spark", run_and_cancel)
    shop = Shop(tmp_path, {"names": NAMES}, "batch: {inline_rows: 1}\n")
    shop.fill()
    with running(tmp_path, spark) as project:
        wait_until(lambda: project.newest_head().views.keys() == {"names"})
        shop.execute("shop", "UPDATE orders SET customer_id = 1")
        wait_until(lambda: len(attempts) > 1)
        wait_until(lambda: rows_of(project.view("names")) == shop.recomputed(NAMES))
    assert "Spark gave up a job of the batch" in caplog.text


def cancelled(spark: SparkSession, run: Callable[[], Any]) -> Any:
    """What comes of a run whose jobs are cancelled all the time."""
    done = threading.Event()

    def cancel_jobs() -> None:
        while not done.wait(0.01):
            spark.sparkContext.cancelAllJobs()

    thread = threading.Thread(target=cancel_jobs)
    thread.start()
    try:
        return run()
    finally:
        done.set()
        thread.join()
