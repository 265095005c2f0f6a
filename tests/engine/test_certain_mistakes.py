"""Mistakes in a view's names and types that are certain without Spark, and no others.

Whatever Spark accepts must not be called wrong: the statements of all corpora are judged, and each
pair of families that is listed as unfit is put to Spark with every type of its members.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from tests.engine.compile import statements, tpch_statements
from tests.sql.constructs import CONSTRUCTS
from tests.sql.corpora.corpus_run import RESULTS, STATEMENTS
from tests.sql.corpora.corpus_tables import CORPUS_TABLES
from tests.sql.relation_history import TABLES, empty_tables
from tests.view import sample
from viewkeeper.engine.views.report_names import names_of_report
from viewkeeper.engine.views.type_families import (
    SIGNS,
    TAKEN,
    Family,
    family_of,
    find_misfit,
    is_refused_comparison,
    is_refused_sum,
)
from viewkeeper.errors import DefinitionError
from viewkeeper.view.definition import Field, Relation
from viewkeeper.view.sql.bind import bind_view
from viewkeeper.view.sql.view_statement import parse_view

Schemas = Mapping[str, pa.Schema]
MEMBERS: dict[Family, list[str]] = {}
for column, kind in sample.TABLES["all_types"].items():
    family = family_of(kind)
    assert family is not None, kind
    MEMBERS.setdefault(family, []).append(column)


def find_mistake(select: str, schemas: Schemas) -> DefinitionError | None:
    """What is certainly wrong with a view; a KeyError if it reads what the schemas do not have."""

    def schema(relation: Relation) -> tuple[Field, ...]:
        found = schemas.get(str(relation), schemas.get(relation.table.lower()))
        if found is None:
            raise KeyError(relation)
        return tuple(Field(field.name, field.type) for field in found)

    parsed = parse_view(f"CREATE MATERIALIZED VIEW v AS {select}")
    if parsed.report is None:
        bind_view(parsed, schema)
        return find_misfit(parsed, schema, None)
    names = names_of_report(parsed, schema)
    return names.find_unknown() or find_misfit(parsed, schema, names)


def accepted_statements() -> Iterator[tuple[str, Schemas]]:
    """Statements that Spark accepts and that are maintained, with the tables that they read."""
    for text in statements.ACCEPTED.values():
        yield text, statements.TABLES
    for text in tpch_statements.QUERIES.values():
        yield text, tpch_statements.SCHEMAS
    tables = {name: table.schema for name, table in empty_tables(TABLES).items()}
    for construct in CONSTRUCTS:
        yield construct.text, tables
    results = json.loads(RESULTS.read_text())
    tables = {name: table.schema for name, table in empty_tables(CORPUS_TABLES).items()}
    for statement in STATEMENTS:
        if results[statement.name]["refused"] is None:
            yield statement.text, tables


def test_nothing_that_is_accepted_is_called_wrong() -> None:
    judged = 0
    for text, schemas in accepted_statements():
        try:
            found = find_mistake(text, schemas)
        except (KeyError, DefinitionError):
            # It reads another view, or is text that only the compiler is given.
            continue
        assert found is None, f"{text}\n{found}"
        judged += 1
    assert judged > 300


ITEMS = "FROM shop.items i GROUP BY i.order_id"
UNKNOWN = {
    f"SELECT i.order_id, count(*) AS n, max(i.^prodct) AS p {ITEMS}": "Product",
    f"SELECT order_id, sum(^amuont) AS n {ITEMS}": "amount",
    f"SELECT i.order_id, sum(^x.amount) AS n {ITEMS}": '"i"',
    "SELECT items.order_id, sum(items.^total) AS n FROM shop.items GROUP BY 1": "there are",
    "SELECT o.id, (SELECT max(i.^prize) FROM shop.items i WHERE i.order_id = o.id) AS m "
    "FROM shop.orders o": "there are",
    "WITH w AS (SELECT o.^idd AS k FROM shop.orders o) SELECT w.k, count(*) AS n FROM w "
    "GROUP BY w.k": "id",
}


@pytest.mark.parametrize("text", UNKNOWN)
def test_a_name_that_nothing_has_is_found_at_its_place(text: str) -> None:
    schemas = {name: pa.schema([*columns.items()]) for name, columns in sample.TABLES.items()}
    plain, mark = text.replace("^", ""), text.index("^")
    found = find_mistake(plain, schemas)
    assert found is not None
    start = len("CREATE MATERIALIZED VIEW v AS ") + mark + 1
    # A reference begins with its table.
    assert found.column in (start, start - len("i."), start - len("items."))
    assert UNKNOWN[text] in str(found.hint)


MISFITS = """
    year(b)
    date_add(last_day(b), 1)
    sum(d)
    b + 1
    d * 2
    d + d
    d = i32
    not i32
    i32 and b
    -b
    abs(year(d) + b)
    max(d) = 5
    bool_and(i32)
"""


@pytest.mark.parametrize("text", [line.strip() for line in MISFITS.strip().splitlines()])
def test_types_that_cannot_fit_are_found(text: str, spark: SparkSession) -> None:
    schemas = {name: pa.schema([*columns.items()]) for name, columns in sample.TABLES.items()}
    select = f"SELECT {text} AS x FROM shop.all_types"
    assert not is_resolved(spark, text)
    found = find_mistake(select, schemas)
    assert found is not None
    assert "the types do not fit" in found.message


def is_resolved(spark: SparkSession, text: str) -> bool:
    """Whether Spark resolves an expression over one column of every type."""
    schema = pa.schema([*sample.TABLES["all_types"].items()])
    try:
        spark.createDataFrame(schema.empty_table()).selectExpr(text)
    except AnalysisException:
        return False
    return True


def listed_misfits() -> Iterator[str]:
    """Every expression of two types, or of a function and a type, that is listed as unfit."""
    for left, right in itertools.product(MEMBERS, MEMBERS):
        pairs = [*itertools.product(MEMBERS[left], MEMBERS[right])]
        for sign in SIGNS.values():
            if is_refused_sum(sign, left, right):
                yield from (f"{one} {sign} {other}" for one, other in pairs)
        if is_refused_comparison(left, right):
            yield from (f"{one} {sign} {other}" for one, other in pairs for sign in ("=", "<"))
    for name, (taken, _) in TAKEN.items():
        arguments = ", 1" if name == "add_months" else ""
        for family in (family for family in MEMBERS if family not in taken):
            yield from (f"{name}({column}{arguments})" for column in MEMBERS[family])


def test_spark_refuses_all_that_is_listed(spark: SparkSession) -> None:
    schema = pa.schema([*sample.TABLES["all_types"].items()])
    frame = spark.createDataFrame(schema.empty_table())
    accepted = []
    for text in listed_misfits():
        try:
            frame.selectExpr(text)
        except AnalysisException:
            continue
        accepted.append(text)
    assert accepted == []
