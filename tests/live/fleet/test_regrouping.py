"""Members that come and go while all others run: groups change, and nobody loses his place."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from tests.live.fleet.bases import Writers
from tests.live.fleet.conftest import MakeFleet
from tests.live.fleet.fleet import Fleet
from tests.live.fleet.judge import finish
from tests.live.fleet.shapes import VIRTUAL

APART = {frozenset("p"), frozenset("q"), frozenset("r")}
TOGETHER = {frozenset("p"), frozenset("qrs")}


def groups(fleet: Fleet) -> set[frozenset[str]]:
    return {frozenset(m["name"] for m in each["members"]) for each in fleet.status().values()}


def together(make_fleet: MakeFleet, spark: SparkSession) -> Fleet:
    """p is alone, and a virtual base; q and r each alone, until s reads both while they run."""
    *first, last = VIRTUAL
    fleet = make_fleet(*first, a="postgres", b="sqlite")
    fleet.load(spark)
    assert groups(fleet) == APART
    fleet.start()
    with Writers(fleet.bases.values(), seed=4):
        fleet.wait_states(states=3)
        fleet.add(last)
        fleet.load(spark, "s")
        assert groups(fleet) == TOGETHER
        fleet.start("s")
        fleet.wait_states(states=3)
    return fleet


@pytest.mark.campaign
def test_a_child_makes_two_groups_one_and_a_view_more_makes_all_one(
    make_fleet: MakeFleet, spark: SparkSession
) -> None:
    fleet = together(make_fleet, spark)
    with Writers(fleet.bases.values(), seed=5):
        add_a_view(fleet, spark)
        fleet.wait_states(states=3)
    found = finish(fleet)
    assert groups(fleet) == {frozenset("pqrs")}
    assert found.groups >= 2
    assert found.agreements > 20


@pytest.mark.campaign
def test_a_child_leaves_and_comes_back(make_fleet: MakeFleet, spark: SparkSession) -> None:
    """Meanwhile its parents go on, each for itself."""
    fleet = together(make_fleet, spark)
    with Writers(fleet.bases.values(), seed=6):
        fleet.stop("s")
        fleet.tell("registry", "leave", fleet.registry, "s", "--yes")
        assert groups(fleet) == APART
        fleet.wait_states("p", "q", "r", states=3)
        fleet.start("s")
        fleet.wait_states(states=3)
    found = finish(fleet)
    assert groups(fleet) == TOGETHER
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
