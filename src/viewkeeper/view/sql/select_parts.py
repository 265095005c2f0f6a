"""A SELECT taken apart: its tables, its outputs, and its conditions one by one.

Nothing here knows a schema. Each part is a piece of the syntax tree together with its own stretch
of text. Tree and text are cut independently, the tree by its nodes and the text by its tokens, and
the two must agree: a disagreement is refused rather than guessed about.

Tables after a comma start a new group: Spark resolves the ON and USING of a join within its group.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from sqlglot import Token, TokenType, exp

from viewkeeper.view.definition import PROJECT, Relation
from viewkeeper.view.sql.sql_text import (
    Span,
    SqlPiece,
    SqlText,
    count_brackets,
    leaf_span_of,
    own_span_of,
    span_of_tokens,
    split_at_ands,
    split_at_commas,
    tokens_at_top,
)

AGREE_HINT = "put names that are also SQL keywords in backticks"


@dataclass(frozen=True, slots=True)
class TableUse:
    """One table in FROM: its place, and how it is joined to those before it in its group."""

    relation: Relation
    alias: str
    aliased: bool
    span: Span
    group: int
    on: tuple[SqlPiece, ...]
    using: tuple[exp.Identifier, ...]


@dataclass(frozen=True, slots=True)
class SelectItem:
    """One item of the SELECT list, without its alias; `span` is that of the whole item."""

    piece: SqlPiece
    alias: str | None
    span: Span


@dataclass(frozen=True, slots=True)
class SelectParts:
    """What a SELECT is made of."""

    tables: tuple[TableUse, ...]
    items: tuple[SelectItem, ...]
    where: tuple[SqlPiece, ...]


def parts_of_select(sql: SqlText, tokens: list[Token], select: exp.Select) -> SelectParts:
    """The parts of a SELECT that has nothing but a list, FROM, inner joins and WHERE."""
    begin = _clause_start(tokens, TokenType.FROM)
    if begin is None or select.args.get("from_") is None:
        raise sql.error_at("a view reads at least one relation", tokens[0].start, hint="add FROM")
    end = _clause_start(tokens, TokenType.WHERE) or len(tokens)
    where = select.args.get("where")
    return SelectParts(
        tables=tuple(_read_tables(sql, tokens[begin + 1 : end], select)),
        items=tuple(_read_items(sql, tokens[: begin + 1], select)),
        where=tuple(_split_conjuncts(sql, tokens[end + 1 :], where.this)) if where else (),
    )


def _clause_start(tokens: list[Token], kind: TokenType) -> int | None:
    for index, token in tokens_at_top(tokens):
        # IS DISTINCT FROM has a FROM that begins no clause.
        after_distinct = index > 0 and tokens[index - 1].token_type is TokenType.DISTINCT
        if token.token_type is kind and not after_distinct:
            return index
    return None


def _read_items(sql: SqlText, tokens: list[Token], select: exp.Select) -> list[SelectItem]:
    """The items between SELECT, the first token, and FROM, the last."""
    runs = split_at_commas(tokens[1:-1])
    for run, follows in zip(runs, [*runs[1:], None], strict=True):
        if not run:
            offset = follows[0].start if follows else tokens[-1].start
            raise sql.error_at("expected an expression or a column", offset)
    if len(runs) != len(select.expressions):
        raise sql.error_at("the SELECT list cannot be read", tokens[0].start, hint=AGREE_HINT)
    pairs = zip(runs, select.expressions, strict=True)
    return [_read_item(sql, run, node) for run, node in pairs]


def _read_item(sql: SqlText, run: list[Token], node: exp.Expr) -> SelectItem:
    whole = span_of_tokens(run)
    alias = None
    if isinstance(node, exp.Alias):
        alias = _plain_name(sql, node.args["alias"])
        run = run[:-2] if run[-2].token_type is TokenType.ALIAS else run[:-1]
        node = node.this
    return SelectItem(_cut_piece(sql, run, node), alias, whole)


def _read_tables(sql: SqlText, tokens: list[Token], select: exp.Select) -> list[TableUse]:
    groups = [span_of_tokens(run) for run in split_at_commas(tokens) if run]
    uses = [_read_table(sql, groups, select.args["from_"].this, [], None)]
    conditions = _on_runs(tokens)
    for join in reversed(select.args.get("joins") or []):
        on, table = join.args.get("on"), leaf_span_of(join.this)
        assert table is not None, "tables know their place"
        # Seen from the end, a join's own ON is the last one left, if it stands after the table.
        run = conditions.pop() if conditions and conditions[-1][0].start > table.start else None
        # sqlglot gives a join without a condition ON TRUE, which no token says.
        absent = on is None or (isinstance(on, exp.Boolean) and on.this)
        if run is None and not absent:
            raise sql.error_at("a join condition cannot be read", table.start, hint=AGREE_HINT)
        pieces = _split_conjuncts(sql, run, on) if run is not None and on is not None else []
        uses.insert(1, _read_table(sql, groups, join.this, pieces, join.args.get("using")))
    if conditions:
        offset = conditions[0][0].start
        raise sql.error_at("a join condition cannot be read", offset, hint=AGREE_HINT)
    return uses


def _on_runs(tokens: list[Token]) -> list[list[Token]]:
    """The tokens of each ON condition: up to the next join, comma or the end of FROM."""
    top = list(tokens_at_top(tokens))
    ends = {TokenType.JOIN, TokenType.INNER, TokenType.CROSS, TokenType.COMMA, TokenType.ON}
    runs = []
    for begin, token in top:
        if token.token_type is TokenType.ON:
            later = (i for i, other in top if i > begin and other.token_type in ends)
            runs.append(tokens[begin + 1 : next(later, len(tokens))])
    return [run for run in runs if run]


def _read_table(
    sql: SqlText,
    groups: list[Span],
    table: exp.Table,
    on: list[SqlPiece],
    using: list[exp.Identifier] | None,
) -> TableUse:
    names = [table.args[key] for key in ("catalog", "db", "this") if table.args.get(key)]
    span = leaf_span_of(table.this)
    assert span is not None, "identifiers know their place"
    first = own_span_of(names[0]) or span
    if not all(isinstance(name, exp.Identifier) for name in names):
        hint = "write it as source.table, source.schema.table, or the name of a view"
        raise sql.error_at("a table's name has at most three parts", first.start, hint=hint)
    source, *path = [_plain_name(sql, name) for name in names]
    if any("." in part for part in (source, *path)):
        raise sql.error_at(f'a dot inside the name "{".".join(path)}"', first.start)
    alias = table.args.get("alias")
    group = next((i for i, group in enumerate(groups) if first in group), None)
    if group is None:
        # sqlglot takes a list after WHERE for more tables.
        raise sql.error_at("a table outside of FROM", first.start)
    return TableUse(
        relation=Relation(source, ".".join(path)) if path else Relation(PROJECT, source),
        alias=_plain_name(sql, alias.this) if alias else [source, *path][-1],
        aliased=alias is not None,
        span=Span(first.start, span.end),
        group=group,
        on=tuple(on),
        using=tuple(using or ()),
    )


def _plain_name(sql: SqlText, identifier: exp.Expr) -> str:
    """A name; double quotes make a string in Spark SQL, not a name."""
    span = own_span_of(identifier)
    if span is not None and sql.text[span.start] in "'\"":
        hint = f"write it in backticks: `{identifier.name}`"
        raise sql.error_at("a string where a name is expected", span.start, hint=hint)
    return identifier.name


def _split_conjuncts(sql: SqlText, tokens: list[Token], node: exp.Expr) -> list[SqlPiece]:
    """The conjuncts of a condition, brackets around conjunctions opened."""
    nodes = list(node.flatten(unnest=False)) if isinstance(node, exp.And) else [node]
    runs = split_at_ands(tokens)
    if len(runs) != len(nodes) or not all(runs):
        offset = tokens[0].start if tokens else 0
        raise sql.error_at("the condition cannot be read", offset, hint=AGREE_HINT)
    pairs = zip(runs, nodes, strict=True)
    return list(itertools.chain.from_iterable(_open_brackets(sql, *pair) for pair in pairs))


def _open_brackets(sql: SqlText, run: list[Token], node: exp.Expr) -> list[SqlPiece]:
    if isinstance(node, exp.Paren) and run[0].token_type is TokenType.L_PAREN:
        return _split_conjuncts(sql, run[1:-1], node.this)
    return [_cut_piece(sql, run, node)]


def _cut_piece(sql: SqlText, run: list[Token], node: exp.Expr) -> SqlPiece:
    span, inner = span_of_tokens(run), leaf_span_of(node)
    if inner is not None and inner not in span:
        raise sql.error_at("this cannot be read", span.start, hint=AGREE_HINT)
    return SqlPiece(node, span, count_brackets(run))
