"""What `viewkeeper query` lets through: one SELECT that reads nothing but views of the project.

Spark SQL can also write, drop, load jars, read files by path and call Java. So the statement is
parsed first and must be a query; every table in it must be a view, or a name that a WITH defines.
"""

from __future__ import annotations

import logging

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ErrorLevel, SqlglotError

from viewkeeper.cli.speech import nearest
from viewkeeper.errors import DefinitionError

HINT = 'for example "SELECT * FROM name WHERE ..."'
_CALLS_JAVA = frozenset({"reflect", "java_method", "try_reflect"})


def check_query(sql: str, views: tuple[str, ...]) -> tuple[str, ...]:
    """The views that a query reads; DefinitionError if it is anything but a query over views."""
    tree = _parse(sql)
    for function in tree.find_all(exp.Anonymous):
        if function.name.lower() in _CALLS_JAVA:
            raise DefinitionError(f"the query calls {function.name}, which runs Java code")
    defined = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    known = {name.lower(): name for name in views}
    used: dict[str, None] = {}
    for table in tree.find_all(exp.Table):
        plain = isinstance(table.this, exp.Identifier) and not table.args.get("db")
        name = table.name.lower()
        if plain and name in known and name not in defined:
            used[known[name]] = None
        elif not plain or name not in defined:
            raise _unknown(table, views)
    return tuple(used)


def _parse(sql: str) -> exp.Query:
    # What it does not know it reports as a command, which is refused below in our own words.
    logging.getLogger("sqlglot").setLevel(logging.ERROR)
    dialect = Dialect.get_or_raise("spark")
    try:
        parsed = dialect.parser(error_level=ErrorLevel.IMMEDIATE).parse(dialect.tokenize(sql), sql)
    except SqlglotError as error:
        detail = str(error).split("\n")[0].split(" but got <")[0]
        raise DefinitionError("the query cannot be parsed", detail=detail, hint=HINT) from None
    trees = [tree for tree in parsed if tree is not None]
    if len(trees) != 1:
        raise DefinitionError(f"{len(trees)} statements, not one", hint=HINT)
    tree = trees[0]
    if not isinstance(tree, exp.Query) or tree.find(exp.Into, exp.DML):
        raise DefinitionError("only SELECT, or WITH ... SELECT, can be run here", hint=HINT)
    return tree


def _unknown(table: exp.Table, views: tuple[str, ...]) -> DefinitionError:
    text = table.sql(dialect="spark").partition(" AS ")[0]
    return DefinitionError(
        f"{text} is not a view of this project",
        hint=f"views: {', '.join(views)}{nearest(table.name, views)}",
    )
