"""`docs/sql.md` says what the table of constructs says."""

from __future__ import annotations

from tests.sql.construct_forms import slug_of
from tests.sql.construct_page import PAGE, put_tables
from tests.sql.constructs import CONSTRUCTS
from tests.sql.refused_constructs import REFUSED


def test_the_page_is_made_from_the_table() -> None:
    page = PAGE.read_text()
    assert page == put_tables(page), "run `python -m tests.sql.construct_page`"


def test_constructs_have_different_names() -> None:
    names = [*map(slug_of, CONSTRUCTS), *map(slug_of, REFUSED)]
    assert len(names) == len({*names})
