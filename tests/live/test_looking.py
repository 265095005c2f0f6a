"""Looks that come at the wrong moment: too little time, a log that is lost, a source that is back.

A refresh ends when everything is seen, a lost log is found before anything new is captured in it,
and a view waits for whatever it was not told yet.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.live.test_barriers import SQL, World, check, mariadb_world
from viewkeeper.engine.maintainer import Maintainer
from viewkeeper.engine.report import SilentObserver
from viewkeeper.errors import GapError
from viewkeeper.sources.mariadb import MariadbSource
from viewkeeper.testing.private_servers import PrivateMariadb
from viewkeeper.updates.source_protocol import Boundary


@pytest.fixture
def world(
    mariadb_server: PrivateMariadb, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[World]:
    name = f"looking_{abs(hash(request.node.name)) % 10**9}"
    for made in mariadb_world(mariadb_server, tmp_path, name):
        made.shop("ALTER TABLE item ADD COLUMN n INT PRIMARY KEY AUTO_INCREMENT INVISIBLE")
        yield made


def test_a_look_that_ran_out_of_time_is_not_the_last(
    world: World, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("viewkeeper.engine.capture.lookout.LOOK_SECONDS", 0.5)
    with viewkeeper.open(world.folder, spark=spark) as project:
        check(project, world)
        world.shop("INSERT INTO item VALUES (1, 11)")
        look, short = MariadbSource.look_for_transactions, [True] * 3

        def limited(source: MariadbSource, after: int) -> tuple[Boundary, ...]:
            if short:
                short.pop()
                time.sleep(0.6)
                return ()
            return look(source, after)

        monkeypatch.setattr(MariadbSource, "look_for_transactions", limited)
        check(project, world)


def test_a_lost_log_is_found_before_more_is_captured_in_it(
    world: World, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server was replaced after the last look and before a new view is loaded."""
    lost, followed = [], []
    begin, look, follow = (
        Maintainer._begin_loads,
        MariadbSource.look_for_transactions,
        MariadbSource.follow_tables,
    )

    def replaced(maintainer: Maintainer) -> None:
        lost.append(True)
        begin(maintainer)

    def looked(source: MariadbSource, after: int) -> tuple[Boundary, ...]:
        if lost:
            raise GapError("shop", "its binlog was reset")
        return look(source, after)

    def captured(source: MariadbSource, tables: Mapping[str, Sequence[str]]) -> int:
        followed.extend(lost)
        return follow(source, tables)

    with viewkeeper.open(world.folder, spark=spark) as project:
        check(project, world)
    (world.folder / "views" / "more.sql").write_text(SQL.replace("VIEW lines", "VIEW more"))
    monkeypatch.setattr(Maintainer, "_begin_loads", replaced)
    monkeypatch.setattr(MariadbSource, "look_for_transactions", looked)
    monkeypatch.setattr(MariadbSource, "follow_tables", captured)
    with viewkeeper.open(world.folder, spark=spark) as project:
        report = project.refresh(strict=False)
        assert report.waiting.keys() == {"lines", "more"}
        assert "its binlog was reset" in report.waiting["lines"]
        assert not followed


def test_a_view_waits_until_its_keys_are_known(world: World, spark: SparkSession) -> None:
    """Its source is away when the view is bound again, and back a moment later."""
    crm, away = world.folder / "crm.db", world.folder / "away.db"
    with viewkeeper.open(world.folder, spark=spark) as project:
        project.settings = project.settings.with_algorithm("strobe", "convergence")
        check(project, world)
        world.shop("INSERT INTO item VALUES (1, 11)")
        crm.rename(away)
        with project.open_maintainer("run", SilentObserver()) as maintainer:
            maintainer.start_run()
            maintainer.see_commits()
            away.rename(crm)
            time.sleep(1.1)
            maintainer.maintain_views()
        check(project, world)
