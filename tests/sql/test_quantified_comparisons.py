"""Quantified comparisons mean what the standard says: PostgreSQL, which has them, is the judge.

The same statements run there as they are, and on Spark as they are rewritten, over the same rows:
all operators, ANY and ALL, subqueries that are empty, have NULLs, nothing but NULLs or none, tied
to the row around them and not, as conditions, under NOT and as values. What is compiled from the
rewritten text is compared too.
"""

from __future__ import annotations

import os
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.engine.compile.test_compiled_queries import graph_text, interpreted_session
from viewkeeper.engine.compile.query_compiler import QueryCompiler
from viewkeeper.engine.compile.query_table import QueryTable
from viewkeeper.testing.private_servers import PrivatePostgres
from viewkeeper.view.definition import Relation
from viewkeeper.view.sql.quantified.quantified_comparisons import rewrite_quantified
from viewkeeper.view.sql.sql_text import SqlText

Row = tuple[Any, ...]
COLUMNS = {
    "o": {"id": pa.int32(), "g": pa.int32(), "a": pa.int32(), "x": pa.float64(), "s": pa.string()},
    "i": {"k": pa.int32(), "g": pa.int32(), "y": pa.int32(), "z": pa.float64(), "w": pa.string()},
}
SQL_TYPES = {pa.int32(): "integer", pa.float64(): "double precision", pa.string(): "text"}
TABLES = [
    QueryTable(
        Relation("shop", name),
        pa.schema([pa.field(each, kind) for each, kind in columns.items()]),
        frozenset(),
    )
    for name, columns in COLUMNS.items()
]
OPERATORS = ("=", "<>", "<", "<=", ">", ">=")
INTEGERS = (
    "SELECT y FROM i",
    "SELECT y FROM i WHERE k = 0",  # no row
    "SELECT y FROM i WHERE k = 1",  # only NULL
    "SELECT y FROM i WHERE k = 2",  # one value
    "SELECT y FROM i WHERE k = 3",  # one value and NULL
    "SELECT y FROM i WHERE y > 1",  # no NULL
    "SELECT i.y FROM i WHERE i.g = o.g",
    "SELECT y + o.a FROM i WHERE i.g = o.g AND i.k > 2",
    "SELECT DISTINCT i.y FROM i WHERE i.g = o.g",
    "SELECT max(i.y) FROM i WHERE i.g = o.g GROUP BY i.k",
    "SELECT max(y) FROM i GROUP BY g HAVING count(*) > 2",
    "SELECT y FROM i WHERE k = 3 UNION SELECT g FROM i WHERE k = 2",
    "SELECT y FROM i ORDER BY y NULLS LAST, k LIMIT 2",
    "WITH v AS (SELECT y FROM i WHERE k > 2) SELECT v.y + 1 AS n FROM v",
    "VALUES (1), (2)",
)
PLACES = {
    "condition": "SELECT id, '' AS f FROM o WHERE {}",
    "conditions": "SELECT id, '' AS f FROM o WHERE ({}) AND id > 2",
    "under not": "SELECT id, '' AS f FROM o WHERE NOT {}",
    "not, in brackets": "SELECT id, '' AS f FROM o WHERE NOT (id > 90 OR {})",
    "value": "SELECT id, CAST({} AS text) AS f FROM o",
    "unknown": "SELECT id, '' AS f FROM o WHERE ({}) IS NULL",
    "case": "SELECT id, CASE WHEN {} THEN 'y' WHEN s IS NOT NULL THEN s ELSE 'n' END AS f FROM o",
    "on": "SELECT o.id, CAST(j.k AS text) AS f FROM o JOIN i j ON j.g = o.g AND {}",
    "left on": "SELECT o.id, CAST(j.k AS text) AS f FROM o LEFT JOIN i j ON j.g = o.g AND {}",
}
OTHERS = (
    # Other types: NaN is equal to itself and larger than all others, in both.
    "SELECT id, CAST(x > ALL (SELECT z FROM i WHERE g = 1) AS text) AS f FROM o",
    "SELECT id, CAST(x >= ALL (SELECT z FROM i WHERE z IS NOT NULL) AS text) AS f FROM o",
    "SELECT id, CAST(x = ANY (SELECT z FROM i) AS text) AS f FROM o",
    "SELECT id, CAST(x <> ALL (SELECT i.z FROM i WHERE i.g = o.g) AS text) AS f FROM o",
    "SELECT id, CAST(x < ANY (SELECT y FROM i) AS text) AS f FROM o",
    "SELECT id, CAST(s <= ALL (SELECT w FROM i WHERE k <> 3) AS text) AS f FROM o",
    "SELECT id, CAST(s > SOME (SELECT w FROM i) AS text) AS f FROM o",
    "SELECT id, CAST(a != ALL (SELECT z FROM i) AS text) AS f FROM o",
    # Other left sides.
    "SELECT id, '' AS f FROM o WHERE 2 > ALL (SELECT i.y FROM i WHERE i.g = o.g)",
    "SELECT id, '' AS f FROM o WHERE 2 <= ANY (SELECT i.y FROM i)",
    "SELECT id, '' AS f FROM o WHERE a + g * 2 - 1 > ALL (SELECT y FROM i WHERE k = 2) AND id > 1",
    "SELECT id, '' AS f FROM o WHERE CASE WHEN a > 1 THEN a ELSE g END = ANY (SELECT y FROM i)",
    "SELECT id, '' AS f FROM o WHERE (SELECT max(y) FROM i) > ALL "
    "(SELECT i.y FROM i WHERE i.g = o.g)",
    "SELECT id, '' AS f FROM o WHERE coalesce(a, id) <> ALL (SELECT y FROM i WHERE y > 0)",
    "SELECT id, '' AS f FROM o WHERE (a, g) = ANY (SELECT y, g FROM i) AND id > 1",
    "SELECT id, '' AS f FROM o WHERE (id, id) <> ALL (SELECT k, k FROM i)",
    # In one another.
    "SELECT id, '' AS f FROM o WHERE a > ALL (SELECT y FROM i WHERE y < ANY (SELECT a FROM o))",
    "SELECT id, CAST(a <= ANY (SELECT i.y FROM i WHERE i.g = o.g AND i.y <> ALL "
    "(SELECT j.y + 1 FROM i j WHERE j.g = i.g)) AS text) AS f FROM o",
    "SELECT id, CAST((a > ALL (SELECT y FROM i)) = ANY (SELECT y > 1 FROM i) AS text) AS f FROM o",
    "SELECT id, CAST(a = ALL (SELECT y FROM i WHERE k = 2) = (g < ANY (SELECT y FROM i)) AS text) "
    "AS f FROM o",
    "SELECT id, '' AS f FROM o WHERE EXISTS (SELECT 1 FROM i j WHERE j.g = o.g "
    "AND j.y >= ALL (SELECT i.y FROM i WHERE i.g = j.g))",
    # Beside groups.
    "SELECT g AS id, CAST(sum(a) AS text) AS f FROM o GROUP BY g "
    "HAVING sum(a) > ALL (SELECT y FROM i WHERE y IS NOT NULL)",
    "SELECT g AS id, '' AS f FROM o GROUP BY g "
    "HAVING sum(a) = ANY (SELECT y FROM i) OR count(*) > 3",
    "SELECT g AS id, '' AS f FROM o GROUP BY g HAVING max(a) <> ALL (SELECT y FROM i WHERE k = 2)",
    "SELECT g AS id, '' AS f FROM o GROUP BY g HAVING max(a) >= ALL "
    "(SELECT i.y FROM i WHERE i.g = o.g)",
    "SELECT g AS id, CAST(sum(a) <= ANY (SELECT y FROM i) AS text) AS f FROM o GROUP BY g",
    "SELECT g AS id, CAST(max(a) = ANY (SELECT y FROM i) AS text) AS f FROM o GROUP BY g",
    "SELECT g AS id, CAST(count(*) FILTER (WHERE a > ALL (SELECT y FROM i WHERE k = 3)) AS text) "
    "AS f FROM o GROUP BY g",
    "SELECT g AS id, CAST(sum(CASE WHEN a < ANY (SELECT i.y FROM i WHERE i.g = o.g) THEN 1 END) "
    "AS text) AS f FROM o GROUP BY g",
    # A function of the same name, and texts.
    "SELECT g AS id, CAST(bool_or(a > 1) AS text) AS f FROM o "
    "WHERE s <> '= ANY (SELECT 1)' GROUP BY g",
)
SEED = 12
SHARE = float(os.environ.get("VIEWKEEPER_QUANTIFIED_SHARE", "0.3"))
"""Of the subqueries so many are tried with each operator at each place, and of these statements a
quarter is compiled, too."""
SHARE_COMPILED = 0.25


@dataclass(frozen=True, slots=True)
class Judge:
    """The same rows in PostgreSQL and in Spark."""

    postgres: psycopg.Connection[Row]
    spark: SparkSession
    compiler: QueryCompiler

    def by_postgres(self, text: str) -> Counter[Row]:
        return Counter(self.postgres.execute(text.encode()).fetchall())

    def by_spark(self, texts: Sequence[str]) -> list[Counter[Row]]:
        """The rows of several texts, found by one job."""
        numbered = [f"SELECT {at} AS n, q.* FROM ({text}) q" for at, text in enumerate(texts)]
        found: list[Counter[Row]] = [Counter() for _ in texts]
        for at, *row in self.spark.sql(" UNION ALL ".join(numbered)).collect():
            found[at][tuple(row)] += 1
        return found


@pytest.fixture(scope="module")
def judge(spark: SparkSession, postgres_server: PrivatePostgres) -> Iterator[Judge]:
    session, source = interpreted_session(spark), random.Random(SEED)
    with psycopg.connect(postgres_server.url_of(), autocommit=True) as admin:
        admin.execute("CREATE DATABASE quantified")
    with psycopg.connect(postgres_server.url_of("quantified"), autocommit=True) as postgres:
        for number, (name, columns) in enumerate(COLUMNS.items()):
            rows = [*outer_rows(source)] if name == "o" else [*inner_rows(source)]
            declared = ", ".join(f"{each} {SQL_TYPES[kind]}" for each, kind in columns.items())
            postgres.execute(f"CREATE TABLE {name} ({declared})".encode())
            with postgres.cursor() as cursor:
                marks = ", ".join(["%s"] * len(columns))
                cursor.executemany(f"INSERT INTO {name} VALUES ({marks})".encode(), rows)
            made = pa.table(
                [
                    pa.array(c, k)
                    for c, k in zip(zip(*rows, strict=True), columns.values(), strict=True)
                ],
                [*columns],
            )
            session.createDataFrame(made).createOrReplaceTempView(name)
            session.table(name).createOrReplaceTempView(f"__place_{number}")
        yield Judge(postgres, session, QueryCompiler(spark))


def outer_rows(source: random.Random) -> Iterator[Row]:
    for key in range(12):
        yield key, *some_values(source)


def inner_rows(source: random.Random) -> Iterator[Row]:
    yield from [(1, 1, None, None, None), (2, 1, 2, 0.5, "b"), (3, 2, 1, 1.5, "a")]
    yield 3, 2, None, None, None
    for _ in range(8):
        yield source.choice([4, 5]), *some_values(source)


def some_values(source: random.Random) -> Row:
    """A group, a number, another one, and a text."""
    number = source.choice([None, 0, 1, 2, 3])
    real = source.choice([None, 0.5, 1.5, float("nan"), -0.0, 2.0])
    return source.choice([None, 1, 2, 3]), number, real, source.choice([None, "a", "b", "10", "9"])


def as_compiled(text: str) -> str:
    """A text over the tables as a compiled one has them."""
    for number, name in enumerate(COLUMNS):
        text = re.sub(rf"\bFROM {name}\b(?! j)", f"FROM __place_{number} {name}", text)
    return re.sub(r"\b(FROM|JOIN) i j\b", r"\1 __place_1 j", text)


def rewritten(text: str) -> str:
    # PostgreSQL calls the type so.
    return rewrite_quantified(SqlText(text.replace("AS text)", "AS string)"))).text


def check_statements(judge: Judge, texts: Sequence[str], compiled: Sequence[str]) -> None:
    """All agree on these texts, and what some of them are compiled into does."""
    ours = [rewritten(text) for text in texts]
    wanted = {text: judge.by_postgres(text) for text in {*texts, *compiled}}
    for text, own, found in zip(texts, ours, judge.by_spark(ours), strict=True):
        assert found == wanted[text], f"{text}\n{own}"
    graphs = [
        graph_text(judge.compiler.compile_text(rewritten(as_compiled(text)), TABLES), TABLES)
        for text in compiled
    ]
    for text, found in zip(compiled, judge.by_spark(graphs), strict=True):
        assert found == wanted[text], f"compiled: {text}"


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("place", PLACES)
def test_comparisons_mean_what_the_standard_says(place: str, operator: str, judge: Judge) -> None:
    source = random.Random(f"{SEED} {place} {operator}")
    texts = [
        PLACES[place].format(f"o.a {operator} {quantifier} ({query})")
        for quantifier, query in product(("ALL", "ANY"), INTEGERS)
    ]
    some = source.sample(texts, max(1, round(len(texts) * SHARE)))
    check_statements(judge, some, source.sample(some, max(1, round(len(some) * SHARE_COMPILED))))


@pytest.mark.parametrize("number", range(0, len(OTHERS), 8))
def test_other_comparisons_mean_the_same(number: int, judge: Judge) -> None:
    texts = OTHERS[number : number + 8]
    check_statements(judge, texts, [text for text in texts if "(a, g)" not in text])
