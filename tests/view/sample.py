"""The relations that the tests' views read, and how fixture files are read.

`all_types` has one column of every type that sources deliver, so that expressions over it meet
every conversion. A fixture file pairs a line of SQL with a line that has a caret under the place
that an error must point at, and what the error must say.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from viewkeeper.view.definition import Field, Relation, ViewDefinition
from viewkeeper.view.sql.bind import bind_view
from viewkeeper.view.sql.view_statement import parse_view

HEAD = "CREATE MATERIALIZED VIEW v AS\n"

TABLES: dict[str, dict[str, pa.DataType]] = {
    "orders": {
        "id": pa.int64(),
        "customer": pa.int64(),
        "total": pa.decimal128(10, 2),
        "paid": pa.bool_(),
        "placed": pa.date32(),
    },
    "items": {"order_id": pa.int64(), "Product": pa.string(), "amount": pa.int32()},
    "customers": {"id": pa.int64(), "name": pa.string(), "region": pa.int32()},
    "all_types": {
        "b": pa.bool_(),
        "i8": pa.int8(),
        "i16": pa.int16(),
        "i32": pa.int32(),
        "i64": pa.int64(),
        "f32": pa.float32(),
        "f64": pa.float64(),
        "d5_2": pa.decimal128(5, 2),
        "d18_0": pa.decimal128(18, 0),
        "d20_6": pa.decimal128(20, 6),
        "d38_10": pa.decimal128(38, 10),
        "s": pa.string(),
        "bin": pa.binary(),
        "d": pa.date32(),
        "ntz": pa.timestamp("us"),
        "ts": pa.timestamp("us", "UTC"),
    },
}


def schema(relation: Relation) -> tuple[Field, ...]:
    columns = TABLES[relation.table.split(".")[-1]]
    return tuple(Field(name, kind) for name, kind in columns.items())


def define(select: str) -> ViewDefinition:
    """The view that a SELECT defines over the sample relations."""
    return bind_view(parse_view(HEAD + select), schema)


FIXTURES = Path(__file__).parent / "fixtures"


@dataclass(frozen=True, slots=True)
class Mistake:
    """A SELECT that is refused, and where and how."""

    sql: str
    column: int
    message: str


def mistakes(name: str) -> list[Mistake]:
    """The pairs of a fixture file."""
    text = (FIXTURES / name).read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("--")]
    pairs = zip(lines[::2], lines[1::2], strict=True)
    return [Mistake(sql, mark.index("^") + 1, mark.strip(" ^")) for sql, mark in pairs]
