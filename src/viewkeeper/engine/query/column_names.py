"""The name that Spark gives to a column of an answer that the query does not name.

A column has its own name as the query spells it; an expression is written out, with a pair of
brackets around each operation, texts without quotes and `count(*)` as `count(1)`. Only what is
simple enough to be sure of is written here: operations on numbers alone, because a date plus a
number is a function.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow.types as is_type
from sqlglot import exp

from viewkeeper.engine.query.select_clauses import AggregateUse, SparkNeeded
from viewkeeper.view.sql.scope import Scope
from viewkeeper.view.sql.sql_text import leaf_span_of

SIGNS: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
}


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """The names of columns over what a scope shows, with these aggregates."""

    scope: Scope
    aggregates: Mapping[int, AggregateUse]

    def name_of(self, node: exp.Expr) -> str:
        """The name of an item of the list; SparkNeeded where we are not sure of it."""
        match node:
            case exp.Paren():
                return self.name_of(node.this)
            case exp.Column() if not isinstance(node.this, exp.Star):
                use = self._aggregate_at(node)
                return node.name if use is None else self._name_of_call(use)
            case exp.Literal() if node.is_string:
                return node.name
            case exp.Literal() if node.name.isdigit():
                return str(int(node.name))
            case exp.Binary() if type(node) in SIGNS and self._has_numbers(node):
                left, right = self.name_of(node.left), self.name_of(node.right)
                return f"({left} {SIGNS[type(node)]} {right})"
        raise SparkNeeded("Spark names a column that has no alias")

    def _aggregate_at(self, column: exp.Column) -> AggregateUse | None:
        span = leaf_span_of(column)
        return None if span is None else self.aggregates.get(span.start)

    def _name_of_call(self, use: AggregateUse) -> str:
        return f"{use.function}({'1' if use.argument is None else self.name_of(use.argument.node)})"

    def _has_numbers(self, node: exp.Expr) -> bool:
        """Whether everything that an operation reads is a number."""
        return all(self._is_number(column) for column in node.find_all(exp.Column))

    def _is_number(self, column: exp.Column) -> bool:
        use = self._aggregate_at(column)
        if use is not None:
            if use.function == "count" or use.argument is None:
                return True
            return self._has_numbers(use.argument.node)
        kind = self.scope.resolve_column(column).type
        return is_type.is_integer(kind) or is_type.is_floating(kind) or is_type.is_decimal(kind)
