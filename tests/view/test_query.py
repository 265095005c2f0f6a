"""`query` is the view: Spark gives for it the names, types and rows of the user's own SQL.

Each SELECT is written once with gaps for its tables. Filled with `source.table` it defines a view;
filled with the temporary views that stand for its places it is what the user would run in Spark.
"""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.view.sample import TABLES, define
from viewkeeper.view.render import spark_type_of

RELATIONS = ["shop.orders", "crm.customers", "shop.items", "shop.orders"]
ROWS: dict[str, list[str]] = {
    "orders": [
        "1, 1, 9.5, true, DATE '2024-01-31'",
        "2, 1, 1.5, false, NULL",
        "2, 2, 1, true, NULL",
    ],
    "customers": ["1, 'Ada', 1", "2, 'Bob', NULL", "NULL, 'Eve', 2"],
    "items": ["1, 'pen', 1", "1, 'pen', 1", "2, NULL, 3"],
}

SELECTS = [
    "SELECT * FROM {0} AS o JOIN {1} AS c USING (id)",
    "SELECT ID, o.id AS own, c.id AS other FROM {0} AS o JOIN {1} AS c USING (Id) WHERE id = 2",
    "SELECT c.*, o.id AS o FROM {0} AS o JOIN {1} AS c USING (id)",
    "SELECT i.*, C.NAME FROM {0} AS o, {1} AS c JOIN {2} AS i ON c.region = i.amount",
    "SELECT o.ID, `c`.name AS `the name` FROM {0} o CROSS JOIN {1} c WHERE o.customer <=> c.id",
    "SELECT o.id, p.id AS other FROM {0} AS o JOIN {1} AS c JOIN {2} AS i INNER JOIN {3} AS p"
    " ON p.id = o.id AND p.total > 1 WHERE (c.id = o.customer AND (i.order_id = o.id))",
    "SELECT 1 AS one, 'x' AS x, -- a comment, with a comma\n upper(c.name) AS u FROM {0}, {1} AS c",
    "SELECT o.id FROM {0} AS o WHERE o.paid AND o.placed BETWEEN '2024-01-01' AND '2024-12-31'",
]


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> None:
    """Each relation as the temporary view of its place."""
    for index, relation in enumerate(RELATIONS):
        name = relation.split(".")[1]
        types = TABLES[name]
        rows = ", ".join(f"({row})" for row in ROWS[name])
        aliases = [f"c{number}" for number in range(len(types))]
        casts = [
            f"CAST({alias} AS {spark_type_of(kind)}) AS {column}"
            for alias, (column, kind) in zip(aliases, types.items(), strict=True)
        ]
        frame = spark.sql(f"SELECT * FROM VALUES {rows} AS t({', '.join(aliases)})")
        frame.selectExpr(*casts).createOrReplaceTempView(f"__place_{index}")


@pytest.mark.parametrize("select", SELECTS)
@pytest.mark.usefixtures("tables")
def test_the_query_gives_what_the_user_wrote(spark: SparkSession, select: str) -> None:
    view = define(select.format(*RELATIONS))
    # A table without an alias is named after itself; the stand-in has to be told.
    places = [f"__place_{index}" for index in range(len(RELATIONS))]
    if "{0}," in select:
        places[0] += " AS orders"
    expected, actual = spark.sql(select.format(*places)), spark.sql(view.query)
    assert actual.columns == expected.columns == [output.name for output in view.outputs]
    assert sorted(map(repr, actual.collect())) == sorted(map(repr, expected.collect()))
    if view.schema is not None:
        types = [spark_type_of(field.type) for field in view.schema]
        assert [kind.lower() for kind in types] == [kind for _, kind in actual.dtypes]


def test_a_schema_is_known_unless_spark_alone_knows_a_type() -> None:
    view = define("SELECT o.id, o.total * 2.5 AS more FROM shop.orders AS o")
    types: dict[str, pa.DataType] = {"id": pa.int64(), "more": pa.decimal128(13, 3)}
    assert view.schema == pa.schema(types)
    assert define("SELECT hex(o.id) AS code FROM shop.orders AS o").schema is None
