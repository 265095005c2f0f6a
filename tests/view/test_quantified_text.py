"""Quantified comparisons as text: what is rewritten, what stays as it is, and where errors point.

What they mean is compared with PostgreSQL in `tests/sql/test_quantified_comparisons.py`.
"""

from __future__ import annotations

import re

import pytest

from viewkeeper.engine.query.checked_query import check_query
from viewkeeper.errors import DefinitionError, UnsupportedError
from viewkeeper.readers.connect.pinned_plan import pin_tables
from viewkeeper.view.sql.bind import locate_error, report_text
from viewkeeper.view.sql.quantified.comparison_forms import NOTE
from viewkeeper.view.sql.quantified.quantified_comparisons import rewrite_quantified
from viewkeeper.view.sql.sql_text import SqlText
from viewkeeper.view.sql.view_statement import parse_view


def rewritten(text: str) -> str:
    return rewrite_quantified(SqlText(text)).text


@pytest.mark.parametrize(
    "text",
    [
        "SELECT any(a), some(b > 1), any_value(c) FROM t",
        "SELECT a = any(b) AS f FROM t GROUP BY a",
        "SELECT a = any((SELECT b FROM u)) FROM t",
        "SELECT a LIKE ANY ('x%', 'y'), b LIKE ALL ('x', 'z') FROM t",
        "SELECT ALL (a) FROM t UNION ALL (SELECT b FROM u)",
        "SELECT a, '> ALL (SELECT 1)' AS b FROM t WHERE c = 'x = ANY (SELECT 2)'",
        "SELECT `> ALL (SELECT 1)` FROM t",
        "SELECT t.all, t.any FROM t WHERE t.some > (SELECT 1)",
        "SELECT a > (SELECT max(b) FROM u) FROM t",
        "SELECT a > all_of(b) FROM t",
    ],
)
def test_what_is_no_quantified_comparison_stays(text: str) -> None:
    assert rewritten(text) == text


@pytest.mark.parametrize("name", ["{foo}", "{value}", "{x}"])
def test_a_column_may_be_called_as_a_part_of_a_form_is(name: str) -> None:
    found = rewritten(f"SELECT max(a) > ALL (SELECT `{name}` FROM t) AS c FROM u")
    assert found.count("max(a)") == rewritten(
        "SELECT max(a) > ALL (SELECT b + 1 FROM t) AS c FROM u"
    ).count("max(a)")
    assert f"(SELECT `{name}` FROM t) AS compared(compared_value)" in found


ONE_ROW = "EXISTS (SELECT 1 FROM ({}) AS compared(compared_value) WHERE {} compared.compared_value)"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("SELECT a FROM t WHERE a = ANY (SELECT b FROM u)",
         "SELECT a FROM t WHERE (a IN (SELECT compared.`b` FROM (SELECT b FROM u) AS compared))"),
        ("SELECT a FROM t WHERE (a, c) <> ALL (SELECT b, d FROM u)",
         "SELECT a FROM t WHERE ((a, c) NOT IN (SELECT b, d FROM u))"),
        ("SELECT a FROM t WHERE a > some(SELECT u.b FROM u WHERE u.c = t.c)",
         f"SELECT a FROM t WHERE ({ONE_ROW.format('SELECT u.b FROM u WHERE u.c = t.c', 'a >')})"),
        # A subquery that is in brackets of its own, and one whose end is written over lines.
        ("SELECT a FROM t WHERE a = ANY ((SELECT b FROM u)\n UNION (SELECT 1)) OR false",
         None),
        ("SELECT a FROM t WHERE NOT a = ALL\n(\nSELECT b FROM u)", None),
        ("SELECT a[0].all + f(a, ')') * -b || 'c' >= ALL (VALUES (1)) FROM t", None),
        ("SELECT CASE WHEN a < ALL (SELECT 1) THEN 1 END AS b FROM t", None),
    ],
)  # fmt: skip
def test_what_is_one_is_rewritten(text: str, meant: str | None) -> None:
    found = rewritten(text)
    assert meant in (None, found)
    assert found != text
    # Nothing of it is left, and it can be read again.
    assert rewritten(found) == found


@pytest.mark.parametrize(
    ("left", "is_typed"), [("a", True), ("9", True), ("-9", True), ("'9'", False), ("NULL", False)]
)
def test_a_left_side_with_a_type_is_compared_in_its_type(left: str, is_typed: bool) -> None:
    """9 is less than the text '10', and the largest of '10' and '9' is '9'."""
    found = rewritten(f"SELECT {left} < ALL (SELECT b FROM u) AS f FROM t")
    assert ("array_contains" in found) == is_typed


def test_names_are_those_that_nobody_has() -> None:
    text = "SELECT compared.a FROM compared WHERE a > ANY (SELECT b FROM u WHERE u.c = compared.c)"
    assert "AS compared_(compared_value)" in rewritten(text)
    text = "SELECT a FROM t WHERE a > ANY (SELECT COMPARED_value FROM u WHERE u.c = t.c)"
    assert "AS compared__(compared_value_)" in rewritten(text)


@pytest.mark.parametrize(
    ("text", "at", "reason", "hint"),
    [
        ("SELECT a FROM t WHERE b AND a = b > ALL (SELECT 1)", "ALL", "ALL cannot be", "brackets"),
        ("SELECT a > ALL (SELECT 1) + 1 FROM t", "ALL", "ALL cannot be read", "brackets"),
        ("SELECT x BETWEEN 1 AND y < SOME (SELECT 1) FROM t", "SOME", "SOME cannot be", "brackets"),
        ("SELECT a <=> ANY (SELECT 1) FROM t", "ANY", "<=> ANY (SELECT ...) cannot be", "EXISTS"),
        ("SELECT a LIKE ALL (SELECT 'x') FROM t", "ALL", "LIKE ALL (SELECT ...)", "EXISTS"),
        ("SELECT a FROM t WHERE (a, b) < ALL (SELECT 1, 2)", "ALL", "comparison of rows", "EXISTS"),
        ("SELECT (a, b) = ANY (SELECT 1, 2) FROM t", "ANY", "comparison of rows", "in a condition"),
        ("SELECT a = ANY (SELECT 1, 2) FROM t", "ANY", "2 columns are compared with 1", "columns"),
        ("SELECT rand() > ALL (SELECT 1) FROM t", "rand", "rand in a quantified", "derived table"),
        ("SELECT a > ALL (SELECT uuid() FROM u) FROM t", "uuid", "uuid in a", "derived table"),
        ("SELECT a COLLATE UNICODE > ALL (SELECT 'b') FROM t", "ALL", "by a collation", "collate"),
        ("SELECT a, count(*), a = ANY (SELECT 1) FROM t GROUP BY a", "ANY", "groups", "derived"),
    ],
)  # fmt: skip
def test_what_is_refused_has_a_place_and_a_way_out(
    text: str, at: str, reason: str, hint: str
) -> None:
    before = "SELECT 1 AS one,\n"
    with pytest.raises(DefinitionError) as caught:
        rewritten(text.replace("SELECT ", before, 1))
    assert reason in caught.value.message
    assert hint in (caught.value.hint or "")
    offset = text.index(at) - len("SELECT ") + len(before)
    assert (caught.value.line, caught.value.column) == (2, offset - len(before) + 1)


def test_what_becomes_too_large_is_refused() -> None:
    text = "SELECT 1"
    for _ in range(12):
        text = f"SELECT a FROM t WHERE NOT a > ALL ({text})"
    with pytest.raises(DefinitionError, match="become too large"):
        rewritten(text)


VIEW = """-- x > ALL (SELECT 1)
CREATE MATERIALIZED VIEW v AS
SELECT o.id, /* = ANY (SELECT 2) */ 'it''s > ALL (SELECT 3)' AS note
FROM shop.orders o
WHERE NOT o.odd
  + first > ALL (SELECT t.second
    FROM crm.tickets t WHERE shop.orders.third = ANY (SELECT fourth FROM crm.tickets))
  AND fifth"""


@pytest.mark.parametrize("word", ["odd", "first", "second", "third", "fourth", "fifth"])
def test_every_copy_of_a_word_points_at_the_word(word: str) -> None:
    parsed = parse_view(VIEW, "views/v.sql")
    shown = report_text(parsed)
    assert "ANY (" not in shown.replace("it\\'s > ALL (SELECT 3)", "")
    written = VIEW[: VIEW.index(word)]
    place = (written.count("\n") + 1, len(written) - (written.rfind("\n") + 1) + 1)
    for at in (found.start() for found in re.finditer(rf"(?<!`){word}", shown)):
        found = locate_error(parsed, error_at(shown, at, UnsupportedError))
        # A qualified name is one change of the text.
        assert found.line == place[0]
        assert word == "third" or found.column == place[1]
        assert found.message.endswith('view "v": it is wrong')


def test_what_is_new_points_at_the_quantifier() -> None:
    parsed = parse_view(VIEW.replace("shop.orders.third", "third"), "views/v.sql")
    shown = report_text(parsed)
    found = locate_error(parsed, error_at(shown, shown.index("count(*)"), DefinitionError))
    assert (found.line, found.column) == (6, 13)
    found = locate_error(parsed, error_at(shown, shown.index("array_contains"), DefinitionError))
    assert (found.line, found.column) == (6, 13)
    assert found.message.endswith(NOTE.message)
    assert found.hint == NOTE.hint


def error_at(text: str, offset: int, kind: type[DefinitionError]) -> DefinitionError:
    before = text[:offset]
    line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    return kind("it is wrong", line=line, column=column, hint="h")


def test_a_refusal_is_one_of_the_view_and_its_file() -> None:
    text = "CREATE MATERIALIZED VIEW v AS SELECT id\nFROM s.orders o\nWHERE o.a <=> ALL (SELECT 1)"
    with pytest.raises(UnsupportedError) as caught:
        parse_view(text, "views/v.sql")
    assert str(caught.value).startswith('views/v.sql:3:15: view "v": <=> ALL (SELECT ...)')


def test_a_query_over_views_is_rewritten_before_anything_reads_it() -> None:
    text = "SELECT a FROM one WHERE a > ALL (SELECT b FROM two WHERE two.c = one.c) -- ANY (SELECT"
    asked = check_query(text, ("one", "two"))
    assert asked.views == ("one", "two")
    assert "ALL" not in asked.text
    pinned = pin_tables(asked, {"one": "t.v1", "two": "t.v2"})
    assert "FROM t.v1 AS `one`" in pinned
    assert "(SELECT b FROM t.v2 AS `two` WHERE two.c = one.c)" in pinned
    with pytest.raises(DefinitionError, match="three is not a view"):
        check_query("SELECT a FROM one WHERE a > ALL (SELECT b FROM three)", ("one", "two"))
