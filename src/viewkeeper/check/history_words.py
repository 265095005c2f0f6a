"""States, vectors and rows of a history in words.

Names are those of the history. A vector says for every source how many transactions it has and the
name of the last one; rows are written as SQL would write their values, few of them at a time.
"""

from __future__ import annotations

from collections.abc import Iterable

from viewkeeper.check.history.recorded_history import Bag, History, Row
from viewkeeper.check.serial_schedules import Point, Schedule

ROWS_MAX = 8
"""How many rows a sentence shows."""


class Wording:
    """How sentences about a history name its things."""

    def __init__(self, history: History, schedule: Schedule) -> None:
        self._history = history
        self._schedule = schedule

    def state(self, index: int) -> str:
        label = self._history.states[index].label
        return f"state {index} ({label})" if label else f"state {index}"

    def vector(self, point: Point) -> str:
        named = zip(self._schedule.sources, self._schedule.logs, point, strict=True)
        return ", ".join(f"{source} {_reach(log, n)}" for source, log, n in named)

    def at(self, sources: Iterable[int]) -> str:
        return listed([self._schedule.sources[source] for source in sources])


def _reach(log: tuple[str, ...], position: int) -> str:
    if position == 0:
        return f"0 of {len(log)}"
    return f"{position} of {len(log)} (up to {log[position - 1]})"


def row_text(row: Row) -> str:
    """A row.

    >>> row_text((1, None, "it's", True))
    "(1, NULL, 'it''s', true)"
    """
    return "(" + ", ".join(_value(value) for value in row) + ")"


def _value(value: object) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).lower()
        case int() | float():
            return str(value)
        case bytes():
            return f"X'{value.hex()}'"
        case _:
            return "'" + str(value).replace("'", "''") + "'"


def rows_text(bag: Bag) -> str:
    """Rows with their counts.

    >>> rows_text({(1, 2): 1, (3, 4): 2})
    '(1, 2) and 2 times (3, 4)'
    """
    texts = [
        (row_text(row) if count == 1 else f"{count} times {row_text(row)}")
        for row, count in bag.items()
    ]
    shown = sorted(texts)
    if len(shown) > ROWS_MAX:
        shown = [*shown[:ROWS_MAX], f"{len(shown) - ROWS_MAX} other rows"]
    return listed(shown) if shown else "no rows"


def lacking(shown: Bag, right: Bag) -> dict[Row, int]:
    """What `right` has and `shown` has not."""
    short = {row: count - shown.get(row, 0) for row, count in right.items()}
    return {row: count for row, count in short.items() if count > 0}


def distance(shown: Bag, right: Bag) -> int:
    """How many rows are lacking or too much."""
    return sum(lacking(shown, right).values()) + sum(lacking(right, shown).values())


def difference_text(shown: Bag, right: Bag) -> str:
    """What is wrong with `shown`, as the end of a sentence about it.

    >>> difference_text({(1,): 1, (2,): 2}, {(2,): 1, (3,): 1})
    'lacks (3) and has (1) and (2) too much'
    """
    parts = []
    if short := lacking(shown, right):
        parts.append(f"lacks {rows_text(short)}")
    if extra := lacking(right, shown):
        parts.append(f"has {rows_text(extra)} too much")
    return " and ".join(parts) if parts else "has exactly its rows"


def listed(words: list[str]) -> str:
    """Words as a sentence lists them.

    >>> listed(["a", "b", "c"]), listed(["a"])
    ('a, b and c', 'a')
    """
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
