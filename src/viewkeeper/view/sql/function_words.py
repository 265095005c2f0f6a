"""Functions, operators and CASE of the syntax tree, as words of the kernel.

sqlglot has a class for most functions, and sometimes reads more into a call than Spark does: it
completes abbreviated units, and wraps arguments. Here a node is taken only if it has no other parts
than those that are expected. What is not certain is None, and the expression is left to Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow.types as is_type
from sqlglot import exp

from viewkeeper.view.expression import Expression, IsNull, Literal, Not, type_of
from viewkeeper.view.kernel_words import (
    DATE,
    DATE_TRUNC_UNITS,
    INSTANT,
    INT,
    LOCAL,
    STRING,
    TRUNC_UNITS,
)
from viewkeeper.view.sql import word_calls

_PLAIN: dict[type[exp.Expr], tuple[str, tuple[str, ...]]] = {
    exp.Upper: ("upper", ("this",)),
    exp.Lower: ("lower", ("this",)),
    exp.Length: ("length", ("this",)),
    exp.Abs: ("abs", ("this",)),
    exp.Substring: ("substring", ("this", "start", "length")),
    exp.Round: ("round", ("this", "decimals")),
    exp.StartsWith: ("startswith", ("this", "expression")),
    exp.EndsWith: ("endswith", ("this", "expression")),
    exp.Contains: ("contains", ("this", "expression")),
    exp.AddMonths: ("add_months", ("this", "expression")),
    exp.Quarter: ("quarter", ("this",)),
    exp.Hour: ("hour", ("this",)),
    exp.Minute: ("minute", ("this",)),
    exp.Second: ("second", ("this",)),
}
"""Functions by what they are called here and the parts that are their arguments."""
_DATE_PARTS: dict[type[exp.Expr], str] = {
    exp.Year: "year",
    exp.Month: "month",
    exp.Day: "day",
    exp.DayOfMonth: "day",
}
_EXTRACTED = frozenset({"YEAR", "QUARTER", "MONTH", "DAY", "HOUR", "MINUTE"})
_TRIMS = {None: "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}
_FLAGS = frozenset({"safe", "coalesce", "ignore_nulls", "typed"})
_TRUNC = re.compile(r"(?i)\b(date_)?trunc\s*\(")
_QUOTED = re.compile(r"\s*'(\w+)'\s*")
_INTERVALS = {
    **dict.fromkeys(("DAY", "DAYS"), ("day", 1)),
    **dict.fromkeys(("MONTH", "MONTHS"), ("month", 1)),
    **dict.fromkeys(("YEAR", "YEARS"), ("month", 12)),
}


@dataclass(frozen=True, slots=True)
class WordReader:
    """Reads nodes whose parts the translator reads; `text` is what the user wrote."""

    text: str
    translate: Callable[[exp.Expr], Expression]
    operand: Callable[[exp.Expr], Expression]
    boolean: Callable[[exp.Expr], Expression]
    compare: Callable[[Expression, Expression], Expression]

    def read_node(self, node: exp.Expr) -> Expression | None:
        """A function, CASE or LIKE; None for everything else."""
        if type(node) in _PLAIN:
            function, keys = _PLAIN[type(node)]
            return self._read_plain(function, keys, node)
        if type(node) in _DATE_PARTS:
            return self._read_date_part(_DATE_PARTS[type(node)], node)
        reader = _READERS.get(type(node))
        return None if reader is None else reader(self, node)

    def _read_plain(self, function: str, keys: Sequence[str], node: exp.Expr) -> Expression | None:
        if not _has_only(node, *keys):
            return None
        given = [node.args[key] for key in keys if node.args.get(key) is not None]
        return word_calls.make_call(function, self._read_all(given))

    def _read_all(self, nodes: Sequence[exp.Expr]) -> list[Expression]:
        return [self.translate(node) for node in nodes]

    def _read_date_part(self, part: str, node: exp.Expr) -> Expression | None:
        inner = _unwrapped_date(node.this)
        if not _has_only(node, "this") or inner is None:
            return None
        return word_calls.date_part_call(part, self.translate(inner))

    def _read_extract(self, node: exp.Expr) -> Expression | None:
        part = node.name.upper()
        if part not in _EXTRACTED or not _has_only(node, "this", "expression"):
            return None
        return word_calls.date_part_call(part.lower(), self.translate(node.expression))

    def _read_trim(self, node: exp.Expr) -> Expression | None:
        position = node.args.get("position")
        if not _has_only(node, "this", "position") or position not in _TRIMS:
            return None
        return word_calls.make_call(_TRIMS[position], [self.translate(node.this)])

    def _read_concat(self, node: exp.Expr) -> Expression | None:
        if not _has_only(node, "expressions"):
            return None
        return word_calls.make_call("concat", self._read_all(node.expressions))

    def _read_pipes(self, node: exp.Expr) -> Expression | None:
        if not _has_only(node, "this", "expression"):
            return None
        both = [self.operand(node.args["this"]), self.operand(node.args["expression"])]
        return word_calls.make_call("concat", both)

    def _read_left(self, node: exp.Expr) -> Expression | None:
        text, count = self.translate(node.this), self.translate(node.expression)
        return word_calls.make_call("substring", [text, Literal(1, INT), count])

    def _read_like(self, node: exp.Expr) -> Expression | None:
        pattern = node.args["expression"]
        if not (isinstance(pattern, exp.Literal) and pattern.is_string):
            return None
        if not _has_only(node, "this", "expression", "negate"):
            return None
        found = word_calls.make_call("like", [self.operand(node.this), self.translate(pattern)])
        return Not(found) if found is not None and node.args.get("negate") else found

    def _read_case(self, node: exp.Expr) -> Expression | None:
        key = node.args.get("this")
        compared = None if key is None else self.operand(key)
        conditions: list[Expression] = []
        values: list[Expression] = []
        for branch in node.args["ifs"]:
            if compared is None:
                conditions.append(self.boolean(branch.this))
            else:
                conditions.append(self.compare(compared, self.operand(branch.this)))
            values.append(self.translate(branch.args["true"]))
        if (default := node.args.get("default")) is not None:
            values.append(self.translate(default))
        return word_calls.case_call(conditions, values)

    def _read_if(self, node: exp.Expr) -> Expression | None:
        if node.args.get("false") is None:
            return None
        values = self._read_all([node.args["true"], node.args["false"]])
        return word_calls.case_call([self.boolean(node.this)], values)

    def _read_nvl2(self, node: exp.Expr) -> Expression | None:
        if node.args.get("false") is None:
            return None
        values = self._read_all([node.args["true"], node.args["false"]])
        return word_calls.case_call([Not(IsNull(self.translate(node.this)))], values)

    def _read_nullif(self, node: exp.Expr) -> Expression | None:
        value, other = self.translate(node.this), self.translate(node.expression)
        kind = type_of(value)
        if kind is None or is_type.is_null(kind):
            return None
        return word_calls.case_call([self.compare(value, other)], [Literal(None, kind), value])

    def _read_choice(self, node: exp.Expr) -> Expression | None:
        if not _has_only(node, "this", "expressions"):
            return None
        values = self._read_all([node.this, *node.expressions])
        return word_calls.choice_call(type(node).__name__.lower(), values)

    def _read_date_trunc(self, node: exp.Expr) -> Expression | None:
        if not _has_only(node, "this", "unit") or not has_plain_units(self.text):
            return None
        return word_calls.date_trunc_call(node.args["unit"].name, self.translate(node.this))

    def _read_trunc(self, node: exp.Expr) -> Expression | None:
        if not _has_only(node, "this", "unit") or not has_plain_units(self.text):
            return None
        unit = Literal(node.args["unit"].name, STRING)
        return word_calls.make_call("trunc", [self.translate(node.this), unit])

    def _read_datediff(self, node: exp.Expr) -> Expression | None:
        later, earlier = _unwrapped_date(node.this), _unwrapped_date(node.expression)
        if not _has_only(node, "this", "expression") or later is None or earlier is None:
            return None
        return word_calls.make_call("datediff", self._read_all([later, earlier]))

    def _read_date_add(self, node: exp.Expr) -> Expression | None:
        unit = node.args.get("unit")
        if not _has_only(node, "this", "expression", "unit") or unit is None or unit.name != "DAY":
            return None
        date = self.translate(node.this)
        if (days := _literal_days(node.expression)) is not None:
            return word_calls.shift_date(date, days, "day")
        if isinstance(node.expression, exp.Mul):
            return None
        return word_calls.make_call("date_add", [date, self.translate(node.expression)])

    def _read_to_date(self, node: exp.Expr) -> Expression | None:
        inner, safe = node.this, node.args.get("safe")
        operand = self.translate(inner)
        if not safe or not _has_only(node, "this") or type_of(operand) not in _DATES:
            return None
        return word_calls.cast_call(operand, DATE)

    def _read_anonymous(self, node: exp.Expr) -> Expression | None:
        """`isnull` and `isnotnull`, for which sqlglot has no class."""
        name = node.name.lower()
        if name not in ("isnull", "isnotnull") or len(node.expressions) != 1:
            return None
        operand = self.translate(node.expressions[0])
        kind = type_of(operand)
        if kind is None or is_type.is_null(kind):
            return None
        return IsNull(operand) if name == "isnull" else Not(IsNull(operand))

    def read_shift(self, node: exp.Expr, sign: int) -> Expression | None:
        """A date plus or minus an interval of whole days, months or years."""
        interval = node.args["expression"]
        unit = _INTERVALS.get(_unit_name(interval))
        count = interval.this
        if unit is None or not isinstance(count, exp.Literal) or not count.is_string:
            return None
        if re.fullmatch(r"-?\d{1,6}", count.name) is None:
            return None
        date = self.operand(node.this)
        return word_calls.shift_date(date, sign * int(count.name) * unit[1], unit[0])


_DATES = (DATE, LOCAL, INSTANT)
_READERS: dict[type[exp.Expr], Callable[[WordReader, exp.Expr], Expression | None]] = {
    exp.Extract: WordReader._read_extract,
    exp.Trim: WordReader._read_trim,
    exp.Concat: WordReader._read_concat,
    exp.DPipe: WordReader._read_pipes,
    exp.Left: WordReader._read_left,
    exp.Like: WordReader._read_like,
    exp.Case: WordReader._read_case,
    exp.If: WordReader._read_if,
    exp.Nvl2: WordReader._read_nvl2,
    exp.Nullif: WordReader._read_nullif,
    exp.Coalesce: WordReader._read_choice,
    exp.Greatest: WordReader._read_choice,
    exp.Least: WordReader._read_choice,
    exp.TimestampTrunc: WordReader._read_date_trunc,
    exp.DateTrunc: WordReader._read_trunc,
    exp.DateDiff: WordReader._read_datediff,
    exp.TsOrDsAdd: WordReader._read_date_add,
    exp.TsOrDsToDate: WordReader._read_to_date,
    exp.Anonymous: WordReader._read_anonymous,
}


def _has_only(node: exp.Expr, *keys: str) -> bool:
    """Whether a node has no parts but these."""
    given = {key for key, part in node.args.items() if part not in (None, False, [])}
    return given <= {*keys, *_FLAGS}


def _unit_name(node: object) -> str:
    unit = node.args.get("unit") if isinstance(node, exp.Interval) else None
    return unit.name.upper() if isinstance(unit, exp.Var) else ""


def _unwrapped_date(node: exp.Expr) -> exp.Expr | None:
    """What sqlglot has wrapped into a conversion to a date that Spark makes as well."""
    if not isinstance(node, exp.TsOrDsToDate) or not _has_only(node, "this"):
        return None
    return None if node.args.get("safe") else node.this


def _literal_days(node: exp.Expr) -> int | None:
    """The days of `date_add(d, 3)`, `date_add(d, -3)` and of `date_sub(d, 3)`, which is 3 * -1."""
    if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit():
        return int(node.name)
    if isinstance(node, exp.Neg):
        inner = _literal_days(node.this) if isinstance(node.this, exp.Literal) else None
        return None if inner is None else -inner
    if isinstance(node, exp.Mul) and node.expression == exp.Neg(this=exp.Literal.number(1)):
        inner = _literal_days(node.this)
        return None if inner is None else -inner
    return None


def has_plain_units(text: str) -> bool:
    """Whether every unit of TRUNC and DATE_TRUNC is a literal that Spark knows as it is written.

    >>> has_plain_units("trunc(d, 'MM')"), has_plain_units("date_trunc('y', t)")
    (True, False)
    """
    for found in _TRUNC.finditer(text):
        arguments = _split_arguments(text[found.end() :])
        dated = found[1] is not None
        quoted = _QUOTED.fullmatch(arguments[0 if dated else -1])
        units = DATE_TRUNC_UNITS if dated else TRUNC_UNITS
        if len(arguments) != 2 or quoted is None or quoted[1].upper() not in units:
            return False
    return True


def _split_arguments(text: str) -> list[str]:
    """The arguments of a call whose bracket has just been opened."""
    depth, parts = 0, [""]
    for piece in re.findall(r"'[^']*'|`[^`]*`|[^'`]", text):
        if piece == ")" and depth == 0:
            break
        depth += {"(": 1, ")": -1}.get(piece, 0)
        if piece == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += piece
    return parts
