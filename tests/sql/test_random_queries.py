"""Random queries over random histories: every state at every ts is what Spark says.

`VIEWKEEPER_FUZZ_QUERIES` sets how many, and `VIEWKEEPER_FUZZ_SEED` where the seeds begin; `make
fuzz` tries thousands. A failure prints the command that replays it.
"""

from __future__ import annotations

import os

import pytest
from pyspark.sql import SparkSession

from tests.sql.random_case import VIEWS, Verdict, make_case, run_case
from tests.sql.relation_history import empty_tables
from tests.sql.report_project import PARENT_REFUSED
from tests.sql.spark_judge import SparkJudge, group_by_reason

QUERIES = int(os.environ.get("VIEWKEEPER_FUZZ_QUERIES", "200"))
FIRST = int(os.environ.get("VIEWKEEPER_FUZZ_SEED", "1"))
SEEDS = range(FIRST, FIRST + -(-QUERIES // VIEWS))
REFUSED_MAX = 0.1


@pytest.fixture(scope="module")
def judge(spark: SparkSession) -> SparkJudge:
    return SparkJudge(spark, empty_tables())


@pytest.fixture(scope="module")
def verdicts() -> list[Verdict]:
    """Those of all seeds, for what is said of them together."""
    return []


@pytest.mark.parametrize("seed", SEEDS)
def test_every_state_is_what_spark_says(
    seed: int, spark: SparkSession, judge: SparkJudge, verdicts: list[Verdict]
) -> None:
    verdict = run_case(make_case(seed, VIEWS, judge), spark, judge)
    verdicts.append(verdict)
    assert not verdict.wrong, "\n".join(
        f"replay: python -m tests.sql.random_case {seed} --only {name}\n  {wrong}"
        for name, wrong in verdict.wrong.items()
    )


def test_few_are_refused(verdicts: list[Verdict]) -> None:
    """Of all that were tried just now; one that reads a refused view does not count again."""
    reasons = [r for verdict in verdicts for r in verdict.refused.values() if r != PARENT_REFUSED]
    exact = sum(len(verdict.exact) for verdict in verdicts)
    states = sum(verdict.states for verdict in verdicts)
    print(f"\n{exact} queries exact in {states} states, {len(reasons)} refused")
    for reason, count in group_by_reason(reasons).items():
        print(f"  {count} x {reason}")
    assert len(reasons) <= REFUSED_MAX * max(exact + len(reasons), 1), group_by_reason(reasons)
