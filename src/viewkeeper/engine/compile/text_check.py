"""What a query may call and name, before Spark resolves anything.

A function is allowed by the name that the user wrote, from the lists of
`viewkeeper.view.sql.functions`; so one that a session happens to know besides is none. The same
goes for tables: only those of the query, by one name without dots, and what WITH defines. Anything
but a query is refused before Spark runs the text: it runs commands when it is given them.

The present moment hides in texts too: `DATE 'today'` is a constant for Spark's parser.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from viewkeeper.engine.compile.drafts.call_draft import FUNCTIONS, PICKS, RANKS
from viewkeeper.engine.compile.refusal_reasons import CLOCK, OPERATORS, refuse, refuse_expression
from viewkeeper.engine.spark.parsed_plan import check_report_nodes, name_of_node, nodes_of_plan
from viewkeeper.errors import UnsupportedError
from viewkeeper.view.sql import functions
from viewkeeper.view.sql.clock_calls import CALLS

FOLDABLE = frozenset(FUNCTIONS.values()) | {
    *("mean", "variance", "stddev", "std", "every", "some", "any", "grouping", "grouping_id"),
}
RECOMPUTED = frozenset((*RANKS.values(), *PICKS.values())) | {
    *("first", "last", "any_value", "percentile", "percentile_cont", "percentile_disc", "median"),
    *("mode", "listagg", "string_agg", "collect_list", "collect_set", "array_agg"),
}
"""Functions that are computed from all rows of a key; some of them only over a window."""
ALLOWED = (
    functions.DETERMINISTIC
    | functions.SYNTAX
    | functions.OPERATORS
    | functions.GENERATORS
    | FOLDABLE
    | RECOMPUTED
    | {"range", "sequence"}
    | CALLS
)
"""Generators and `range` may be called where no table is read, and the clock where it is placed."""
AGGREGATE_HINTS = {
    "approx_count_distinct": "count(DISTINCT ...) is exact",
}
SPECIAL = re.compile(r"\s*(today|now|yesterday|tomorrow|epoch)\b", re.IGNORECASE)
SPECIAL_LITERAL = re.compile(
    r"\b(?:date|timestamp\w*)\s*(?:'|\")\s*(?:today|now|yesterday|tomorrow|epoch)\b", re.IGNORECASE
)
SPECIAL_TEXT = re.compile(r"['\"]\s*(?:today|now|yesterday|tomorrow|epoch)\b", re.IGNORECASE)
SESSION = re.compile(r"\b(?:current|session)_\w+|\buser\b", re.IGNORECASE)
ORDER = re.compile(r"\b(order|sort|cluster)\s+by\b", re.IGNORECASE)
QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`"""


def check_calls(parsed: Any, text: str, allowed: frozenset[str] = ALLOWED) -> frozenset[str]:
    """The names of the functions that a parsed query calls, if all of them are allowed."""
    called, nodes = set(), list(nodes_of_plan(json.loads(parsed.toJSON())))
    for node in nodes:
        kind = str(node["class"]).rpartition(".")[2]
        name = name_of_node(node)
        if kind == "UnresolvedTableValuedFunction":
            name = str(node["name"]).strip("[]").lower()
        if kind == "UnresolvedRelation" and "." in name:
            raise _refuse_word(text, name.partition(".")[0], f"the table {name}", None)
        if kind in ("UnresolvedFunction", "UnresolvedGenerator", "UnresolvedTableValuedFunction"):
            called.add(name)
    for name in sorted(called - allowed):
        raise _refuse_call(text, name)
    check_report_nodes(nodes)
    _refuse_order(parsed, text)
    return frozenset(called)


def _refuse_order(parsed: Any, text: str) -> None:
    """Refuse an order of the whole query; inside of it an order without LIMIT means nothing."""
    top = parsed
    while str(top.nodeName()) in ("UnresolvedWith", "WithWindowDefinition"):
        top = top.children().apply(0)
    if str(top.nodeName()) == "Sort":
        start = max((found.start() for found in ORDER.finditer(text)), default=0)
        line, column = line_and_column(text, start)
        what, hint = OPERATORS["Sort"]
        message = refuse(what, hint).message
        raise UnsupportedError(message, line=line, column=column, hint=hint)


def _refuse_call(text: str, name: str) -> UnsupportedError:
    if name in functions.AGGREGATES:
        hint = AGGREGATE_HINTS.get(name, "aggregate when reading the view")
        return _refuse_word(text, name, f"the aggregate {name}()", hint)
    what, hint_of_call = functions.refusal_of_call(name, empty=False) or (f"{name}()", None)
    return _refuse_word(text, name, what, hint_of_call)


def _refuse_word(text: str, word: str, what: str, hint: str | None) -> UnsupportedError:
    error = refuse(what, hint)
    line, column = _position_of(text, word)
    return UnsupportedError(error.message, line=line, column=column, hint=hint)


def _refuse_found(found: re.Match[str] | None, text: str, what: str, hint: str) -> UnsupportedError:
    """A refusal that points to what was found in the text."""
    line, column = line_and_column(text, found.start() if found else 0)
    return UnsupportedError(refuse(what, hint).message, line=line, column=column, hint=hint)


def _position_of(text: str, word: str) -> tuple[int | None, int | None]:
    """The first place of a word outside of quotes."""
    pattern = re.compile(rf"{QUOTED}|(?P<word>\b{re.escape(word)}\b)", re.IGNORECASE | re.DOTALL)
    for found in pattern.finditer(text):
        if found["word"]:
            return line_and_column(text, found.start())
    return None, None


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    """The line and column of an offset, both from 1.

    >>> line_and_column("select a,\\n  b", 12)
    (2, 3)
    """
    before = text[:offset]
    return before.count("\n") + 1, offset - before.rfind("\n")


def check_moments(analyzed: Any, text: str, has_clock: bool) -> None:
    """Refuse what reads the session or chance, anywhere in the plan, and the time unless the clock
    is among the query's tables."""
    content = json.loads(analyzed.toJSON())
    for node in nodes_of_plan(content):
        kind = str(node["class"]).rpartition(".")[2].rstrip("$")
        if kind in CLOCK and has_clock:
            continue
        if kind in CLOCK:
            raise _refuse_clock(text, kind)
        if kind.startswith("Current") and kind != "CurrentRow":
            what = f"{kind}, which depends on the session,"
            raise _refuse_found(SESSION.search(text), text, what, "write the value")
    if not analyzed.deterministic():
        raise refuse("a value that is another one each time", "compute it when reading the view")
    if found := SPECIAL_LITERAL.search(text):
        line, column = line_and_column(text, found.start())
        raise UnsupportedError(
            f"{found[0].split()[0].upper()} of the present moment cannot be maintained",
            line=line,
            column=column,
            hint="compare with it when reading the view",
        )
    if any(_is_special(cast) for cast in _casts_of_text(content)):
        what, hint = "a cast of the present moment", "compare with it when reading the view"
        raise _refuse_found(SPECIAL_TEXT.search(text), text, what, hint)


def _refuse_clock(text: str, kind: str) -> UnsupportedError:
    error = refuse_expression(kind)
    words = (*functions.WITHOUT_BRACKETS, "now", "curdate")
    found = [at for word in words if (at := _position_of(text, word))[0]]
    line, column = min(found, default=(None, None))
    return UnsupportedError(error.message, line=line, column=column, hint=error.hint)


def _casts_of_text(content: Any) -> Iterator[str]:
    """Texts that are cast to a date or a timestamp."""
    waiting = [content]
    while waiting:
        current = waiting.pop()
        if isinstance(current, dict):
            waiting.extend(current.values())
        elif isinstance(current, list):
            waiting.extend(current)
            for one, other in pairwise(current):
                if _is_moment_cast(one) and _is_text(other):
                    yield str(other["value"])


def _is_moment_cast(node: Any) -> bool:
    return (
        isinstance(node, dict)
        and str(node.get("class", "")).endswith(".Cast")
        and node.get("dataType") in ("date", "timestamp", "timestamp_ntz")
    )


def _is_text(node: Any) -> bool:
    plain = isinstance(node, dict) and node.get("dataType") == "string"
    return plain and node.get("value") is not None


def _is_special(text: str) -> bool:
    return SPECIAL.match(text) is not None
