"""Compiled queries against the text itself: the same rows, the same types, or a refusal.

The judge is Spark on the user's own text, with all of its optimizer, over tables with rows. The
graph is compiled from empty tables, goes through JSON, and is written as one text again.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import reduce

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.engine.compile import statements, tpch_statements
from tests.engine.compile.random_tables import arrow_table, random_rows, random_tpch
from tests.sql.spark_judge import CHEAP
from viewkeeper.engine.compile.query_compiler import QueryCompiler
from viewkeeper.engine.compile.query_table import QueryTable
from viewkeeper.engine.spark.completed_order import complete_frame
from viewkeeper.engine.spark.spark_session import child_session
from viewkeeper.errors import DefinitionError
from viewkeeper.view.definition import Core, Fold, Graph
from viewkeeper.view.graph_json import decode_graph, encode_graph
from viewkeeper.view.graph_sql import node_query

SEED = 7


@pytest.fixture(scope="module")
def compiler(spark: SparkSession) -> QueryCompiler:
    return QueryCompiler(spark)


@pytest.fixture(scope="module")
def filled(spark: SparkSession) -> SparkSession:
    """A session in which the tables have rows."""
    session, source = interpreted_session(spark), random.Random(SEED)
    for number, (name, schema) in enumerate(statements.TABLES.items()):
        frame = session.createDataFrame(arrow_table(random_rows(name, source), schema))
        frame.createOrReplaceTempView(f"__place_{number}")
    return session


@pytest.fixture(scope="module")
def business(spark: SparkSession) -> SparkSession:
    """A session with tables of TPC-H."""
    session, source = interpreted_session(spark), random.Random(SEED)
    for number, (name, schema) in enumerate(tpch_statements.SCHEMAS.items()):
        frame = session.createDataFrame(arrow_table(random_tpch(name, source), schema))
        frame.createOrReplaceTempView(f"__place_{number}")
    return session


def interpreted_session(spark: SparkSession) -> SparkSession:
    """A session that compiles no Java code and has every table in one partition: code and shuffles
    would take longer than the few rows."""
    session = child_session(spark)
    for key, value in {**CHEAP, "spark.sql.leafNodeDefaultParallelism": "1"}.items():
        session.conf.set(key, value)
    return session


def bags_of(frames: Sequence[DataFrame]) -> list[Counter[str]]:
    """The rows of frames with the same columns, found by one job."""
    numbered = [frame.selectExpr(f"{at} AS _at", "*") for at, frame in enumerate(frames)]
    found: list[Counter[str]] = [Counter() for _ in frames]
    for at, *row in reduce(DataFrame.unionAll, numbered).collect():
        found[at][repr(tuple(map(rounded, row)))] += 1
    return found


def rounded(value: object) -> object:
    """Floats to nine digits: sums may be added in another order."""
    return f"{value:.9g}" if isinstance(value, float) else value


def graph_text(graph: Graph, tables: Sequence[QueryTable]) -> str:
    """The query of a graph's root, after the graph was written and read."""
    written = json.dumps(encode_graph(graph), allow_nan=False)
    again = decode_graph(json.loads(written))
    assert json.dumps(encode_graph(again)) == written
    names = {table.relation: f"__place_{number}" for number, table in enumerate(tables)}
    return node_query(again, len(again.nodes) - 1, names)


def differences(session: SparkSession, text: str, made: str) -> Iterator[str]:
    want, got = complete_frame(session.sql(text)), session.sql(made)
    if want.columns != got.columns or want.dtypes != got.dtypes:
        yield f"columns {want.dtypes}, not {got.dtypes}"
        return
    rows, others = bags_of([want, got])
    if rows != others:
        yield f"lacks {rows - others}, has besides {others - rows}: {made}"


@pytest.mark.parametrize("name", statements.ACCEPTED)
def test_a_graph_shows_what_the_text_shows(
    name: str, compiler: QueryCompiler, filled: SparkSession
) -> None:
    text = statements.over_places(statements.ACCEPTED[name])
    graph = compiler.compile_text(text, statements.QUERY_TABLES)
    made = graph_text(graph, statements.QUERY_TABLES)
    assert not list(differences(filled, text, made))


@pytest.mark.parametrize("number", sorted(tpch_statements.QUERIES))
def test_queries_of_tpch(number: int, compiler: QueryCompiler, business: SparkSession) -> None:
    text = tpch_statements.over_places(tpch_statements.QUERIES[number])
    graph = compiler.compile_text(text, tpch_statements.TPCH_TABLES)
    made = graph_text(graph, tpch_statements.TPCH_TABLES)
    assert not list(differences(business, text, made))


@pytest.mark.parametrize("name", statements.REFUSED)
def test_what_cannot_be_maintained_is_refused(name: str, compiler: QueryCompiler) -> None:
    text, reason = statements.REFUSED[name]
    with pytest.raises(DefinitionError) as refusal:
        compiler.compile_text(statements.over_places(text), statements.QUERY_TABLES)
    assert reason
    assert reason in str(refusal.value)
    assert (refusal.value.line, refusal.value.column) >= (1, 1)


def compiled(compiler: QueryCompiler, text: str) -> Graph:
    return compiler.compile_text(statements.over_places(text), statements.QUERY_TABLES)


def test_left_joins_and_inner_joins_are_one_core(compiler: QueryCompiler) -> None:
    graph = compiled(compiler, statements.ACCEPTED["left chain of six"])
    (core,) = graph.nodes
    assert isinstance(core, Core)
    kinds = [place.keyed.kind if place.keyed else "inner" for place in core.view.places]
    assert kinds == ["inner", "left", "left", "left", "left", "left"]
    assert [place.keyed.unique for place in core.view.places if place.keyed] == [
        *(False, True, False, True, False)
    ]


def test_only_columns_that_are_read_are_fields_of_places(compiler: QueryCompiler) -> None:
    graph = compiled(compiler, "select a.id from a left semi join b on a.k = b.k and b.y > a.g")
    (core,) = graph.nodes
    assert isinstance(core, Core)
    assert [place.columns for place in core.view.places] == [("g", "id", "k"), ("k", "y")]


def test_a_left_place_that_an_inner_join_equates_is_an_inner_place(
    compiler: QueryCompiler,
) -> None:
    graph = compiled(compiler, statements.ACCEPTED["left, inner below"])
    (core,) = graph.nodes
    assert isinstance(core, Core)
    assert not any(place.keyed for place in core.view.places)
    assert len(core.view.equalities) == 2


def test_the_root_of_an_aggregate_is_its_fold(compiler: QueryCompiler) -> None:
    graph = compiled(compiler, "select g as groups, count(*) n, sum(p) * 2 s from a group by g")
    core, fold = graph.nodes
    assert isinstance(core, Core)
    assert isinstance(fold, Fold)
    assert [output.name for output in fold.outputs] == ["groups", "n", "s"]


def test_a_fold_is_a_unique_place(compiler: QueryCompiler) -> None:
    graph = compiled(compiler, statements.ACCEPTED["count bug"])
    core = graph.root
    assert isinstance(core, Core)
    (keyed,) = (place.keyed for place in core.view.places if place.keyed)
    assert keyed.kind == "left"
    assert keyed.unique


@pytest.mark.parametrize("calls", ["", ", count(distinct n) c"])
def test_two_names_of_one_column_are_one_group(compiler: QueryCompiler, calls: str) -> None:
    numbered = "select 1 x, 1 y, row_number() over (partition by g order by k) n from a"
    graph = compiled(compiler, f"select x, y, n{calls} from ({numbered}) group by x, y, n")
    for fold in (node for node in graph.nodes if isinstance(node, Fold)):
        names = [group.name for group in fold.groups]
        assert len({*names}) == len(names), fold


def test_equal_texts_give_equal_graphs(compiler: QueryCompiler, spark: SparkSession) -> None:
    text = statements.over_places(statements.ACCEPTED["distinct aggregates"])
    first = compiler.compile_text(text, statements.QUERY_TABLES)
    assert QueryCompiler(spark).compile_text(text, statements.QUERY_TABLES) == first


def test_the_active_session_is_what_it_was(compiler: QueryCompiler, spark: SparkSession) -> None:
    before = SparkSession.getActiveSession()
    compiled(compiler, "select id from a")
    assert SparkSession.getActiveSession() is before


@pytest.mark.parametrize("rest", ["join t u on u.n = t.n", "left join t u on u.k = t.n"])
def test_a_with_that_is_read_twice_is_computed_once(
    rest: str, compiler: QueryCompiler, filled: SparkSession
) -> None:
    counted = "select a.k, count(*) as n, sum(a.x) as s from a where a.k > 1 group by a.k"
    shown = "select t.k, t.n, t.s, u.k as uk, u.n as un, u.s as us from t"
    text = f"with t as ({counted}) {shown} {rest}"
    graph = compiled(compiler, text)
    assert len([node for node in graph.nodes if isinstance(node, Fold)]) == 1
    made = graph_text(graph, statements.QUERY_TABLES)
    assert not list(differences(filled, statements.over_places(text), made))
    other = f"with t as ({counted}), u as ({counted.replace('> 1', '> 2')}) {shown} "
    folds = compiled(compiler, other + rest.replace(" t u ", " u ")).nodes
    assert len([node for node in folds if isinstance(node, Fold)]) == 2, "another condition"
