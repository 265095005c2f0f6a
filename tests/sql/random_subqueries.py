"""Random subqueries in expressions: existence, membership and scalars, as parts of random queries.

Scalars are aggregates, so that they have one row. Correlated ones have an equality with a column of
the query around them; their count over nothing is 0, and not NULL. What is compared is exact: a
last digit must not decide about a row.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.sql.random_expressions import COMPARISONS, EXACT, LITERALS, ExpressionWriter, Scope

KEYS = (".customer", ".kind", ".level", ".id")


class SubqueryWriter:
    """Writes subqueries over what `read_item` gives: a part of FROM, and its columns."""

    def __init__(
        self,
        rng: random.Random,
        expressions: ExpressionWriter,
        read_item: Callable[[], tuple[str, Scope]],
    ) -> None:
        self._rng = rng
        self._expressions = expressions
        self._read_item = read_item

    def _chance(self, share: float) -> bool:
        return self._expressions.chance(share)

    def write_equality(self, left: Scope, right: Scope) -> str | None:
        """An equality between columns of two sides; None if they have none of one type."""
        for _ in range(8):
            one = self._expressions.pick_column(left, ("int", "int", "int", "str", "date"))
            if one is None:
                return None
            same = [column for column in right if column.type == one.type]
            if keys := [column for column in same if column.text.endswith(KEYS)] or same:
                other = self._rng.choice(keys)
                return f"{one.text} {'<=>' if self._chance(0.05) else '='} {other.text}"
        return None

    def write_test(self, scope: Scope) -> str:
        """A condition with a subquery."""
        share = self._rng.random()
        if share < 0.4:
            test = self.write_existence(scope)
        elif share < 0.65:
            test = self._membership(scope)
        else:
            test = self._scalar_test(scope)
        if self._chance(0.2):
            return f"({test} OR {self._expressions.condition(scope, 0)})"
        return test

    def write_existence(self, scope: Scope) -> str:
        """EXISTS, or NOT EXISTS."""
        item, inner = self._read_item()
        equality = self.write_equality(scope, inner)
        if equality is None:
            return f"(SELECT count(*) FROM {item}) > {self._rng.randint(0, 3)}"
        more = ""
        if self._chance(0.5):
            over = inner if self._chance(0.7) else [*scope, *inner]
            more = f" AND {self._expressions.condition(over, 0)}"
        word = self._rng.choice(("EXISTS", "EXISTS", "NOT EXISTS"))
        return f"{word} (SELECT 1 FROM {item} WHERE {equality}{more})"

    def _membership(self, scope: Scope) -> str:
        item, inner = self._read_item()
        outer = self._expressions.pick_column(scope, ("int", "int", "str")) or scope[0]
        fitting = [column for column in inner if column.type == outer.type]
        if not fitting:
            return self.write_existence(scope)
        column = self._rng.choice(fitting)
        safe = not (outer.nullable or column.nullable)
        tests = [self._expressions.condition(inner, 1)] if self._chance(0.5) else []
        correlated = self.write_equality(scope, inner) if self._chance(0.2) else None
        tests += [correlated] if correlated else []
        rare = 0.3 if correlated else 0.04
        word = "NOT IN" if (safe and self._chance(0.6)) or self._chance(rare) else "IN"
        where = f" WHERE {' AND '.join(tests)}" if tests else ""
        return f"{outer.text} {word} (SELECT {column.text} FROM {item}{where})"

    # -- scalars -------------------------------------------------------------------------------

    def write_scalar(self, scope: Scope) -> tuple[str, str]:
        """A scalar subquery for a select list, with its type; sometimes inside an expression."""
        text, kind = self._scalar(scope if self._chance(0.65) else (), None)
        share = self._rng.random()
        if share < 0.2:
            text = f"CASE WHEN {self._expressions.condition(scope, 0)} THEN {text} END"
        elif share < 0.4 and kind in LITERALS:
            text = f"coalesce({text}, {self._expressions.literal(kind)})"
        elif share < 0.55 and kind in ("int", "double", "dec"):
            text = f"{self._expressions.value(scope, kind, 0)} - {text}"
        return text, kind

    def _scalar_test(self, scope: Scope) -> str:
        column = self._expressions.pick_column(scope, EXACT)
        if column is None:
            return self.write_existence(scope)
        text, _ = self._scalar(scope if self._chance(0.6) else (), column.type)
        return f"{column.text} {self._rng.choice(COMPARISONS)} {text}"

    def write_comparison(self, value: str, kind: str) -> str:
        """A comparison of a value with a scalar of its type that nothing around it changes."""
        text, _ = self._scalar((), kind)
        return f"{value} {self._rng.choice(COMPARISONS)} {text}"

    def _scalar(self, scope: Scope, wanted: str | None) -> tuple[str, str]:
        """An aggregate over a table, of a type that is wanted; correlated if there is a scope."""
        item, inner = self._read_item()
        call, kind = self._call(inner, wanted)
        equality = self.write_equality(scope, inner) if scope else None
        tests = [equality] if equality else []
        if self._chance(0.4):
            tests.append(self._expressions.condition(inner, 0))
        where = f" WHERE {' AND '.join(tests)}" if tests else ""
        having = f" HAVING count(*) > {self._rng.randint(0, 2)}" if self._chance(0.1) else ""
        return f"(SELECT {call} FROM {item}{where}{having})", kind

    def _call(self, inner: Scope, wanted: str | None) -> tuple[str, str]:
        column = self._expressions.pick_column(inner, (wanted,) if wanted else EXACT)
        if column is None:
            count = "count(*)"
            if wanted in (None, "int"):
                return count, "int"
            some = self._expressions.literal(wanted)
            return f"CASE WHEN {count} > 1 THEN {some} END", wanted
        if wanted in (None, "int") and self._chance(0.3):
            return self._rng.choice(("count(*)", f"count({column.text})")), "int"
        numbers = column.type in ("int", "double", "dec")
        if wanted is None and numbers and self._chance(0.2):
            return f"avg({column.text})", "dec" if column.type == "dec" else "real"
        words = ("min", "max", "sum") if numbers else ("min", "max")
        return f"{self._rng.choice(words)}({column.text})", column.type
