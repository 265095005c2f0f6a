"""Ranges of a key in SQL that every database understands alike.

A range is of a column of whole numbers, so its bounds need no spelling. What has no value belongs
to the range without a lower bound.
"""

from __future__ import annotations

from viewkeeper.updates.source_protocol import KeyRange


def range_condition(part: KeyRange | None, column: str) -> str:
    """The condition on a column, which is spelled as the database has it; empty for all rows.

    >>> range_condition(KeyRange("id", None, 3), "r.id")
    '(r.id < 3 OR r.id IS NULL)'
    >>> range_condition(KeyRange("id", 3, None), "r.id")
    'r.id >= 3'
    """
    if part is None or part.low is part.high is None:
        return ""
    if part.low is None:
        return f"({column} < {part.high} OR {column} IS NULL)"
    above = f"{column} >= {part.low}"
    return above if part.high is None else f"{above} AND {column} < {part.high}"


def bounds_query(table: str, column: str) -> str:
    """The least and the greatest value; each by itself, so that an index tells it."""
    least, greatest = (f"(SELECT {name}({column}) FROM {table} AS r)" for name in ("min", "max"))
    return f"SELECT {least}, {greatest}"


def key_range_of(column: str, bounds: tuple[object, object]) -> KeyRange | None:
    """The range between two values that a database gave, both included; None without rows."""
    least, greatest = bounds
    if least is None or greatest is None:
        return None
    return KeyRange(column, int(str(least)), int(str(greatest)) + 1)
