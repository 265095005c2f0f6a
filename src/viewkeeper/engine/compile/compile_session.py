"""The session in which a query is analysed, with relations that are empty and typed.

What a rule does depends on the settings of the session that is *active* in Spark's thread, so the
compiler has a session of its own, a child of the given one with pinned settings, and makes it
active while it works. The optimizer that runs inside subqueries applies only the compiler's rules.

A table is a relation without rows whose columns are called by its number and their ordinals, so
that they are recognised in the plan; the names that the query uses are aliases above it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from viewkeeper.engine.compile.plan.plan_reader import MARK
from viewkeeper.engine.compile.plan.plan_rules import PlanRules, excluded_rules
from viewkeeper.engine.spark.error_silence import silence_errors
from viewkeeper.engine.spark.job_control import spark_schema
from viewkeeper.engine.spark.prompt_answers import hasten_answers
from viewkeeper.engine.spark.spark_session import child_session
from viewkeeper.view.sql import functions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SETTINGS = {
    # Lists in a plan's JSON are cut off beyond these.
    "spark.sql.debug.maxToStringFields": "100000",
    "spark.sql.maxMetadataStringLength": "100000",
    "spark.sql.optimizer.replaceExceptWithFilter": "false",
}


class CompileSession:
    """A child session for compilation, and the rules that it applies."""

    def __init__(self, spark: SparkSession) -> None:
        self.session = child_session(spark)
        self.java: Any = self.session._jsparkSession
        self.jvm: Any = self.session._jvm
        self._tables: dict[int, pa.Schema] = {}
        self._frames: dict[tuple[int, pa.Schema], DataFrame] = {}
        for name, value in SETTINGS.items():
            self.session.conf.set(name, value)
        with self.activate():
            self.session.conf.set("spark.sql.optimizer.excludedRules", excluded_rules(self.java))
            self.rules = PlanRules(self.java, self.jvm)

    @contextmanager
    def activate(self) -> Iterator[None]:
        """Make the session active in this thread's part of Spark, and undo it."""
        sessions: Any = getattr(self.jvm, "org.apache.spark.sql.classic.SparkSession")
        before = sessions.getActiveSession()
        sessions.setActiveSession(self.java)
        hasten_answers(self.session)
        try:
            with silence_errors():
                yield
        finally:
            if before.isDefined():
                sessions.setActiveSession(before.get())
            else:
                sessions.clearActiveSession()

    def set_tables(self, schemas: Sequence[pa.Schema]) -> None:
        """Let a query name empty tables by the numbers of their places, and no others."""
        for number, schema in enumerate(schemas):
            self._add_table(number, schema)
        for number in [number for number in self._tables if number >= len(schemas)]:
            self.session.catalog.dropTempView(f"__place_{number}")
            del self._tables[number]

    def _add_table(self, number: int, schema: pa.Schema) -> None:
        if self._tables.get(number) == schema:
            return
        found = self._frames.get((number, schema))
        if found is None:
            marked = [field.with_name(f"{number}{MARK}{i}") for i, field in enumerate(schema)]
            frame = self.session.createDataFrame([], spark_schema(pa.schema(marked)))
            found = self._frames[number, schema] = frame.toDF(*schema.names)
        found.createOrReplaceTempView(f"__place_{number}")
        self._tables[number] = schema

    def parse_text(self, text: str) -> Any:
        """The plan of a text before anything in it is resolved."""
        return self.java.sessionState().sqlParser().parsePlan(text)

    def classes_of(self, names: Collection[str]) -> dict[str, str]:
        """Functions by the classes that Spark has for them."""
        registry = self.java.sessionState().functionRegistry()
        identifier = getattr(self.jvm, "org.apache.spark.sql.catalyst.FunctionIdentifier")
        some = getattr(self.jvm, "scala.Option").apply
        found = {}
        for name in sorted(functions.DETERMINISTIC & set(names)):
            info = registry.lookupFunction(identifier(name, some("builtin"), some("system")))
            if info.isDefined():
                found[str(info.get().getClassName()).rpartition(".")[2]] = name
        return found
