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
    """Kill who reports a base, and wait until another member does, for what is written now."""
    name, at = _reporters(fleet)["a"]
    fleet.kill(name)
    with Writers(fleet.bases.values(), seed=3):
        fleet.wait("somebody else to report", partial(_is_replaced, fleet, name, at))
    fleet.start(name)


def _is_replaced(fleet: Fleet, name: str, at: int) -> bool:
    member, position = _reporters(fleet).get("a", (name, at))
    return member != name and position > at


def _reporters(fleet: Fleet) -> dict[str, tuple[str, int]]:
    """Who reports each base now, and the last position that is registered."""
    (group,) = fleet.status().values()
    reports = (each for each in group["reports"] if each["lease"] > 0)
    return {each["source"]: (each["member"], each["position"]) for each in reports}
