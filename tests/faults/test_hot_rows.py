"""A backlog of changes of the same few rows, as a restart finds it, stays a small piece of work.

The states in between are as many as the transactions, but every single one is small; so what a
batch joins on the way must grow with the changes, not with the product of the versions that each
joined row went through.
"""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import viewkeeper
from tests.faults.judge import Judge
from tests.faults.shop import JOURNAL, TABLES, copy_project
from tests.faults.writer import write
from viewkeeper.delta.kernel import Kernel
from viewkeeper.engine.report import SilentObserver

TRANSACTIONS = 200


def test_many_versions_of_few_rows_do_not_multiply(
    loaded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = copy_project(loaded, tmp_path / "shop")
    largest = 0
    join = Kernel.join

    def measured(*arguments: Any) -> Any:
        nonlocal largest
        joined = join(*arguments)
        largest = max(largest, joined.num_rows)
        return joined

    monkeypatch.setattr(Kernel, "join", measured)
    with (
        viewkeeper.open(project) as opened,
        opened.open_maintainer("run", SilentObserver()) as keeper,
    ):
        keeper.start_run()
        for _ in churn(project):
            keeper.see_commits()
        keeper.maintain_views()
    Judge(project).check()
    assert largest < 50 * TRANSACTIONS


def churn(project: Path) -> Any:
    """Transactions of all databases in turn, one each time it is asked."""
    rng = random.Random(1)
    connections = {
        name: sqlite3.connect(project / f"{name}.db", isolation_level=None) for name in TABLES
    }
    with open(project / JOURNAL, "a", encoding="utf-8") as journal:
        for _ in range(TRANSACTIONS):
            name = rng.choice(list(connections))
            write(connections[name], name, rng, journal)
            yield name
    for connection in connections.values():
        connection.close()
