"""What the tests of groups share: a fleet of projects in which nobody waits long for the others,
because they are maintained in turns by one process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.engine.fleet import Fleet
from viewkeeper.engine import loop


@pytest.fixture
def fleet(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    # In turns, nobody else goes on while one waits.
    monkeypatch.setattr(loop, "OTHERS_SECONDS", 0.1)
    made = Fleet(tmp_path, spark)
    yield made
    made.close()
