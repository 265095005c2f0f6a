"""A query that is not maintained from changes but computed again: what its columns are.

Its graph is one node without rows, because no change passes through it; the rows come from the
user's own text, whenever what it reads has changed. That text must have one answer for one state of
its tables, and call nothing that reaches beyond them, just as if it were maintained.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from viewkeeper.engine.compile.compile_session import CompileSession
from viewkeeper.engine.compile.expressions.spark_types import arrow_type_of
from viewkeeper.engine.compile.output_names import read_names
from viewkeeper.engine.compile.plan.plan_reader import type_text_of
from viewkeeper.engine.compile.query_compiler import definition_errors
from viewkeeper.engine.compile.query_table import QueryTable
from viewkeeper.engine.compile.refusal_reasons import refuse
from viewkeeper.engine.compile.text_check import ALLOWED, check_calls
from viewkeeper.engine.spark.parsed_plan import nodes_of_plan
from viewkeeper.view.definition import Constant, Field, Graph
from viewkeeper.view.sql import functions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CALLABLE = ALLOWED | functions.AGGREGATES | functions.WINDOW
LIMITS = ("GlobalLimit", "LocalLimit", "Tail", "Offset")


def describe_recomputed(
    spark: SparkSession, text: str, tables: Sequence[QueryTable], reason: str
) -> Graph:
    """The graph of a query that is computed again, for this reason."""
    session = CompileSession(spark)
    with session.activate(), definition_errors():
        session.set_tables([table.schema for table in tables])
        check_calls(session.parse_text(text), text, CALLABLE)
        analyzed = session.session.sql(text)._jdf.queryExecution().analyzed()
        _check_one_answer(analyzed)
        names = read_names(analyzed)
        types = [_kept_type(column) for column in json.loads(analyzed.schema().json())["fields"]]
    fields = tuple(Field(name, kind) for name, kind in zip(names, types, strict=True))
    return Graph((Constant(0, fields, ()),), recomputed=reason)


def _kept_type(column: dict[str, Any]) -> pa.DataType:
    kind = arrow_type_of(type_text_of(column["type"]))
    if kind is None:
        hint = "show its parts as plain columns, or CAST it to STRING"
        raise refuse(f'column "{column["name"]}" of type {column["type"]}', hint)
    return kind


def _check_one_answer(analyzed: Any) -> None:
    """Refuse what can have several answers over the same rows."""
    hint = "its rows would be other ones each time that it is computed"
    if not analyzed.deterministic():
        raise refuse("a value that is another one each time", hint)
    nodes = [
        str(node["class"]).rpartition(".")[2]
        for node in nodes_of_plan(json.loads(analyzed.toJSON()))
    ]
    for kind, below in pairwise(nodes):
        if kind in LIMITS and below not in (*LIMITS, "Sort"):
            raise refuse("LIMIT without ORDER BY", "order the rows before they are limited")
