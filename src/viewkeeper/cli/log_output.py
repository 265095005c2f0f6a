"""Where the records of `viewkeeper run` go, and how they are written: text or JSON, one per line.

Without a terminal they are lines on stderr. On a terminal the live display has the screen, and they
are in `run.log` of the warehouse, together with whatever Java writes to stderr. That file is kept
small: at ten megabytes it becomes `run.log.1`, and three of those are kept.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path

from viewkeeper.cli.format import as_json
from viewkeeper.cli.terminal import cause_texts, print_note
from viewkeeper.engine.event_log import LOGGER
from viewkeeper.engine.report import Observer
from viewkeeper.errors import ViewkeeperError

LEVELS: Mapping[str, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
FILE_BYTES = 10 << 20
FILES = 3


class TextFormatter(logging.Formatter):
    """A line for people: the time, the level, the event's own words."""

    def format(self, record: logging.LogRecord) -> str:
        text = " ".join(record.getMessage().split())
        return f"{time_text(record)} {record.levelname.lower():<7} {text}"


class JsonFormatter(logging.Formatter):
    """A line for programs: one object with time, level, event, message and the event's facts."""

    def format(self, record: logging.LogRecord) -> str:
        body = {
            "time": time_text(record),
            "level": record.levelname.lower(),
            "event": getattr(record, "event", "note"),
            "message": record.getMessage(),
        }
        return as_json({**body, **getattr(record, "facts", {})})


def time_text(record: logging.LogRecord) -> str:
    """When a record was made, in UTC."""
    at = datetime.fromtimestamp(record.created, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class NoteHandler(logging.Handler):
    """Passes records to a function that shows a line."""

    def __init__(self, say: Callable[[str], None], without: tuple[str, ...] = ()) -> None:
        """`without` are events that are shown otherwise."""
        super().__init__()
        self._say = say
        self._without = without

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "event", "") not in self._without:
            self._say(self.format(record))


class RunLogHandler(RotatingFileHandler):
    """The file `run.log`, which is also the process's stderr while this handler is open."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        super().__init__(path, maxBytes=FILE_BYTES, backupCount=FILES, encoding="utf-8")
        self._take_stderr()

    def _open(self) -> TextIOWrapper:
        # Nobody but the user may read what is beside the rows.
        file = open(self.baseFilename, "a", encoding="utf-8", opener=_open_private)  # noqa: SIM115
        assert isinstance(file, TextIOWrapper)
        return file

    def doRollover(self) -> None:  # noqa: N802 - the name that logging gives it
        super().doRollover()
        self._take_stderr()

    def _take_stderr(self) -> None:
        assert self.stream is not None, "it is opened at once, and again after each rollover"
        os.dup2(self.stream.fileno(), 2)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


@contextmanager
def writing_log(level: str, form: str, *handlers: logging.Handler) -> Iterator[None]:
    """Let the records of our logger go to these handlers and no others, from a level on; to those
    that have no way of writing of their own, in a form."""
    logger = logging.getLogger(LOGGER)
    before, others = (logger.level, logger.propagate), [*logger.handlers]
    for handler in others:
        logger.removeHandler(handler)
    for handler in handlers:
        if handler.formatter is None:
            handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
        logger.addHandler(handler)
    logger.setLevel(LEVELS[level])
    logger.propagate = False
    try:
        yield
    finally:
        logger.setLevel(before[0])
        logger.propagate = before[1]
        for handler in handlers:
            logger.removeHandler(handler)
            handler.close()
        for handler in others:
            logger.addHandler(handler)


def stderr_handler() -> logging.Handler:
    """A handler that writes lines to stderr, whatever that is at the time of each."""
    return NoteHandler(print_note)


def display_handler(say: Callable[[str], None]) -> logging.Handler:
    """A handler of a live display, which shows batches and progress itself."""
    handler = NoteHandler(say, without=("batch", "batches", "load_progress"))
    handler.setLevel(logging.INFO)
    handler.setFormatter(TextFormatter())
    return handler


class TroubleDetails(Observer):
    """Says what troubles came from, for who wants to see more."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say

    def on_trouble(self, error: ViewkeeperError) -> None:
        trace = getattr(error, "traceback", None)
        texts = [f"  caused by: {text}" for text in cause_texts(error)]
        for text in texts if trace is None else [str(trace).rstrip()]:
            self._say(text)


@contextmanager
def keeping_stderr() -> Iterator[int]:
    """A descriptor of what stderr is, which it is again at the end."""
    sys.stderr.flush()
    terminal = os.dup(2)
    try:
        yield terminal
    finally:
        sys.stderr.flush()
        os.dup2(terminal, 2)
        os.close(terminal)
