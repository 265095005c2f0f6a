"""Whatever bytes a warehouse has of its reports: a graph is read, or refused by an error of ours;
an index has the rows of its table, or there is none.

An index is also fuzzed behind the checksum of its manifest, where a body that makes no sense is
read. Its rows may be others then, as those of every file whose checksum was made to fit.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import pyarrow as pa
import pytest

from tests.fuzz.mutation import fuzz
from tests.stages.index_writer import KEYS, OWNER, change_at, rows_at, table_of_change
from viewkeeper.delta.algebra import COUNT
from viewkeeper.engine.views.bound_view import graph_of_text
from viewkeeper.stages.key_index import KIND, MANIFEST, open_index, rebuild_index
from viewkeeper.view.definition import (
    Constant,
    Core,
    Equality,
    Expand,
    Field,
    Fold,
    FoldCall,
    Graph,
    KeyedJoin,
    Output,
    Place,
    Relation,
    Union,
    ViewDefinition,
    relation_of_node,
)
from viewkeeper.view.expression import (
    Arithmetic,
    Call,
    Cast,
    Column,
    Compare,
    IsNull,
    Literal,
    Logic,
    Not,
    SparkSql,
)
from viewkeeper.view.graph_json import encode_graph

LONG, TEXT, MONEY = pa.int64(), pa.string(), pa.decimal128(10, 2)
WORDS = [b'{"fold":{}}', b'"type":"DECIMAL(99,2)"', b'{"literal":', b"null", b"[]", b"{}", b"1e400"]
WORDS += [b'{"not":{"operand":' * 3000, b"-1", b'"LONG"', b"NaN"]
LAST = 3 * KEYS


def make_graph() -> Graph:
    """One node of every kind, with expressions of every kind."""
    a, b = Column(0, "a", LONG), Column(1, "b", MONEY)
    keyed = KeyedJoin("left", 0, (Equality(a, b, False),), (Not(IsNull(b)),))
    fields = (Field("a", LONG), Field("b", MONEY))
    places = (
        Place(0, "o", Relation("shop", "orders"), fields),
        Place(1, "l", Relation("", "lines"), fields, keyed),
    )
    shown = (
        Output("a", Arithmetic("+", a, Literal(2, LONG), LONG)),
        Output("b", Call("coalesce", (b, Cast(Literal("1.50", TEXT), MONEY)), MONEY)),
        Output("c", SparkSql("upper({0})", (a,), TEXT)),
    )
    check = Logic("and", Compare("<", a, Literal(9, LONG)), Literal(None, pa.bool_()))
    view = ViewDefinition("v", places, (), (check,), shown, "", "")
    call = FoldCall("sum", "n", fields, MONEY)
    constant = Constant(3, (Field("a", LONG), Field("d", pa.date32())), ((1, None), (2, None)))
    return Graph(
        (
            Core(0, view, None),
            Fold(1, relation_of_node(0), fields[:1], (call,), shown[:1], False),
            Union(2, (relation_of_node(1),), (("a",),), fields[:1]),
            constant,
            Expand(4, relation_of_node(3), (shown[:1],), fields[:1]),
        )
    )


def test_the_graph_of_a_version() -> None:
    good = json.dumps(encode_graph(make_graph()))
    assert graph_of_text(good, "v") == make_graph()

    def read(data: bytes) -> object:
        return graph_of_text(data.decode("utf-8", "replace"), "v")

    fuzz(read, [good.encode()], inputs=2000, words=WORDS)


@pytest.fixture
def indexed(scratch: Path) -> Path:
    """The folder of an index with some rows for every key."""
    changes = [table_of_change(change_at(ts)) for ts in range(1, LAST + 1)]
    rebuild_index(scratch, OWNER, changes, LAST)
    return scratch


def find_all(folder: Path) -> None:
    """Nothing is found, or exactly what the table has."""
    index = open_index(folder, OWNER, 0, 1 << 40)
    if index is None:
        return
    rows = index.find_rows(pa.table({"k": range(KEYS)}))
    found = {(row["k"], row["v"]): row[COUNT] for row in rows.to_pylist()}
    assert index.ts == LAST
    assert found == rows_at(LAST), "wrong rows, silently"


@pytest.mark.parametrize("pattern", [MANIFEST, "rows-*.arrow"])
def test_an_index_has_its_rows_or_is_none(indexed: Path, pattern: str) -> None:
    (path,) = indexed.glob(pattern)

    def read(data: bytes) -> None:
        path.write_bytes(data)
        find_all(indexed)

    fuzz(read, [path.read_bytes()], inputs=1000)


def test_a_manifest_behind_a_right_checksum(indexed: Path) -> None:
    path = indexed / MANIFEST
    whole = path.read_bytes()
    body = whole[whole.index(b'"body":') + 7 : -2]

    def sealed(data: bytes) -> bytes:
        header = b'{"kind":"%b","format":1,"check":%d,"body":' % (KIND.encode(), zlib.crc32(data))
        return header + data + b"}\n"

    def read(data: bytes) -> None:
        path.write_bytes(sealed(data))
        index = open_index(indexed, OWNER, 0, 1 << 40)
        if index is not None:
            index.find_rows(pa.table({"k": range(KEYS)}))

    assert sealed(body) == whole
    fuzz(read, [body], inputs=1000, words=[b"null", b"true", b"{}", b"[]", b"-1", b'""'])
