"""States, vectors and rows of a history in words.

Names are those of the history. A vector says for every source how many transactions it has and the
name of the last one; rows are written as SQL would write their values, few of them at a time.
"""

from __future__ import annotations

from collections.abc import Iterable

from viewkeeper.check.history.recorded_history import Bag, RecordedHistory, Row
from viewkeeper.check.serial_schedules import Point, Schedule

ROWS_MAX = 8
"""How many rows a sentence shows."""


class Wording:
    """How sentences about a history name its things."""

    def __init__(self, history: RecordedHistory, schedule: Schedule) -> None:
        self._history = history
        self._schedule = schedule

    def state_text(self, index: int) -> str:
        label = self._history.states[index].label
        return f"state {index} ({label})" if label else f"state {index}"

    def vector_text(self, point: Point) -> str:
        named = zip(self._schedule.sources, self._schedule.logs, point, strict=True)
        return ", ".join(f"{source} {_reach_text(log, n)}" for source, log, n in named)

    def source_names(self, sources: Iterable[int]) -> str:
        return list_words([self._schedule.sources[source] for source in sources])


def _reach_text(log: tuple[str, ...], position: int) -> str:
    if position == 0:
        return f"0 of {len(log)}"
    return f"{position} of {len(log)} (up to {log[position - 1]})"


def row_text(row: Row) -> str:
    """A row.

    >>> row_text((1, None, "it's", True))
    "(1, NULL, 'it''s', true)"
    """
    return "(" + ", ".join(_value_text(value) for value in row) + ")"


def _value_text(value: object) -> str:
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
    return list_words(shown) if shown else "no rows"


def missing_rows(shown: Bag, right: Bag) -> dict[Row, int]:
    """What `right` has and `shown` has not."""
    short = {row: count - shown.get(row, 0) for row, count in right.items()}
    return {row: count for row, count in short.items() if count > 0}


def count_differences(shown: Bag, right: Bag) -> int:
    """How many rows are lacking or too much."""
    return sum(missing_rows(shown, right).values()) + sum(missing_rows(right, shown).values())


def difference_text(shown: Bag, right: Bag) -> str:
    """What is wrong with `shown`, as the end of a sentence about it.

    >>> difference_text({(1,): 1, (2,): 2}, {(2,): 1, (3,): 1})
    'lacks (3) and has (1) and (2) too much'
    """
    parts = []
    if short := missing_rows(shown, right):
        parts.append(f"lacks {rows_text(short)}")
    if extra := missing_rows(right, shown):
        parts.append(f"has {rows_text(extra)} too much")
    return " and ".join(parts) if parts else "has exactly its rows"


def list_words(words: list[str]) -> str:
    """Words as a sentence lists them.

    >>> list_words(["a", "b", "c"]), list_words(["a"])
    ('a, b and c', 'a')
    """
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
