"""A Spark session that is given, and cannot run our tasks: named by `open`.

Each case is a program of its own with a session of its own, as users make them: its workers have a
Python without our package (a fresh virtual environment), or one that says it is another version, or
it has been stopped.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.engine.shop import Shop
from viewkeeper.engine.settings.project_file import SparkSettings
from viewkeeper.engine.spark.spark_session import SparkHandle
from viewkeeper.engine.spark.worker_check import explain_worker_failure, find_worker_error

PROGRAM = """
import sys
from pyspark.sql import SparkSession
import viewkeeper

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
if sys.argv[2:] == ["stopped"]:
    spark.stop()
try:
    viewkeeper.open(sys.argv[1], spark=spark)
    print("opened", flush=True)
except viewkeeper.ViewkeeperError as error:
    print(type(error).__name__, error, flush=True)
finally:
    spark.stop()
"""

OTHER_VERSION = """#!{python}
import collections, runpy, sys

kind = collections.namedtuple("version_info", "major minor micro releaselevel serial")
sys.version_info = kind(3, sys.version_info.minor + 1, 0, "final", 0)
assert sys.argv[1] == "-m", sys.argv
module, sys.argv = sys.argv[2], sys.argv[2:]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


def open_with(python: Path, shop: Shop, *words: str) -> str:
    """What a program says whose session has workers of this Python."""
    env = {**os.environ, "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"}
    env.pop("PYTHONPATH", None)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(shop.folder), *words],
        env=env,
        cwd=shop.folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.startswith("SparkUnavailableError "), done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """A shop with a view that Spark has to load."""
    shop = Shop(
        tmp_path, {"v": "SELECT c.id, c.city FROM crm.customer c"}, "batch: {inline_rows: 0}"
    )
    shop.fill()
    return shop


def test_workers_without_the_package(shop: Shop, tmp_path: Path) -> None:
    place = tmp_path / "other"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True, timeout=120)
    told = open_with(place / "bin" / "python", shop)
    assert "the workers of the given Spark session cannot import viewkeeper" in told
    assert f"{place}/bin/python -m pip install viewkeeper" in told
    assert f"PYSPARK_PYTHON={sys.executable}" in told


def test_workers_of_another_version(shop: Shop, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(OTHER_VERSION.format(python=sys.executable))
    python.chmod(0o755)
    told = open_with(python, shop)
    assert "run another Python than this program" in told
    assert f"PYSPARK_PYTHON={sys.executable}" in told
    assert str(python) in told


def test_a_session_that_has_been_stopped(shop: Shop) -> None:
    told = open_with(Path(sys.executable), shop, "stopped")
    assert "the given Spark session has been stopped" in told
    assert "hint: open the project again with a session that runs" in told


def test_a_session_that_can_work_is_asked_once(spark: SparkSession) -> None:
    handle = SparkHandle(SparkSettings(), spark)
    find_worker_error.cache_clear()
    handle.get_session()
    handle.get_session()
    found = find_worker_error.cache_info()
    assert (found.hits, found.misses) == (1, 1)


def test_whatever_else_is_wrong_is_named_too() -> None:
    text = 'java.io.IOException: Cannot run program "nowhere"'
    found = explain_worker_failure(text, "nowhere")
    assert found.message == "the workers of the given Spark session cannot run Python tasks"
    assert 'Cannot run program "nowhere"' in str(found.detail)
    found = explain_worker_failure("x\nImportError: No module named 'pyarrow'\n", "python3")
    assert found.message.endswith("cannot import what viewkeeper needs")
