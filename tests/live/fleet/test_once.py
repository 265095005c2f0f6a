"""`run --once` of all members in turn, and different tables of one database."""

from __future__ import annotations

import random
from contextlib import closing
from functools import partial

import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.live.fleet.bases import Writers
from tests.live.fleet.conftest import MakeFleet
from tests.live.fleet.fleet import Fleet
from tests.live.fleet.judge import finish, judge, late
from tests.live.fleet.shapes import DIAMOND, TABLES
from viewkeeper.engine import loop
from viewkeeper.engine.report import Report
from viewkeeper.warehouse.rows import view_state


def once(fleet: Fleet, spark: SparkSession, name: str) -> Report:
    with viewkeeper.open(fleet.folder / name, spark=spark) as project:
        return project.refresh(strict=False)


def write(fleet: Fleet, rng: random.Random) -> None:
    for base in fleet.bases.values():
        with closing(base.connect()) as connection:
            for _ in range(5):
                base.write(connection, rng, ("item", "part"))


def test_all_members_once_in_turn(
    make_fleet: MakeFleet, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet, rng = make_fleet(*DIAMOND, a="sqlite", b="sqlite"), random.Random(5)
    fleet.enrol()
    for _ in range(3):
        for name in ("v1", "v2", "v0"):
            report = once(fleet, spark, name)
            assert not report.waiting, (name, report.waiting)
        assert not late(fleet)
        write(fleet, rng)
    once(fleet, spark, "v1")
    monkeypatch.setattr(loop, "OTHERS_SECONDS", 1.0)
    report = once(fleet, spark, "v0")
    assert 'source "v2" has not come to' in report.waiting["z"]
    once(fleet, spark, "v2")
    assert not once(fleet, spark, "v0").waiting
    assert judge(fleet).agreements > 10


def test_no_member_waits_for_changes_of_another_ones_table(
    make_fleet: MakeFleet, spark: SparkSession
) -> None:
    """The reporter follows the tables of both, whichever of the two it is."""
    fleet = make_fleet(*TABLES, a="postgres", b="sqlite")
    fleet.enrol()
    fleet.load(spark)
    fleet.start()
    with Writers(fleet.bases.values(), seed=6):
        fleet.wait_states(states=3)
    assert finish(fleet).agreements > 10
    fleet.start()
    # Beyond what is judged: transactions that only one of them sees anything of.
    with closing(fleet.bases["a"].connect()) as connection:
        for table, member in (("item", "items"), ("part", "parts")):
            connection.execute(f"UPDATE {table} SET v = 77777 WHERE id = 0")
            fleet.wait(f"{member} to show it", partial(shows, fleet, member, 77777))
    fleet.stop()


def shows(fleet: Fleet, member: str, value: int) -> bool:
    rows = view_state.read_state(fleet.warehouse(member), fleet.head(member).views["w"])
    return value in rows["tv"].to_pylist()
