"""Java's classes that PySpark asks for again and again, found once for each JVM.

PySpark names classes by their last names, and the JVM looks for each in a dozen packages, every one
of them in hundreds of jars: a millisecond of computing for every text that is handed to Spark, and
twenty for every error. py4j asks only for what its view of the JVM does not have as an attribute,
so what was found becomes one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = (
    "PythonUtils",
    "PythonRDD",
    "PythonSQLUtils",
    "SimplePythonFunction",
    "functions",
    "org.apache.spark.sql.classic.SparkSession",
    "org.apache.spark.sql.catalyst.trees.PySparkCurrentOrigin",
)
"""As PySpark 4 writes them; one that a version does not ask for is there in vain."""
ERROR_TEST = ("py4j", "reflection", "TypeUtil")
"""Asked a dozen times to find out which of PySpark's errors an error of Java is."""


def remember_classes(session: SparkSession) -> None:
    """Have what PySpark looks for found already; nothing if it was."""
    jvm: Any = session._jvm
    if ERROR_TEST[0] in vars(jvm):
        return
    for name in NAMES:
        vars(jvm)[name] = getattr(jvm, name)
    within = jvm
    for name in ERROR_TEST:
        found = getattr(within, name)
        vars(within)[name] = found
        within = found
