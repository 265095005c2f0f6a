"""Quantified comparisons in a text of SQL, rewritten: `x > ALL (SELECT y FROM t)`.

    rewrite_quantified(SqlText("SELECT a > ALL (SELECT b FROM t) AS c FROM u")).text

Everything that gives the user's text to Spark comes through here. A text without such comparisons
stays as it is, and so does everything else in a text with some.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from sqlglot import Token

from viewkeeper.view.sql.quantified import comparison_forms
from viewkeeper.view.sql.quantified.comparison_search import (
    ComparisonSearch,
    QuantifiedComparison,
    unused_name,
)
from viewkeeper.view.sql.quantified.rewritten_text import RewrittenText, TextNote, TextPiece
from viewkeeper.view.sql.sql_text import Span, SqlText, span_of_tokens
from viewkeeper.view.sql.syntax import tokenize_sql

POSSIBLE = re.compile(r"\b(all|any|some)\s*\(", re.IGNORECASE)
GROWTH_MAX = 100_000
"""A text may become so many characters longer."""


def rewrite_quantified(sql: SqlText, tokens: Sequence[Token] | None = None) -> RewrittenText:
    """The text, or what these of its tokens cover, without quantified comparisons."""
    span = Span(0, len(sql.text)) if tokens is None else span_of_tokens([*tokens])
    if not POSSIBLE.search(sql.text, span.start, span.end):
        return RewrittenText((TextPiece(sql.text_of(span), span.start, is_copied=True),))
    if tokens is None:
        read = tokenize_sql(sql)
        sql, tokens = read.sql, read.tokens
    found = ComparisonSearch(sql, tokens).find_comparisons()
    return RewrittenText(tuple(_Rewriting(sql, found).pieces_of(span)))


class _Rewriting:
    """One text, while it is rewritten."""

    def __init__(self, sql: SqlText, found: Sequence[QuantifiedComparison]) -> None:
        self._sql = sql
        self._found = found
        self._names = {
            "t": unused_name(sql, "compared"),
            "q": unused_name(sql, "compared_value"),
        }
        self._growth = 0

    def pieces_of(self, span: Span) -> list[TextPiece]:
        """A stretch of the text, with the comparisons in it rewritten."""
        pieces: list[TextPiece] = []
        inside = [each for each in self._found if each.whole in span]
        position = span.start
        for each in sorted(inside, key=lambda comparison: comparison.whole):
            # What is inside of another one is rewritten along with it.
            if not any(each is not other and each.whole in other.whole for other in inside):
                pieces += [
                    self._copy_span(Span(position, each.whole.start)),
                    *self._write_form(each),
                ]
                position = each.whole.end
        return [*pieces, self._copy_span(Span(position, span.end))]

    def _copy_span(self, span: Span) -> TextPiece:
        return TextPiece(self._sql.text_of(span), span.start, is_copied=True)

    def _write_form(self, comparison: QuantifiedComparison) -> list[TextPiece]:
        """The form of a comparison, with the parts of the text in their places."""
        texts = {**self._names, **comparison_forms.parts_of_form(comparison.column)}
        parts = {"x": self.pieces_of(comparison.left), "s": self.pieces_of(comparison.query)}
        found = [*_fill_form(f"({comparison.form})", comparison.offset, texts, parts)]
        self._growth += sum(len(piece.text) for piece in found)
        if self._growth > GROWTH_MAX:
            hint = "define the inner subqueries as views of their own"
            message = "quantified comparisons in one another become too large"
            raise self._sql.error_at(message, comparison.offset, hint=hint)
        return found


def _fill_form(
    form: str,
    origin: int,
    texts: Mapping[str, str],
    parts: Mapping[str, Sequence[TextPiece]],
    note: TextNote | None = None,
) -> Iterator[TextPiece]:
    """A form with what the names in it stand for: texts, which name others, and parts of the text
    before."""
    for text in re.split(r"(\{\w+\})", form):
        name = text.strip("{}")
        if not text.startswith("{"):
            yield TextPiece(text, origin, is_copied=False, note=note)
        elif name in parts:
            yield from parts[name]
        else:
            meant = comparison_forms.NOTE if name == "same" else note
            yield from _fill_form(texts[name], origin, texts, parts, meant)
