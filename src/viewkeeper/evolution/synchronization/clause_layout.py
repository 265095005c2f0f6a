"""Where the clauses of a view stand in its text, so that one can be taken out and the rest stays.

The parts of a SELECT know their own stretch of text (`viewkeeper.view.sql.select_parts`). Taking
one out needs more: the comma before it, the words JOIN and ON that go with a table, the whole of
WHERE. They are found among the tokens, never by looking for characters, so that comments and quotes
do not matter.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import Token, TokenType
from sqlglot.dialects.dialect import Dialect

from viewkeeper.view.sql.sql_text import Span, tokens_at_top
from viewkeeper.view.sql.view_statement import ParsedView

JOINING = {TokenType.JOIN, TokenType.INNER, TokenType.CROSS, TokenType.COMMA}


@dataclass(frozen=True, slots=True)
class TableClause:
    """A table of FROM: the words that join it, its name and alias, its ON or USING."""

    words: Span
    """Empty, at the table, for the first one."""
    table: Span
    condition: Span | None

    @property
    def end(self) -> int:
        return self.table.end if self.condition is None else self.condition.end


@dataclass(frozen=True, slots=True)
class ClauseLayout:
    """The clauses of a view, and the commas between its items."""

    clauses: tuple[TableClause, ...]
    commas: tuple[Span, ...]
    where: Span | None
    """From the word WHERE to the end of the query."""


def clause_layout_of(parsed: ParsedView) -> ClauseLayout:
    """The places of all clauses in a view's text."""
    body = parsed.body
    tokens = [
        token
        for token in Dialect.get_or_raise("spark").tokenize(parsed.plain.text)
        if body.start <= token.start < body.end
    ]
    top = list(tokens_at_top(tokens))
    last_item, last_table = parsed.parts.items[-1].span, parsed.parts.tables[-1].span
    commas = [
        _span_of(t) for _, t in top if _is_kind(t, TokenType.COMMA) and t.start < last_item.start
    ]
    words = [(i, t) for i, t in top if _is_kind(t, TokenType.WHERE) and t.start > last_table.start]
    end = words[0][0] if words else len(tokens)
    where = Span(words[0][1].start, body.end) if words else None
    starts = {token.start: index for index, token in enumerate(tokens)}
    tables = [starts[table.span.start] for table in parsed.parts.tables]
    begins = [_first_join_word(tokens, index) for index in tables]
    ends = [*begins[1:], end]
    clauses = [
        _table_clause(tokens, *indexes) for indexes in zip(begins, tables, ends, strict=True)
    ]
    return ClauseLayout(tuple(clauses), tuple(commas), where)


def _first_join_word(tokens: list[Token], table: int) -> int:
    """The index of the first word that joins a table."""
    while tokens[table - 1].token_type in JOINING:
        table -= 1
    return table


def _table_clause(tokens: list[Token], begin: int, table: int, end: int) -> TableClause:
    kinds = (TokenType.ON, TokenType.USING)
    inside = tokens[table:end]
    condition = next(
        (i for i, token in tokens_at_top(inside) if token.token_type in kinds), len(inside)
    )
    first = tokens[table].start
    return TableClause(
        Span(tokens[begin].start, first),
        Span(first, inside[condition - 1].end + 1),
        Span(inside[condition].start, inside[-1].end + 1) if condition < len(inside) else None,
    )


def _is_kind(token: Token, kind: TokenType) -> bool:
    return token.token_type is kind


def _span_of(token: Token) -> Span:
    return Span(token.start, token.end + 1)
