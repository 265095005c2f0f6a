"""Classes that are found once: PySpark finds the same ones, and its errors are what they were."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import AnalysisException, ArithmeticException
from pyspark.sql import SparkSession

from viewkeeper.engine.spark.known_classes import ERROR_TEST, NAMES, remember_classes


def test_what_is_remembered_is_what_java_finds(spark: SparkSession) -> None:
    remember_classes(spark)
    jvm: Any = spark._jvm
    kept = vars(jvm)
    for name in (*NAMES, ".".join(ERROR_TEST)):
        again = jvm.__getattr__(name)
        found = kept[name] if name in kept else kept["py4j"].reflection.TypeUtil
        assert again._fqn == found._fqn
    before = dict(kept)
    remember_classes(spark)
    assert all(vars(jvm)[name] is found for name, found in before.items())


def test_errors_have_their_own_classes(spark: SparkSession) -> None:
    remember_classes(spark)
    with pytest.raises(AnalysisException):
        spark.sql("SELECT nobody FROM range(1)")
    with pytest.raises(ArithmeticException):
        spark.sql("SELECT 1 / (id - id) FROM range(1)").collect()
