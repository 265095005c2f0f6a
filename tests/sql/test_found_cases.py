"""What random queries found wrong once, made small: independent of the grammar that wrote it."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.sql.random_case import ON_SPARK, RandomCase, cheap_session, run_case
from tests.sql.random_history import RANDOM_TABLES
from tests.sql.relation_history import RelationHistory, RowChange, empty_tables
from tests.sql.report_project import ReportProject
from tests.sql.spark_judge import SparkJudge

ORDERS = [
    RowChange(
        "shop.orders", number, (number, customer, kind, 0.5, "v", day, Decimal("-2.25")), True
    )
    for number, customer, kind, day in (
        (8, 2, 1, date(2024, 2, 29)),
        (5, 2, 1, date(2024, 2, 29)),
        (6, 2, 1, date(2024, 2, 29)),
        (3, 0, 2, date(2024, 1, 3)),
        (1, 1, 1, None),
        (4, 2, 1, date(2024, 2, 29)),
    )
]
TICKETS = [
    RowChange(
        "crm.tickets",
        number,
        (number, 2, 2, None, "u", date(2024, 1, 3), Decimal("1.500"), None),
        True,
    )
    for number in (2, 1, 3)
]
SAME_NAMES = RandomCase(
    seed=0,
    views={
        "v": "SELECT t7.day AS ticket_day, t8.day, t8.note, "
        "ntile(2) OVER (PARTITION BY t7.customer ORDER BY t7.day DESC, t7.kind) AS c5, "
        "rank() OVER (PARTITION BY t7.id ORDER BY t8.id DESC NULLS FIRST) AS c6 "
        "FROM crm.tickets AS t7 JOIN shop.orders AS t8 ON t7.kind <=> t8.customer"
    },
    batches=((tuple(ORDERS[:-1]), tuple(TICKETS)), (tuple(ORDERS[-1:]),)),
    looks=((True, True), (True,)),
)
"""Two columns of one name, which only a window reads, were listed in another order by Spark."""

COUNTED_VALUES = RandomCase(
    seed=0,
    views={
        "alone": "SELECT count(DISTINCT 2) AS n FROM shop.orders o WHERE o.kind > 0",
        "beside": "SELECT count(DISTINCT 2) AS n, count(*) AS m FROM shop.orders o",
        "filtered": "SELECT count(DISTINCT 'x') FILTER (WHERE o.kind = 2) AS n, sum(o.kind) AS k "
        "FROM shop.orders o HAVING count(*) > 1",
    },
    batches=(
        (tuple(ORDERS[:2]),),
        (tuple(ORDERS[2:]), tuple(RowChange("shop.orders", order.row, None) for order in ORDERS)),
    ),
    looks=((True,), (True, True)),
)
"""How many values a constant has: one, or none where no row is left."""


@pytest.mark.parametrize("settings", ["", ON_SPARK], ids=["inline", "spark"])
def test_values_of_a_constant_are_counted(spark: SparkSession, settings: str) -> None:
    """Seed 920115: a fold without any column could not be loaded."""
    cheap = cheap_session(spark)
    case = replace(COUNTED_VALUES, settings=settings)
    verdict = run_case(case, cheap, SparkJudge(cheap, empty_tables(RANDOM_TABLES)))
    assert verdict.exact == [*case.views], verdict


def test_columns_of_one_name_complete_an_order(spark: SparkSession) -> None:
    """Seed 800063."""
    cheap = cheap_session(spark)
    verdict = run_case(SAME_NAMES, cheap, SparkJudge(cheap, empty_tables(RANDOM_TABLES)))
    assert verdict.exact == ["v"], verdict


def test_a_view_that_another_load_lets_be_bound_is_loaded_too(
    spark: SparkSession, memory: Path
) -> None:
    """Seed 800047: `refresh()` returned while it was still to be loaded."""
    history = RelationHistory(memory, RANDOM_TABLES)
    history.apply_transaction(tuple(ORDERS))
    views = {f"plain_{n}": f"SELECT o.id, o.kind + {n} AS kind FROM shop.orders o" for n in "123"}
    # Which columns the first one has only Spark says, once it is loaded.
    views["spelled"] = "SELECT o.id, initcap(o.note) AS note FROM shop.orders o"
    views["counted"] = "SELECT s.note, count(*) AS n FROM spelled s GROUP BY s.note"
    views["of_these"] = "SELECT c.n FROM counted c WHERE c.n > 1"
    ReportProject(memory, views, spark)
    with viewkeeper.open(memory, spark) as project:
        assert project.refresh(strict=False).waiting == {}
        assert project.view("of_these").arrow().to_pylist() == [{"n": 6}]
