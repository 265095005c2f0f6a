"""The JVM of a session that we start: flags for a quick start, and a quiet one.

The JVM's second compiler and its parallel collector pay off in long jobs only, and a start pays for
them. Local sessions do without both (`spark.start: fast`), and read classes from an archive where
there is one (`class_archive`); with `spark.start: plain` the JVM is left as it is. Options that the
project gives replace ours.

Every user of a machine can read the arguments of its processes. So settings that hold a secret
reach the JVM by PySpark's own connection to it, once it runs, and not by its command line.

Java says on stderr that Spark uses a module that it calls incubating, before any setting could keep
it from that. So the JVM's stderr is a pipe of ours, from which everything else is passed on; its
last lines are part of the error if the start fails. A machine that has no memory or no process left
for a moment is given some more: the JVM is started again, a few times.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from viewkeeper.errors import SparkUnavailableError

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
SECRET = re.compile("(?i)secret|password|token|access[.]?key")
"""What the names of settings that hold a secret have in them; the words are Spark's own."""

LINES_KEPT = 20
WORDS_SECONDS = 2.0
"""So long the last words of a JVM that has ended are waited for."""

PAUSES = (2.0, 8.0)
"""Before each new try of a start that the machine had no room for."""

NO_ROOM = re.compile(
    "(?i)unable to create (new )?native thread|insufficient memory|cannot allocate memory"
    "|resource temporarily unavailable"
)


def launch_jvm(settings: Mapping[str, str]) -> None:
    """Start the JVM that the next session of this process uses; nothing if there is one."""
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return
    whole = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    public = {key: value for key, value in settings.items() if not SECRET.search(key)}
    conf = SparkConf(loadDefaults=False).setAll(list(public.items()))
    for pause in (*PAUSES, None):
        words = LastWords()
        try:
            try:
                gateway = launch_gateway(conf, {"stderr": words.writing})  # type: ignore[no-untyped-call]  # it has no types
            finally:
                os.close(words.writing)
            SparkContext(conf=whole, gateway=gateway)
        except (RuntimeError, OSError, Py4JError) as error:
            # PySpark says that the JVM has ended; why, it has said itself.
            said = words.hear_out()
            # One that ended without a word was killed, most often for its memory.
            is_passing = NO_ROOM.search(f"{error} {said}") or (
                isinstance(error, RuntimeError) and not said
            )
            if pause is None or SparkContext._gateway is not None or not is_passing:
                raise start_error(error, said or "nothing") from error
            time.sleep(pause)
        else:
            return


class LastWords:
    """What a JVM writes to a pipe: passed on to our stderr, and the last lines kept."""

    def __init__(self) -> None:
        reading, self.writing = os.pipe()
        self._lines: deque[bytes] = deque(maxlen=LINES_KEPT)
        self._thread = threading.Thread(
            target=pass_on, args=(reading, 2, self._lines), name="spark-stderr", daemon=True
        )
        self._thread.start()

    def hear_out(self) -> str:
        """The last lines; of a JVM that has ended, all of them."""
        self._thread.join(WORDS_SECONDS)
        return b"".join(self._lines.copy()).decode(errors="replace").strip()


def start_error(error: Exception, words: str | None = None) -> SparkUnavailableError:
    """The error for a start that failed, with the JVM's own last words.

    >>> error = RuntimeError("Java gateway process exited before sending its port number.")
    >>> print(start_error(error, "Error: Could not create the Java Virtual Machine.").detail)
    Java gateway process exited before sending its port number.
    Java said: Error: Could not create the Java Virtual Machine.
    """
    lines = f"{error}\nJava said: {words}".splitlines() if words else str(error).splitlines()
    # Of Java's exceptions, the words without the stack.
    told = [line for line in lines if not line.startswith(("\tat ", "\t... "))]
    return SparkUnavailableError(
        "Spark could not be started",
        detail="\n".join(told),
        hint="check `java -version` (17 or newer) and the project's `spark:` settings; a machine "
        "without free memory needs `spark: {memory: 1g}`",
    )


def has_java_ended(session: SparkSession) -> bool:
    """Whether the JVM of a session that we started is gone: killed, or out of memory."""
    gateway: Any = session.sparkContext._gateway
    return gateway.proc.poll() is not None


def pass_on(reading: int, target: int, said: deque[bytes]) -> None:
    """Copy lines from one file descriptor to another until the first ends, but for the noise, and
    keep the last ones."""
    with open(reading, "rb") as lines:
        for line in lines:
            if line.rstrip() not in NOISE:
                said.append(line)
                os.write(target, line)
