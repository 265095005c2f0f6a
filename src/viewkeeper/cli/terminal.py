"""How the program speaks: colours on a terminal only, errors as primary line, detail, hint.

Results go to stdout, everything said about them to stderr, so that pipes get results alone.
Consoles are made when they are used, because a caller may have replaced the streams.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

WIDE = 240


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


def show_warning(message: str) -> None:
    _print_part("warning", "33", message)


def print_note(message: str) -> None:
    """Print a line about the progress on stderr."""
    _write_line(sys.stderr, message)


def _print_part(label: str, colour: str, text: str) -> None:
    indent = " " * (len(label) - len(label.lstrip()) + 4)
    body = text.rstrip().replace("\n", f"\n{indent}")
    word = f"\x1b[{colour}m{label}:\x1b[0m" if _has_colours(sys.stderr) else f"{label}:"
    _write_line(sys.stderr, f"{word} {body}")


def _has_colours(stream: TextIO) -> bool:
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def _write_line(stream: TextIO, line: str) -> None:
    stream.write(line + "\n")
    stream.flush()
