"""Whether a text is a query that may be run: one SELECT over views of the project.

Spark SQL can also write, drop, load jars, run scripts, read files by path and call Java. So the
statement is read first as every reader reads it (`viewkeeper.view.sql.syntax`), and everything in
it must be on a list: the kinds of nodes of its tree, the functions by the names that the user
wrote, the relations, each of which must be a view or a name that a WITH defines. What Spark makes
of the text is held against a list once more (`viewkeeper.engine.spark.parsed_plan`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from sqlglot import Token, TokenType, exp

from viewkeeper.errors import DefinitionError, UnsupportedError, suggest_nearest
from viewkeeper.view.sql import functions
from viewkeeper.view.sql.plain_select import is_word
from viewkeeper.view.sql.quantified.quantified_comparisons import rewrite_quantified
from viewkeeper.view.sql.quantified.rewritten_text import RewrittenText
from viewkeeper.view.sql.sql_text import SqlText, own_span_of
from viewkeeper.view.sql.syntax import read_trees, tokenize_sql

HINT = 'for example "SELECT * FROM name WHERE ..."'

NODES: tuple[type[exp.Expr], ...] = (
    # Queries and their clauses.
    *(exp.Select, exp.SetOperation, exp.Subquery, exp.With, exp.CTE, exp.From, exp.Join),
    *(exp.Where, exp.Group, exp.GroupingSets, exp.Rollup, exp.Cube, exp.Having, exp.Qualify),
    *(exp.Order, exp.Ordered, exp.Sort, exp.Cluster, exp.Distribute, exp.Limit, exp.Offset),
    *(exp.Table, exp.TableAlias, exp.TableSample, exp.Pivot, exp.Lateral, exp.Values),
    *(exp.Window, exp.WindowSpec, exp.Distinct, exp.Star, exp.Alias, exp.Aliases),
    *(exp.PivotAlias, exp.PivotAny, exp.UnpivotColumns),
    # Values.
    *(exp.Column, exp.Identifier, exp.Literal, exp.Null, exp.Boolean, exp.HexString),
    *(exp.RawString, exp.DataType, exp.DataTypeParam, exp.ColumnDef, exp.Interval, exp.Var),
    *(exp.Tuple, exp.Lambda, exp.Kwarg, exp.PropertyEQ, exp.Slice, exp.Bracket, exp.Dot),
    *(exp.IntervalSpan, exp.IntervalOp),
    # Operators; functions are judged by their names.
    *(exp.Binary, exp.Unary, exp.Between, exp.In, exp.Any, exp.All, exp.Exists, exp.Filter),
    *(exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls, exp.AtTimeZone, exp.FromTimeZone),
    *(exp.If, exp.Collate, exp.Func),
)
TABLE_CLAUSES = {"this", "alias", "joins", "laterals", "pivots", "sample"}


@dataclass(frozen=True, slots=True)
class CheckedQuery:
    """A query that may be run: its text as Spark gets it, and what it reads."""

    text: str
    views: tuple[str, ...]
    defined: frozenset[str]
    """What its WITH clauses define, in lower case."""
    sql: SqlText = field(repr=False, compare=False)
    """The whole text as it was read, with the tokens of the query and its tree."""
    tokens: tuple[Token, ...] = field(repr=False, compare=False)
    tree: exp.Query = field(repr=False, compare=False)
    rewritten: RewrittenText = field(repr=False, compare=False)
    """Where everything in the text was before quantified comparisons were rewritten."""


def check_query(text: str, views: tuple[str, ...]) -> CheckedQuery:
    """The query, checked; DefinitionError if it is anything but a query over views."""
    sql, tokens, tree = _read_query(text)
    for node in tree.walk():
        if not isinstance(node, NODES):
            raise sql.unsupported_at(f"{node.key.upper()} in a query", 0, HINT)
    for token, name in _function_calls(tokens, tree):
        if name in functions.REFUSED:
            raise sql.unsupported_at(f"the function {name}()", token.start, functions.REFUSED[name])
        if name not in functions.IN_QUERY:
            raise sql.unsupported_at(
                f"the function {name}()", token.start, functions.missing_function_hint(name)
            )
    defined = frozenset(cte.alias.lower() for cte in tree.find_all(exp.CTE))
    known = {name.lower(): name for name in views}
    used: dict[str, None] = {}
    for table in tree.find_all(exp.Table):
        plain = isinstance(table.this, exp.Identifier) and not table.args.get("db")
        clauses = {key for key, value in table.args.items() if value}
        name = table.name.lower()
        if not plain or not clauses <= TABLE_CLAUSES or not (name in known or name in defined):
            written = table.sql(dialect="spark").partition(" AS ")[0]
            raise unknown_relation_error(written, table.name, views)
        if name in known:
            used[known[name]] = None
    # What was checked is the user's own text; what others read has no comparison that Spark has
    # not.
    rewritten = rewrite_quantified(sql)
    if rewritten.text != sql.text:
        sql, tokens, tree = _read_query(rewritten.text)
    own = tuple(token for token in tokens if token.token_type is not TokenType.SEMICOLON)
    return CheckedQuery(
        sql.text[: own[-1].end + 1], tuple(used), defined, sql, own, tree, rewritten
    )


def _read_query(text: str) -> tuple[SqlText, list[Token], exp.Query]:
    try:
        read = tokenize_sql(SqlText(text, verdict="cannot be run here"))
        trees = read_trees(read, read.sql, read.tokens) if read.tokens else []
    except UnsupportedError:
        raise
    except DefinitionError as error:
        raise DefinitionError(
            "the query cannot be parsed", detail=error.message, hint=error.hint or HINT
        ) from None
    found = [tree for tree in trees if tree is not None]
    if len(found) != 1:
        raise DefinitionError(f"{len(found)} statements, not one", hint=HINT)
    tree = found[0]
    if not isinstance(tree, exp.Query) or tree.find(exp.Into, exp.DML):
        raise DefinitionError("only SELECT, or WITH ... SELECT, can be run here", hint=HINT)
    return read.sql, read.tokens, tree


def _function_calls(tokens: list[Token], tree: exp.Query) -> Iterator[tuple[Token, str]]:
    """Every word before a bracket that can be the name of a function, as the user wrote it."""
    aliases = [alias.this for alias in tree.find_all(exp.TableAlias) if alias.args.get("columns")]
    named = {span.start for alias in aliases if alias and (span := own_span_of(alias)) is not None}
    padded = [None, *tokens]
    for before, token, bracket in zip(padded, tokens, tokens[1:], strict=False):
        quoted = token.token_type is TokenType.IDENTIFIER
        if bracket.token_type is not TokenType.L_PAREN or not (quoted or is_word(token)):
            continue
        # sqlglot makes one token of words that belong together.
        name = token.text.lower().split()[-1] if token.text.strip() else ""
        if before is not None and before.token_type is TokenType.DOT:
            yield token, f"{name} of a schema"
        elif name in functions.REFUSED:
            yield token, name
        elif token.start not in named and (quoted or name not in functions.QUERY_KEYWORDS):
            yield token, token.text.lower() if quoted else name


def unknown_relation_error(written: str, name: str, views: tuple[str, ...]) -> DefinitionError:
    """The error for a relation that is none of the views; `name` is its last part."""
    if not views:
        return DefinitionError(
            f"{written}: no view of this project is loaded yet",
            hint="`viewkeeper run` loads them; `viewkeeper status` says how far they are",
        )
    return DefinitionError(
        f"{written} is not a view of this project",
        hint=f"views: {', '.join(views)}{suggest_nearest(name, views)}",
    )
