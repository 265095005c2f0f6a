"""What the tests with killed processes share: a loaded project that they copy."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.faults import tally
from tests.faults.project_clock import following_file
from tests.faults.shop import make_project


@pytest.fixture(scope="session")
def loaded(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    """A project whose views are loaded; to be copied, not used."""
    folder = make_project(tmp_path_factory.mktemp("loaded") / "shop")
    with viewkeeper.open(folder, spark=spark) as project:
        report = project.refresh()
    assert not report.waiting, report.waiting
    return folder


@pytest.fixture(scope="session")
def reporting(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    """The same with reports: three levels on the join, windows, scalars, the time."""
    folder = make_project(tmp_path_factory.mktemp("reporting") / "shop", reports=True)
    with following_file(folder), viewkeeper.open(folder, spark=spark) as project:
        report = project.refresh()
    assert not report.waiting, report.waiting
    return folder


@pytest.fixture(scope="session")
def recomputing(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    """The same with one more that is computed again, for which maintainers need Spark."""
    folder = make_project(tmp_path_factory.mktemp("again") / "shop", reports=True, again=True)
    with following_file(folder), viewkeeper.open(folder, spark=spark) as project:
        report = project.refresh()
    assert not report.waiting, report.waiting
    return folder


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many faults there were."""
    for line in tally.summary():
        terminalreporter.write_line(line)
