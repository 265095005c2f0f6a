"""A query that is more than a select-project-join: held against lists, and its tables found.

Spark says what such a query means (`viewkeeper.engine.compile`). What Spark gets was checked here
before: the kinds of nodes in the syntax tree and the functions, by the names that the user wrote,
are on lists, and every table is one of a source, a view of the project, or a name that a WITH
defines. What can never be maintained is refused at once, without Spark; what only its plan shows is
refused when the view is compiled.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from sqlglot import Token, TokenType, exp

from viewkeeper.errors import UnsupportedError
from viewkeeper.view.definition import PROJECT, Relation
from viewkeeper.view.sql import functions
from viewkeeper.view.sql.clock_calls import CALLS, ClockReads, find_clock_calls
from viewkeeper.view.sql.plain_select import judge_calls
from viewkeeper.view.sql.quantified.quantified_comparisons import rewrite_quantified
from viewkeeper.view.sql.sql_text import Span, SqlText, leaf_span_of, own_span_of

NODES: tuple[type[exp.Expr], ...] = (
    # Queries and their clauses.
    *(exp.Select, exp.SetOperation, exp.Subquery, exp.With, exp.CTE, exp.From, exp.Join),
    *(exp.Where, exp.Group, exp.GroupingSets, exp.Rollup, exp.Cube, exp.Having, exp.Qualify),
    *(
        exp.Order,
        exp.Ordered,
        exp.Limit,
        exp.Offset,
        exp.Table,
        exp.TableAlias,
        exp.Pivot,
        exp.Values,
    ),
    *(exp.Window, exp.WindowSpec, exp.Distinct, exp.Star, exp.Alias, exp.PivotAlias),
    # Values.
    *(exp.Column, exp.Identifier, exp.Literal, exp.Null, exp.Boolean, exp.HexString),
    *(exp.RawString, exp.DataType, exp.DataTypeParam, exp.Interval, exp.Var, exp.Tuple),
    *(exp.IntervalSpan, exp.IntervalOp, exp.Bracket, exp.Slice, exp.Dot),
    *(exp.JSONPath, exp.JSONPathPart),
    # Operators; functions are judged by their names.
    *(exp.Binary, exp.Unary, exp.Between, exp.In, exp.Any, exp.All, exp.Exists, exp.Filter),
    *(
        exp.Lateral,
        exp.Aliases,
        exp.WithinGroup,
        exp.IgnoreNulls,
        exp.RespectNulls,
        exp.If,
        exp.Collate,
        exp.Func,
    ),
)

# Keyed as sqlglot keys them: how the user wrote it, and the way out.
REFUSED: dict[str, tuple[str, str | None]] = {
    "order": ("ORDER BY", "a view has no order; ask for one when reading it"),
    "sort": ("SORT BY", "a view has no order; ask for one when reading it"),
    "cluster": ("CLUSTER BY", "a view has no order; ask for one when reading it"),
    "distribute": ("DISTRIBUTE BY", None),
    "limit": ("LIMIT without ORDER BY", "say which rows come first by ORDER BY"),
    "offset": ("OFFSET without LIMIT and ORDER BY", "limit the rows when reading the view"),
    "sample": ("TABLESAMPLE", "a sample is another one each time that it is taken"),
    "hint": ("a query hint", "remove the /*+ ... */ comment"),
    "version": ("time travel", "a view follows the newest state of its relations"),
}
ANYWHERE = ("sort", "cluster", "distribute", "sample", "hint")
NAMES_OF_NODES: dict[str, str] = {
    "lateral": "LATERAL",
    "tablesample": "TABLESAMPLE",
    "querytransform": "TRANSFORM",
    "placeholder": "a parameter",
    "parameter": "a parameter",
    "lambda": "a lambda function",
}
IN_TABLE = {"this", "db", "catalog", "alias", "joins", "pivots"}
PARTS_HINT = "write it as source.table, source.schema.table, or the name of a view"


@dataclass(frozen=True, slots=True)
class TableName:
    """A table or view of the project, where the text names it."""

    relation: Relation
    alias: str
    aliased: bool
    span: Span


@dataclass(frozen=True, slots=True)
class ReportQuery:
    """What a report reads, in the order of the text, and its syntax tree."""

    tables: tuple[TableName, ...]
    tree: exp.Query
    clock: ClockReads | None = None
    """The calls for the present time, if there are some."""

    @property
    def relations(self) -> tuple[Relation, ...]:
        """What is read, by place: the tables of the text, and the clock after them."""
        named = tuple(table.relation for table in self.tables)
        return named if self.clock is None else (*named, self.clock.relation)


def read_report(sql: SqlText, tokens: list[Token], tree: exp.Expr) -> ReportQuery:
    """The query, if everything in it is on a list; else an error that points into the text."""
    if not isinstance(tree, exp.Query):
        word = tokens[0].text.upper()
        raise sql.unsupported_at(f"{word} in place of SELECT", tokens[0].start)
    refused = [*_refused_clauses(sql, tokens, tree), *_refused_calls(sql, tokens, tree)]
    if refused:
        refused += _refused_nodes(sql, tokens, tree)
        raise refused[0].with_others(refused[1:])
    _check_renamed_columns(sql, tree)
    tables = tuple(sorted(_find_tables(sql, tree, frozenset()), key=lambda each: each.span))
    if refused := [*_refused_nodes(sql, tokens, tree)]:
        raise refused[0].with_others(refused[1:])
    if not tables:
        raise sql.error_at("a view reads at least one relation", tokens[0].start, hint="add FROM")
    # Spark gets the text rewritten; here it is for what is refused, with its place.
    rewrite_quantified(sql, tokens)
    return ReportQuery(tables, tree, find_clock_calls(sql, tokens))


def _refused_clauses(
    sql: SqlText, tokens: list[Token], tree: exp.Query
) -> Iterator[UnsupportedError]:
    """Clauses that have no meaning in a view."""
    found: list[tuple[int, str]] = []
    for node in tree.walk():
        keys = _refused_keys(node) if node is tree else ANYWHERE
        found += [(_offset_of(node), key) for key in keys if node.args.get(key)]
    for offset, key in sorted(found):
        construct, hint = REFUSED[key]
        word = "/*+" if key == "hint" else construct.split()[0]
        yield sql.unsupported_at(construct, _keyword_offset(tokens, word, offset), hint)


def _refused_keys(tree: exp.Query) -> Collection[str]:
    """Clauses that mean nothing at the end of a view; an order says which rows a LIMIT takes."""
    is_top = tree.args.get("order") and tree.args.get("limit")
    return REFUSED.keys() - {"order", "limit", "offset"} if is_top else REFUSED.keys()


def _refused_nodes(
    sql: SqlText, tokens: list[Token], tree: exp.Query
) -> Iterator[UnsupportedError]:
    for node in tree.walk():
        if not isinstance(node, NODES):
            what = NAMES_OF_NODES.get(node.key, node.key.upper())
            yield sql.unsupported_at(what, _keyword_offset(tokens, what, 0) or _offset_of(node))
        if isinstance(node, exp.With) and node.args.get("recursive"):
            hint = "write the levels out, or keep them in a source"
            offset = _keyword_offset(tokens, "RECURSIVE", 0)
            yield sql.unsupported_at("a recursive WITH", offset, hint)
    for token in tokens:
        # Outside of a call sqlglot reads an arrow as something else than Spark does.
        if token.token_type is TokenType.ARROW:
            yield sql.unsupported_at("a lambda function", token.start)


def _refused_calls(
    sql: SqlText, tokens: list[Token], tree: exp.Query
) -> Iterator[UnsupportedError]:
    aliases = [alias.this for alias in tree.find_all(exp.TableAlias) if alias.args.get("columns")]
    renamed = {span.start for alias in aliases if alias and (span := own_span_of(alias))}
    for token, name, refusal in judge_calls(tokens):
        # sqlglot makes one token of words that belong together.
        word = name.split()[-1] if name.strip() else name
        allowed = name in functions.AGGREGATES | functions.GENERATORS | functions.WINDOW | CALLS
        allowed = allowed or word in functions.QUERY_KEYWORDS
        allowed = allowed or token.start in renamed
        if refusal is not None and not allowed and name not in functions.TABLES:
            yield sql.unsupported_at(refusal[0], token.start, refusal[1])


def _check_renamed_columns(sql: SqlText, tree: exp.Query) -> None:
    """Columns that an alias renames have names: with texts, `t f('a')` would look like a call."""
    for alias in tree.find_all(exp.TableAlias):
        for column in alias.args.get("columns") or ():
            _plain_name(sql, column)


def _find_tables(sql: SqlText, node: exp.Expr, defined: frozenset[str]) -> Iterator[TableName]:
    """Every table below a node that is not a name which a WITH around it defines."""
    if isinstance(node, exp.Table):
        if not isinstance(node.this, exp.Func):
            yield from _table_name(sql, node, defined)
    elif isinstance(node, exp.Query) and node.args.get("with_"):
        for cte in node.args["with_"].expressions:
            yield from _find_tables(sql, cte.this, defined)
            defined = defined | {cte.alias.lower()}
    for key, value in node.args.items():
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, exp.Expr) and key != "with_":
                yield from _find_tables(sql, inner, defined)


def _table_name(sql: SqlText, table: exp.Table, defined: frozenset[str]) -> Iterator[TableName]:
    names = [table.args[key] for key in ("catalog", "db", "this") if table.args.get(key)]
    span = leaf_span_of(table.this)
    assert span is not None, "identifiers know their place"
    first = own_span_of(names[0]) or span
    if not all(isinstance(name, exp.Identifier) for name in names):
        raise sql.error_at("a table's name has at most three parts", first.start, hint=PARTS_HINT)
    for key in sorted(key for key, value in table.args.items() if value and key not in IN_TABLE):
        construct, hint = REFUSED.get(key, (key.strip("_").upper(), None))
        raise sql.unsupported_at(construct, span.end + 1, hint)
    source, *path = [_plain_name(sql, name) for name in names]
    if any("." in part for part in (source, *path)):
        raise sql.error_at(f'a dot inside the name "{".".join(path)}"', first.start)
    if not path and source.lower() in defined:
        return
    relation = Relation(source, ".".join(path)) if path else Relation(PROJECT, source)
    alias = table.args.get("alias")
    named = None if alias is None or alias.this is None else _plain_name(sql, alias.this)
    shown = named or [source, *path][-1]
    yield TableName(relation, shown, named is not None, Span(first.start, span.end))


def _plain_name(sql: SqlText, identifier: exp.Expr) -> str:
    """A name; double quotes make a string in Spark SQL, not a name."""
    span = own_span_of(identifier)
    if span is not None and sql.text[span.start] in "'\"":
        hint = f"write it in backticks: `{identifier.name}`"
        raise sql.error_at("a string where a name is expected", span.start, hint=hint)
    return identifier.name


def _offset_of(node: exp.Expr) -> int:
    """The offset of a node in the text, or else of the nearest node around it."""
    current: exp.Expr | None = node
    while current is not None:
        if (span := leaf_span_of(current)) is not None:
            return span.start
        current = current.parent
    return 0


def _keyword_offset(tokens: list[Token], word: str, after: int) -> int:
    """The offset of a clause's first word, or of what it belongs to if that cannot be found."""
    found = [t.start for t in tokens if (t.text.upper().split() or [""])[0] == word]
    return next((start for start in found if start >= after), found[0] if found else after)
