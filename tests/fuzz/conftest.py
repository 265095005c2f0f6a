"""What fuzzers share: folders in memory, and the figures of each at the end.

A fuzzer writes the same small file thousands of times. On a disk each time waits for the journal of
the file system, which costs ten times what the reader does, and nothing is learned from it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz import figures
from tests.fuzz.mutation import INPUTS

_MEMORY = Path("/dev/shm")
_PROPERTY = "fuzz figures"


@pytest.fixture(scope="session")
def memory() -> Iterator[Path]:
    """A folder in memory for the whole run; on disk where the system has none."""
    where = _MEMORY if _MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="viewkeeper-fuzz-", dir=where) as folder:
        yield Path(folder)


@pytest.fixture
def scratch(memory: Path) -> Iterator[Path]:
    """A folder in memory for one test."""
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


@pytest.fixture(autouse=True)
def reported_figures(request: pytest.FixtureRequest) -> Iterator[None]:
    """What the fuzzers of a test cost travels with its report, also from another worker."""
    figures.DONE.clear()
    yield
    name = request.node.nodeid.rpartition("/")[2]
    request.node.user_properties += [(_PROPERTY, each.render_line(name)) for each in figures.DONE]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A line per fuzzer, in `make fuzz`."""
    for report in terminalreporter.getreports(""):
        for key, line in getattr(report, "user_properties", ()):
            if INPUTS and key == _PROPERTY and report.when == "teardown":
                terminalreporter.write_line(line)
