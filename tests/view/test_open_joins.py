"""A JOIN without a condition is refused where it is written, and only there."""

from __future__ import annotations

import pytest

from viewkeeper.errors import DefinitionError
from viewkeeper.view.sql.view_statement import check_joins, parse_view

HEAD = "CREATE MATERIALIZED VIEW v AS SELECT 1 AS one FROM shop.a a"

ACCEPTED = [
    "JOIN shop.b b ON a.x = b.x",
    "JOIN shop.b b USING (x)",
    ", shop.b b WHERE a.x = b.x",
    "CROSS JOIN shop.b b",
    "CROSS JOIN shop.b b JOIN shop.c c ON b.x = c.x",
    "NATURAL JOIN shop.b b",
    "NATURAL LEFT JOIN shop.b b",
    "LEFT OUTER JOIN shop.b b ON a.x = b.x LEFT JOIN shop.c c ON b.x = c.x",
    "JOIN LATERAL explode(split(a.x, ',')) AS e",
    "WHERE a.x IN (SELECT b.x FROM shop.b b JOIN shop.c c ON b.x = c.x)",
    "JOIN shop.b b ON a.x = b.x UNION ALL SELECT 2 FROM shop.c c",
    "WHERE a.join = 1",
]

REFUSED = [
    "JOIN shop.b b",
    "INNER JOIN shop.b b",
    "LEFT JOIN shop.b b",
    "LEFT SEMI JOIN shop.b b",
    "JOIN shop.b b WHERE a.x = b.x",
    "JOIN shop.b b JOIN shop.c c ON b.x = c.x",
    "CROSS JOIN shop.b JOIN shop.c",
    "JOIN shop.b b, shop.c c JOIN shop.d d ON c.x = d.x",
    "WHERE a.x IN (SELECT b.x FROM shop.b b JOIN shop.c c)",
    "JOIN shop.b b UNION ALL SELECT 2 FROM shop.c c JOIN shop.d d ON c.x = d.x",
    "JOIN (SELECT c.x FROM shop.c c) b WHERE a.x = b.x",
]


@pytest.mark.parametrize("rest", ACCEPTED)
def test_a_join_whose_meaning_is_written_is_accepted(rest: str) -> None:
    check_joins(parse_view(f"{HEAD} {rest}"))


@pytest.mark.parametrize("rest", REFUSED)
def test_a_join_without_a_condition_is_refused_at_its_place(rest: str) -> None:
    text = f"{HEAD} {rest}"
    with pytest.raises(DefinitionError, match="a JOIN without ON") as caught:
        check_joins(parse_view(text))
    assert caught.value.column is not None
    assert text[caught.value.column - 1 :].startswith("JOIN shop.") or "(SELECT" in rest
