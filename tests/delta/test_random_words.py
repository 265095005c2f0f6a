"""Nested words against Spark: some hundred random expressions, the same ones every time."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import SparkSession

from tests.delta.random_words import TYPES, Grower, random_table
from tests.delta.word_judge import judge

BATCH = 48


@pytest.mark.parametrize("seed", range(8))
def test_random_expressions_have_sparks_values(spark: SparkSession, seed: int) -> None:
    rng = random.Random(seed)
    grower = Grower(rng)
    expressions = [grower.grow(TYPES[at % len(TYPES)], rng.choice([2, 3])) for at in range(BATCH)]
    judge(spark, random_table(rng, 40), expressions, errors=1)
