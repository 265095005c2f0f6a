"""The run's Spark session for processes that a test starts.

A process that is killed at a step must be a process, but the JVM need not be its own: starting one
and warming it up costs more than everything else that such a process does. It is told where the
JVM of the tests listens, and works in it; what it leaves there when it dies is what a driver leaves
on a cluster.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PORT, SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"


def gateway_environment(spark: SparkSession) -> dict[str, str]:
    """The variables by which a child finds the JVM of a session."""
    parameters: Any = spark.sparkContext._gateway.gateway_parameters  # type: ignore[union-attr]  # a classic session has one
    return {PORT: str(parameters.port), SECRET: parameters.auth_token}


def borrow_session() -> SparkSession | None:
    """The session of whoever started this process; None if it was not lent one.

    Nobody may stop it here: it is the lender's.
    """
    if PORT not in os.environ:
        return None
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    gateway = launch_gateway()  # type: ignore[no-untyped-call]  # it has no types
    java = gateway.jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(
        gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
    )
    conf = SparkConf(_jconf=java.getConf())
    return SparkSession(SparkContext(conf=conf, gateway=gateway, jsc=java))
