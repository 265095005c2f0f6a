"""Views on views through every event of the matrix, inline and on Spark."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.sql.construct_events import BATCHES, EMPTIED, FIRST
from tests.sql.random_case import ON_SPARK, judge_project
from tests.sql.relation_history import RelationHistory, empty_tables
from tests.sql.report_project import ReportProject
from tests.sql.spark_judge import SparkJudge

both_ways = pytest.mark.parametrize("settings", ["", ON_SPARK], ids=["inline", "spark"])


def judge_levels(
    levels: Mapping[str, str], settings: str, folder: Path, spark: SparkSession
) -> None:
    """Maintain these views; every state of each is what Spark says, and `verify` agrees."""
    history = RelationHistory(folder)
    project = ReportProject(folder, levels, spark, settings)
    for transaction in FIRST:
        history.apply_transaction(transaction)
    project.load_views()
    for batch in (*BATCHES, *EMPTIED):
        project.maintain_batch(history, [each for _, each in batch], [True] * len(batch))
    verdict = judge_project(project, history, SparkJudge(spark, empty_tables()), random.Random(1))
    assert verdict.exact == list(levels), verdict
    with project.open_project() as opened:
        assert all(each.ok for each in opened.verify())
