"""One short run of the demo, on the tests' own Spark session, for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from viewkeeper.demo.demo_run import Result, run_demo
from viewkeeper.demo.demo_world import VIEW, Sizes, World
from viewkeeper.demo.display import Screen
from viewkeeper.demo.judge.evidence import Claim, Database
from viewkeeper.demo.shop_world import Shop
from viewkeeper.engine.project import open_project

SMALL = Sizes(customers=80, orders=300, items=900, products=40, imported=300)


@dataclass(frozen=True)
class Run:
    """A finished demo and everything that its judge was given."""

    result: Result
    evidence: dict[str, Database]
    claim: Claim
    feed: pa.Table


def run_in(world: World, spark: SparkSession, seconds: float) -> Iterator[Run]:
    screen = Screen(Console(stderr=True), quiet=True)
    result = run_demo(world, seconds, seed=7, screen=screen, spark=spark)
    with open_project(world.folder, spark) as project:
        # The frame that the demo read was of a project that is closed now.
        claim = replace(result.claim, feed=project.view(VIEW).changes(0))
        yield Run(result, world.evidence(), claim, claim.feed.toArrow())


@pytest.fixture(scope="package")
def run(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    yield from run_in(Shop(tmp_path_factory.mktemp("demo"), SMALL), spark, 3.0)
