"""Members that come and go while all others run: groups change, and nobody loses his place."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import SparkSession

from tests.live.fleet.bases import Writers
from tests.live.fleet.conftest import MakeFleet
from tests.live.fleet.fleet import Fleet
from tests.live.fleet.judge import finish
from tests.live.fleet.shapes import VIRTUAL


def groups(fleet: Fleet) -> set[frozenset[str]]:
    return {frozenset(m["name"] for m in each["members"]) for each in fleet.status().values()}


def test_a_child_makes_two_groups_one_and_leaves_again(
    make_fleet: MakeFleet, spark: SparkSession
) -> None:
    """p is alone, and a virtual base; q and r each alone, until s reads both."""
    *first, last = VIRTUAL
    fleet = make_fleet(*first, a="postgres", b="sqlite")
    fleet.load(spark)
    apart = {frozenset("p"), frozenset("q"), frozenset("r")}
    assert groups(fleet) == apart
    fleet.start()
    with Writers(fleet.bases.values(), seed=4):
        fleet.wait_states(states=3)
        fleet.add(last)
        fleet.load(spark, "s")
        assert groups(fleet) == {frozenset("p"), frozenset("qrs")}
        fleet.start("s")
        fleet.wait_states(states=3)
        fleet.stop("s")
        fleet.tell("registry", "leave", fleet.registry, "s", "--yes")
        assert groups(fleet) == apart
        fleet.wait_states("p", "q", "r", states=3)
        fleet.start("s")
        fleet.wait_states(states=3)
        add_a_view(fleet, spark)
        fleet.wait_states(states=3)
    found = finish(fleet)
    assert groups(fleet) == {frozenset("p"), frozenset("qrs")}
    assert found.groups >= 2
    assert found.agreements > 20


def add_a_view(fleet: Fleet, spark: SparkSession) -> None:
    """A member gets another view, which shows a base that it did not read before."""
    plan = fleet.members["q"]
    more = "SELECT t.id AS tid, t.v, c.n AS a_n FROM a.part t JOIN a.clock c ON t.one = c.one"
    fleet.stop("q")
    fleet.add(replace(plan, views={**plan.views, "more": more}))
    fleet.load(spark, "q")
    fleet.start("q")
