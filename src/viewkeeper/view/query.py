"""A view's own SELECT with more beside it.

Recomputation runs exactly what the user wrote; what it needs besides, counts or lifetimes of the
rows that were joined, is put in front of the user's select list as text, so that no parser and no
generator stands between the user's SQL and Spark.
"""

from __future__ import annotations

from collections.abc import Sequence

from viewkeeper.view.definition import ViewDefinition


def extended_query(view: ViewDefinition, extra: Sequence[str]) -> str:
    """The view's SELECT with these expressions before its own outputs."""
    keyword, rest = view.query[:6], view.query[6:]
    assert keyword.upper() == "SELECT", view.query
    return f"SELECT {', '.join(extra)}, {rest.lstrip()}"
