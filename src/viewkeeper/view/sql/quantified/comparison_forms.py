"""What a quantified comparison means, in words that Spark has.

By the standard, `x > ALL (S)` is true if S has no row or all comparisons are true, false if one is
false, and else NULL; `x > ANY (S)` is true if one comparison is true, false if S has no row or all
are false, and else NULL. There are three ways to say it.

- By its *definition*, as EXISTS over the rows of S that decide. Where S is tied to the rows around
  it by an equality, nothing has to be stored for that.
- By *extremes*: x is larger than all values if it is larger than the largest. Whether S has a row,
  and a NULL, is asked of two counts; `missing` is NULL if there is no row, else the number of
  NULLs. These are values of S alone, so they are maintained also where nothing ties S to a row.
- By IN. Spark's IN is never NULL but in a condition, so elsewhere the counts say what is NULL.

Where only true counts, in a condition, ANY needs no counts.

The extremes have the order of S, and the comparison has that of the type which x and S have in
common. A text and a number have none in which both agree: '9' is after '10', and 9 before 10. So
the form has a comparison that is never evaluated, and which Spark refuses for such types.

A form is a text in which {x} and {s} stand for the left side and the subquery, {t} and {q} for a
table and a column that no other part of the text names, {rows} for the subquery as a table and
{value} for its column, which keeps its own name where that is known, {missing}, {min} and {max} for
values of the subquery, and {same} for the comparison of types.
"""

from __future__ import annotations

from viewkeeper.view.sql.quantified.rewritten_text import TextNote

ROWS = "FROM ({s}) AS {t}({q})"
"""The subquery with another name for its column, which nothing on the left side can mean."""
PARTS = {
    "missing": "(SELECT CASE WHEN count(*) > 0 THEN count(*) - count({value}) END {rows})",
    "min": "(SELECT min({value}) {rows})",
    "max": "(SELECT max({value}) {rows})",
    "same": "array_contains(array({x}), {max})",
}
NOTE = TextNote(
    "a quantified comparison of types that have no order in common",
    "CAST the left side or the column of the subquery, so that both have one type",
)
"""What an error in the comparison of types means."""


def parts_of_form(column: str | None) -> dict[str, str]:
    """What the names of parts stand for, over a subquery whose column has this name."""
    # A name with a brace in it could be taken for one of the parts.
    if column is None or "{" in column:
        return {**PARTS, "rows": ROWS, "value": "{t}.{q}"}
    quoted = column.replace("`", "``")
    return {**PARTS, "rows": "FROM ({s}) AS {t}", "value": f"{{t}}.`{quoted}`"}


def definition_form(operator: str, is_all: bool, is_condition: bool) -> str:
    """A comparison with the rows of a subquery, one by one."""
    compared = f"{{x}} {operator} {{t}}.{{q}}"
    unknown = f"EXISTS (SELECT 1 {ROWS} WHERE ({compared}) IS NULL)"
    if is_condition and is_all:
        return f"NOT EXISTS (SELECT 1 {ROWS} WHERE ({compared}) IS NOT TRUE)"
    if is_condition:
        return f"EXISTS (SELECT 1 {ROWS} WHERE {compared})"
    decides = f"NOT ({compared})" if is_all else compared
    first, last = ("false", "true") if is_all else ("true", "false")
    return (
        f"CASE WHEN EXISTS (SELECT 1 {ROWS} WHERE {decides}) THEN {first} "
        f"WHEN {unknown} THEN NULL ELSE {last} END"
    )


def membership_form(is_all: bool, is_condition: bool, is_row: bool) -> str:
    """`= ANY`, or `<> ALL`, by IN; a row of columns is compared in conditions alone."""
    # Spark takes VALUES in the brackets of IN for a function.
    among = "({s})" if is_row else "(SELECT {value} {rows})"
    if is_condition:
        return f"{{x}} NOT IN {among}" if is_all else f"{{x}} IN {among}"
    found, else_ = ("false", "true") if is_all else ("true", "false")
    return (
        f"CASE WHEN {{missing}} IS NULL THEN {else_} WHEN {{x}} IN {among} THEN {found} "
        f"WHEN {{missing}} = 0 AND {{x}} IS NOT NULL THEN {else_} END"
    )


def extremes_form(operator: str, is_all: bool, is_condition: bool, is_typed: bool) -> str:
    """A comparison with the smallest and the largest value of a subquery; `is_typed` says whether
    the left side has a type of its own."""
    if operator in ("=", "<>"):
        word = "AND" if operator == "=" else "OR"
        decided = f"{{x}} {operator} {{min}} {word} {{x}} {operator} {{max}}"
    else:
        # To be larger than all is to be larger than the largest, than any than the smallest.
        largest = operator.startswith(">") == is_all
        decided = f"{{x}} {operator} {{max}}" if largest else f"{{x}} {operator} {{min}}"
    if is_typed:
        decided = f"{decided} OR false AND {{same}}"
    if is_all:
        return f"{{missing}} IS NULL OR ({decided}) AND CASE WHEN {{missing}} = 0 THEN true END"
    if is_condition:
        return decided
    return f"{{missing}} IS NOT NULL AND ({decided} OR CASE WHEN {{missing}} = 0 THEN false END)"
