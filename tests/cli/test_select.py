"""What a query may be, by our own reader: without Spark, and before it is started."""

from __future__ import annotations

import pytest

from tests.cli.query_samples import FORBIDDEN, HARMLESS, VIEWS
from viewkeeper.engine.query.checked_query import check_query
from viewkeeper.errors import DefinitionError


@pytest.mark.parametrize("text", HARMLESS)
def test_a_query_over_views_is_run(text: str) -> None:
    query = check_query(text, VIEWS)
    assert set(query.views) <= set(VIEWS)
    assert text.lower().startswith(query.text[:6].lower())
    assert not query.text.rstrip().endswith(";")


@pytest.mark.parametrize("text", FORBIDDEN)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(DefinitionError):
        check_query(text, VIEWS)


def test_the_refusal_names_the_function_and_the_reason() -> None:
    with pytest.raises(DefinitionError) as caught:
        check_query("SELECT a,\n  reflect('a', 'b') FROM lines", VIEWS)
    assert caught.value.message == "2:3: the function reflect() cannot be run here"
    assert caught.value.hint == "it runs Java code"


def test_a_view_that_a_with_hides_elsewhere_is_still_read() -> None:
    text = "SELECT * FROM lines WHERE 1 IN (WITH lines AS (SELECT 1) SELECT * FROM lines)"
    assert check_query(text, VIEWS).views == ("lines",)


DEEP = {
    "brackets": "SELECT " + "(" * 10_000 + "1" + ")" * 10_000 + " FROM lines",
    "calls": "SELECT " + "abs(" * 10_000 + "1" + ")" * 10_000 + " FROM lines",
    "conditions": "SELECT 1 FROM lines WHERE " + " AND ".join(["a = 1"] * 10_000),
    "alternatives": "SELECT 1 FROM lines WHERE " + " OR ".join(["a = 1"] * 3_000),
    "sums": "SELECT " + "+".join(["a"] * 3_000) + " FROM lines",
    "negations": "SELECT " + "NOT " * 3_000 + "a FROM lines",
    "cases": "SELECT " + "CASE WHEN a THEN " * 1_000 + "1" + " END" * 1_000 + " FROM lines",
    "subqueries": "SELECT * FROM " + "(SELECT * FROM " * 1_000 + "lines" + ")" * 1_000,
    "unions": " UNION ".join(["SELECT a FROM lines"] * 1_000),
    "joins": "SELECT 1 FROM lines" + " JOIN lines ON a = b" * 1_000,
    "arrays": "SELECT " + "[" * 10_000 + "]" * 10_000,
    "types": "SELECT CAST(a AS " + "array<" * 3_000 + "int" + ">" * 3_000 + ") FROM lines",
    "length": "SELECT 1 FROM lines WHERE a IN (" + ",".join(["12345"] * 100_000) + ")",
}


@pytest.mark.parametrize("name", DEEP)
def test_sql_that_is_too_deep_is_refused(name: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        check_query(DEEP[name], VIEWS)
    assert caught.value.hint
