"""The eight tables of TPC-H: which database has which, their columns, keys and indexes.

Integers are 64 bits everywhere, money has 15 digits with 2 behind the point, and everything else is
text or a date, so that Spark has the same types whichever database a table is in.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

WHOLE, MONEY, WORD, DAY = pa.int64(), pa.decimal128(15, 2), pa.string(), pa.date32()


@dataclass(frozen=True, slots=True)
class TpchTable:
    """A table, its source, how many of its first columns are the key, and its other indexes."""

    source: str
    name: str
    columns: tuple[tuple[str, pa.DataType], ...]
    key: tuple[str, ...]
    indexes: tuple[tuple[str, ...], ...] = ()

    @property
    def relation(self) -> str:
        return f"{self.source}.{self.name}"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.columns)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(list(self.columns))


def make_table(relation: str, columns: str, key: str, *indexes: str) -> TpchTable:
    """A table from a line: `name` is whole, `name$` money, `name'` a text, `name@` a day."""
    kinds: dict[str, pa.DataType] = {"$": MONEY, "'": WORD, "@": DAY}
    source, _, name = relation.partition(".")
    typed = tuple((word.rstrip("$'@"), kinds.get(word[-1], WHOLE)) for word in columns.split())
    return TpchTable(
        source, name, typed, tuple(key.split()), tuple(tuple(each.split()) for each in indexes)
    )


TABLES = (
    make_table(
        "sales.orders",
        "o_orderkey o_custkey o_orderstatus' o_totalprice$ o_orderdate@ o_orderpriority' "
        "o_clerk' o_shippriority o_comment'",
        "o_orderkey",
        "o_custkey",
    ),
    make_table(
        "sales.lineitem",
        "l_orderkey l_partkey l_suppkey l_linenumber l_quantity$ l_extendedprice$ l_discount$ "
        "l_tax$ l_returnflag' l_linestatus' l_shipdate@ l_commitdate@ l_receiptdate@ "
        "l_shipinstruct' l_shipmode' l_comment'",
        "l_orderkey l_linenumber",
        "l_partkey l_suppkey",
        "l_suppkey",
    ),
    make_table(
        "people.customer",
        "c_custkey c_name' c_address' c_nationkey c_phone' c_acctbal$ c_mktsegment' c_comment'",
        "c_custkey",
        "c_nationkey",
    ),
    make_table(
        "people.nation", "n_nationkey n_name' n_regionkey n_comment'", "n_nationkey", "n_regionkey"
    ),
    make_table("people.region", "r_regionkey r_name' r_comment'", "r_regionkey"),
    make_table(
        "stock.part",
        "p_partkey p_name' p_mfgr' p_brand' p_type' p_size p_container' p_retailprice$ p_comment'",
        "p_partkey",
    ),
    make_table(
        "stock.supplier",
        "s_suppkey s_name' s_address' s_nationkey s_phone' s_acctbal$ s_comment'",
        "s_suppkey",
        "s_nationkey",
    ),
    make_table(
        "stock.partsupp",
        "ps_partkey ps_suppkey ps_availqty ps_supplycost$ ps_comment'",
        "ps_partkey ps_suppkey",
        "ps_suppkey",
    ),
)
BY_RELATION = {table.relation: table for table in TABLES}
SOURCES = ("sales", "people", "stock")
