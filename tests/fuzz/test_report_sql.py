"""Damaged reports: groups, outer joins, windows, scalar subqueries, generators, the clock.

A report is compiled by Spark, so what counts is what Spark is given. All that comes before Spark on
that road is tried: the text is read and held against the lists, tables become places and calls for
the time become rows of the clock, and a place in an error is found again in the user's text.
"""

from __future__ import annotations

import random
import re
import zlib

import pyarrow as pa
import pytest

from tests.fuzz.mutation import fuzz_text
from tests.sql.constructs import CONSTRUCTS
from tests.sql.random_queries import QueryWriter
from tests.sql.refused_constructs import REFUSED
from tests.sql.relation_history import TABLES
from tests.view.sample import HEAD
from viewkeeper.engine.compile.clock_text import ClockText
from viewkeeper.errors import SchemaError, UnsupportedError, ViewkeeperError
from viewkeeper.view.definition import CLOCK, PROJECT, Constant, Field, Graph, Relation
from viewkeeper.view.sql.bind import bind_report, locate_error, report_text
from viewkeeper.view.sql.plain_sql import read_plain
from viewkeeper.view.sql.view_statement import ParsedView, parse_view

TEXTS = (
    "SELECT o.customer, count(*) AS n, sum(DISTINCT o.price) FILTER (WHERE o.kind > 1) AS t\n"
    "FROM shop.orders AS o GROUP BY o.customer HAVING count(*) > 2 -- a comment\n",
    "WITH big (id) AS (SELECT id FROM shop.orders WHERE price > 1.5) SELECT c.name, b.id\n"
    "FROM crm.customers c LEFT JOIN big b ON b.id = c.customer AND b.id <> 7 /* another */",
    "SELECT id FROM shop.orders o WHERE EXISTS (SELECT 1 FROM crm.tickets t WHERE t.id = o.id)"
    " OR o.id NOT IN (SELECT id FROM crm.tickets) UNION ALL SELECT x FROM VALUES (1) AS t(x)",
    "SELECT * FROM (SELECT rank, name FROM crm.customers) PIVOT (count(name) FOR rank IN (1))",
    "SELECT rank, grouping(rank) AS g, max(`name`) AS m FROM lines GROUP BY CUBE (rank, d)",
    "SELECT o.id, current_date() AS today, date_trunc('hour', now()) AS hour FROM shop.orders o\n"
    "WHERE o.day > current_date - INTERVAL 3 DAYS AND shop.orders.day < now()::date",
    "SELECT o.id, (SELECT max(t.id) FROM crm.tickets t WHERE t.customer = o.customer) AS m,\n"
    "rank() OVER w AS r FROM shop.orders o WINDOW w AS (PARTITION BY o.kind ORDER BY o.id)",
    "SELECT o.id, o.kind + 1 > ALL (SELECT t.level FROM crm.tickets t WHERE t.id = o.id) AS f\n"
    "FROM shop.orders o WHERE (o.id, o.kind) = SOME (SELECT 1, 2) AND NOT o.customer < ANY\n"
    "(WITH u AS (SELECT id FROM crm.tickets WHERE id >= ALL (VALUES (1), (2))) SELECT id FROM u)",
)
HIDDEN = (
    *(("SELECT ", f"SELECT {call}, ") for call in ("reflect('a', 'b')", "java_method('a', 'b')")),
    ("SELECT ", "SELECT TRANSFORM(id) USING 'id' AS "),
    *(("shop.orders", "text.`/etc/passwd`"), ("crm.customers", "csv.`/etc/passwd`")),
)
WORDS = (
    *(" GROUP BY ", " HAVING ", " LEFT JOIN ", " FULL JOIN ", " ON ", " USING ", " NATURAL "),
    *(" OVER (", " PARTITION BY ", " ORDER BY ", " ROWS BETWEEN ", " WINDOW w AS (", " QUALIFY "),
    *(
        " LIMIT 1",
        " OFFSET 1",
        " LATERAL VIEW ",
        " LATERAL ",
        " explode(",
        " stack(2, ",
        " inline(",
    ),
    *(
        " (SELECT ",
        " EXISTS (",
        " IN (SELECT ",
        " UNION ",
        " EXCEPT ALL ",
        " WITH w AS (",
        " VALUES ",
    ),
    *(
        " PIVOT (",
        " UNPIVOT (",
        " FILTER (WHERE ",
        " WITHIN GROUP (",
        " DISTINCT ",
        " IGNORE NULLS ",
    ),
    *("current_date", "now()", "current_timestamp()", "date_trunc('minute', ", "::date", " |> "),
    *(
        "reflect('a', 'b')",
        "text.`/etc/passwd`",
        "TRANSFORM(a) USING 'x'",
        "range(9)",
        " -> ",
        "/*+",
    ),
    *("__place_0", "__place_1 AS ", "shop.orders", "crm.", "identifier('x')", "DATE '9853'", ", "),
)
NEVER = re.compile(
    r"\b(reflect|java_method|transform)\s*\(|\b(from|join)\s+(csv|text)\.", re.IGNORECASE
)
QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`(?:\w*\W[^`]*)?`", re.DOTALL)
"""Texts, and names that are no words."""
RENAMED = re.compile(r"\b__place_\d+\s+(as\s+)?\w+\s*\([\w\s,]*\)", re.IGNORECASE)
"""Tables with an alias and names of their columns: no call, whatever the alias is."""
SHAPES = {
    shape.relation: tuple(Field(name, kind) for name, (_, kind) in shape.columns.items())
    for shape in TABLES
}
TIME = (Field("today", pa.date32()), Field("instant", pa.timestamp("us", "UTC")))
COMPILED = Graph((Constant(0, (Field("n", pa.int64()),), ()),))
"""What a report is compiled to makes no difference here."""


def columns_of(relation: Relation) -> tuple[Field, ...]:
    if relation.source == CLOCK:
        return TIME
    if str(relation) not in SHAPES:
        raise SchemaError(relation.source, f'no table "{relation.table}"')
    return SHAPES[str(relation)]


def read_report_view(text: str) -> None:
    """All that is done with a report before Spark has it."""
    parsed = parse_view(text, "views/v.sql", as_report=True)
    assert read_plain(parsed.plain)[0] == parsed.plain, "a plain text is as plain as it can be"
    given = report_text(parsed)
    check_given(parsed, given)
    check_places(parsed, given)
    ClockText(given)
    bind_report(parsed, columns_of, COMPILED, ())


def check_given(parsed: ParsedView, given: str) -> None:
    """Spark is given nothing that runs code, and no table but those that were found."""
    named = QUOTED.sub("''", given).replace("`", "")
    assert NEVER.search(RENAMED.sub("", named)) is None, given
    again = parse_view(HEAD + given, as_report=True).report
    assert again is not None
    assert parsed.report is not None
    places = [Relation(PROJECT, f"__place_{at}") for at in range(len(parsed.report.tables))]
    # A quantified comparison repeats its subquery.
    assert {table.relation for table in again.tables} == {*places}, given


def check_places(parsed: ParsedView, given: str) -> None:
    """Wherever Spark finds an error, it is somewhere in the user's text."""
    lines = given.split("\n")
    generator = random.Random(zlib.crc32(given.encode("utf-8", "surrogatepass")))
    line = generator.randint(1, len(lines) + 1)
    column = generator.randint(1, len(lines[line - 1]) + 1 if line <= len(lines) else 9)
    found = locate_error(parsed, UnsupportedError("v: cannot be", line=line, column=column))
    shown = parsed.text.split("\n")
    assert found.line is not None
    assert found.column is not None
    assert 1 <= found.line <= len(shown), (line, column, given)
    assert 1 <= found.column <= len(shown[found.line - 1]) + 1, (line, column, given)


def test_damaged_reports() -> None:
    hidden = [text.replace(*pair) for pair in HIDDEN for text in TEXTS]
    good = [HEAD + text for text in (*TEXTS, *hidden)]
    fuzz_text(read_report_view, good, inputs=2000, words=WORDS)


def test_damaged_constructs() -> None:
    """Everything that `docs/sql.md` has an example of."""
    texts = [*(each.text for each in CONSTRUCTS), *(each.text for each in REFUSED)]
    good = [HEAD + text for text in texts]
    fuzz_text(read_report_view, good, inputs=2000, words=WORDS)


def test_damaged_random_reports() -> None:
    writer = QueryWriter(random.Random(3))
    good = [HEAD + writer.write_query(2).text for _ in range(300)]
    fuzz_text(read_report_view, good, inputs=1000, words=WORDS)


def test_good_reports_are_read() -> None:
    """A fuzzer whose good inputs are refused tries nothing."""
    writer = QueryWriter(random.Random(3))
    for text in (*TEXTS, *(each.text for each in CONSTRUCTS if not each.parents)):
        if " lines " not in text:
            read_report_view(HEAD + text)
    for _ in range(100):
        read_report_view(HEAD + writer.write_query(2).text)


def test_columns_that_an_alias_renames_are_no_texts() -> None:
    """A table with an alias and texts in brackets looked like a call that nobody had judged."""
    for text in ("'a', 'b'", '"a"', "a, 'b'"):
        with pytest.raises(ViewkeeperError, match="a string where a name is expected"):
            read_report_view(f"{HEAD}SELECT count(*) AS n FROM shop.orders reflect({text})")
    read_report_view(f"{HEAD}SELECT count(*) AS n FROM shop.orders reflect(a, `b`)")
