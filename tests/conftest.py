"""What every test shares: one Spark session, repeatable examples, and a clean end.

Starting Spark costs seconds, so the whole run has one session and only tests that ask for it pay.
Hypothesis draws new examples on a developer's machine and the same ones under CI=true, where a
red run must be red again. At the end nothing that the tests started may still be running.
"""

from __future__ import annotations

import gc
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import settings
from pyspark import SparkContext
from pyspark.sql import SparkSession

from viewkeeper.engine.settings.project_file import SparkSettings
from viewkeeper.engine.spark.spark_session import start_session

pytest_plugins = ["tests.servers"]

settings.register_profile("local", deadline=None, database=None, max_examples=50)
settings.register_profile("ci", deadline=None, database=None, max_examples=50, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "local")


MEMORY = Path("/dev/shm")
"""A folder in memory, where the system has that."""
MEMORY_BYTES = 4 << 30
"""What must be free in it: a whole run leaves a quarter of that until its end."""


def pytest_configure() -> None:
    """Let the folders of tests be in memory, if there is room: tests of commits took twice as long
    where a disk had to sync what nobody reads. What a power cut leaves is told by a medium of its
    own (`tests/faults/medium.py`)."""
    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use the Spark session, and those that one process shall run together.

    Several processes share a run (`--dist loadgroup`): a test alone goes to whichever is free, a
    group to one, the largest first. What a file or a folder prepares for its tests, with Spark or
    without, is prepared once that way.
    """
    for item in items:
        scopes = {fixture.scope for fixture in fixtures_of(item)}
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            scopes.add("module")
        if "package" in scopes:
            item.add_marker(pytest.mark.xdist_group(item.path.parent.name))
        elif scopes & {"module", "class"}:
            item.add_marker(pytest.mark.xdist_group(f"{item.path.parent.name}/{item.path.stem}"))


def fixtures_of(item: pytest.Item) -> Iterator[pytest.FixtureDef[object]]:
    """The fixtures that a test asks for by name, and those that these ask for."""
    named = item._fixtureinfo.name2fixturedefs if isinstance(item, pytest.Function) else {}
    for definitions in named.values():
        yield definitions[-1]


def started_threads() -> list[threading.Thread]:
    """The threads of Python; those of a library's own pool, which call Python, end with it."""
    foreign = threading._DummyThread
    return [thread for thread in threading.enumerate() if not isinstance(thread, foreign)]


@pytest.fixture(scope="session", autouse=True)
def nothing_left_running() -> Iterator[None]:
    """Fail the run when a thread or a child process outlives it."""
    before = set(started_threads())
    yield
    # A library's pool of threads ends with its owner, which may be part of a circle.
    gc.collect()
    # One that has been told to stop may still be on its way out.
    for thread in set(started_threads()) - before:
        thread.join(timeout=5)
    threads = [thread.name for thread in started_threads() if thread not in before]
    assert not threads, f"threads still running after the last test; join them: {threads}"
    processes = child_processes()
    assert not processes, f"processes still running after the last test; end them: {processes}"


@pytest.fixture(scope="session", autouse=True)
def private_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The user's cache folder is left alone, and what it has does not matter."""
    with pytest.MonkeyPatch.context() as patch:
        cache = tmp_path_factory.mktemp("cache")
        patch.setenv("XDG_CACHE_HOME", str(cache))
        (cache / "viewkeeper").mkdir()
        # No folder: commands that start Spark have nothing made for the next start.
        (cache / "viewkeeper" / "java").touch()
        yield


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
    """The run's only Spark session, made as Viewkeeper makes its own: two slots, three tries."""
    session = start_session(SPARK, tmp_path_factory.mktemp("spark"))
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
    end_java()


SPARK = SparkSettings(
    master="local[2,3]",
    config={
        # The second compiler optimises code for hours of running, and several collectors share the
        # work of one: in a run of minutes both cost more than they save. A heap, and a space for
        # classes, that grow from small begin with ten collections of everything. The room for
        # compiled code is that of two compilers: with that of one Java compiles again and again.
        "spark.driver.extraJavaOptions": (
            "-XX:+ExitOnOutOfMemoryError -XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
            "-Xms1g -Xmn512m -XX:MetaspaceSize=512m "
            "-XX:ReservedCodeCacheSize=240m"
        ),
        # Workers import the test modules whose functions they are sent.
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        # A few rows need no more; adaptive planning would cost more than it saves.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
    },
)


def end_java() -> None:
    """Stop the Java process too: PySpark keeps it after `stop` for a session that may follow."""
    gateway = SparkContext._gateway
    assert gateway is not None
    java = gateway.proc
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    java.stdin.close()
    java.wait(timeout=60)
