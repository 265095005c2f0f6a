"""An expression of Spark's plan as SQL text again, over labels in backticks.

Operators and special forms are written by hand, functions by their name: from a short table for
the classes that Spark's own rewriting brings in, otherwise as the user called them. What has no
name here is refused. The text need not be believed: `text_comparison` analyses it again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from viewkeeper.engine.compile.expressions.spark_types import sql_type_of
from viewkeeper.engine.compile.plan.plan_tree import (
    Attribute,
    PlanExpression,
    PlanLiteral,
    PlanOperation,
)
from viewkeeper.engine.compile.refusal_reasons import refuse, refuse_expression
from viewkeeper.errors import UnsupportedError
from viewkeeper.view.render import quote_name
from viewkeeper.view.sql.functions import DETERMINISTIC, refusal_of_call

BINARY = {
    "Add": "+",
    "Subtract": "-",
    "Multiply": "*",
    "Divide": "/",
    "Remainder": "%",
    "IntegralDivide": "DIV",
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "And": "AND",
    "Or": "OR",
    "BitwiseAnd": "&",
    "BitwiseOr": "|",
    "BitwiseXor": "^",
    "RLike": "RLIKE",
    "DateAddYMInterval": "+",
    "DateAddInterval": "+",
    "TimestampAddYMInterval": "+",
    "TimestampAddInterval": "+",
    "TimeAdd": "+",
}
UNARY = {
    "Not": "(NOT {})",
    "UnaryMinus": "(- {})",
    "IsNull": "({} IS NULL)",
    "IsNotNull": "({} IS NOT NULL)",
    "BitwiseNot": "(~ {})",
    "KnownNotNull": "{}",
    "ExtractANSIIntervalDays": "CAST(extract(DAY FROM {}) AS INT)",
}
KERNEL_CALLS = {
    "Coalesce": "coalesce",
    "If": "if",
    "Greatest": "greatest",
    "Least": "least",
    "Substring": "substring",
    "Upper": "upper",
    "Lower": "lower",
    "StringTrim": "trim",
    "StringTrimLeft": "ltrim",
    "StringTrimRight": "rtrim",
    "Concat": "concat",
    "Length": "length",
    "Year": "year",
    "Month": "month",
    "DayOfMonth": "day",
    "Quarter": "quarter",
    "Hour": "hour",
    "Minute": "minute",
    "Second": "second",
    "TruncTimestamp": "date_trunc",
    "TruncDate": "trunc",
    "DateDiff": "datediff",
    "DateAdd": "date_add",
    "AddMonths": "add_months",
    "Round": "round",
    "Abs": "abs",
    "StartsWith": "startswith",
    "EndsWith": "endswith",
    "Contains": "contains",
}
"""Functions that the kernel has a word for, spelled as in SQL, by the classes of Spark."""
CALLS = {
    **KERNEL_CALLS,
    "DateSub": "date_sub",
    "BRound": "bround",
    "WeekOfYear": "weekofyear",
    "DayOfWeek": "dayofweek",
    "DayOfYear": "dayofyear",
    "WeekDay": "weekday",
    "ShiftRight": "shiftright",
    "ShiftLeft": "shiftleft",
    "GetJsonObject": "get_json_object",
    "TryAdd": "try_add",
    "TrySubtract": "try_subtract",
    "TryMultiply": "try_multiply",
    "TryDivide": "try_divide",
    "TryMod": "try_mod",
    "StringReplace": "replace",
    "StringLPad": "lpad",
    "StringRPad": "rpad",
    "IsNaN": "isnan",
    "Pow": "pow",
    "DateFormatClass": "date_format",
    "LastDay": "last_day",
    "Ceil": "ceil",
    "Floor": "floor",
    "StringLocate": "locate",
    "StringInstr": "instr",
    "Pmod": "pmod",
    "Sqrt": "sqrt",
    "RegExpReplace": "regexp_replace",
    "RegExpExtract": "regexp_extract",
    "Md5": "md5",
    "StringSplit": "split",
    "ParseToDate": "to_date",
    "UnixTimestamp": "unix_timestamp",
    "SecondWithFraction": "second",
    "CreateArray": "array",
    "ArrayContains": "array_contains",
}
SUFFIXES = {"byte": "Y", "short": "S", "integer": "", "long": "L", "float": "F", "double": "D"}
TYPED = {"date": "DATE", "timestamp": "TIMESTAMP", "timestamp_ntz": "TIMESTAMP_NTZ"}


@dataclass(frozen=True, slots=True)
class TextWriter:
    """Writes expressions; `label_of` names columns, `names` are functions that the user called,
    by the class that Spark has for them."""

    label_of: Callable[[Attribute], str]
    names: Mapping[str, str]

    def write_expression(self, expression: PlanExpression) -> str:
        """The expression as text."""
        match expression:
            case Attribute():
                return self.label_of(expression)
            case PlanLiteral():
                return write_literal(expression)
            case PlanOperation():
                return self._write_replaced(expression)

    def _write_replaced(self, operation: PlanOperation) -> str:
        try:
            return self._write_operation(operation)
        except UnsupportedError:
            if operation.call is None:
                raise
            return self._write_operation(operation.call)

    def _write_operation(self, operation: PlanOperation) -> str:
        kind, facts = operation.kind, dict(operation.facts)
        parts = [self.write_expression(each) for each in operation.operands]
        if kind in BINARY and len(parts) == 2:
            return f"({parts[0]} {BINARY[kind]} {parts[1]})"
        if kind in UNARY and len(parts) == 1:
            return UNARY[kind].format(parts[0])
        match kind:
            case "Cast":
                return _write_cast(operation, parts[0], facts)
            case "In":
                return f"({parts[0]} IN ({', '.join(parts[1:])}))"
            case "Like" | "ILike":
                return _write_like(kind, parts, str(facts.get("escapeChar", "\\")))
            case "CaseWhen":
                return _write_case(parts)
            case "NullIfResult":
                return f"if({parts[0]}, NULL, {parts[1]})"
            case "GetArrayItem" | "GetMapValue":
                return f"{parts[0]}[{parts[1]}]"
            case "GetStructField" | "GetArrayStructFields":
                return f"({parts[0]}).{quote_name(_field_name(operation))}"
            case "JsonToStructs":
                return _write_from_json(operation, parts[0])
        return f"{self._name_of(operation)}({', '.join(parts)})"

    def _name_of(self, operation: PlanOperation) -> str:
        name = self.names.get(operation.kind) or CALLS.get(operation.kind)
        if name is None:
            raise refuse_expression(operation.kind, operation.java)
        if name and name not in DETERMINISTIC:
            reason = refusal_of_call(name, not operation.operands)
            assert reason is not None, name
            raise refuse(*reason, operation.java)
        return name


def _field_name(operation: PlanOperation) -> str:
    """The name of the field of a struct that is taken."""
    java = operation.java.get_node()
    if operation.kind == "GetArrayStructFields":
        return str(java.field().name())
    return str(java.childSchema().fields()[int(java.ordinal())].name())


def _write_from_json(operation: PlanOperation, part: str) -> str:
    java = operation.java.get_node()
    if not java.options().isEmpty():
        raise refuse("from_json() with options", "leave them out", operation.java)
    return f"from_json({part}, {_quote_text(str(java.schema().sql()))})"


def _write_cast(operation: PlanOperation, part: str, facts: Mapping[str, object]) -> str:
    kind = sql_type_of(str(facts["dataType"]))
    if kind is None:
        raise refuse(f"a cast to {facts['dataType']}", None, operation.java)
    return f"{'TRY_CAST' if facts['evalMode'] == 'TRY' else 'CAST'}({part} AS {kind})"


def _write_like(kind: str, parts: list[str], escape: str) -> str:
    clause = "" if escape == "\\" else f" ESCAPE {_quote_text(escape)}"
    return f"({parts[0]} {kind.upper()} {parts[1]}{clause})"


def _write_case(parts: list[str]) -> str:
    pairs = zip(parts[::2], parts[1::2], strict=False)
    whens = " ".join(f"WHEN {condition} THEN {value}" for condition, value in pairs)
    otherwise = f" ELSE {parts[-1]}" if len(parts) % 2 else ""
    return f"CASE {whens}{otherwise} END"


def write_literal(literal: PlanLiteral) -> str:
    """A constant as Spark reads it back with the same type and value.

    >>> write_literal(PlanLiteral("1.50", "decimal(3,2)")), write_literal(PlanLiteral("7", "long"))
    ('1.50BD', '7L')
    """
    kind, value = literal.type, literal.value
    if value is None:
        return "NULL" if kind == "void" else f"CAST(NULL AS {_needed_type(literal)})"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if kind == "string":
        return _quote_text(value)
    if kind == "boolean":
        return value.upper()
    if kind in SUFFIXES:
        return _write_number(value, kind)
    if kind.startswith("decimal"):
        return f"{value}BD" if "E" not in value.upper() else f"CAST('{value}' AS {kind})"
    if kind in TYPED:
        return f"{TYPED[kind]} '{value}'"
    if kind.startswith("interval "):
        return _write_interval(literal)
    raise refuse(f"a constant of type {json.dumps(kind)}", None, literal.java)


def _needed_type(literal: PlanLiteral) -> str:
    kind = sql_type_of(literal.type)
    if kind is None:
        raise refuse(f"a NULL of type {literal.type}", None, literal.java)
    return kind


def _write_number(value: str, kind: str) -> str:
    if value in ("NaN", "Infinity", "-Infinity"):
        return f"CAST('{value}' AS {kind})"
    return f"{value}{SUFFIXES[kind]}"


def _write_interval(literal: PlanLiteral) -> str:
    """Years and months are counted in months, the others in microseconds."""
    amount = int(str(literal.value))
    units = {
        "year": 12,
        "month": 1,
        "day": 86_400_000_000,
        "hour": 3_600_000_000,
        "minute": 60_000_000,
    }
    unit = literal.type.removeprefix("interval ")
    if unit in units and amount % units[unit] == 0:
        return f"INTERVAL '{amount // units[unit]}' {unit.upper()}"
    sign, rest = "-" if amount < 0 else "", abs(amount)
    days, rest = divmod(rest, units["day"])
    hours, rest = divmod(rest, units["hour"])
    minutes, rest = divmod(rest, units["minute"])
    seconds = f"{rest // 10**6:02}.{rest % 10**6:06}"
    if unit != "day to second":
        raise refuse(f"a constant of type {literal.type}", None, literal.java)
    return f"INTERVAL '{sign}{days} {hours:02}:{minutes:02}:{seconds}' DAY TO SECOND"


def _quote_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
