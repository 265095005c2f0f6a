"""What Spark cannot resolve is refused when a view is defined, at its place in the user's text.

Spark is the judge: a query over the sample relations that its analyser refuses is refused by us
with the line and column of the expression, before anything is loaded; one that it accepts is not.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import viewkeeper
from tests.view.sample import TABLES
from viewkeeper.errors import DefinitionError
from viewkeeper.view.definition import ViewDefinition

# What is wrong begins at the mark.
REFUSED = """
    s, ^i32 + 'x' = true AS x
    s, s || upper(s) || (^d + ts) AS x
    ^case when b then 1 else d end AS x
    ^case when b then true else 1 end AS x
    ^case i32 when 1 then d when 2 then i32 end AS x
    ^year(b) AS x
    ^substring(s, d) AS x
    ^date_add(b, 1) AS x
    ^date_add(d, f64) AS x
    ^d + d AS x
    ^d * 2 AS x
    ^b + 1 AS x
    i32, ^-b AS x
    ^not i32 AS x
    ^i32 and b AS x
    ^d = i32 AS x
    ^d < b AS x
    b ^in (d, ts) AS x
    i32 ^in (d, 2) AS x
    d ^between 1 and 2 AS x
    ^coalesce(d, 1) AS x
    ^if(i32, 1, 2) AS x
    ^if(b, d, i32) AS x
    ^nullif(d, b) AS x
    ^greatest(d, i32) AS x
    ^abs(b) AS x
    ^round(d) AS x
    ^round(d5_2, i32) AS x
    ^cast(d as int) AS x
    ^cast(bin as date) AS x
    ^cast(b as date) AS x
    ^i32 | d AS x
    ^~f64 AS x
    ^f64 & 1 AS x
    ^log(d) AS x
    ^regexp_extract(s, 'a', d) AS x
    ^make_date(d, 1, 1) AS x
    ^ts - 5 AS x
    ^d5_2 + b AS x
    ^i32 % d AS x
    upper(s, s^) AS x
    upper(^) AS x
    s AS x FROM lab.all_types AS t WHERE s > 5 AND ^b + 1 = 2
    s AS x FROM lab.all_types AS t WHERE b AND ^coalesce(d, b)
    t.s AS x FROM lab.all_types AS t JOIN lab.orders AS o ON o.id = t.i64 AND ^t.d = o.paid
    o.* FROM lab.all_types JOIN lab.orders AS o ON o.id = i64 WHERE ^lab.all_types.d * 2 = 3
    ^sum(d) AS x
    i32, max(s) AS x, ^avg(b) AS y FROM lab.all_types AS t GROUP BY i32
    max(case when b then i32 else 0 end) AS x, ^sum(d) AS y
"""
ACCEPTED = """
    s = 1 AS x
    i32 = '1' AS x
    s > 5 AS x
    coalesce(s, 1) AS x
    case when b then 1 else 'a' end AS x
    date_add(d, cast(i8 as int)) AS x
    case i32 when 1 then s when 2 then b end AS x
    regexp_extract(s, i32, '1') AS x
    d + 1 AS x
    d - d AS x
    d < ts AS x
    b = 'true' AS x
    length(i32) AS x
    abs(s) AS x
    -s AS x
    concat(s, i32, d) AS x
    substring(s, '1') AS x
    s AS x FROM lab.all_types AS t JOIN lab.orders AS o ON t.s = o.id
    s AS x FROM lab.all_types AS t JOIN lab.orders AS o ON t.ts > o.placed
    sum(s) AS x
"""


def listed(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]


def select_of(text: str) -> str:
    plain = text.replace("^", "")
    return f"SELECT {plain}" + ("" if " FROM " in plain else "\nFROM lab.all_types AS t")


QUERIES = {f"v{number}": text for number, text in enumerate(listed(REFUSED) + listed(ACCEPTED))}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose one source has the sample relations, and one view for each query."""
    folder = tmp_path_factory.mktemp("lab")
    for name, columns in TABLES.items():
        (folder / "data" / name).mkdir(parents=True)
        empty = pa.table({column: pa.array([], kind) for column, kind in columns.items()})
        pq.write_table(empty, folder / "data" / name / "rows.parquet")
    tables: dict[str, object] = {name: {} for name in TABLES}
    source = {"kind": "files", "path": "data", "format": "parquet", "tables": tables}
    settings = {"warehouse": "warehouse", "sources": {"lab": source}}
    (folder / "viewkeeper.yml").write_text(json.dumps(settings))
    (folder / "views").mkdir()
    for name, text in QUERIES.items():
        sql = f"CREATE MATERIALIZED VIEW {name} AS\n{select_of(text)};\n"
        (folder / "views" / f"{name}.sql").write_text(sql)
    return folder


@pytest.fixture(scope="module")
def found(lab: Path, spark: SparkSession) -> dict[str, ViewDefinition | DefinitionError]:
    """What becomes of every view when it is bound."""
    bound: dict[str, ViewDefinition | DefinitionError] = {}
    with viewkeeper.open(lab, spark=spark) as project:
        connections = project.open_connections()
        for name in QUERIES:
            refused = project.catalogue.written.refused.get(name)
            try:
                if refused is not None:
                    raise refused.error
                bound[name] = project.catalogue.bind_view(name, connections)
            except DefinitionError as error:
                bound[name] = error
        connections.close()
    return bound


def is_resolved(spark: SparkSession, text: str) -> bool:
    """Whether Spark's analyser accepts the query."""
    child = spark.newSession()
    for name, columns in TABLES.items():
        schema = pa.schema([*columns.items()])
        child.createDataFrame(schema.empty_table()).createOrReplaceTempView(name)
    try:
        child.sql(select_of(text).replace("lab.", ""))
    except AnalysisException:
        return False
    return True


@pytest.mark.parametrize("name", [name for name, text in QUERIES.items() if "^" in text])
def test_what_spark_refuses_is_refused_at_its_place(
    name: str, found: dict[str, ViewDefinition | DefinitionError], spark: SparkSession
) -> None:
    text = QUERIES[name]
    assert not is_resolved(spark, text)
    error = found[name]
    assert isinstance(error, DefinitionError), "it would be found by the first load"
    place = len("SELECT ") + text.index("^") + 1
    assert (error.line, error.column) == (2, place), error
    assert f'{name}.sql:2:{place}: view "{name}": ' in error.message


@pytest.mark.parametrize("name", [name for name, text in QUERIES.items() if "^" not in text])
def test_what_spark_accepts_is_accepted(
    name: str, found: dict[str, ViewDefinition | DefinitionError], spark: SparkSession
) -> None:
    assert is_resolved(spark, QUERIES[name])
    assert not isinstance(found[name], DefinitionError), found[name]


def test_the_expression_and_its_types_are_named(
    found: dict[str, ViewDefinition | DefinitionError],
) -> None:
    by_text = {QUERIES[name]: str(what) for name, what in found.items()}
    assert 'Cannot resolve "(d * 2)"' in by_text["^d * 2 AS x"]
    assert 'incompatible types ("DATE" and "INT")' in by_text["^d * 2 AS x"]
    # Spark quotes a name that it has made up for a part of these.
    assert 'Cannot resolve "nullif(d, b)"' in by_text["^nullif(d, b) AS x"]
    assert 'Cannot resolve "between 1 and 2"' in by_text["d ^between 1 and 2 AS x"]
