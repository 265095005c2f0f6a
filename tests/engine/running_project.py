"""A maintainer that runs in a thread beside a test, and waiting for what it does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

import viewkeeper
from viewkeeper.engine.project import Project
from viewkeeper.engine.query.query_socket import NAME

SECONDS = 180.0


def wait_until(holds: Callable[[], object]) -> None:
    """Wait until something holds; an error after very long."""
    end = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.05)


@contextmanager
def running(
    folder: Path, spark: SparkSession, full_refresh: tuple[str, ...] = ()
) -> Iterator[Project]:
    """A project whose maintainer runs, and answers at its socket."""
    stop, errors = threading.Event(), list[BaseException]()
    with viewkeeper.open(folder, spark=spark) as project:

        def run() -> None:
            try:
                project.run(stop=stop, full_refresh=full_refresh)
            except BaseException as error:  # noqa: BLE001 - said where it is waited for
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            wait_until(lambda: errors or (folder / "warehouse" / NAME).exists())
            yield project
        finally:
            stop.set()
            thread.join(SECONDS)
        assert not thread.is_alive()
        assert not errors, errors[0]
