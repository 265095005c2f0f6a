"""Calls for the present time, found in the text of a report.

`current_date()` is the date of the clock's row, so a report that calls it reads the clock as one
more relation (`viewkeeper.sources.clock`), whose row changes at midnight. A call for the present
moment is exact only to the tick of a table, so the text must say to which: cut by `date_trunc` to a
minute, an hour or more, or made a date. Which of the clock's tables is read, `day`, `hour` or
`minute`, follows from the finest call.

Where the user's text is run as it stands, each call is replaced by a subquery for the clock's row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import Token, TokenType

from viewkeeper.view.definition import CLOCK, Relation
from viewkeeper.view.sql.sql_text import Span, SqlText

DATES = ("current_date", "curdate")
MOMENTS = ("current_timestamp", "now")
CALLS = frozenset({*DATES, *MOMENTS})
"""The names under which a report may ask for the time."""

BARE = ("current_date", "current_timestamp")
"""Those that need no brackets."""

_TABLES = ("minute", "hour", "day")
_UNITS = {
    "minute": "minute",
    "hour": "hour",
    **dict.fromkeys(
        ("day", "dd", "week", "month", "mon", "mm", "quarter", "year", "yyyy", "yy"), "day"
    ),
}
HINT = "say how exact it is: date_trunc('minute', now()), date_trunc('hour', now()), current_date()"


@dataclass(frozen=True, slots=True)
class ClockCall:
    """A call for the time: its place, the column that it is, and the table that is exact enough."""

    span: Span
    column: str
    table: str


@dataclass(frozen=True, slots=True)
class ClockReads:
    """All calls for the time in a text."""

    calls: tuple[ClockCall, ...]

    @property
    def relation(self) -> Relation:
        """The table of the clock that is exact enough for all of them."""
        return Relation(CLOCK, min((call.table for call in self.calls), key=_TABLES.index))

    def replace_calls(self, place: int) -> list[tuple[Span, str]]:
        """Subqueries for the clock's row, in place of the calls."""
        return [
            (call.span, f"(SELECT max({call.column}) FROM __place_{place})") for call in self.calls
        ]


def find_clock_calls(sql: SqlText, tokens: list[Token]) -> ClockReads | None:
    """The calls for the time in a text, if there are some; those that are too exact are refused."""
    calls = tuple(_find_calls(sql, tokens))
    return ClockReads(calls) if calls else None


def _find_calls(sql: SqlText, tokens: list[Token]) -> Iterator[ClockCall]:
    for at, token in enumerate(tokens):
        name = token.text.lower()
        if name not in CALLS or token.token_type is TokenType.STRING:
            continue
        bracketed = _kinds(tokens, at + 1, 2) == [TokenType.L_PAREN, TokenType.R_PAREN]
        quoted = token.token_type is TokenType.IDENTIFIER
        next_to_dot = TokenType.DOT in (*_kinds(tokens, at - 1, 1), *_kinds(tokens, at + 1, 1))
        named = _words(tokens, at - 1, 1) == ["as"]
        if next_to_dot or named or not (bracketed or (name in BARE and not quoted)):
            continue
        end = at + 2 if bracketed else at
        span = Span(token.start, tokens[end].end + 1)
        if name in DATES:
            yield ClockCall(span, "today", "day")
            continue
        table = _exactness(tokens, at, end)
        if table is None:
            raise sql.unsupported_at(f"the present moment, {sql.text_of(span)},", span.start, HINT)
        yield ClockCall(span, "instant", table)


def _kinds(tokens: list[Token], start: int, count: int) -> list[TokenType]:
    return [token.token_type for token in tokens[max(start, 0) : max(start + count, 0)]]


def _words(tokens: list[Token], start: int, count: int) -> list[str]:
    return [token.text.lower() for token in tokens[max(start, 0) : max(start + count, 0)]]


def _exactness(tokens: list[Token], start: int, end: int) -> str | None:
    """The table in which a moment is exact enough for what is done with it; None if none is."""
    after = _words(tokens, end + 1, 3)
    if _words(tokens, start - 4, 2) == ["date_trunc", "("] and after[:1] == [")"]:
        unit = tokens[start - 2]
        return _UNITS.get(unit.text.lower()) if unit.token_type is TokenType.STRING else None
    called = _words(tokens, start - 2, 2)
    made_date = called in (["to_date", "("], ["date", "("]) and after[:1] == [")"]
    cast = called == ["cast", "("] and after == ["as", "date", ")"]
    return "day" if made_date or cast or after[:2] == ["::", "date"] else None
