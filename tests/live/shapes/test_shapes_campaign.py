"""The long version: every case in every way to follow a database, and every view verified.

`make faults` runs it. The short one (`test_shapes.py`) leaves out some cases in some databases, and
verifies few views.
"""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.live.shapes.case import DOWN, RUNNING
from tests.live.shapes.cases import CASES
from tests.live.shapes.page import VARIANTS
from tests.live.shapes.test_shapes import check, database_of
from tests.live.shapes.world import World


@pytest.mark.campaign
@pytest.mark.parametrize("name", VARIANTS)
def test_every_case_in_every_way(
    name: str,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    spark: SparkSession,
) -> None:
    database = database_of(name, request, tmp_path_factory)
    world = World(tmp_path_factory.mktemp("shapes"), database, CASES)
    try:
        lived = world.live(spark, [case.name for case in CASES])
    finally:
        database.drop()
    assert (lived.failures, lived.died, lived.stayed) == ([], [], [])
    assert not any(lived.verified.values()), lived.verified
    for case in CASES:
        for moment in (RUNNING, DOWN):
            check(lived, case, moment)
