"""What a statement that changed a table says of its columns: which of them got no new values.

An event trigger sees that a column has another type, not how its values were made. The text of the
statement tells: without USING, or with one that is the cast alone, they are casts. A text that is
anything else than plain DDL (a function that does it, a block) says nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

# A longer one is not written by hand, and reading it would hold everybody up.
_READ_MAX = 100_000
_HARMLESS = (exp.Alter, exp.Create, exp.Drop, exp.Transaction, exp.Commit, exp.Rollback)


def plain_columns(text: str, columns: Mapping[int, frozenset[str]]) -> tuple[int, ...]:
    """Which of these columns, by all their names, the statement only casts, or leaves alone.

    >>> columns = {1: frozenset({"a"}), 2: frozenset({"b"})}
    >>> plain_columns("ALTER TABLE t ALTER a TYPE int USING a * 2, ALTER b TYPE text", columns)
    (2,)
    >>> plain_columns("ALTER TABLE t ALTER a TYPE bigint USING a::bigint", columns)
    (1, 2)
    >>> plain_columns("SELECT change_everything()", columns)
    ()
    """
    statements = _parsed(text) if len(text) <= _READ_MAX else []
    if not statements or not all(isinstance(each, _HARMLESS) for each in statements):
        return ()
    computed = {
        action.this.name if action.this.args.get("quoted") else action.this.name.lower()
        for each in statements
        for action in each.find_all(exp.AlterColumn)
        if action.args.get("using") and not _is_cast(action)
    }
    return tuple(number for number, names in columns.items() if not names & computed)


def _parsed(text: str) -> list[exp.Expr]:
    logger = logging.getLogger("sqlglot")
    level = logger.level
    # What it cannot read is no news for anybody: it counts as unknown here.
    logger.setLevel(logging.ERROR)
    try:
        return [each for each in sqlglot.parse(text, read="postgres") if each is not None]
    except (SqlglotError, RecursionError):
        return []
    finally:
        logger.setLevel(level)


def _is_cast(action: exp.AlterColumn) -> bool:
    """Whether USING is what would be done without it."""
    using = action.args["using"]
    return (
        isinstance(using, exp.Cast)
        and isinstance(using.this, exp.Column)
        and using.this.name == action.this.name
        and using.to == action.args.get("dtype")
    )
