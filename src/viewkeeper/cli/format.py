"""Values as text and as JSON, exactly.

JSON has no decimals, dates, bytes or infinities that every reader keeps exact, so these are texts:
a decimal as its digits ("12.50"), a date or timestamp in ISO 8601, bytes in hexadecimal, "NaN" and
"Infinity". Integers and finite floating-point numbers are numbers, NULL is null.

NULL can always be told from a text: in CSV it is an empty field while an empty text is quoted, as
PostgreSQL does it; in JSON it is null.
"""

from __future__ import annotations

import datetime
import decimal
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TextIO

from viewkeeper.cli.terminal import make_console

NULL = "NULL"


def json_value(value: object) -> object:
    """A value that the json module writes as this module's prose says.

    >>> plain(decimal.Decimal("12.50")), plain(b"\\x00\\xff"), plain(float("nan"))
    ('12.50', '00ff', 'NaN')
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else _infinite_text(value)
        case decimal.Decimal():
            return format(value, "f")
        case datetime.date() | datetime.time():
            return value.isoformat()
        case bytes() | bytearray() | memoryview():
            return bytes(value).hex()
        case Mapping():
            return {str(key): json_value(inner) for key, inner in value.items()}
        case list() | tuple():
            return [json_value(inner) for inner in value]
        case _:
            return str(value)


def _infinite_text(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def as_json(value: object, indent: int | None = None) -> str:
    """JSON text in which nothing was rounded."""
    return json.dumps(json_value(value), ensure_ascii=False, indent=indent, allow_nan=False)


def as_text(value: object) -> str:
    """A value as a reader of a table or of CSV expects it.

    >>> as_text(True), as_text(datetime.datetime(2024, 1, 2, 3, 4, 5)), as_text(None)
    ('true', '2024-01-02 03:04:05', 'NULL')
    """
    if value is None:
        return NULL
    if isinstance(value, datetime.datetime):
        return value.isoformat(sep=" ")
    found = json_value(value)
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)


def duration_text(seconds: float) -> str:
    """A time span in the unit that a reader would choose.

    >>> [duration(s) for s in (0.0004, 0.25, 12, 75, 7300, 200_000)]
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

    >>> amount(1, "row"), amount(12345, "row")
    ('1 row', '12,345 rows')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


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
