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
