"""Random windows, ordered aggregates and limits, as parts of random queries.

Orders are often not total, so that their completion is tried; frames are ROWS and RANGE.
"""

from __future__ import annotations

import random

from tests.sql.random_expressions import EXACT, ExpressionWriter, Scope

RANKS = ("row_number()", "rank()", "dense_rank()", "ntile(2)", "ntile(3)")
SHARES = ("percent_rank()", "cume_dist()")
BOUNDS = ("UNBOUNDED PRECEDING", "2 PRECEDING", "1 PRECEDING", "CURRENT ROW")
ENDS = ("CURRENT ROW", "1 FOLLOWING", "2 FOLLOWING", "UNBOUNDED FOLLOWING")


class WindowWriter:
    """Writes window functions and what else has an order."""

    def __init__(self, rng: random.Random, expressions: ExpressionWriter) -> None:
        self._rng = rng
        self._expressions = expressions

    def write_window(self, scope: Scope) -> tuple[str, str] | None:
        """A window function with its type; None if the scope has no column for it."""
        order = self._order(scope)
        column = self._expressions.pick_column(scope, EXACT)
        if order is None or column is None:
            return None
        over = f"OVER ({self._partition(scope)}ORDER BY {order}"
        share = self._rng.random()
        if share < 0.3:
            return f"CAST({self._rng.choice(RANKS)} {over}) AS BIGINT)", "int"
        if share < 0.36:
            return f"{self._rng.choice(SHARES)} {over})", "real"
        if share < 0.55:
            nulls = self._rng.choice(("", "", " IGNORE NULLS"))
            call = self._rng.choice((f"lag({column.text})", f"lead({column.text}, 2)"))
            return f"{call}{nulls} {over})", column.type
        return self._framed(column.text, column.type, over)

    def _framed(self, value: str, kind: str, over: str) -> tuple[str, str]:
        frame = self._frame()
        calls = [(f"{word}({value})", kind) for word in ("min", "max", "first_value", "last_value")]
        calls += [(f"count({value})", "int"), ("count(*)", "int")]
        if kind in ("int", "double", "dec"):
            calls += [(f"sum({value})", kind)] * 3
            calls += [(f"avg({value})", "dec" if kind == "dec" else "real")]
        call, made = self._rng.choice(calls)
        return f"{call} {over}{frame})", made

    def _frame(self) -> str:
        share = self._rng.random()
        if share < 0.4:
            return ""
        if share < 0.85:
            return f" ROWS BETWEEN {self._rng.choice(BOUNDS)} AND {self._rng.choice(ENDS)}"
        start, end = self._rng.choice((BOUNDS[0], BOUNDS[3])), self._rng.choice((ENDS[0], ENDS[3]))
        return f" RANGE BETWEEN {start} AND {end}"

    def _partition(self, scope: Scope) -> str:
        if self._rng.random() < 0.1:
            return ""
        found = [
            self._expressions.pick_column(scope, EXACT) for _ in range(self._rng.choice((1, 1, 2)))
        ]
        texts = dict.fromkeys(column.text for column in found if column is not None)
        return f"PARTITION BY {', '.join(texts)} " if texts else ""

    def _order(self, scope: Scope) -> str | None:
        found = [
            self._expressions.pick_column(scope, EXACT) for _ in range(self._rng.choice((1, 1, 2)))
        ]
        texts = dict.fromkeys(column.text for column in found if column is not None)
        ways = ("", "", " DESC", " NULLS LAST", " DESC NULLS FIRST")
        return ", ".join(f"{text}{self._rng.choice(ways)}" for text in texts) or None

    def write_qualify(self, scope: Scope) -> str:
        """A condition on a rank, or nothing."""
        order = self._order(scope)
        if order is None:
            return ""
        call = self._rng.choice(("row_number()", "rank()"))
        limit = self._rng.choice(("= 1", "<= 2"))
        return f" QUALIFY {call} OVER ({self._partition(scope)}ORDER BY {order}) {limit}"

    def write_ordered_call(self, value: str, kind: str) -> tuple[str, str]:
        """An aggregate over sorted values."""
        way = self._rng.choice(("", " DESC"))
        calls = [(f"mode() WITHIN GROUP (ORDER BY {value}{way})", kind)]
        if kind in ("int", "double", "dec"):
            calls += [
                (f"median({value})", "real"),
                (f"percentile({value}, 0.25)", "real"),
                (f"percentile_cont(0.6) WITHIN GROUP (ORDER BY {value}{way})", "real"),
                (f"percentile_disc(0.4) WITHIN GROUP (ORDER BY {value}{way})", "real"),
            ]
        if kind == "str":
            calls.append((f"listagg({value}, '+') WITHIN GROUP (ORDER BY {value}{way})", "str"))
            calls.append((f"array_join(sort_array(collect_set({value})), '-')", "str"))
        return self._rng.choice(calls)

    def write_limit(self, columns: int) -> str:
        """An order of the shown columns, and a limit."""
        ways = ("", " DESC", " NULLS LAST")
        numbers = self._rng.sample(range(1, columns + 1), self._rng.randint(1, columns))
        order = ", ".join(f"c{n}{self._rng.choice(ways)}" for n in numbers)
        offset = self._rng.choice(("", "", f" OFFSET {self._rng.randint(0, 2)}"))
        return f" ORDER BY {order} LIMIT {self._rng.randint(1, 4)}{offset}"
