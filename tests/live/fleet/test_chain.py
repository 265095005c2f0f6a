"""A chain of four warehouses over SQLite and PostgreSQL: what a dead one delays, who reports."""

from __future__ import annotations

from functools import partial

from pyspark.sql import SparkSession

from tests.live.fleet.bases import Writers
from tests.live.fleet.conftest import MakeFleet
from tests.live.fleet.fleet import Fleet
from tests.live.fleet.judge import finish, late
from tests.live.fleet.shapes import CHAIN


def test_a_chain_goes_on_as_far_as_it_can(make_fleet: MakeFleet, spark: SparkSession) -> None:
    fleet = make_fleet(*CHAIN, a="postgres", b="sqlite")
    fleet.enrol()
    fleet.load(spark)
    fleet.start()
    with Writers(fleet.bases.values(), seed=2):
        fleet.wait_states(states=3)
        fleet.kill("p2")
        fleet.wait_states("p1", states=10)
    fleet.wait("p1 to show the last state", lambda: not late(fleet, "p1"))
    assert late(fleet) == ["p2.w", "p3.w", "p4.w"], "a dead parent delays its descendants only"
    fleet.wait("the registry to know who waits", partial(_is_told, fleet))
    fleet.start("p2")
    fleet.wait("all to be there", lambda: not late(fleet))
    _replace_a_reporter(fleet)
    found = finish(fleet)
    assert found.groups == 1
    assert found.agreements > 30


def _is_told(fleet: Fleet) -> bool:
    """Whether the registry says that p2 has work to do, and who waits for whom."""
    (group,) = fleet.status().values()
    waiting = {member: tuple(parents) for member, parents in group["waiting"].items()}
    return waiting == {"p2": (), "p3": ("p2",), "p4": ("p3",)}


def _replace_a_reporter(fleet: Fleet) -> None:
    """Kill who reports a base, and wait until another member does; all that read it still can."""
    before = _reporters(fleet)
    base = next(base for base, member in before.items() if member != "p1")
    name = before[base]
    fleet.kill(name)
    fleet.wait(
        f"somebody else to report {base}", lambda: _reporters(fleet).get(base) not in (None, name)
    )
    with Writers(fleet.bases.values(), seed=3):
        fleet.wait_states("p1", "p2", states=3)
    fleet.start(name)


def _reporters(fleet: Fleet) -> dict[str, str]:
    (group,) = fleet.status().values()
    return {each["source"]: each["member"] for each in group["reports"] if each["lease"] > 0}
