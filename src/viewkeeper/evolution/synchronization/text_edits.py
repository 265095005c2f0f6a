"""Changes to a view's text, collected and then made at once.

Everything that is not changed stays as its author wrote it, comments and line breaks included. A
stretch that is taken out takes the blanks before it along, but never the line break that ends a
comment.
"""

from __future__ import annotations

from collections import defaultdict

from viewkeeper.view.sql.sql_text import Span, SqlText


class TextEdits:
    """Replacements and insertions in a text."""

    def __init__(self, sql: SqlText) -> None:
        self.sql = sql
        self._replaced: list[tuple[Span, str]] = []
        self._inserted: defaultdict[int, list[str]] = defaultdict(list)

    def replace_span(self, span: Span, text: str) -> None:
        self._replaced.append((span, text))

    def insert_text(self, offset: int, text: str) -> None:
        """After what was inserted there before."""
        self._inserted[offset].append(text)

    def delete_span(self, span: Span) -> None:
        """Take a stretch out, and the blanks before it."""
        before = self.sql.text[: span.start]
        kept = before.rstrip()
        if "--" in kept.rpartition("\n")[2]:
            kept = before
        self.replace_span(Span(len(kept), span.end), "")

    def edited_text(self) -> str:
        inserted = [(Span(at, at), "".join(texts)) for at, texts in self._inserted.items()]
        whole = Span(0, len(self.sql.text))
        return self.sql.replace_spans(whole, [*self._replaced, *inserted])
