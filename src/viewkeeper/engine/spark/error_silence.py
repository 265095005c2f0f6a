"""What PySpark does by itself with the text of an error, kept from happening to jobs of ours.

Spark's errors quote the values of rows. PySpark logs each one that knows its place in the SQL, with
Java's stack, to stderr; and it turns what looks like a Python traceback inside the text back into a
traceback, filling a list up to the line number that stands there. A row must not get into a log,
and a number in a row must not decide how much memory is taken. So both are left out for errors that
arise in a thread while it is in `silence_errors`. Other threads, and sessions that a program uses
besides, keep what PySpark does.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pyspark.errors import PySparkException

E = TypeVar("E", bound="PySparkException")

LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_silence = threading.local()


@contextmanager
def silence_errors() -> Iterator[None]:
    """Errors of Spark that arise inside are raised, and nothing else is done with them."""
    _install_filters()
    before = _is_silent()
    _silence.on = True
    try:
        yield
    finally:
        _silence.on = before


def _install_filters() -> None:
    """Put our two conditions into PySpark; once, however often this is called."""
    from pyspark.errors.exceptions import captured
    from pyspark.logger import PySparkLogger

    for name in LOGGERS:
        PySparkLogger.getLogger(name).addFilter(_is_logged)
    # As attributes of the module: it does not say that it lends the name.
    vars(captured)["recover_python_exception"] = _recover_traceback


def _is_silent() -> bool:
    return bool(getattr(_silence, "on", False))


def _is_logged(_record: logging.LogRecord) -> bool:
    return not _is_silent()


def _recover_traceback(error: E) -> E:
    from pyspark.errors.exceptions.base import recover_python_exception

    return error if _is_silent() else recover_python_exception(error)
