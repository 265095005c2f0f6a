"""A query beside a running maintainer: it reads, and takes a bounded number of rows and time.

It goes the way of `viewkeeper query`: what the kernel evaluates is answered from the files, the
rest by the session that is warm already, as a job that shares the slots with batches and is
cancelled when its time is over. One is answered at a time, so that many who ask cannot take the
machine from who maintains.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from viewkeeper.engine.query.arrow_answer import shown_rows
from viewkeeper.engine.query.checked_query import check_query
from viewkeeper.engine.query.select_clauses import SparkNeeded
from viewkeeper.engine.query.spark_answer import answering_on_spark
from viewkeeper.engine.query.stored_query import answer_from_store
from viewkeeper.engine.spark.job_control import limit_job
from viewkeeper.engine.spark.spark_session import SparkHandle
from viewkeeper.errors import DefinitionError, ExpressionError, ViewkeeperError, WarehouseError
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.warehouse.metadata.head import read_head

TEXT_MAX = 20_000
WAIT_SECONDS = 10.0
"""For so long a query waits for the one before it."""


@dataclass(frozen=True, slots=True)
class QueryBounds:
    """At most so many rows, and so many seconds."""

    rows: int
    seconds: float


@dataclass(frozen=True, slots=True)
class BoundedAnswer:
    """The first rows of an answer, whether there are more, and what gave it."""

    names: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    has_more: bool
    where: Literal["kernel", "spark"]
    seconds: float


class BoundedQueries:
    """Answers queries over the views of a warehouse, one at a time; for any thread."""

    def __init__(self, root: StoragePath, spark: SparkHandle) -> None:
        self._root = root
        self._spark = spark
        self._turn = threading.Lock()

    def answer_query(
        self, text: str, bounds: QueryBounds, as_of: int | None = None
    ) -> BoundedAnswer:
        """The answer to one SELECT; an error if it is none, fails, or takes too long."""
        if len(text) > TEXT_MAX:
            raise DefinitionError(
                f"the query has {len(text):,} characters, more than {TEXT_MAX:,}",
                hint="`viewkeeper query` takes longer ones",
            )
        if not self._turn.acquire(timeout=WAIT_SECONDS):
            raise WarehouseError("another query is being answered", hint="try again in a moment")
        try:
            return self._answer_now(text, bounds, as_of)
        finally:
            self._turn.release()

    def _answer_now(self, text: str, bounds: QueryBounds, as_of: int | None) -> BoundedAnswer:
        began = time.monotonic()
        asked = check_query(text, tuple(read_head(self._root).shown_views))
        where: Literal["kernel", "spark"] = "kernel"
        try:
            table = answer_from_store(asked, self._root, as_of)
            names = tuple(table.column_names)
            rows = [tuple(row) for row in shown_rows(table.slice(0, bounds.rows + 1))]
        except SparkNeeded:
            where = "spark"
            spark, name = self._spark.get_session(), f"query {threading.get_ident()}"
            try:
                with (
                    limit_job(spark, name, bounds.seconds / 60, pool="query"),
                    answering_on_spark(
                        self._spark, self._root, asked, as_of, bounds.rows + 1
                    ) as found,
                ):
                    names, rows = tuple(found.names), list(islice(found.rows, bounds.rows + 1))
            except ViewkeeperError as error:
                if time.monotonic() - began < bounds.seconds:
                    raise
                raise ExpressionError(
                    f"the query took longer than {bounds.seconds:g} seconds, and was cancelled",
                    hint="ask for less, or use `viewkeeper query`, which has no limit",
                ) from error
        took = time.monotonic() - began
        shown = tuple(rows[: bounds.rows])
        return BoundedAnswer(names, shown, len(rows) > bounds.rows, where, took)
