"""Random expressions and conditions over the columns in scope, typed so that Spark accepts them.

Nothing here can fail on a row, and nothing is inexact: doubles are small multiples of a quarter, so
that their sums are the same in any order; only constants divide. Values that Spark computes in an
order of its own, such as averages of averages, have the type `real`, over which no condition is
written: a last digit must not decide about a row.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

EXACT = ("int", "double", "str", "date", "dec")
"""The types that anything may have; columns may be moments too."""


@dataclass(frozen=True, slots=True)
class ScopeColumn:
    """A column that may be named, as it is named, with its type."""

    text: str
    type: str
    nullable: bool = True


Scope = Sequence[ScopeColumn]

LITERALS = {
    "int": ("0", "1", "2", "3", "-1"),
    "double": ("0.5D", "1.25D", "-0.25D", "2D"),
    "str": ("'u'", "'v'", "'w'", "'u_1'", "''", "'-'"),
    "date": ("DATE '2024-01-03'", "DATE '2024-01-05'", "DATE '2024-02-29'"),
    "dec": ("1.50", "0.25", "-2.00", "0"),
    "moment": ("TIMESTAMP_NTZ '2024-01-04 03:00:00'", "TIMESTAMP_NTZ '2024-01-05 12:30:00'"),
    "bool": ("true", "false"),
}
RARE = 0.15
"""How often something is written, in few cases, that only Spark evaluates: a job of Spark takes as
long as many queries without."""
COMPARISONS = ("=", "=", "=", "<>", "<", "<=", ">", ">=", "<=>")
PATTERNS = ("'u%'", "'%1'", "'_'", "'%u%'", "'v'")
ESCAPED = "'u!_%' ESCAPE '!'"


class ExpressionWriter:
    """Writes expressions with one random generator."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.asks_time = False
        """Whether what is written now may ask for the time."""
        self._rare = RARE if self.chance(0.15) else 0.0
        self._writers: dict[str, Callable[[Scope, int], str]] = {
            "int": self._integer,
            "double": self._double,
            "str": self._string,
            "date": self._date,
            "dec": self._decimal,
        }

    def chance(self, share: float) -> bool:
        return self._rng.random() < share

    def pick_column(self, scope: Scope, kinds: Sequence[str]) -> ScopeColumn | None:
        """A column of one of these types."""
        fitting = [column for column in scope if column.type in kinds]
        return self._rng.choice(fitting) if fitting else None

    def value(self, scope: Scope, kind: str, depth: int = 2) -> str:
        """An expression of a type; mostly a column."""
        column = self.pick_column(scope, (kind,))
        if column is not None and (depth <= 0 or self.chance(0.5)):
            return column.text
        if depth <= 0 or kind not in self._writers:
            return column.text if column else self.literal(kind)
        if column is None and self.chance(0.85):
            return self.literal(kind)
        return (
            self._branch(scope, kind, depth)
            if self.chance(0.3)
            else self._writers[kind](scope, depth)
        )

    def literal(self, kind: str) -> str:
        """A literal of a type."""
        if kind in ("double", "real"):
            # Only Spark reads doubles in a plain view; whole numbers become doubles beside them.
            kind = "double" if self._rare else "int"
        return self._rng.choice(LITERALS[kind])

    def _branch(self, scope: Scope, kind: str, depth: int) -> str:
        one, other = self.value(scope, kind, depth - 1), self.value(scope, kind, depth - 1)
        test = self.condition(scope, depth - 1)
        literal = self.literal(kind)
        return self._rng.choice(
            (
                f"CASE WHEN {test} THEN {one} ELSE {other} END",
                f"CASE WHEN {test} THEN {one} END",
                f"CASE {one} WHEN {literal} THEN {other} ELSE {one} END",
                f"coalesce({one}, {literal})",
                f"coalesce({one}, {other})",
                f"if({test}, {one}, {other})",
                f"nullif({one}, {literal})",
                f"nvl({one}, {literal})",
                f"greatest({one}, {other})",
                f"least({one}, {literal})",
            )
        )

    def _integer(self, scope: Scope, depth: int) -> str:
        one, other = self.value(scope, "int", depth - 1), self.value(scope, "int", depth - 1)
        forms = [
            f"{one} + {other}",
            f"({one} - {other})",
            f"({one} * 2)",
            f"abs({one})",
            f"-({one})",
        ]
        forms += [f"({one} % 3)"]
        if column := self.pick_column(scope, ("str",)):
            forms += [f"length({column.text})"]
        if column := self.pick_column(scope, ("date",)):
            parts = ("year", "month", "day", "quarter")
            forms += [f"{self._rng.choice(parts)}({column.text})"]
            forms += [f"datediff({column.text}, DATE '2024-01-01')"]
            if self.asks_time:
                forms += [f"datediff(current_date(), {column.text})"] * 6
        return self._rng.choice(forms)

    def _double(self, scope: Scope, depth: int) -> str:
        one, other = self.value(scope, "double", depth - 1), self.value(scope, "double", depth - 1)
        whole = self.value(scope, "int", 0)
        forms = (f"({one} + {other})", f"({one} - {other})", f"({one} * 2)", f"abs({one})")
        more = (f"cast({whole} AS double)", f"({whole} / 2)", f"({one} + {whole})", f"-({one})")
        return self._rng.choice((*forms, *more))

    def _string(self, scope: Scope, depth: int) -> str:
        one, other = self.value(scope, "str", depth - 1), self.value(scope, "str", depth - 1)
        whole = self.value(scope, "int", 0)
        forms = (
            f"upper({one})",
            f"lower({one})",
            f"concat({one}, '-', {other})",
            f"({one} || 'x')",
        )
        more = (f"substring({one}, 1, 1)", f"trim({one})", f"cast({whole} AS string)")
        if self.chance(self._rare):
            return f"replace({one}, 'u', 'z')"
        return self._rng.choice((*forms, *more, f"rtrim({one})"))

    def _date(self, scope: Scope, depth: int) -> str:
        one = self.value(scope, "date", depth - 1)
        if self.chance(self._rare):
            return self._rng.choice((f"last_day({one})", f"add_months({one}, 1)"))
        if self.asks_time and self.chance(0.2):
            return self._rng.choice(("current_date()", "date_add(current_date(), 1)"))
        forms = (f"date_add({one}, 1)", f"trunc({one}, 'MM')")
        return self._rng.choice((*forms, f"({one} + INTERVAL 3 DAYS)", f"date_sub({one}, 2)"))

    def _decimal(self, scope: Scope, depth: int) -> str:
        one, other = self.value(scope, "dec", depth - 1), self.value(scope, "dec", 0)
        whole = self.value(scope, "int", 0)
        forms = (f"({one} + {other})", f"({one} - {other})", f"({one} * 2)", f"round({one}, 1)")
        more = (f"-({one})", f"cast({whole} AS decimal(10, 2))", f"({one} * 1.5)", f"abs({one})")
        return self._rng.choice((*forms, *more, f"cast({one} AS decimal(12, 1))"))

    # -- conditions ----------------------------------------------------------------------------

    def condition(self, scope: Scope, depth: int = 2) -> str:
        """A condition over columns in scope."""
        if depth > 0 and self.chance(0.25):
            one, other = self.condition(scope, depth - 1), self.condition(scope, depth - 1)
            return self._rng.choice(
                (
                    f"({one} AND {other})",
                    f"({one} OR {other})",
                    f"NOT ({one})",
                    f"(NOT {one} OR {other})",
                )
            )
        if self.asks_time and self.chance(0.6) and (timed := self._timed_test(scope)):
            return timed
        flag = self.pick_column(scope, ("bool",))
        if flag is not None and self.chance(0.3):
            return flag.text
        column = self.pick_column(scope, (*EXACT, "moment"))
        return self._test(scope, column, depth) if column else "true"

    def _timed_test(self, scope: Scope) -> str | None:
        """A condition that becomes true or false as time passes."""
        column = self.pick_column(scope, ("date", "moment"))
        if column is None:
            return None
        text, number = column.text, self._rng.randint(0, 3)
        comparison = self._rng.choice(("<", "<=", ">", ">=", "="))
        if column.type == "moment" and self.chance(0.1 + self._rare):
            unit = self._rng.choice(("hour", "day"))
            since = f"date_trunc('{unit}', now())"
            return self._rng.choice(
                (
                    f"{text} {comparison} {since} - INTERVAL {7 * number} HOURS",
                    f"{text} BETWEEN {since} - INTERVAL 30 HOURS AND {since}",
                )
            )
        day = f"to_date({text})" if column.type == "moment" else text
        return self._rng.choice(
            (
                f"{day} {comparison} current_date()",
                f"{day} {comparison} current_date() - {number}",
                f"{day} >= date_sub(current_date(), {number})",
                f"{day} BETWEEN current_date() - {number} AND current_date()",
                f"datediff(current_date(), {day}) {comparison} {number}",
                f"trunc({day}, 'MM') = trunc(current_date(), 'MM')",
            )
        )

    def _test(self, scope: Scope, column: ScopeColumn, depth: int) -> str:
        text, kind = column.text, column.type
        literals = [self.literal(kind) for _ in range(3)]
        match self._rng.randrange(8):
            case 0:
                return f"{text} IS {self._rng.choice(('', 'NOT '))}NULL"
            case 1:
                return f"{text} {self._rng.choice(('', 'NOT '))}IN ({', '.join(literals)})"
            case 2:
                return f"{text} BETWEEN {min(literals)} AND {max(literals)}"
            case 3 if kind == "str":
                return f"{text} {self._rng.choice(('', 'NOT '))}LIKE {self._pattern()}"
            case 4 | 5:
                other = self.value(scope, kind, depth - 1)
                return f"{text} {self._rng.choice(COMPARISONS)} {other}"
        value = self.value(scope, kind, depth - 1)
        return f"{value} {self._rng.choice(COMPARISONS)} {literals[0]}"

    def _pattern(self) -> str:
        return ESCAPED if self.chance(self._rare) else self._rng.choice(PATTERNS)
