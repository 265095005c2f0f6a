"""A maintainer in a process of its own: `run`, or `run --standby`, as users have it, without a JVM.

    python -m tests.objects.runner PROJECT [--standby]

It says `batch N` for every commit, `ready` once it holds the warehouse, and ends with 2 and the
error's text where the warehouse is taken from it.
"""

from __future__ import annotations

import signal
import sys
import threading
from unittest import mock

import viewkeeper
from viewkeeper.engine import loop
from viewkeeper.engine.maintainer import Maintainer
from viewkeeper.engine.report import BatchReport, Report, SilentObserver
from viewkeeper.engine.spark.spark_session import SparkHandle
from viewkeeper.errors import ViewkeeperError


class Telling(SilentObserver):
    """Says on standard output what happened, a line each."""

    def on_batch_commit(self, report: BatchReport) -> None:
        print(f"batch {report.number}", flush=True)

    def on_trouble(self, error: ViewkeeperError) -> None:
        print(f"trouble {error.message}", flush=True)


def main() -> int:
    stop, real = threading.Event(), loop.run_until
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    print("begins", flush=True)

    def run_telling(maintainer: Maintainer, report: Report, *rest: object) -> Report:
        print(f"ready epoch {maintainer.store.lock.epoch}", flush=True)
        return real(maintainer, report, *rest)  # type: ignore[arg-type]  # passed on as they are

    with (
        mock.patch.object(SparkHandle, "begin_start", return_value=None),
        mock.patch.object(loop, "run_until", run_telling),
        viewkeeper.open(sys.argv[1]) as project,
    ):
        try:
            project.run(Telling(), stop, standby="--standby" in sys.argv)
        except ViewkeeperError as error:
            print(f"error {' '.join(str(error).split())}", flush=True)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
