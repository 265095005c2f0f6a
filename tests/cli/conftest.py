"""What the tests of the command line share: a sample project, and a caller of commands.

Commands run in this process through click's runner; those that need Spark get the run's session.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from viewkeeper.cli.invocation import Invocation
from viewkeeper.cli.main import cli

Call = Callable[..., Result]


def call(*words: str, spark: SparkSession | None = None, typed: str | None = None) -> Result:
    """Run a command as the program would, up to its exit code."""
    return CliRunner().invoke(cli, list(words), obj=Invocation(spark=spark), input=typed)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Path]:
    """A fresh sample project, as the current folder."""
    folder = tmp_path / "shop"
    assert call("init", str(folder)).exit_code == 0
    before = Path.cwd()
    os.chdir(folder)
    yield folder
    os.chdir(before)


@pytest.fixture(scope="package")
def loaded(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    """A sample project whose views are loaded; made once, so never to be changed."""
    folder = tmp_path_factory.mktemp("loaded") / "shop"
    assert call("init", str(folder)).exit_code == 0
    result = call("--project", str(folder), "run", "--once", spark=spark)
    assert result.exit_code == 0, result.output
    return folder


@pytest.fixture
def copy(loaded: Path, tmp_path: Path) -> Path:
    """A copy of the loaded project, to change."""
    return Path(shutil.copytree(loaded, tmp_path / "copy"))
