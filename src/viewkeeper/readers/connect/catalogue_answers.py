"""Questions about the catalogue, by the interface or as statements, as queries that answer them.

Spark's own catalogue would show what it has: nothing, or the versions by which views are pinned. So
these questions never reach it. The answer is a query without any table, whose rows are in its text,
with the columns that Spark's answer would have.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from pyspark.sql.pandas.types import from_arrow_schema

from viewkeeper.engine.query.checked_query import unknown_relation_error
from viewkeeper.errors import RefusedRequestError
from viewkeeper.warehouse.metadata.head import Head

QUESTIONS = frozenset({"list_tables", "list_views", "table_exists", "get_table", "list_columns"})
"""What is answered here; `current_database` and `current_catalog` are Spark's to answer."""

_TABLES = (
    "name STRING, catalog STRING, namespace ARRAY<STRING>, description STRING, tableType STRING, "
    "isTemporary BOOLEAN"
)
_COLUMNS = (
    "name STRING, description STRING, dataType STRING, nullable BOOLEAN, isPartition BOOLEAN, "
    "isBucket BOOLEAN, isCluster BOOLEAN"
)
_SHOWN = "namespace STRING, {}Name STRING, isTemporary BOOLEAN"
_DESCRIBED = "col_name STRING, data_type STRING, comment STRING"
_SHOW = re.compile(r"\s*SHOW\s+(TABLE|VIEW)S(?:\s+(?:LIKE\s+)?'([^'\\]*)')?\s*;?\s*", re.IGNORECASE)
_DESCRIBE = re.compile(r"\s*DESC(?:RIBE)?(?:\s+TABLE)?\s+(\w+|`\w+`)\s*;?\s*", re.IGNORECASE)


def view_name_of(identifier: str, head: Head) -> str:
    """The view that an identifier names, in whatever case."""
    name = identifier.strip("`")
    known = {view.lower(): view for view in head.shown_views}
    if name.lower() not in known:
        raise unknown_relation_error(identifier, name, tuple(head.shown_views))
    return known[name.lower()]


def answer_statement(text: str, head: Head) -> str | None:
    """The query for SHOW TABLES, SHOW VIEWS and DESCRIBE; None for any other text."""
    if shown := _SHOW.fullmatch(text):
        names = _matching_names(head, shown[2])
        return _query_rows(_SHOWN.format(shown[1].lower()), [("", name, False) for name in names])
    if described := _DESCRIBE.fullmatch(text):
        columns = _columns_of(view_name_of(described[1], head), head)
        return _query_rows(_DESCRIBED, [(name, kind, None) for name, kind in columns])
    return None


def answer_question(catalogue: Any, head: Head) -> str | None:
    """The query for a question of `spark.catalog`; None for one that Spark answers."""
    kind = catalogue.WhichOneof("cat_type")
    if kind not in QUESTIONS:
        return None
    question = getattr(catalogue, kind)
    if getattr(question, "db_name", "") not in ("", "default"):
        raise RefusedRequestError(
            f'there is no database "{question.db_name}"', hint="name none: views have no database"
        )
    match kind:
        case "list_tables" | "list_views":
            pattern = question.pattern if question.HasField("pattern") else None
            return _query_rows(_TABLES, map(_table_row, _matching_names(head, pattern)))
        case "get_table":
            return _query_rows(_TABLES, [_table_row(view_name_of(question.table_name, head))])
        case "list_columns":
            columns = _columns_of(view_name_of(question.table_name, head), head)
            rows = [(name, None, kind, True, False, False, False) for name, kind in columns]
            return _query_rows(_COLUMNS, rows)
        case _:
            known = {view.lower() for view in head.shown_views}
            found = question.table_name.strip("`").lower() in known
            return f"SELECT {found} AS value"


def _table_row(name: str) -> tuple[Any, ...]:
    return (name, None, None, None, "VIEW", False)


def _columns_of(view: str, head: Head) -> list[tuple[str, str]]:
    schema = from_arrow_schema(head.require_view(view).shown_schema, prefer_timestamp_ntz=True)
    return [(field.name, field.dataType.simpleString()) for field in schema]


def _matching_names(head: Head, pattern: str | None) -> list[str]:
    """The views that a pattern of Spark means: * is any text, and | parts patterns."""
    names = sorted(head.shown_views)
    if pattern is None:
        return names
    either = "|".join(re.escape(part.strip()) for part in pattern.split("|"))
    wanted = re.compile(either.replace(r"\*", ".*"), re.IGNORECASE)
    return [name for name in names if wanted.fullmatch(name)]


def _query_rows(columns: str, rows: Iterable[Sequence[Any]]) -> str:
    """A query whose answer are these rows.

    >>> print(_query_rows("a STRING, b BOOLEAN", [("it's", True)]))
    SELECT inline(from_json('[{"a": "it\\'s", "b": true}]', 'ARRAY<STRUCT<a STRING, b BOOLEAN>>'))
    """
    names = [column.split()[0] for column in columns.split(", ")]
    text = json.dumps([dict(zip(names, row, strict=True)) for row in rows])
    quoted = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"SELECT inline(from_json('{quoted}', 'ARRAY<STRUCT<{columns}>>'))"
