"""Small random tables with NULLs and duplicates, for statements of every kind."""

from __future__ import annotations

import datetime
import decimal
import random
from collections.abc import Iterable, Iterator

import pyarrow as pa

from tests.engine.compile.tpch_statements import SCHEMAS

DAYS = [datetime.date(2024, 1, day) for day in range(1, 9)]
NOON = datetime.datetime(2024, 1, 2, 12, tzinfo=datetime.UTC)
WORDS = ["u", "v", "w", "u_1", "7"]


def random_rows(table: str, source: random.Random) -> Iterator[tuple[object, ...]]:
    """Rows of one of the four tables of `statements`."""
    small = [None, 0, 1, 1, 2, 3]
    count = {"a": 40, "b": 40, "c": 3, "e": 20}[table]
    for number in range(count):
        key, group = source.choice(small), source.choice(small)
        word = source.choice([None, *WORDS])
        amount = source.choice([None, decimal.Decimal(source.randint(-500, 500)) / 100])
        match table:
            case "a":
                x = source.choice([None, 0.5, -0.25, 2.0, 1.0])
                day = source.choice([None, *DAYS])
                yield (number, key, group, x, word, day, amount)
            case "b":
                y = source.choice([None, 1, 2, 3, 4])
                moment = NOON + datetime.timedelta(seconds=source.randint(0, 9999))
                yield (number, key, group, y, word, source.choice([None, moment]), amount)
            case "c":
                yield (number, source.choice([None, "n1", "n2"]))
            case _:
                yield (key, source.choice([None, 1, 2, 3]))


TEXTS: dict[str, list[str]] = {
    "r_name": ["EUROPE", "ASIA", "AMERICA"],
    "n_name": ["GERMANY", "FRANCE", "BRAZIL", "CANADA", "SAUDI ARABIA"],
    "c_mktsegment": ["BUILDING", "MACHINERY"],
    "p_name": ["forest green", "dark green", "red"],
    "p_brand": ["Brand#12", "Brand#23", "Brand#45"],
    "p_type": ["ECONOMY ANODIZED STEEL", "SMALL BRASS", "PROMO BRASS", "MEDIUM POLISHED TIN"],
    "p_container": ["SM CASE", "MED BOX"],
    "o_orderstatus": ["F", "O"],
    "o_orderpriority": ["1-URGENT", "2-HIGH", "3-MEDIUM"],
    "o_comment": ["special packages requests", "plain"],
    "l_returnflag": ["R", "N"],
    "l_linestatus": ["O", "F"],
    "l_shipmode": ["MAIL", "AIR", "SHIP"],
    "l_shipinstruct": ["DELIVER IN PERSON", "NONE"],
    "s_comment": ["Customer Complaints", "fine"],
    "c_phone": ["13-111", "31-222"],
}
ROWS = {
    "region": 3,
    "nation": 5,
    "supplier": 8,
    "customer": 20,
    "part": 12,
    "partsupp": 40,
    "orders": 80,
    "lineitem": 250,
}
KEYS = {
    "regionkey": 3,
    "nationkey": 5,
    "suppkey": 8,
    "custkey": 20,
    "partkey": 12,
    "orderkey": 80,
}


def random_tpch(table: str, source: random.Random) -> Iterator[tuple[object, ...]]:
    """Rows of a table of TPC-H, with the values that its queries ask for."""
    for number in range(ROWS[table]):
        values = [random_value(f.name, f.type, source) for f in SCHEMAS[table]]
        yield (values[0] if table in ("partsupp", "lineitem") else number, *values[1:])


def arrow_table(rows: Iterable[tuple[object, ...]], schema: pa.Schema) -> pa.Table:
    """Rows as an Arrow table, which Spark reads without a worker of Python's."""
    columns = zip(*rows, strict=True)
    arrays = [pa.array(values, f.type) for values, f in zip(columns, schema, strict=True)]
    return pa.table(arrays, schema=schema)


def random_value(name: str, kind: pa.DataType, source: random.Random) -> object:
    """A value that a column of TPC-H may have."""
    if name.endswith("key"):
        return source.randrange(KEYS[name.partition("_")[2]])
    if kind == pa.date32():
        return datetime.date(1993, 7, 1) + datetime.timedelta(days=source.randrange(1300))
    if kind == pa.int32():
        return source.choice([1, 5, 15, 49])
    if pa.types.is_decimal(kind):
        if name in ("l_discount", "l_tax"):
            return decimal.Decimal(source.randint(4, 8)) / 100
        return decimal.Decimal(source.randint(100, 4000)) / 100
    return source.choice(TEXTS.get(name, ["one", "two", "three"]))
