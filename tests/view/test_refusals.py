"""What cannot be maintained is refused when it is defined, pointing at the SQL.

Every construct is a pair in a fixture file; the caret must be where the error says. The list of
allowed functions is compared with Spark's own registry, so that no aggregate, generator or
non-deterministic function can be among them unnoticed.
"""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.view.sample import FIXTURES, HEAD, Mistake, define, mistakes
from viewkeeper.errors import DefinitionError, UnsupportedError
from viewkeeper.view.sql import functions
from viewkeeper.view.sql.view_statement import parse_view


@pytest.mark.parametrize("case", mistakes("refused.sql"), ids=lambda case: case.sql)
def test_what_cannot_be_maintained_is_refused_where_it_stands(case: Mistake) -> None:
    with pytest.raises(UnsupportedError) as caught:
        define(case.sql)
    assert caught.value.message.endswith(f'view "v": {case.message} cannot be maintained')
    assert (caught.value.line, caught.value.column) == (2, case.column)


@pytest.mark.parametrize("case", mistakes("wrong.sql"), ids=lambda case: case.sql)
def test_a_mistake_is_pointed_at(case: Mistake) -> None:
    with pytest.raises(DefinitionError) as caught:
        define(case.sql)
    assert caught.value.message.endswith(f'view "v": {case.message}')
    assert (caught.value.line, caught.value.column) == (2, case.column)


@pytest.mark.parametrize("sql", (FIXTURES / "reports.sql").read_text().splitlines()[2:])
def test_what_is_more_than_a_plain_join_is_a_report(sql: str) -> None:
    parsed = parse_view(HEAD + sql)
    assert parsed.report is not None
    with pytest.raises(DefinitionError, match="more than a join of tables"):
        define(sql)


@pytest.mark.parametrize(
    ("text", "message", "line", "column"),
    [
        ("", "no statement", 1, 1),
        ("-- nothing\n;", "no statement", 1, 1),
        ("SELECT 1", 'expected CREATE after the beginning of the text, got "SELECT"', 1, 1),
        ("CREATE VIEW v AS SELECT 1", 'expected MATERIALIZED after CREATE, got "VIEW"', 1, 8),
        ("CREATE MATERIALIZED VIEW", "expected the view's name", 1, 25),
        ("CREATE MATERIALIZED VIEW AS SELECT 1", 'expected the view\'s name, got "AS"', 1, 26),
        ("CREATE MATERIALIZED VIEW `a b` AS SELECT 1", '"a b" is not a name for a view', 1, 26),
        ("CREATE MATERIALIZED VIEW a.b AS SELECT 1", "a view's name has one part", 1, 26),
        ("CREATE MATERIALIZED VIEW v", "expected AS after the view's name", 1, 27),
        ("CREATE MATERIALIZED VIEW v AS", 'view "v": expected SELECT after AS', 1, 28),
        (HEAD + "SELECT 1 AS a FROM s.t;\nSELECT 2", "a second statement", 3, 1),
        (HEAD + "SELECT 'it FROM s.t", "a quote or a comment is never closed", 2, 8),
        (HEAD + "SELECT a FROM s.t /* never", "a quote or a comment is never closed", 2, 19),
    ],
)
def test_a_malformed_statement_says_what_was_expected(
    text: str, message: str, line: int, column: int
) -> None:
    with pytest.raises(DefinitionError) as caught:
        parse_view(text, "views/v.sql")
    assert caught.value.message == f"views/v.sql:{line}:{column}: {message}"


@pytest.mark.parametrize(
    ("head", "construct"),
    [
        ("IF NOT EXISTS v", "IF NOT EXISTS"),
        ("v (a, b)", "a column list after the view's name"),
        ("v TBLPROPERTIES ('a' = 'b')", "TBLPROPERTIES on a view"),
        ("v PARTITIONED BY (a)", "PARTITIONED BY on a view"),
    ],
)
def test_properties_of_the_statement_are_refused(head: str, construct: str) -> None:
    with pytest.raises(UnsupportedError, match="cannot be maintained") as caught:
        parse_view(f"CREATE MATERIALIZED VIEW {head} AS SELECT a FROM s.t")
    assert construct in caught.value.message


def test_hints_name_the_nearest_columns() -> None:
    with pytest.raises(DefinitionError) as caught:
        define("SELECT o.custmer FROM shop.orders AS o")
    assert caught.value.hint == "did you mean o.customer?"


def test_allowed_functions_are_scalar_and_deterministic(spark: SparkSession) -> None:
    groups = registry(spark)
    never = {"agg_funcs", "window_funcs", "generator_funcs", "lambda_funcs"}
    unknown = functions.DETERMINISTIC - groups.keys()
    assert not unknown, f"not in Spark's registry: {sorted(unknown)}"
    wrong = {name for name in functions.DETERMINISTIC if groups[name] in never}
    assert not wrong, f"not scalar: {sorted(wrong)}"
    assert not functions.DETERMINISTIC & functions.NON_DETERMINISTIC


def test_aggregates_windows_and_generators_are_known_as_such(spark: SparkSession) -> None:
    by_group = {
        "agg_funcs": functions.AGGREGATES,
        "window_funcs": functions.WINDOW,
        "lambda_funcs": functions.HIGHER_ORDER,
    }
    groups = registry(spark)
    for group, names in by_group.items():
        assert names == {name for name, found in groups.items() if found == group}


def test_every_function_of_spark_is_judged(spark: SparkSession) -> None:
    """One that a new version brings must be looked at before a view or a query may call it."""
    judged = functions.IN_QUERY | functions.REFUSED.keys()
    there = {row[0] for row in spark.sql("SHOW FUNCTIONS").collect()}
    assert judged - functions.SYNTAX == there - functions.SYNTAX
    assert not functions.DETERMINISTIC & functions.REFUSED.keys()


def registry(spark: SparkSession) -> dict[str, str]:
    """Every function of Spark and the group that its documentation puts it in."""
    functions_of = spark._jsparkSession.sessionState().functionRegistry()
    names = functions_of.listFunction().iterator()
    groups = {}
    while names.hasNext():
        name = names.next()
        groups[name.funcName()] = functions_of.lookupFunction(name).get().getGroup()
    return groups
