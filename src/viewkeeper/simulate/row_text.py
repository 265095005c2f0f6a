"""Rows as text, the way the papers write them: `(1,2,'ada',-)`, several times as `(5,6)[2]`.

Integers are bare, text is in single quotes (doubled inside), NULL is a dash. A bag is its rows
with blanks between them, in order; `empty` if there are none. What is written is read back.

>>> read_bag("(1,'it''s',-) (5,6,0)[2]")
{(1, "it's", None): 1, (5, 6, 0): 2}
>>> write_bag({(5, 6): 2, (1, None): 1, (1, 3): -1})
'(1,3)[-1] (1,-) (5,6)[2]'
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from viewkeeper.check.history.recorded_history import Row

EMPTY = "empty"

_VALUE = re.compile(r"\s*(?:'((?:[^']|'')*)'|(-?\d+)|(-))\s*")
_COUNT = re.compile(r"\[(-?\d+)\]")


def write_row(row: Row) -> str:
    """A row as text."""
    return "(" + ",".join(map(_write_value, row)) + ")"


def _write_value(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value)


def write_bag(rows: Mapping[Row, int]) -> str:
    """Rows with their counts, in an order that does not depend on how they came."""
    if not rows:
        return EMPTY
    ordered = sorted(rows, key=lambda row: [_value_rank(value) for value in row])
    return " ".join(_write_counted(row, rows[row]) for row in ordered)


def _value_rank(value: object) -> tuple[int, int, str]:
    """Numbers by size, then text, then NULL."""
    if value is None:
        return (2, 0, "")
    return (0, value, "") if isinstance(value, int) else (1, 0, str(value))


def _write_counted(row: Row, count: int) -> str:
    return write_row(row) + (f"[{count}]" if count != 1 else "")


def read_bag(text: str) -> dict[Row, int]:
    """Rows with their counts; ValueError if the text is none."""
    found: dict[Row, int] = {}
    rest = text.strip()
    if rest == EMPTY:
        return found
    while rest:
        row, rest = take_row(rest)
        counted = _COUNT.match(rest)
        found[row] = found.get(row, 0) + (int(counted[1]) if counted else 1)
        rest = (rest[counted.end() :] if counted else rest).lstrip()
    return found


def take_row(text: str) -> tuple[Row, str]:
    """The row that the text begins with, and the rest."""
    if not text.startswith("("):
        raise ValueError(f"expected a row like (1,2) at: {text}")
    values: list[int | str | None] = []
    at = 1
    while True:
        found = _VALUE.match(text, at)
        if found is None:
            raise ValueError(f"expected an integer, 'text' or - for NULL at: {text[at:]}")
        quoted, number, _ = found.groups()
        if quoted is not None:
            values.append(quoted.replace("''", "'"))
        else:
            values.append(int(number) if number is not None else None)
        at = found.end() + 1
        if text[found.end() : at] == ")":
            return tuple(values), text[at:]
        if text[found.end() : at] != ",":
            raise ValueError(f"expected , or ) at: {text[found.end() :]}")
