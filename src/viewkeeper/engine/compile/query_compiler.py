"""From a query to a graph: Spark analyses the text, its plan is read and built.

    QueryCompiler(spark).compile_text("SELECT ... FROM __place_0 ...", tables) -> Graph

The text is the user's own SELECT in which tables are called by the numbers of their places; places
in errors are lines and columns of it. Everything that cannot be maintained exactly is refused here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from viewkeeper.engine.compile.clock_text import ClockText
from viewkeeper.engine.compile.compile_session import CompileSession
from viewkeeper.engine.compile.drafts.graph_draft import GraphDraft
from viewkeeper.engine.compile.drafts.operator_graph import build_graph
from viewkeeper.engine.compile.expressions.expression_translation import Translator
from viewkeeper.engine.compile.expressions.spark_types import arrow_type_of, type_text_of_arrow
from viewkeeper.engine.compile.output_names import read_names
from viewkeeper.engine.compile.plan.clock_place import ClockTable, place_clock
from viewkeeper.engine.compile.plan.plan_reader import read_plan
from viewkeeper.engine.compile.plan.plan_tree import Attribute, JavaNode, PlanConstant
from viewkeeper.engine.compile.query_table import QueryTable
from viewkeeper.engine.compile.refusal_reasons import refuse
from viewkeeper.engine.compile.text_check import check_calls, check_moments
from viewkeeper.engine.spark.completed_order import complete_order
from viewkeeper.errors import DefinitionError, UnsupportedError
from viewkeeper.view.definition import CLOCK, Graph
from viewkeeper.view.sql.clock_calls import BARE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_COLUMN = -(10**9)
"""The id of a column that nothing reads."""
ROWS_MAX = 10_000
"""How many rows the text itself may give."""


class QueryCompiler:
    """Compiles queries, one after the other, in a session of its own.

    Making the session costs more than a small query: whoever compiles several has one compiler.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = CompileSession(spark)

    def compile_text(self, text: str, tables: Sequence[QueryTable]) -> Graph:
        """The graph of a query over these tables."""
        with self._spark.activate(), ExitStack() as stack, definition_errors():
            self._spark.set_tables([table.schema for table in tables])
            called = check_calls(self._spark.parse_text(text), text)
            analyzed = self._analyze_text(text)
            clock = _clock_among(tables, text)
            check_moments(analyzed, text, has_clock=clock is not None)
            names = read_names(analyzed)
            if clock is not None and (timeless := ClockText(text)).has_calls:
                before, analyzed = analyzed, self._analyze_text(timeless.text)
                timeless.check_plans(before, analyzed)
                stack.enter_context(timeless.locate_errors())
            plan = self._spark.rules.rewrite_plan(complete_order(self._spark.session, analyzed))
            self._check_integrity(analyzed, plan)
            rewrite = self._spark.rules.rewrite_plan
            read = read_plan(plan, self._evaluate_constant, rewrite)
            operators = place_clock(read, clock)
            translator = Translator(self._spark.session, self._spark.classes_of(called))
            return build_graph(GraphDraft(tables, translator), operators, names)

    def check_text(self, text: str, tables: Sequence[QueryTable]) -> None:
        """A DefinitionError if Spark cannot resolve a query over these tables."""
        with self._spark.activate(), definition_errors():
            self._spark.set_tables([table.schema for table in tables])
            self._analyze_text(text)

    def _analyze_text(self, text: str) -> Any:
        return self._spark.session.sql(text)._jdf.queryExecution().analyzed()

    def _check_integrity(self, analyzed: Any, plan: Any) -> None:
        """Spark's own test that rules have not broken a plan."""
        logical = "org.apache.spark.sql.catalyst.plans.logical"
        integrity = getattr(self._spark.jvm, f"{logical}.LogicalPlanIntegrity")
        broken = integrity.validateOptimizedPlan(analyzed, plan, False)
        if broken.isDefined():
            raise refuse("a query whose plan Spark's rules break", str(broken.get()))

    def _evaluate_constant(self, java: JavaNode, output: tuple[Attribute, ...]) -> PlanConstant:
        """The rows of a part of the plan that reads no table."""
        from pyspark.sql import DataFrame

        datasets = getattr(self._spark.jvm, "org.apache.spark.sql.classic.Dataset")
        frame = DataFrame(datasets.ofRows(self._spark.java, java.get_node()), self._spark.session)
        if not output:
            # Only the number of rows is asked for; a node has at least one column.
            output, frame = (Attribute(NO_COLUMN, "integer"),), frame.selectExpr("1 AS c0")
        named = frame.toDF(*(f"c{at}" for at in range(len(output))))
        found = named.limit(ROWS_MAX + 1).toArrow()
        if found.num_rows > ROWS_MAX:
            what = f"a query that itself gives more than {ROWS_MAX:,} rows"
            raise refuse(what, "keep them in a table of a source", java)
        columns = [column.to_pylist() for column in found.columns]
        types = tuple(_kept_type(column, java) for column in output)
        return PlanConstant(output, types, tuple(zip(*columns, strict=True)), java)


def _clock_among(tables: Sequence[QueryTable], text: str) -> ClockTable | None:
    """The clock, which comes after the tables that the text names; None if the text calls for no
    time."""
    if not tables or tables[-1].relation.source != CLOCK:
        return None
    columns = {name.lower() for table in tables for name in table.schema.names}
    aliases = {found.lower() for found in re.findall(r"(?i)\bas\s+`?(\w+)", text)}
    for name in (columns | aliases) & {*BARE}:
        # Spark reads the word as the column where there is one, and we as a call.
        raise refuse(f"the time beside a column that is called {name}", "rename the column")
    types = {field.name: type_text_of_arrow(field.type) for field in tables[-1].schema}
    return ClockTable(len(tables) - 1, types)


def _kept_type(column: Attribute, java: JavaNode) -> pa.DataType:
    kind = arrow_type_of(column.type)
    if kind is None:
        raise refuse(f"a constant of type {column.type}", None, java)
    return kind


_POSITION = re.compile(r"line (\d+),? pos(?:ition)? (\d+)")
_FRAME = re.compile(r"^\[[A-Z_.]+\] | SQLSTATE: \w+.*$", re.DOTALL)


_SHARED = re.compile(r'"[^"]*commonexpressionref\(\)[^"]*"')
"""How Spark quotes an expression of which it has named a part: in BETWEEN, in nullif()."""


@contextmanager
def definition_errors() -> Iterator[None]:
    """What Spark says about a query that it cannot read or resolve, as our error.

    A refusal of which Spark has lost the place points to the beginning of the query.
    """
    from pyspark.errors import AnalysisException

    try:
        yield
    except UnsupportedError as error:
        if error.line is not None:
            raise
        raise UnsupportedError(
            error.message, line=1, column=1, detail=error.detail, hint=error.hint
        ) from error
    except AnalysisException as error:
        text = str(error)
        found = _POSITION.search(text)
        line, column = (int(found[1]), int(found[2]) + 1) if found else (None, None)
        message = _FRAME.sub("", text.strip().partition("\n")[0])
        for context in error.getQueryContext()[:1]:
            written = " ".join(context.fragment().split()).replace("\\", r"\\")
            message = _SHARED.sub(f'"{written}"', message)
        raise DefinitionError(message, line=line, column=column) from error
