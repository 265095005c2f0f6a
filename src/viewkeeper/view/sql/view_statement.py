"""SQL text in, a parsed view out: one statement, checked for what cannot be maintained.

A view's file holds exactly one `CREATE [OR REPLACE] MATERIALIZED VIEW name AS SELECT ...`. The head
is read here, token by token, so that an error can say what was expected; the SELECT is read by
sqlglot in Spark's dialect, after the text was made plain (`viewkeeper.view.sql.syntax`). No schema
is needed yet: `ParsedView.relations` says which ones to fetch before
`viewkeeper.view.sql.bind.bind_view`.

A plain select-project-join is taken apart here. Every other query is a *report*: it is held against
lists, its tables are found, and Spark says what it means (`viewkeeper.view.sql.report_query`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache

from sqlglot import Token, TokenType, exp

from viewkeeper.errors import DefinitionError
from viewkeeper.view.definition import Relation
from viewkeeper.view.sql.plain_select import is_plain_select
from viewkeeper.view.sql.report_query import ReportQuery, read_report
from viewkeeper.view.sql.select_parts import SelectParts, parts_of_select
from viewkeeper.view.sql.sql_text import Span, SqlText, span_of_tokens
from viewkeeper.view.sql.syntax import (
    TokenizedSql,
    read_trees,
    refuse_open_joins,
    tokenize_sql,
)

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
HEAD = "CREATE MATERIALIZED VIEW name AS SELECT ..."
TEMPLATE = re.compile(r"'[^']*'|\"[^\"]*\"|(?P<mark>\{[{%#])")
"""Texts in quotes, and marks of a template outside of them."""


@dataclass(frozen=True, slots=True)
class ParsedView:
    """A view's statement, taken apart, with names not yet resolved."""

    name: str
    sql: SqlText
    """As its author wrote it."""
    plain: SqlText
    """As it was checked and as Spark gets it, every character in its place: without comments."""
    body: Span
    shape: SelectParts | ReportQuery

    @property
    def parts(self) -> SelectParts:
        """What a plain select-project-join consists of."""
        assert isinstance(self.shape, SelectParts), "a report has no parts of its own"
        return self.shape

    @property
    def report(self) -> ReportQuery | None:
        """The query of a view that is more than a select-project-join; else None."""
        return self.shape if isinstance(self.shape, ReportQuery) else None

    @property
    def text(self) -> str:
        return self.sql.text

    @property
    def path(self) -> str | None:
        return self.sql.path

    @property
    def relations(self) -> tuple[Relation, ...]:
        """The relations that the view reads, each once, in order of first use."""
        if self.report is not None:
            return tuple(dict.fromkeys(self.report.relations))
        return tuple(dict.fromkeys(table.relation for table in self.parts.tables))


def parse_view(text: str, path: str | None = None, as_report: bool = False) -> ParsedView:
    """Read one view; raises DefinitionError, or UnsupportedError for what cannot be maintained.

    A plain select-project-join is read `as_report` if it is not to be maintained as one. Whoever
    opens a project reads the same text several times, so what it says is kept for a while.
    """
    return _parse_text(text, path, as_report)


@lru_cache(maxsize=256)
def _parse_text(text: str, path: str | None, as_report: bool) -> ParsedView:
    sql = SqlText(text, path)
    read = tokenize_sql(sql)
    tokens = _one_statement(sql, read.tokens)
    name, body = _read_head(sql, tokens)
    if not body:
        sql = replace(sql, subject=f'view "{name}": ')
        raise sql.error_at("expected SELECT after AS", tokens[-1].start, hint=HEAD)
    return _parse_query(sql, read, name, body, as_report)


def parse_statement(text: str, path: str | None, name: str) -> ParsedView:
    """Read one view, or a query without a head, which would be a view of the given name."""
    sql = SqlText(text, path)
    if (found := next((m for m in TEMPLATE.finditer(text) if m["mark"]), None)) is not None:
        hint = "give the SQL that the template makes: `dbt compile` writes it to target/compiled"
        raise sql.error_at("a template, not SQL", found.start(), hint=hint)
    read = tokenize_sql(sql)
    tokens = _one_statement(sql, read.tokens)
    if tokens[0].text.upper() == "CREATE":
        return parse_view(text, path)
    return _parse_query(sql, read, name, tokens)


def check_joins(view: ParsedView) -> None:
    """DefinitionError if a JOIN of a view that somebody writes now has no condition.

    It is no part of parsing: a view that is stored, or follows a schema change, may have such ones.
    """
    tokens = tokenize_sql(view.plain).tokens
    within = [token for token in tokens if view.body.start <= token.start < view.body.end]
    refuse_open_joins(view.sql, within)


def _parse_query(
    sql: SqlText, read: TokenizedSql, name: str, body: list[Token], as_report: bool = False
) -> ParsedView:
    subject = f'view "{name}": '
    sql, plain = replace(sql, subject=subject), replace(read.sql, subject=subject)
    tree = _parse_body(read, plain, body)
    span = span_of_tokens(body)
    if not as_report and isinstance(tree, exp.Select) and is_plain_select(body, tree):
        return ParsedView(name, sql, plain, span, parts_of_select(plain, body, tree))
    return ParsedView(name, sql, plain, span, read_report(plain, body, tree))


def _one_statement(sql: SqlText, tokens: list[Token]) -> list[Token]:
    kinds = [token.token_type for token in tokens]
    end = kinds.index(TokenType.SEMICOLON) if TokenType.SEMICOLON in kinds else len(tokens)
    extra = [token for token in tokens[end:] if token.token_type is not TokenType.SEMICOLON]
    if extra:
        raise sql.error_at("a second statement", extra[0].start, hint="one view per file")
    if end == 0:
        raise sql.error_at("no statement", 0, hint=HEAD)
    return tokens[:end]


class _Reader:
    """Takes the head's tokens one after the other."""

    def __init__(self, sql: SqlText, tokens: list[Token]) -> None:
        self.sql, self.tokens, self.index = sql, tokens, 0

    def peek_word(self) -> str:
        return self.tokens[self.index].text.upper() if self.index < len(self.tokens) else ""

    def accept_words(self, *words: str) -> bool:
        following = self.tokens[self.index : self.index + len(words)]
        if [token.text.upper() for token in following] != list(words):
            return False
        self.index += len(words)
        return True

    def skip_token(self) -> None:
        self.index += 1

    def expect_word(self, word: str, previous: str) -> None:
        if not self.accept_words(word):
            raise self.expected_error(f"{word} after {previous}")

    def expected_error(self, what: str) -> DefinitionError:
        got = f', got "{self.tokens[self.index].text}"' if self.peek_word() else ""
        return self.sql.error_at(f"expected {what}{got}", self.offset, hint=HEAD)

    @property
    def offset(self) -> int:
        last = self.tokens[-1].end + 1
        return self.tokens[self.index].start if self.index < len(self.tokens) else last


def _read_head(sql: SqlText, tokens: list[Token]) -> tuple[str, list[Token]]:
    """The view's name and the tokens after AS."""
    reader = _Reader(sql, tokens)
    reader.expect_word("CREATE", "the beginning of the text")
    reader.accept_words("OR", "REPLACE")
    reader.expect_word("MATERIALIZED", "CREATE")
    reader.expect_word("VIEW", "MATERIALIZED")
    if reader.peek_word() == "IF":
        raise sql.unsupported_at("IF NOT EXISTS", reader.offset, "leave it out: a file is its view")
    name = _view_name(reader)
    if reader.peek_word() == "(":
        hint = "alias the columns in SELECT"
        raise sql.unsupported_at("a column list after the view's name", reader.offset, hint)
    if reader.accept_words("COMMENT"):
        reader.skip_token()
    if reader.peek_word() not in ("AS", ""):
        raise sql.unsupported_at(f"{reader.peek_word()} on a view", reader.offset, HEAD)
    reader.expect_word("AS", "the view's name")
    return name, tokens[reader.index :]


def _view_name(reader: _Reader) -> str:
    if not reader.peek_word() or reader.peek_word() == "AS":
        raise reader.expected_error("the view's name")
    token = reader.tokens[reader.index]
    offset = token.start
    reader.skip_token()
    if reader.peek_word() == ".":
        raise reader.sql.error_at("a view's name has one part", offset, hint=HEAD)
    if not NAME.fullmatch(token.text):
        hint = "use letters, digits and underscores, not beginning with a digit"
        raise reader.sql.error_at(f'"{token.text}" is not a name for a view', offset, hint=hint)
    return token.text


def _parse_body(text: TokenizedSql, sql: SqlText, body: list[Token]) -> exp.Expr:
    tree = read_trees(text, sql, body)[0]
    if tree is None or isinstance(tree, exp.Command):
        raise sql.error_at("expected SELECT after AS", body[0].start, hint=HEAD)
    if isinstance(tree, exp.Select) and not tree.expressions:
        raise sql.error_at("expected a list of columns after SELECT", body[0].start)
    return tree
