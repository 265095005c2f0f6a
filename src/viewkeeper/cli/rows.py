"""Rows on their way out: as a table, as CSV or as JSON, the latter two one row at a time.

NULL can always be told from a text: in CSV it is an empty field while an empty text is quoted, as
PostgreSQL does it; in JSON it is null.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TextIO

from viewkeeper.cli.speech import console
from viewkeeper.cli.values import as_json, as_text

Rows = Iterable[tuple[object, ...]]

_SPECIAL = re.compile(r'[",\r\n]|^\s|\s$|^$')


def write_table(out: TextIO, names: Sequence[str], rows: Rows) -> None:
    """A table as wide as its values; on a terminal NULL is dimmed."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in names:
        table.add_column(Text(name), overflow="fold")
    for row in rows:
        table.add_row(*(Text(as_text(v), style="dim" if v is None else "") for v in row))
    console().print(table)


def write_csv(out: TextIO, names: Sequence[str], rows: Rows) -> None:
    """CSV with a header, fields quoted where they must be."""
    out.write(",".join(csv_field(name) for name in names) + "\n")
    for row in rows:
        out.write(",".join(csv_field(value) for value in row) + "\n")


def write_json(out: TextIO, names: Sequence[str], rows: Rows) -> None:
    """One JSON list, an object per line."""
    out.write("[")
    for number, row in enumerate(rows):
        line = as_json(dict(zip(names, row, strict=True)))
        out.write(f"{',' if number else ''}\n{line}")
    out.write("\n]\n")


def csv_field(value: object) -> str:
    """A field of a CSV line.

    >>> [csv_field(v) for v in (None, "", "a,b", 1.5)]
    ['', '""', '"a,b"', '1.5']
    """
    if value is None:
        return ""
    text = as_text(value)
    return '"' + text.replace('"', '""') + '"' if _SPECIAL.search(text) else text


WRITERS: dict[str, Callable[[TextIO, Sequence[str], Rows], None]] = {
    "table": write_table,
    "csv": write_csv,
    "json": write_json,
}
"""How rows are written, by the word for `--format`."""
