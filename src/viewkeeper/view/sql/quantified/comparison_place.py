"""Where a quantified comparison is in its query: what its value is for, and what its left side is.

A mark stands for the quantifier and its subquery, so that the syntax tree has it as a column. In
WHERE, HAVING and ON, tied by AND to the rest, only true counts. The left side may be written inside
a subquery, as an outer reference, if it consists of columns of the rows that the query around reads
one by one: no aggregate, no window, no other subquery, and no name that the select list gives.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from viewkeeper.view.sql import functions

COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)
CLAUSES = (exp.Where, exp.Having, exp.Qualify, exp.Join, exp.Group, exp.Order, exp.Query)


@dataclass(frozen=True, slots=True)
class ComparisonPlace:
    """The left side of a comparison, and what is known of where it is."""

    left: exp.Expr
    is_condition: bool
    """Whether NULL counts as false."""
    is_on: bool
    """Whether it is in the ON of a join."""
    is_grouped: bool
    """Whether it is a value beside the groups that a SELECT shows, and in no aggregate."""
    is_of_one_row: bool
    """Whether the left side means the same inside a subquery."""

    @property
    def has_aggregate(self) -> bool:
        return any(_is_fold(node) for node in self.left.walk())


def place_of(tree: exp.Expr, mark: str) -> ComparisonPlace | None:
    """The place of the comparison whose right side is a mark; None if it is no right side."""
    column = next((each for each in tree.find_all(exp.Column) if each.name == mark), None)
    compared = None if column is None else column.parent
    if not isinstance(compared, COMPARISONS) or compared.expression is not column:
        return None
    # Spark reads comparisons from left to right, and sqlglot some of them otherwise.
    is_right_side = isinstance(compared.parent, exp.Binary) and compared.arg_key == "expression"
    if is_right_side and not isinstance(compared.parent, exp.Connector):
        return None
    only_true, is_folded = True, False
    inner: exp.Expr = compared
    clause = compared.parent
    while clause is not None and not isinstance(clause, CLAUSES):
        only_true = only_true and isinstance(clause, exp.Paren | exp.And)
        is_folded = is_folded or _is_fold(clause)
        inner, clause = clause, clause.parent
    is_on = isinstance(clause, exp.Join)
    is_where = isinstance(clause, exp.Where) and not isinstance(clause.parent, exp.Filter)
    is_listed = isinstance(clause, exp.Select) and inner.arg_key == "expressions"
    decides = is_where or is_on or isinstance(clause, exp.Having | exp.Qualify)
    left, is_grouped, is_row = compared.this, False, is_where or is_on
    if is_listed and isinstance(clause, exp.Select):
        has_groups = _shows_groups(clause)
        is_grouped = has_groups and not is_folded
        is_row = not has_groups and not _reads_alias(left, clause)
    is_row = is_row and not any(map(_is_of_many_rows, left.walk()))
    return ComparisonPlace(left, only_true and decides, is_on, is_grouped, is_row)


def _is_of_many_rows(node: exp.Expr) -> bool:
    return isinstance(node, exp.Query | exp.Window) or _is_fold(node)


def _is_fold(node: exp.Expr) -> bool:
    named = isinstance(node, exp.Anonymous) and node.name.lower() in functions.AGGREGATES
    return named or isinstance(node, exp.AggFunc)


def _shows_groups(select: exp.Select) -> bool:
    """Whether a SELECT shows groups, as far as its text says."""
    folds = any(_is_fold(node) for item in select.expressions for node in item.walk())
    return folds or bool(select.args.get("group") or select.args.get("having"))


def _reads_alias(left: exp.Expr, select: exp.Select) -> bool:
    """Whether a name without a table could be one that the same list gives to something."""
    given = {item.alias.lower() for item in select.expressions if item.alias}
    names = {column.name.lower() for column in left.find_all(exp.Column) if not column.table}
    return bool(given & names)
