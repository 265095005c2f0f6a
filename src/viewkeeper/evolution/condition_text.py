"""Conditions that the project file has as SQL: read into trees, and whose columns they name.

Apart from `viewkeeper.evolution.preferences`, because most projects name no condition, and reading
settings should not cost them a parser of SQL.
"""

from __future__ import annotations

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from viewkeeper.errors import ProjectError

# What sqlglot raises at texts that it did not expect, besides its own errors.
_ODD = (ValueError, LookupError, TypeError, AttributeError)


def parse_condition(condition: str, where: str) -> exp.Expr:
    """A condition of the project file as a syntax tree."""
    try:
        return parse_one(condition, dialect="spark")
    except (SqlglotError, RecursionError, *_ODD) as error:
        raise ProjectError(
            f'{where}: "{condition[:200]}" is no SQL condition',
            detail=str(error).split(". ")[0],
            hint='write it as the view does, for example "o.flag = 1"',
        ) from None


def is_conjunction(condition: exp.Expr) -> bool:
    """Whether a condition is several, tied together by AND."""
    return isinstance(condition, exp.And)


def owner_of_column(column: exp.Column) -> str:
    """The table that a column names before its own name, in lower case.

    >>> owner_of_column(exp.to_column("Shop.orders.id"))
    'shop.orders'
    """
    return ".".join(part.name for part in column.parts[:-1]).lower()


def columns_named(condition: exp.Expr) -> tuple[exp.Column, ...]:
    """The columns that a condition names."""
    return tuple(condition.find_all(exp.Column))
