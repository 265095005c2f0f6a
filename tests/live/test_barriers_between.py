"""Barriers at moments that nobody chooses: a source is away, or the table of another lookup goes.

However a batch, a crossing or an algorithm's run is interrupted, no view passes a TRUNCATE without
losing what it had of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.live.test_barriers import World, check, mariadb_world
from viewkeeper.engine.algorithms.asker import Asker
from viewkeeper.engine.capture.lookout import LocalLookout
from viewkeeper.errors import SourceAwayError
from viewkeeper.sources.mariadb import MariadbSource
from viewkeeper.testing.private_servers import PrivateMariadb


@pytest.fixture
def world(
    mariadb_server: PrivateMariadb, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[World]:
    name = f"between_{abs(hash(request.node.name)) % 10**9}"
    for made in mariadb_world(mariadb_server, tmp_path, name):
        made.shop("ALTER TABLE item ADD COLUMN n INT PRIMARY KEY AUTO_INCREMENT INVISIBLE")
        yield made


def before(
    monkeypatch: pytest.MonkeyPatch, owner: type, method: str, happens: Callable[[], None]
) -> None:
    """Make something happen before the next call of a method."""
    original, left = getattr(owner, method), [happens]

    def interfered(*arguments: Any) -> Any:
        if left:
            left.pop()()
        return original(*arguments)

    monkeypatch.setattr(owner, method, interfered)


def is_away() -> None:
    raise SourceAwayError("shop", "it does not answer")


@pytest.mark.parametrize("algorithm", ["batch_sweep", "sweep"])
@pytest.mark.parametrize("method", ["read_changes", "describe_table"])
def test_a_source_that_is_away_for_a_moment(
    world: World,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    algorithm: str,
    method: str,
) -> None:
    """The view stays before the barrier, and crosses it later."""
    with viewkeeper.open(world.folder, spark=spark) as project:
        project.settings = project.settings.with_algorithm(algorithm, "convergence")
        check(project, world)
        world.shop("TRUNCATE TABLE item")
        world.shop("INSERT INTO item (order_id, quantity) VALUES (1, 11)")
        before(monkeypatch, MariadbSource, method, is_away)
        project.refresh()
        check(project, world)
        (verdict,) = project.verify()
        assert verdict.ok, verdict.differences.to_pylist()


@pytest.mark.parametrize("algorithm", ["strobe", "c_t_strobe", "recompute", "nested_sweep"])
@pytest.mark.parametrize("table", ["item", "orders"])
def test_a_table_that_is_emptied_while_another_one_is_asked(
    world: World, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, algorithm: str, table: str
) -> None:
    """The answer's cut includes a TRUNCATE that concerns the view, and no lookup of it."""
    with viewkeeper.open(world.folder, spark=spark) as project:
        project.settings = project.settings.with_algorithm(algorithm, "convergence")
        check(project, world)
        world.crm("INSERT INTO customer VALUES (3, 'Cy')")
        world.shop("INSERT INTO orders VALUES (4, 3, 'd')")
        world.crm("UPDATE customer SET name = 'Di' WHERE id = 2")
        before(monkeypatch, Asker, "_read_answers", lambda: world.shop(f"TRUNCATE TABLE {table}"))
        check(project, world)


def test_what_lies_behind_a_cut_is_no_barrier_before_it(
    world: World, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something else is logged before the answer, and a TRUNCATE just after it."""
    world.shop("CREATE TABLE other (id INT PRIMARY KEY)")
    with viewkeeper.open(world.folder, spark=spark) as project:
        project.settings = project.settings.with_algorithm("strobe", "convergence")
        check(project, world)
        at = project.view("lines").arrow()
        world.crm("INSERT INTO customer VALUES (3, 'Cy')")
        world.shop("INSERT INTO orders VALUES (4, 3, 'd')")
        before(
            monkeypatch, Asker, "_read_answers", lambda: world.shop("INSERT INTO other VALUES (1)")
        )
        before(
            monkeypatch, LocalLookout, "entries_until", lambda: world.shop("TRUNCATE TABLE item")
        )
        check(project, world)
        assert at.num_rows
        assert not project.view("lines").arrow().num_rows
        world.shop("INSERT INTO item (order_id, quantity) VALUES (4, 44)")
        check(project, world)


@pytest.mark.parametrize("algorithm", ["strobe", "recompute"])
def test_more_is_committed_than_one_look_reports(
    world: World, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    """Everything that an answer's cut includes is delivered before it."""
    monkeypatch.setattr("viewkeeper.sources.mariadb.binlog.spooled_changes.LOOK_TRANSACTIONS", 2)
    monkeypatch.setattr("viewkeeper.engine.capture.lookout.LOOK_TRANSACTIONS", 2)
    with viewkeeper.open(world.folder, spark=spark) as project:
        project.settings = project.settings.with_algorithm(algorithm, "convergence")
        check(project, world)
        world.shop("INSERT INTO item (order_id, quantity) VALUES (1, 77)")
        world.crm("INSERT INTO customer VALUES (3, 'Cy')")
        for n in range(11, 20):
            world.shop(f"INSERT INTO orders VALUES ({n}, 1, 'n')")
            world.shop(f"INSERT INTO item (order_id, quantity) VALUES ({n}, {n})")
            world.shop(f"DELETE FROM item WHERE order_id = {n - 1}")
        check(project, world)
