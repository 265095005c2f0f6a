"""Values, spans and amounts as text, and rows as a table, CSV or JSON, exactly.

NULL can always be told from a text: in CSV it is an empty field while an empty text is quoted, as
PostgreSQL does it; in JSON it is null (`viewkeeper.engine.query.exact_values`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TextIO

from viewkeeper.cli.terminal import make_console
from viewkeeper.engine.query.exact_values import as_json as as_json
from viewkeeper.engine.query.exact_values import as_text as as_text


def duration_text(seconds: float) -> str:
    """A time span in the unit that a reader would choose.

    >>> [duration_text(s) for s in (0.0004, 0.25, 12, 75, 7300, 200_000)]
    ['0 ms', '250 ms', '12.0 s', '1m 15s', '2h 1m', '2d 7h']
    """
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    for size, unit, smaller, word in ((86400, "d", 3600, "h"), (3600, "h", 60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit} {int(seconds % size // smaller)}{word}"
    return f"{int(seconds // 60)}m {int(seconds % 60)}s"


def amount_text(number: int, one: str, many: str | None = None) -> str:
    """A number with its noun.

    >>> amount_text(1, "row"), amount_text(12345, "row")
    ('1 row', '12,345 rows')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def kept_text(amount: int, unit: str) -> str:
    """How much of its log a source keeps.

    >>> kept_text(5_000_000, "bytes"), kept_text(1, "changes"), kept_text(0, "states")
    ('4.8 MB', '1 change', '0 states')
    """
    if unit == "bytes":
        return f"{amount / (1 << 20):,.1f} MB"
    return amount_text(amount, unit.removesuffix("s"))


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
    make_console().print(table)


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
