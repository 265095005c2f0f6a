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
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pyspark.errors import PySparkException

E = TypeVar("E", bound="PySparkException")

LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_silence = ContextVar("silence", default=False)
"""Every thread begins with the default."""


@contextmanager
def silence_errors() -> Iterator[None]:
    """Errors of Spark that arise inside are raised, and nothing else is done with them."""
    _install_filters()
    before = _silence.set(True)
    try:
        yield
    finally:
        _silence.reset(before)


def _install_filters() -> None:
    """Put our two conditions into PySpark; once, however often this is called."""
    from pyspark.errors.exceptions import captured
    from pyspark.logger import PySparkLogger

    for name in LOGGERS:
        PySparkLogger.getLogger(name).addFilter(_is_logged)
    # As attributes of the module: it does not say that it lends the name.
    vars(captured)["recover_python_exception"] = _recover_traceback


def _is_logged(_record: logging.LogRecord) -> bool:
    return not _silence.get()


def _recover_traceback(error: E) -> E:
    from pyspark.errors.exceptions.base import recover_python_exception

    return error if _silence.get() else recover_python_exception(error)
