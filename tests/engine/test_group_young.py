"""A group that is young: members come into it from where each of them stood by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.engine.fleet import Fleet
from viewkeeper.engine import loop
from viewkeeper.engine.group.membership import JoinResult, Membership
from viewkeeper.order.registry_address import open_registry


@pytest.fixture
def fleet(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    monkeypatch.setattr(loop, "OTHERS_SECONDS", 0.5)
    made = Fleet(tmp_path, spark)
    yield made
    made.close()


def test_a_child_comes_back_while_a_parent_goes_on_alone(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One parent has taken more than the first ids of the new group when it hears of it."""
    fleet.diamond()
    fleet.refresh("v1", "v2", "v0", "v1", "v2", "v0")
    registry = open_registry("registry.db", fleet.root)
    registry.leave_registry("v0")
    fleet.refresh("v1", "v2", "v0")
    fleet.write("north", (0, 1))
    fleet.refresh("v2")
    with monkeypatch.context() as patch:
        patch.setattr(Membership, "join_group", lambda self, now, awaits: JoinResult(False, False))
        fleet.write("north", (0, 2), (1, 2))
        fleet.refresh("v1")
    fleet.refresh("v1")
    waits = fleet.refresh("v0").waiting["lines"]
    assert 'do not show one state of "north"' in waits
    registry.close()
    for value in range(3, 6):
        fleet.write("south", (0, value))
        fleet.write("north", (1, value))
        fleet.refresh("v2", "v1", "v2", "v0")
    assert not fleet.refresh("v1", "v2", "v0", "v1", "v2", "v0").waiting
    assert fleet.state("v0") == fleet.expected()["v0"]
    for ts in fleet.numbers("v0").values():
        state = fleet.state("v0", ts)
        assert all(north == again for _, north, _, again in state), f"two states at ts {ts}"
