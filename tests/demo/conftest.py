"""One short run of the demo, on the tests' own Spark session, for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from viewkeeper.demo.demo_run import DemoResult, run_demo
from viewkeeper.demo.demo_world import VIEW, DemoSizes, DemoWorld
from viewkeeper.demo.display import DemoScreen
from viewkeeper.demo.judge.evidence import JudgedClaim, JudgedDatabase
from viewkeeper.demo.shop_world import ShopWorld
from viewkeeper.engine.project import open_project

SMALL = DemoSizes(customers=80, orders=300, items=900, products=40, imported=300)


@dataclass(frozen=True)
class Run:
    """A finished demo and everything that its judge was given."""

    result: DemoResult
    evidence: dict[str, JudgedDatabase]
    claim: JudgedClaim
    feed: pa.Table


def run_in(world: DemoWorld, spark: SparkSession, seconds: float) -> Iterator[Run]:
    screen = DemoScreen(Console(stderr=True), quiet=True)
    result = run_demo(world, seconds, seed=7, screen=screen, spark=spark)
    with open_project(world.folder, spark) as project:
        # The frame that the demo read was of a project that is closed now.
        claim = replace(result.claim, feed=project.view(VIEW).changes(0))
        yield Run(result, world.judged_databases(), claim, claim.feed.toArrow())


@pytest.fixture(scope="package")
def run(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    yield from run_in(ShopWorld(tmp_path_factory.mktemp("demo"), SMALL), spark, 3.0)
