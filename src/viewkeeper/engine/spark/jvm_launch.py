"""The JVM of a session that we start: flags for a quick start, and a quiet one.

The JVM's second compiler and its parallel collector pay off in long jobs only, and a start pays for
them. Local sessions do without both (`spark.start: fast`), and read classes from an archive where
there is one (`class_archive`); with `spark.start: plain` the JVM is left as it is. Options that the
project gives replace ours.

Java says on stderr that Spark uses a module that it calls incubating, before any setting could keep
it from that. So the JVM's stderr is a pipe of ours, from which everything else is passed on.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAST = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-XX:TieredStopAtLevel=1",
    "-XX:ReservedCodeCacheSize=240m",
    "-XX:+UseSerialGC",
)
"""The first compiler alone, with room for all that it compiles, and the collector that starts no
threads; a Java that knows none of these is as good. By itself Java gives a single compiler a fifth
of that room, which Spark fills in minutes; from then on code is thrown away and compiled again."""
NOISE = (b"WARNING: Using incubator modules: jdk.incubator.vector",)


def launch_jvm(settings: Mapping[str, str]) -> None:
    """Start the JVM that the next session of this process uses; nothing if there is one."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return
    reading, writing = os.pipe()
    threading.Thread(target=pass_on, args=(reading, 2), name="spark-stderr", daemon=True).start()
    try:
        conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
        gateway = launch_gateway(conf, {"stderr": writing})  # type: ignore[no-untyped-call]  # it has no types
    finally:
        os.close(writing)
    SparkContext(conf=conf, gateway=gateway)


def has_java_ended(session: SparkSession) -> bool:
    """Whether the JVM of a session that we started is gone: killed, or out of memory."""
    gateway: Any = session.sparkContext._gateway
    return gateway.proc.poll() is not None


def pass_on(reading: int, target: int) -> None:
    """Copy lines from one file descriptor to another until the first ends, but for the noise."""
    with open(reading, "rb") as lines:
        for line in lines:
            if line.rstrip() not in NOISE:
                os.write(target, line)
