"""Damaged queries: let through as a query over views, or refused in our own words."""

from __future__ import annotations

import re

from tests.cli.query_samples import FORBIDDEN, HARMLESS, VIEWS
from tests.fuzz.mutation import fuzz_text
from viewkeeper.engine.query.checked_query import check_query

NEVER = re.compile(r"\b(reflect|input_file_name)\(|\btext\.`")


def read(text: str) -> None:
    query = check_query(text, VIEWS)
    # What is inside quotes may say anything.
    plain = re.sub(r"'[^']*'|\"[^\"]*\"", "''", query.text.lower())
    assert not NEVER.search(plain), query.text


def test_damaged_queries() -> None:
    fuzz_text(read, HARMLESS, inputs=2000)


def test_damaged_attacks() -> None:
    fuzz_text(read, [text for text in FORBIDDEN if text], inputs=2000)
