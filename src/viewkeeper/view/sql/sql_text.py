"""The SQL of a view as text and tokens: where things stand, and where one thing ends.

The syntax tree says what the SQL means, but only its leaves know their place. Two needs ask for
more. Errors must point at a line and a column. And what Spark evaluates must be the user's own
characters, never text that a generator made from a tree: a rewritten function is a changed view. So
clauses, outputs and conditions are cut out of the text along its tokens, and the tree is checked
to lie inside the cut.

Offsets count characters from 0; a `Span` is half-open; lines and columns count from 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from sqlglot import Token, TokenType, exp

from viewkeeper.errors import DefinitionError, UnsupportedError

OPENERS = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE}
CLOSERS = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END}


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A stretch of the text."""

    start: int
    end: int

    def __contains__(self, other: Span) -> bool:
        return self.start <= other.start and other.end <= self.end


@dataclass(frozen=True, slots=True)
class SqlPiece:
    """A part of the syntax tree and the stretch of text that it was read from.

    `brackets` counts the pairs in the text that only group, and belong to no call and no list.
    """

    node: exp.Expr
    span: Span
    brackets: int


@dataclass(frozen=True, slots=True)
class SqlText:
    """A text of SQL; makes the errors that point into it."""

    text: str
    path: str | None = None
    subject: str = ""
    verdict: str = "cannot be maintained"
    """What is said of something that is valid SQL and not accepted."""

    def line_and_column(self, offset: int) -> tuple[int, int]:
        """The line and column of an offset."""
        before = self.text[:offset]
        return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1

    def text_of(self, span: Span) -> str:
        return self.text[span.start : span.end]

    def error_at(
        self, message: str, offset: int, *, detail: str | None = None, hint: str | None = None
    ) -> DefinitionError:
        line, column = self.line_and_column(offset)
        return DefinitionError(
            self.subject + message,
            path=self.path,
            line=line,
            column=column,
            detail=detail,
            hint=hint,
        )

    def unsupported_at(
        self, construct: str, offset: int, hint: str | None = None
    ) -> UnsupportedError:
        line, column = self.line_and_column(offset)
        return UnsupportedError(
            f"{self.subject}{construct} {self.verdict}",
            path=self.path,
            line=line,
            column=column,
            hint=hint,
        )

    def replace_spans(self, span: Span, replacements: Iterable[tuple[Span, str]]) -> str:
        """The text of a span with some stretches of it replaced; one stretch may come twice."""
        parts: list[str] = []
        position = span.start
        for stretch, new in sorted(set(replacements)):
            assert stretch.start >= position, "replacements overlap"
            parts += [self.text[position : stretch.start], new]
            position = stretch.end
        return "".join([*parts, self.text[position : span.end]])


def span_of_tokens(tokens: list[Token]) -> Span:
    return Span(tokens[0].start, tokens[-1].end + 1)


def own_span_of(node: exp.Expr) -> Span | None:
    """The span that a leaf knows of itself; operators and clauses know none."""
    start, end = node.meta.get("start"), node.meta.get("end")
    return None if start is None or end is None else Span(start, end + 1)


def leaf_span_of(node: exp.Expr) -> Span | None:
    """From the first to the last descendant that knows its place."""
    spans = [span for leaf in node.walk() if (span := own_span_of(leaf)) is not None]
    if not spans:
        return None
    return Span(min(span.start for span in spans), max(span.end for span in spans))


def count_brackets(tokens: list[Token]) -> int:
    """How many brackets only group: those at the beginning or after an operator."""
    words = {TokenType.AND, TokenType.OR, TokenType.NOT, TokenType.BETWEEN, TokenType.FROM}
    words |= {TokenType.CASE, TokenType.WHEN, TokenType.THEN, TokenType.ELSE}
    count = 0
    for before, token in zip([None, *tokens], tokens, strict=False):
        if token.token_type is TokenType.L_PAREN:
            operator = before is None or not (before.text[:1].isalnum() or before.text[:1] in "_`")
            quoted_name = before is not None and before.token_type is TokenType.IDENTIFIER
            word = before is not None and before.token_type in words
            count += (operator and not quoted_name) or word
    return count


def tokens_at_top(tokens: list[Token]) -> Iterator[tuple[int, Token]]:
    """The tokens inside no bracket and no CASE, with their indexes.

    Brackets themselves are left out, and so is what follows a dot: it is a name, whatever it says.
    """
    open_tokens: list[TokenType] = []
    for index, token in enumerate(tokens):
        if index > 0 and tokens[index - 1].token_type is TokenType.DOT:
            continue
        if token.token_type in OPENERS:
            open_tokens.append(token.token_type)
        elif token.token_type in CLOSERS and open_tokens:
            # A column may be called `end`; it closes nothing unless a CASE is open.
            if token.token_type is not TokenType.END or open_tokens[-1] is TokenType.CASE:
                open_tokens.pop()
        elif not open_tokens:
            yield index, token


def split_tokens(tokens: list[Token], separates: Callable[[int], bool]) -> list[list[Token]]:
    """The runs of tokens between those, at the top, whose index separates."""
    runs: list[list[Token]] = []
    begin = 0
    for index, _ in tokens_at_top(tokens):
        if separates(index):
            runs.append(tokens[begin:index])
            begin = index + 1
    return [*runs, tokens[begin:]]


def split_at_commas(tokens: list[Token]) -> list[list[Token]]:
    return split_tokens(tokens, lambda index: tokens[index].token_type is TokenType.COMMA)


def split_at_ands(tokens: list[Token]) -> list[list[Token]]:
    """The operands of a conjunction, all of it if an OR binds it together.

    The AND of `x BETWEEN a AND b` is none: it belongs to the BETWEEN before it.
    """
    kinds = [(index, token.token_type) for index, token in tokens_at_top(tokens)]
    if any(kind in (TokenType.OR, TokenType.XOR) for _, kind in kinds):
        return [tokens]
    ands: set[int] = set()
    pending = 0
    for index, kind in kinds:
        if kind is TokenType.BETWEEN:
            pending += 1
        elif kind is TokenType.AND and pending:
            pending -= 1
        elif kind is TokenType.AND:
            ands.add(index)
    return split_tokens(tokens, ands.__contains__)
