"""The text of a query that asks for the time, as it is compiled: with a year that nobody names.

Spark's optimizer replaces calls for the time by the time itself, in subqueries even before a plan
is ours. A literal is left alone, so each call becomes one, of the year 9853, which is found again
in the plan (`viewkeeper.engine.compile.plan.clock_place`). Where Spark evaluates a literal early,
in VALUES or in the list of a PIVOT, it would be lost: then the two texts do not have as many
literals as calls, and the query is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from viewkeeper.engine.compile.plan.clock_place import STAND_INS, YEAR
from viewkeeper.engine.compile.refusal_reasons import CLOCK, refuse
from viewkeeper.engine.compile.text_check import line_and_column
from viewkeeper.errors import DefinitionError
from viewkeeper.view.sql.clock_calls import find_clock_calls
from viewkeeper.view.sql.sql_text import Span, SqlText
from viewkeeper.view.sql.syntax import tokenize_sql

_SPELLED = {"today": f"DATE'{YEAR}'", "instant": f"TIMESTAMP'{YEAR}-01-01'"}


class ClockText:
    """A text in which literals stand for the time."""

    def __init__(self, text: str) -> None:
        sql = SqlText(text)
        reads = find_clock_calls(sql, tokenize_sql(sql).tokens)
        self._calls = () if reads is None else reads.calls
        if self._calls and YEAR in text:
            raise refuse(f"a query that asks for the time and names the year {YEAR}")
        changes = [(call.span, _SPELLED[call.column]) for call in self._calls]
        self.text = sql.replace_spans(Span(0, len(text)), changes)
        self._original = text

    @property
    def has_calls(self) -> bool:
        """Whether there is some call for the time."""
        return bool(self._calls)

    def check_plans(self, original: Any, analyzed: Any) -> None:
        """Refuse a query of which Spark has evaluated a call before it could be maintained."""
        asked = _count_in(original, [f'.{kind}"' for kind in CLOCK])
        stands = _count_in(analyzed, STAND_INS)
        if asked != stands or stands < len(self._calls):
            hint = "ask for the time in the select list or in a condition"
            raise refuse("the present time in VALUES, PIVOT or a list that Spark evaluates", hint)

    @contextmanager
    def locate_errors(self) -> Iterator[None]:
        """Errors inside point into the text as it was before."""
        try:
            yield
        except DefinitionError as error:
            if error.line is None or error.column is None:
                raise
            before = self.text.split("\n")[: error.line - 1]
            offset = sum(len(line) + 1 for line in before) + error.column - 1
            line, column = line_and_column(self._original, self._offset_before(offset))
            message = error.message.partition(": ")[2]
            raise type(error)(
                message, line=line, column=column, detail=error.detail, hint=error.hint
            ) from error

    def _offset_before(self, offset: int) -> int:
        """Where something was in the text before, given where it is."""
        shift = 0
        for call in self._calls:
            new = _SPELLED[call.column]
            if offset < call.span.start + shift:
                break
            if offset < call.span.start + shift + len(new):
                return call.span.start
            shift += len(new) - (call.span.end - call.span.start)
        return offset - shift


def _count_in(plan: Any, words: Sequence[str]) -> int:
    """How often some words are in the JSON of a plan."""
    text = json.dumps(json.loads(plan.toJSON()))
    return sum(text.count(word) for word in words)
