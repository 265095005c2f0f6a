"""Damaged views: read up to their places, conditions and types, or refused in our own words.

The SQL of a view is a user's, but a tool or a merge may have written it. Nothing of it may end in
an error that is not ours, and nothing that is accepted may be more than what was checked.
"""

from __future__ import annotations

import random

import pytest

from tests.fuzz.mutation import fuzz_text
from tests.view.random_sql import random_query
from tests.view.sample import HEAD, TABLES, schema
from viewkeeper.errors import SchemaError, ViewkeeperError
from viewkeeper.view.definition import Field, Relation
from viewkeeper.view.render import extend_query
from viewkeeper.view.sql.bind import bind_view
from viewkeeper.view.sql.plain_sql import read_plain
from viewkeeper.view.sql.view_statement import parse_view

GOOD = (
    "SELECT o.id, o.total * 2 AS twice FROM shop.orders AS o WHERE o.id > 1 AND o.paid",
    "SELECT * FROM shop.orders o JOIN crm.customers AS c ON o.customer = c.id -- a comment\n",
    "SELECT upper(i.product) || 'it''s' AS p FROM shop.items i, shop.orders o\n"
    "WHERE i.order_id = o.id /* another */ AND o.total BETWEEN 1.5 AND 2e3",
    "SELECT CASE WHEN o.paid THEN 1 ELSE CAST(o.total AS INT) END AS n FROM shop.orders AS o\n"
    "WHERE o.id IN (1, 2, 3) OR NOT (o.customer <=> 7) OR o.placed = DATE '2024-01-31'",
)


def columns_of(relation: Relation) -> tuple[Field, ...]:
    if relation.table.split(".")[-1] not in TABLES:
        raise SchemaError(relation.source, f'no table "{relation.table}"')
    return schema(relation)


def read(text: str) -> None:
    parsed = parse_view(text, "views/v.sql")
    assert read_plain(parsed.plain)[0] == parsed.plain, "a plain text is as plain as it can be"
    extend_query(bind_view(parsed, columns_of), ["1 AS n"])


def test_damaged_views() -> None:
    fuzz_text(read, [f"{HEAD}{text}" for text in GOOD], inputs=2000)


def test_damaged_random_views() -> None:
    generator = random.Random(3)
    fuzz_text(read, [HEAD + random_query(generator) for _ in range(200)], inputs=2000)


def test_a_list_after_where_is_no_table() -> None:
    with pytest.raises(ViewkeeperError, match="a table outside of FROM"):
        parse_view(f"{HEAD}SELECT o.id FROM shop.orders o WHERE o.id > 0, o.total")


@pytest.mark.parametrize(
    "tables",
    [
        "shop.orders o" + " LEFT JOIN shop.items" * 40,
        "shop.orders o" + " JOIN shop.items" * 10 + " JOIN (SELECT 1 FROM t" + " JOIN u" * 10 + ")",
        "shop.orders o" + " JOIN shop.items i JOIN shop.items" * 30 + " WHERE" + " ON" * 60,
    ],
)
def test_joins_without_on_have_a_limit(tables: str) -> None:
    """Each of them doubles what the parser does: 40 of them did not end."""
    with pytest.raises(ViewkeeperError, match="JOINs without ON"):
        parse_view(f"{HEAD}SELECT o.id FROM {tables}")


def test_many_joins_are_read() -> None:
    on = " JOIN shop.items i ON i.order_id = o.id"
    every = [" CROSS JOIN shop.items i" * 40, on * 40, " JOIN shop.items i" * 14]
    for joins in [*every, " NATURAL LEFT JOIN shop.items i" * 40]:
        parse_view(f"{HEAD}SELECT o.id FROM shop.orders o{joins}", as_report=True)
    union = " UNION ALL ".join(["SELECT o.id FROM shop.orders o JOIN shop.items i"] * 40)
    assert parse_view(HEAD + union).report is not None


@pytest.mark.parametrize("before", [" JOIN", ",", " JOIN LATERAL"])
@pytest.mark.parametrize("query", ["SELECT 1 FROM t", "FROM t", "WITH w AS (SELECT 1) SELECT 1"])
def test_a_query_in_place_of_a_table_has_brackets(before: str, query: str) -> None:
    joined = f"shop.orders o JOIN shop.items i{before} {query}"
    with pytest.raises(ViewkeeperError, match="unexpected"):
        parse_view(f"{HEAD}SELECT o.id FROM {joined} UNION SELECT 2 FROM u JOIN shop.items")
