"""How the program speaks: colours on a terminal only, errors as primary line, detail, hint.

Results go to stdout, everything said about them to stderr, so that pipes get results alone.
Consoles are made when they are used, because a caller may have replaced the streams.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

WIDE = 240
_COMMAND = re.compile(r"`[^`\n]+`")
_UNBROKEN = "\x00"


def make_console(stderr: bool = False) -> Console:
    """A console on stdout or stderr; without a terminal it is wide and plain."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else WIDE
    return Console(file=stream, highlight=False, width=width, soft_wrap=False, emoji=False)


def make_grid(*columns: str) -> Table:
    """A plain table; a column whose name ends in > is flush right."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        name = column.rstrip(">")
        table.add_column(name, justify="right" if column != name else "left", overflow="fold")
    return table


def show_error(message: str, detail: str | None, hint: str | None) -> None:
    """An error in up to three parts; what follows a first line is indented below it."""
    _print_part("error", "31", message)
    if detail:
        _print_part("  detail", "2", detail)
    if hint:
        _print_part("  hint", "36", hint)


def show_causes(error: BaseException) -> None:
    """What an error came from, innermost last."""
    for text in cause_texts(error):
        _print_part("  caused by", "2", text)


def cause_texts(error: BaseException) -> Iterator[str]:
    """What an error came from, a line each, innermost last."""
    cause = error.__cause__ or error.__context__
    while cause is not None:
        text = " ".join(str(cause).split())
        yield f"{type(cause).__name__}: {text}" if text else f"{cause!r}"
        cause = cause.__cause__ or cause.__context__


def show_warning(message: str) -> None:
    _print_part("warning", "33", message)


def print_note(message: str) -> None:
    """Print a line about the progress on stderr."""
    _write_line(sys.stderr, message)


def print_line(line: str) -> None:
    """Print a line, or several, of a result on stdout."""
    _write_line(sys.stdout, line)


def wrap_text(text: str, width: int) -> str:
    """Lines of at most a width, broken at blanks and indented further than the line that they
    belong to; a command in backticks stays in one piece, so that it can be copied.

    >>> print(wrap_text("a long hint: `viewkeeper run --once` loads it", 30))
    a long hint:
        `viewkeeper run --once`
        loads it
    """
    lines = []
    for line in text.split("\n"):
        body = line.lstrip(" ")
        before = line[: len(line) - len(body)]
        whole = _COMMAND.sub(lambda match: match.group().replace(" ", _UNBROKEN), body)
        inner = before + " " * 4
        found = textwrap.wrap(
            whole,
            max(width, len(inner) + 20),
            initial_indent=before,
            subsequent_indent=inner,
            break_long_words=False,
            break_on_hyphens=False,
            replace_whitespace=False,
        )
        lines += [each.replace(_UNBROKEN, " ") for each in found] or [line]
    return "\n".join(lines)


def _print_part(label: str, colour: str, text: str) -> None:
    indent = " " * (len(label) - len(label.lstrip()) + 4)
    body = text.rstrip().replace("\n", f"\n{indent}")
    line = _fit_line(sys.stderr, f"{label}: {body}")
    if _has_colours(sys.stderr):
        line = line.replace(f"{label}:", f"\x1b[{colour}m{label}:\x1b[0m", 1)
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _has_colours(stream: TextIO) -> bool:
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def _write_line(stream: TextIO, line: str) -> None:
    stream.write(_fit_line(stream, line) + "\n")
    stream.flush()


def _fit_line(stream: TextIO, text: str) -> str:
    """The text as a terminal shows it best; what reads a pipe gets long lines as they are."""
    if not stream.isatty():
        return text
    columns = shutil.get_terminal_size().columns
    return "\n".join(
        wrap_text(line, columns) if len(line) > columns else line for line in text.split("\n")
    )
