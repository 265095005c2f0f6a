"""Types in a view that cannot fit, as far as that is certain without Spark.

Spark alone types expressions, and it is slow to start. But some mistakes are certain from the
families of types alone: the year of a boolean, the sum of dates, a date compared with a number.
Spark converts texts to nearly everything, and members of a family to each other, so only pairs
that are of no use for every member are listed here; `tests/engine/test_certain_mistakes.py` asks
Spark about each of them. What has no family that is certain is passed over, and left to Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

import pyarrow as pa
import pyarrow.types as is_type
from sqlglot import exp

from viewkeeper.engine.views.report_names import ReportNames
from viewkeeper.errors import DefinitionError
from viewkeeper.view.sql.scope import Schema, Scope, scopes_of
from viewkeeper.view.sql.sql_text import SqlText, leaf_span_of
from viewkeeper.view.sql.view_statement import ParsedView

Family: TypeAlias = Literal["boolean", "number", "text", "binary", "date", "timestamp"]
Resolve: TypeAlias = Callable[[exp.Column], pa.DataType | None]
"""The type of the column that a reference means; None where that is not certain."""

TIMES: frozenset[Family] = frozenset({"date", "timestamp", "text"})
SUMS: frozenset[Family] = frozenset({"number", "text", "timestamp"})
NUMBERS: frozenset[Family] = frozenset({"number", "text"})
TRUTHS: frozenset[Family] = frozenset({"boolean", "text"})
ALL: frozenset[Family] = frozenset({"boolean", "number", "text", "binary", "date", "timestamp"})

TAKEN: dict[str, tuple[frozenset[Family], Family | None]] = {
    **dict.fromkeys(("year", "month", "day", "quarter", "dayofyear"), (TIMES, "number")),
    **dict.fromkeys(("dayofweek", "weekofyear", "weekday"), (TIMES, "number")),
    **dict.fromkeys(("hour", "minute", "second"), (TIMES, "number")),
    **dict.fromkeys(("last_day", "add_months"), (TIMES, "date")),
    **dict.fromkeys(("sum", "avg"), (SUMS, None)),
    **dict.fromkeys(("stddev", "stddev_pop", "stddev_samp", "variance"), (NUMBERS, "number")),
    **dict.fromkeys(("abs", "sqrt", "exp", "ln", "floor", "ceil", "round"), (NUMBERS, "number")),
    **dict.fromkeys(("upper", "lower", "trim", "initcap", "substring"), (ALL, "text")),
    "length": (ALL, "number"),
    **dict.fromkeys(("bool_and", "bool_or"), (TRUTHS, "boolean")),
}
"""Per function, by the name that the parser has for it: what its first argument may be, and what
it gives."""

NO_NUMBERS: frozenset[Family] = frozenset({"boolean", "binary"})
COMPARED = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ)
SIGNS: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
}


def family_of(kind: pa.DataType | None) -> Family | None:
    """The family of a column's type.

    >>> family_of(pa.int8()), family_of(pa.timestamp("us"))
    ('number', 'timestamp')
    """
    if kind is None:
        return None
    tests: tuple[tuple[Callable[[pa.DataType], bool], Family], ...] = (
        (is_type.is_boolean, "boolean"),
        (lambda each: is_type.is_integer(each) or is_type.is_floating(each), "number"),
        (is_type.is_decimal, "number"),
        (is_type.is_string, "text"),
        (is_type.is_binary, "binary"),
        (is_type.is_date32, "date"),
        (is_type.is_timestamp, "timestamp"),
    )
    return next((family for test, family in tests if test(kind)), None)


def is_refused_sum(sign: str, left: Family, right: Family) -> bool:
    """Whether Spark has no `left + right`, or what else the sign says, for any such types.

    >>> is_refused_sum("+", "boolean", "number"), is_refused_sum("-", "date", "date")
    (True, False)
    """
    both = {left, right}
    if both & NO_NUMBERS:
        return True
    times = both & {"date", "timestamp"}
    if sign in "*/%":
        return bool(times)
    if sign == "+":
        return both <= {"date", "timestamp"} or both == {"timestamp", "number"}
    return (left == "number" and bool(times)) or (left, right) == ("timestamp", "number")


def is_refused_comparison(left: Family, right: Family) -> bool:
    """Whether Spark compares no such types.

    >>> is_refused_comparison("date", "number"), is_refused_comparison("date", "text")
    (True, False)
    """
    both = {left, right}
    return len(both) == 2 and "text" not in both and both != {"date", "timestamp"}


@dataclass(frozen=True, slots=True)
class FamilyCheck:
    """The expressions of one text, with what their columns are."""

    sql: SqlText
    resolve: Resolve

    def find_misfits(self, root: exp.Expr) -> Iterator[tuple[int, DefinitionError]]:
        """Everything at and below a node whose types cannot fit, with its offset."""
        for node in root.walk():
            message = self._judge_node(node)
            span = None if message is None else leaf_span_of(node)
            if message is not None and span is not None:
                yield span.start, self.sql.error_at(message, span.start)

    def family_at(self, node: exp.Expr | None) -> Family | None:
        """The family of an expression's type; None where that is not certain."""
        match node:
            case exp.Paren():
                return self.family_at(node.this)
            case exp.Column():
                return family_of(self.resolve(node))
            case exp.Cast():
                return _cast_family(node)
            case exp.Literal():
                # A text that is written out is often read as what stands beside it.
                return None if node.is_string else "number"
            case exp.All() | exp.Any():
                # Predicates to the parser, but they stand for the rows of their subquery.
                return None
            case exp.Boolean() | exp.Not() | exp.And() | exp.Or() | exp.Predicate():
                return "boolean"
            case exp.Count():
                return "number"
            case exp.Min() | exp.Max():
                return self.family_at(node.this)
            case exp.Binary() if type(node) in SIGNS:
                both = {self.family_at(node.left), self.family_at(node.right)}
                return "number" if both == {"number"} else None
            case exp.Func():
                return self._family_of_call(node)
        return None

    def _family_of_call(self, node: exp.Func) -> Family | None:
        taken = TAKEN.get(_name_of(node))
        if taken is None:
            return None
        argument = self.family_at(_argument_of(node))
        return taken[1] or ("number" if argument == "number" else None)

    def _judge_node(self, node: exp.Expr) -> str | None:
        """What is wrong with the types at a node; None if nothing is for sure."""
        match node:
            case exp.Not():
                return self._judge_operand("NOT", TRUTHS, node.this)
            case exp.And() | exp.Or():
                word = node.key.upper()
                found = (self._judge_operand(word, TRUTHS, s) for s in (node.left, node.right))
                return next((message for message in found if message), None)
            case exp.Neg():
                return self._judge_operand("-", NUMBERS, node.this)
            case exp.Binary() if type(node) in SIGNS or isinstance(node, COMPARED):
                return self._judge_pair(node)
            case exp.Func() if (taken := TAKEN.get(_name_of(node))) is not None:
                return self._judge_operand(f"{_name_of(node)}()", taken[0], _argument_of(node))
        return None

    def _judge_operand(
        self, what: str, taken: frozenset[Family], node: exp.Expr | None
    ) -> str | None:
        family = self.family_at(node)
        if family is None or family in taken:
            return None
        return f"the types do not fit: {what} is not for a {family}"

    def _judge_pair(self, node: exp.Binary) -> str | None:
        left, right = self.family_at(node.left), self.family_at(node.right)
        if left is None or right is None:
            return None
        if type(node) not in SIGNS:
            refused = is_refused_comparison(left, right)
            return f"the types do not fit: a {left} compared with a {right}" if refused else None
        sign = SIGNS[type(node)]
        refused = is_refused_sum(sign, left, right)
        return f"the types do not fit: a {left} {sign} a {right}" if refused else None


def find_misfit(
    parsed: ParsedView, schema: Schema, names: ReportNames | None
) -> DefinitionError | None:
    """The first place of a view where types cannot fit; `names` are those of a report."""
    found: list[tuple[int, DefinitionError]] = []
    if names is not None:
        found += FamilyCheck(parsed.sql, names.type_of_column).find_misfits(names.report.tree)
    else:
        seen = scopes_of(parsed.plain, parsed.parts.tables, schema)
        pieces = [(seen.whole, item.piece) for item in parsed.parts.items]
        pieces += [(seen.whole, piece) for piece in parsed.parts.where]
        for table, scope in zip(parsed.parts.tables, seen.on, strict=True):
            pieces += [(scope, piece) for piece in table.on]
        for scope, piece in pieces:
            found += FamilyCheck(parsed.sql, partial(_type_in, scope)).find_misfits(piece.node)
    return min(found, key=lambda each: each[0])[1] if found else None


def _type_in(scope: Scope, column: exp.Column) -> pa.DataType:
    return scope.resolve_column(column).type


def _cast_family(node: exp.Cast) -> Family | None:
    kinds = exp.DataType
    families: tuple[tuple[set[object], Family], ...] = (
        ({kinds.Type.BOOLEAN}, "boolean"),
        ({*kinds.NUMERIC_TYPES}, "number"),
        ({*kinds.TEXT_TYPES}, "text"),
        ({kinds.Type.DATE}, "date"),
        ({kinds.Type.TIMESTAMPNTZ, kinds.Type.TIMESTAMPTZ}, "timestamp"),
    )
    return next((family for types, family in families if node.to.this in types), None)


def _name_of(node: exp.Func) -> str:
    if isinstance(node, exp.Anonymous):
        return node.name.lower()
    return _NAMES.get(type(node), node.key)


_NAMES: dict[type[exp.Expr], str] = {
    exp.DayOfWeek: "dayofweek",
    exp.DayOfYear: "dayofyear",
    exp.WeekOfYear: "weekofyear",
    exp.LastDay: "last_day",
    exp.AddMonths: "add_months",
    exp.StddevPop: "stddev_pop",
    exp.StddevSamp: "stddev_samp",
    exp.LogicalAnd: "bool_and",
    exp.LogicalOr: "bool_or",
}


def _argument_of(node: exp.Func) -> exp.Expr | None:
    """The first argument, without what the parser wraps around dates, and without DISTINCT."""
    found = node.expressions[0] if isinstance(node, exp.Anonymous) and node.expressions else None
    found = found or node.args.get("this")
    while isinstance(found, exp.TsOrDsToDate | exp.Paren):
        found = found.this
    if isinstance(found, exp.Distinct):
        found = found.expressions[0] if len(found.expressions) == 1 else None
    return found if isinstance(found, exp.Expr) else None
