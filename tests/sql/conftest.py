"""Folders in memory, and what random queries came to, summed over all workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sql.random_case import VERDICT, case_folder, refusal_lines


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder in memory for one test."""
    with case_folder() as folder:
        yield folder


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    sums: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            found = dict(getattr(report, "user_properties", ())).get(VERDICT)
            if found is not None and report.when == "call":
                sums.update(found["sums"])
                reasons.update(found["reasons"])
    if sums:
        terminalreporter.section("random queries")
        terminalreporter.line(", ".join(f"{count:,} {what}" for what, count in sums.items()))
        for line in refusal_lines(sums, reasons):
            terminalreporter.line(line)
