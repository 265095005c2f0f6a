"""What every test shares: one Spark session, repeatable examples, and a clean end.

Starting Spark costs seconds, so the whole run has one session and only tests that ask for it pay.
Hypothesis draws new examples on a developer's machine and the same ones under CI=true, where a
red run must be red again. At the end nothing that the tests started may still be running.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import settings
from pyspark import SparkContext
from pyspark.sql import SparkSession

settings.register_profile("local", deadline=None, database=None, max_examples=60)
settings.register_profile("ci", deadline=None, database=None, max_examples=100, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "local")


@pytest.fixture(scope="session", autouse=True)
def nothing_left_running() -> Iterator[None]:
    """Fail the run when a thread or a child process outlives it."""
    before = set(threading.enumerate())
    yield
    # One that has been told to stop may still be on its way out.
    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=5)
    threads = [thread.name for thread in threading.enumerate() if thread not in before]
    assert not threads, f"threads still running after the last test; join them: {threads}"
    processes = child_processes()
    assert not processes, f"processes still running after the last test; end them: {processes}"


def child_processes() -> list[str]:
    """The command lines of this process's children; empty where the system does not tell."""
    lines = []
    for process in Path("/proc").glob("[0-9]*"):
        # Processes of others may end while they are looked at.
        with suppress(FileNotFoundError, ProcessLookupError):
            # After the command, which is in brackets and may hold blanks: state, parent, ...
            parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
            if parent == str(os.getpid()):
                lines.append((process / "cmdline").read_text().replace("\0", " ").strip())
    # The standard library keeps its resource tracker until the interpreter exits.
    return [line for line in lines if line and "multiprocessing.resource_tracker" not in line]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The run's only Spark session: two task slots, each task tried three times."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = configure(tmp_path_factory.mktemp("spark")).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
    end_java()


def configure(folder: Path) -> SparkSession.Builder:
    """Small, offline and strict, with all that Spark writes inside `folder`."""
    options: dict[str, bool | float | int | str | None] = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        # Workers import the test modules whose functions they are sent.
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "spark.local.dir": str(folder / "local"),
        "spark.pyspark.python": sys.executable,
        # Adaptive planning costs more than it saves on a few rows, and makes plans vary.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    return SparkSession.builder.master("local[2,3]").appName("tests").config(map=options)


def end_java() -> None:
    """Stop the Java process too: PySpark keeps it after `stop` for a session that may follow."""
    gateway = SparkContext._gateway
    assert gateway is not None
    java = gateway.proc
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    java.stdin.close()
    java.wait(timeout=60)
