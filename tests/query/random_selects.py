"""Random SELECTs over the sample views, from a seed: expressions by type, conditions, groups."""

from __future__ import annotations

import random

VALUES = {
    "number": ("n", "i", "n + 1", "n * 2", "i % 4", "n - id", "abs(n)", "coalesce(n, i)", "id"),
    "decimal": ("p", "p + 1", "p * 2", "p - n", "abs(p)", "coalesce(p, 0.5)", "-p"),
    "text": ("name", "upper(name)", "concat(name, '!')", "substring(name, 1, 2)", "trim(name)"),
    "day": ("day", "coalesce(day, DATE '2000-02-29')", "trunc(day, 'MONTH')"),
    "flag": ("ok", "NOT ok", "n > 2", "name IS NULL", "ok AND n > 0", "p < n", "name = 'Ada'"),
    "float": ("x", "-x", "x + n", "x * 2"),
}
CONDITIONS = (
    "n > 2",
    "n IS NOT NULL",
    "name LIKE 'A%'",
    "ok OR n = 7",
    "p BETWEEN 0 AND 11",
    "x >= 1.5",
    "name IN ('Ada', '')",
    "NOT (n <> 3)",
    "day <= DATE '2024-01-31'",
    "i <=> NULL",
    "id <> 6",
    "CASE WHEN ok THEN n > 2 ELSE n < 2 END",
)
CALLS = (
    *("count(*)", "count({number})", "count({text})", "sum({number})", "min({number})"),
    *("max({text})", "sum({decimal})", "avg({decimal})", "avg({number})", "max({decimal})"),
    *("min({day})", "max({flag})", "min(x)", "max(x)"),
)
WAYS = ("", " ASC", " DESC", " NULLS LAST", " DESC NULLS FIRST")


class RandomSelect:
    """One query; `order` says whether its ORDER BY is complete."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        make = self._grouped if chance.random() < 0.5 else self._plain
        self.text = make()

    def _value(self, *kinds: str) -> str:
        kind = self._chance.choice(kinds or tuple(VALUES))
        return self._chance.choice(VALUES[kind])

    def _where(self) -> str:
        count = self._chance.choice((0, 0, 1, 1, 2))
        chosen = self._chance.sample(CONDITIONS, count)
        # The largest i overflows where it is added to, in both ways.
        return " WHERE " + " AND ".join(["id <> 6", *chosen])

    def _ordered(self, width: int) -> str:
        numbers = self._chance.sample(range(1, width + 1), width)
        terms = ", ".join(f"{number}{self._chance.choice(WAYS)}" for number in numbers)
        cut = self._chance.choice(("", "", " LIMIT 3", " LIMIT 4 OFFSET 2"))
        return f" ORDER BY {terms}{cut}"

    def _plain(self) -> str:
        width = self._chance.randint(1, 4)
        items = ", ".join(f"{self._value()} AS c{number}" for number in range(width))
        distinct = self._chance.choice(("", "", "DISTINCT "))
        order = self._ordered(width) if self._chance.random() < 0.7 else ""
        return f"SELECT {distinct}{items} FROM lines{self._where()}{order}"

    def _grouped(self) -> str:
        groups = [self._value() for _ in range(self._chance.randint(0, 2))]
        calls = []
        for _ in range(self._chance.randint(1, 3)):
            call = self._chance.choice(CALLS)
            calls.append(call.format(**{kind: self._value(kind) for kind in VALUES}))
        items = [f"{each} AS c{number}" for number, each in enumerate([*groups, *calls])]
        text = f"SELECT {', '.join(items)} FROM lines{self._where()}"
        if groups:
            text += " GROUP BY " + ", ".join(str(number + 1) for number in range(len(groups)))
        if self._chance.random() < 0.3:
            text += f" HAVING {calls[0]} IS NOT NULL AND count(*) < 5"
        return text + (self._ordered(len(items)) if self._chance.random() < 0.7 else "")
