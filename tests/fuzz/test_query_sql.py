"""Damaged queries: let through as a query over views, or refused in our own words."""

from __future__ import annotations

from tests.cli.query_samples import FORBIDDEN, HARMLESS, VIEWS
from tests.fuzz.mutation import fuzz_text
from viewkeeper.cli.select import check_query

NEVER = ("reflect(", "using '", "parquet.", "text.`", "input_file_name(")


def read(text: str) -> None:
    query = check_query(text, VIEWS)
    plain = query.text.lower()
    assert not any(word in plain and f"'{word}" not in plain for word in NEVER), query.text


def test_damaged_queries() -> None:
    fuzz_text(read, HARMLESS, inputs=2000)


def test_damaged_attacks() -> None:
    fuzz_text(read, [text for text in FORBIDDEN if text], inputs=2000)
