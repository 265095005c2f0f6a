"""Whether the workers of a Spark session can run our tasks: the same Python, with our package.

A session that we start has workers of our own Python. One that is given to us has those that its
maker chose, often without knowing: `PYSPARK_PYTHON` was not set, so they are the first Python 3 of
the path, another version perhaps, or one without our package. That would be found by the first
load, in the middle of a stack trace of Java. So one tiny job asks them when a project is opened
with the session. What they are cannot change while their context lives; it is asked for once.
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from typing import TYPE_CHECKING

from viewkeeper.errors import SparkUnavailableError

if TYPE_CHECKING:
    from pyspark import SparkContext

_MISSING = re.compile(r"(?:ModuleNotFoundError|ImportError): ([^\n]*)")
_MISMATCH = "PYTHON_VERSION_MISMATCH"


def require_able_workers(context: SparkContext) -> None:
    """Refuse a context whose workers cannot run our tasks."""
    error = find_worker_error(context)
    if error is not None:
        raise error


@lru_cache(maxsize=2)
def find_worker_error(context: SparkContext) -> SparkUnavailableError | None:
    """What keeps the workers of a context from running our tasks; None if nothing does."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        context.parallelize([0], 1).map(import_task_code).collect()
    except (Py4JError, PySparkException) as error:
        return explain_worker_failure(str(error), worker_python(context))
    return None


def import_task_code(_: int) -> str:
    """What a worker does to show that it can run tasks; the version of its Python."""
    import pyarrow as pa

    assert pa.__version__, "this module is ours, and Arrow is what tasks write"
    return ".".join(map(str, sys.version_info[:2]))


def worker_python(context: SparkContext) -> str:
    """The Python that a context starts for its workers."""
    return str(context.pythonExec)


def explain_worker_failure(text: str, python: str) -> SparkUnavailableError:
    """The error for what Spark says of a worker that could not run our code.

    >>> text = "ModuleNotFoundError: No module named 'viewkeeper'"
    >>> print(explain_worker_failure(text, "python3").message)
    the workers of the given Spark session cannot import viewkeeper
    """
    ours = ".".join(map(str, sys.version_info[:2]))
    same = (
        f"set PYSPARK_PYTHON={sys.executable} before the session is made "
        f"(or spark.pyspark.python), or give no session"
    )
    if _MISMATCH in text:
        return SparkUnavailableError(
            "the workers of the given Spark session run another Python than this program",
            detail=f"this program runs {ours}; the workers are started by `{python}`: "
            + _line_with(text, _MISMATCH),
            hint=same,
        )
    if missing := _MISSING.findall(text):
        what = "viewkeeper" if "'viewkeeper'" in missing[-1] else "what viewkeeper needs"
        return SparkUnavailableError(
            f"the workers of the given Spark session cannot import {what}",
            detail=f"they are started by `{python}`: {missing[-1]}",
            hint=f"install it there: `{python} -m pip install viewkeeper`; or {same}",
        )
    return SparkUnavailableError(
        "the workers of the given Spark session cannot run Python tasks",
        detail=f"they are started by `{python}`: {_line_with(text, 'Exception')}",
        hint=same,
    )


def _line_with(text: str, word: str) -> str:
    """The first line of a text that has a word in it, shortened."""
    lines = [" ".join(line.split()) for line in text.splitlines() if word in line]
    return (lines[0] if lines else " ".join(text.split()))[:500]
