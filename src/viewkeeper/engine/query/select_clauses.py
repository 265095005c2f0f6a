"""A SELECT of a query taken apart: its plain core, aggregates, and the clauses behind WHERE.

The plain core - list, tables, inner joins, WHERE - is read as that of a view is
(`viewkeeper.view.sql.select_parts`). For that the clauses behind it are cut off first, and each
call of an aggregate is put aside: in the tree a column takes its place, among the tokens its name
alone stays. Tree and tokens are cut apart from each other and must agree; where they do not, the
query is left to Spark.

sqlglot reads more than Spark does, `BETWEEN 1 2` and `AS 3` too. So the tree is written again, and
must have the marks of the text: as many commas, operators, numbers, texts and words of conditions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlglot import Dialect, Token, TokenType, exp

from viewkeeper.engine.query.checked_query import CheckedQuery
from viewkeeper.view.sql import functions
from viewkeeper.view.sql.plain_select import has_plain_shape, is_word
from viewkeeper.view.sql.select_parts import SelectParts, parts_of_select
from viewkeeper.view.sql.sql_text import (
    SqlPiece,
    count_brackets,
    leaf_span_of,
    span_of_tokens,
    split_at_commas,
    tokens_at_top,
)

AGGREGATES: dict[str, type[exp.Expr]] = {
    "count": exp.Count,
    "sum": exp.Sum,
    "avg": exp.Avg,
    "min": exp.Min,
    "max": exp.Max,
}
"""The aggregates that are computed without Spark, by what a query calls them."""
CLAUSES: dict[TokenType, str] = {
    TokenType.GROUP_BY: "group",
    TokenType.HAVING: "having",
    TokenType.ORDER_BY: "order",
    TokenType.LIMIT: "limit",
    TokenType.OFFSET: "offset",
}
"""The clauses behind WHERE, in the order in which they are written."""
MARKS = {
    *(TokenType.COMMA, TokenType.NUMBER, TokenType.STRING, TokenType.NULL, TokenType.DOT),
    *(TokenType.PLUS, TokenType.DASH, TokenType.STAR, TokenType.SLASH, TokenType.MOD),
    *(TokenType.EQ, TokenType.NEQ, TokenType.LT, TokenType.LTE, TokenType.GT, TokenType.GTE),
    *(TokenType.DPIPE, TokenType.AND, TokenType.OR, TokenType.NOT),
    *(TokenType.BETWEEN, TokenType.IN, TokenType.LIKE, TokenType.IS, TokenType.DISTINCT),
    *(TokenType.CASE, TokenType.WHEN, TokenType.THEN, TokenType.ELSE, TokenType.END),
}
"""The tokens that a text and its tree must have alike."""
NAME = re.compile(r"[A-Za-z_]\w*")
PLAIN = {"expressions", "from_", "joins", "where"}


class SparkNeeded(Exception):  # noqa: N818 - a verdict that travels up, not an error
    """Only Spark can answer the query; the text says why."""


@dataclass(frozen=True, slots=True)
class AggregateUse:
    """A call of an aggregate: its function, its argument, and where its name is.

    The argument is None for `count(*)`.
    """

    function: str
    argument: SqlPiece | None
    start: int


@dataclass(frozen=True, slots=True)
class OrderItem:
    """An item of ORDER BY."""

    piece: SqlPiece
    descending: bool
    nulls_last: bool


@dataclass(frozen=True, slots=True)
class SelectClauses:
    """What a query is made of; aggregates are known by where their names are."""

    core: SelectParts
    is_distinct: bool
    aggregates: dict[int, AggregateUse]
    groups: tuple[SqlPiece, ...]
    having: SqlPiece | None
    order: tuple[OrderItem, ...]
    limit: int | None
    offset: int


def read_clauses(query: CheckedQuery) -> SelectClauses:
    """The parts of a query; SparkNeeded if it is more than we read ourselves."""
    if not isinstance(query.tree, exp.Select):
        raise SparkNeeded("it is more than one SELECT")
    tree = query.tree.copy()
    known = {*PLAIN, *CLAUSES.values(), "distinct"}
    if others := sorted({key for key, value in tree.args.items() if value} - known):
        raise SparkNeeded(f"it has {others[0].rstrip('_').upper()}")
    _refuse_bare_functions(query.tokens)
    if not _is_written_alike(query.tokens, tree):
        raise SparkNeeded("it may be misspelt, which Spark says better")
    tokens, aggregates = _put_aggregates_aside(tree, list(query.tokens))
    tokens, is_distinct = _take_distinct(tree, tokens)
    runs = _cut_clauses(tree, tokens)
    clauses = {key: tree.args.get(key) for key in CLAUSES.values()}
    for key in (*CLAUSES.values(), "distinct"):
        tree.set(key, None)
    if not has_plain_shape(runs["core"], tree):
        raise SparkNeeded("it has a join, a subquery or a function that only Spark reads")
    return SelectClauses(
        core=parts_of_select(query.sql, runs["core"], tree),
        is_distinct=is_distinct,
        aggregates=aggregates,
        groups=_read_groups(clauses["group"], runs.get("group", [])),
        having=_piece_of(runs["having"], clauses["having"].this) if clauses["having"] else None,
        order=_read_order(clauses["order"], runs.get("order", [])),
        limit=_read_number(clauses["limit"], runs.get("limit", [])),
        offset=_read_number(clauses["offset"], runs.get("offset", [])) or 0,
    )


def _refuse_bare_functions(tokens: Sequence[Token]) -> None:
    """A function without brackets, like current_date, could be taken for a column."""
    for token in tokens:
        if is_word(token) and token.text.lower() in functions.WITHOUT_BRACKETS:
            raise SparkNeeded(f"it has {token.text.lower()}")


def _is_written_alike(tokens: Sequence[Token], tree: exp.Select) -> bool:
    """Whether the tree, written again, has the marks of the text, and names that are names."""
    copy = tree.copy()
    for node in list(copy.find_all(exp.NullSafeEQ)):
        node.replace(exp.EQ(this=node.this, expression=node.expression))
    written = Dialect.get_or_raise("spark").tokenize(copy.sql("spark"))
    marks = _marks_of(written)
    # A comma between two tables is written as CROSS JOIN.
    marks[TokenType.COMMA] += sum(token.token_type is TokenType.CROSS for token in written)
    marks[TokenType.COMMA] -= sum(token.token_type is TokenType.CROSS for token in tokens)
    names = (name for name in copy.find_all(exp.Identifier) if not name.args.get("quoted"))
    return marks == _marks_of(tokens) and all(NAME.fullmatch(name.name) for name in names)


def _marks_of(tokens: Iterable[Token]) -> Counter[TokenType]:
    """How often everything is there that carries the meaning and is no name."""
    alike = {TokenType.NULLSAFE_EQ: TokenType.EQ}
    kinds = (alike.get(token.token_type, token.token_type) for token in tokens)
    return Counter(kind for kind in kinds if kind in MARKS)


def _put_aggregates_aside(
    tree: exp.Select, tokens: list[Token]
) -> tuple[list[Token], dict[int, AggregateUse]]:
    """The tokens with the name alone of each aggregate, and what was called."""
    kept: list[Token] = []
    found: dict[int, AggregateUse] = {}
    nodes = list(tree.find_all(exp.AggFunc))
    at = 0
    while at < len(tokens):
        token = tokens[at]
        kept.append(token)
        at += 1
        opens = at < len(tokens) and tokens[at].token_type is TokenType.L_PAREN
        if opens and is_word(token) and token.text.lower() in AGGREGATES:
            end = _closing_bracket(tokens, at)
            found[token.start] = _take_aggregate(nodes, tokens[at - 1 : end + 1])
            at = end + 1
    if nodes:
        raise SparkNeeded(f"the aggregate {nodes[0].key}() is Spark's")
    return kept, found


def _closing_bracket(tokens: list[Token], opening: int) -> int:
    depth = 0
    for index in range(opening, len(tokens)):
        depth += tokens[index].token_type is TokenType.L_PAREN
        depth -= tokens[index].token_type is TokenType.R_PAREN
        if not depth:
            return index
    raise SparkNeeded("its brackets cannot be read")


def _take_aggregate(nodes: list[exp.AggFunc], run: list[Token]) -> AggregateUse:
    """The call whose tokens these are; a column takes its place in the tree."""
    name, inner, within = run[0], run[2:-1], span_of_tokens(run)
    own = [node for node in nodes if (span := leaf_span_of(node)) is not None and span in within]
    function = name.text.lower()
    if not inner or len(own) != 1 or type(own[0]) is not AGGREGATES[function]:
        raise SparkNeeded(f"{function}() cannot be read")
    node, argument = own[0], own[0].this
    given = {key for key, value in node.args.items() if value} - {"big_int"}
    if given != {"this"} or isinstance(argument, exp.Distinct):
        raise SparkNeeded(f"{function}() with DISTINCT, or with several arguments")
    nodes.remove(node)
    identifier = exp.Identifier(this=function, quoted=False)
    identifier.meta.update(start=name.start, end=name.end)
    node.replace(exp.Column(this=identifier))
    is_star = isinstance(argument, exp.Star)
    return AggregateUse(function, None if is_star else _piece_of(inner, argument), name.start)


def _take_distinct(tree: exp.Select, tokens: list[Token]) -> tuple[list[Token], bool]:
    distinct = tree.args.get("distinct")
    said = len(tokens) > 1 and tokens[1].token_type is TokenType.DISTINCT
    if said != (distinct is not None) or (distinct is not None and distinct.args.get("on")):
        raise SparkNeeded("its DISTINCT cannot be read")
    return ([tokens[0], *tokens[2:]] if said else tokens), said


def _cut_clauses(tree: exp.Select, tokens: list[Token]) -> dict[str, list[Token]]:
    """The tokens of each clause without its own word; `core` has all before the first one."""
    starts = [
        (index, CLAUSES[token.token_type])
        for index, token in tokens_at_top(tokens)
        if token.token_type in CLAUSES
    ]
    names = [name for _, name in starts]
    expected = [key for key in CLAUSES.values() if tree.args.get(key)]
    if names != expected:
        raise SparkNeeded("its clauses cannot be read")
    ends = [*(index for index, _ in starts), len(tokens)]
    runs = {"core": tokens[: ends[0]]}
    for (index, name), end in zip(starts, ends[1:], strict=True):
        runs[name] = tokens[index + 1 : end]
    if not all(runs.values()):
        raise SparkNeeded("its clauses cannot be read")
    return runs


def _piece_of(run: list[Token], node: exp.Expr) -> SqlPiece:
    span, inner = span_of_tokens(run), leaf_span_of(node)
    if inner is not None and inner not in span:
        raise SparkNeeded("it cannot be read")
    return SqlPiece(node, span, count_brackets(run))


def _read_groups(group: exp.Expr | None, run: list[Token]) -> tuple[SqlPiece, ...]:
    if group is None:
        return ()
    if {key for key, value in group.args.items() if value} != {"expressions"}:
        raise SparkNeeded("it groups by several sets")
    runs = split_at_commas(run)
    if len(runs) != len(group.expressions) or not all(runs):
        raise SparkNeeded("its GROUP BY cannot be read")
    return tuple(map(_piece_of, runs, group.expressions))


def _read_order(order: exp.Expr | None, run: list[Token]) -> tuple[OrderItem, ...]:
    if order is None:
        return ()
    runs = split_at_commas(run)
    if len(runs) != len(order.expressions) or not all(runs):
        raise SparkNeeded("its ORDER BY cannot be read")
    return tuple(map(_read_order_item, runs, order.expressions))


def _read_order_item(run: list[Token], node: exp.Expr) -> OrderItem:
    """NULL comes first in ascending order and last in descending, unless the text says."""
    words = [token.text.upper() for token in run]
    nulls = " ".join(words[-2:]) if len(words) > 2 else ""
    placed = nulls in ("NULLS FIRST", "NULLS LAST")
    if placed:
        run, words = run[:-2], words[:-2]
    descending = words[-1] == "DESC"
    if len(words) > 1 and words[-1] in ("ASC", "DESC"):
        run = run[:-1]
    if not isinstance(node, exp.Ordered) or bool(node.args.get("desc")) != descending:
        raise SparkNeeded("its ORDER BY cannot be read")
    nulls_last = nulls == "NULLS LAST" if placed else descending
    return OrderItem(_piece_of(run, node.this), descending, nulls_last)


def _read_number(clause: exp.Expr | None, run: list[Token]) -> int | None:
    if clause is None:
        return None
    if len(run) != 1 or not run[0].text.isdigit() or int(run[0].text) >= 1 << 31:
        raise SparkNeeded("its LIMIT is no plain number")
    return int(run[0].text)
