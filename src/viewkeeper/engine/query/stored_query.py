"""A query over what is stored: all views from one head, read by Arrow, answered without Spark.

The head is read once, so all views of a query are of one committed state. What cannot be believed
is read again from the next head: upkeep may have replaced files while they were read.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from viewkeeper.engine.query.arrow_answer import answer_query
from viewkeeper.engine.query.arrow_plan import ArrowPlan, plan_query
from viewkeeper.engine.query.checked_query import CheckedQuery
from viewkeeper.engine.query.select_clauses import SparkNeeded
from viewkeeper.errors import CorruptError
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.warehouse.metadata.head import Head, read_head
from viewkeeper.warehouse.rows.view_state import ATTEMPTS, read_state

ROWS_MAX = 2_000_000
"""Views with more rows together are read by Spark."""


@dataclass(frozen=True, slots=True)
class QueryWay:
    """What answers a query, and why: a plan of the kernel, or Spark if there is none."""

    plan: ArrowPlan | None
    reason: str


def unedited_views(folder: StoragePath, head: Head) -> tuple[str, ...]:
    """The loaded views whose files in a project's folder are what was loaded.

    That these are views of the project is known without reading any SQL.
    """
    texts = set()
    for file in folder.glob("*.sql"):
        # A file that cannot be read is refused by itself, and defines none of them.
        with suppress(OSError):
            texts.add(file.read_bytes())
    views = head.shown_views.values()
    return tuple(view.view for view in views if view.definition.encode() in texts)


def choose_way(query: CheckedQuery, head: Head) -> QueryWay:
    """How the views of a head are asked."""
    try:
        schemas = {name: head.require_view(name).shown_schema for name in query.views}
        plan = plan_query(query, schemas)
    except SparkNeeded as verdict:
        return QueryWay(None, str(verdict))
    rows = sum(head.require_view(name).rows for name in plan.views)
    if rows > ROWS_MAX:
        return QueryWay(None, f"its views have {rows:,} rows, more than {ROWS_MAX:,}")
    return QueryWay(plan, "the kernel evaluates all of it")


def answer_from_store(query: CheckedQuery, root: StoragePath, as_of: int | None) -> pa.Table:
    """The answer from the newest head; SparkNeeded if only Spark can give it."""
    head = read_head(root)
    for _ in range(ATTEMPTS):
        try:
            return _answer_from_head(query, root, head, as_of)
        except CorruptError:
            newer = read_head(root)
            if newer == head:
                break
            head = newer
    return _answer_from_head(query, root, head, as_of)


def _answer_from_head(
    query: CheckedQuery, root: StoragePath, head: Head, as_of: int | None
) -> pa.Table:
    way = choose_way(query, head)
    if way.plan is None:
        raise SparkNeeded(way.reason)
    states = {
        name: read_state(root, head.require_view(name), as_of)
        for name in dict.fromkeys(way.plan.views)
    }
    return answer_query(way.plan, [states[name] for name in way.plan.views])
