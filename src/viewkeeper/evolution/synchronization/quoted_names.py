"""Names and types as they are written into SQL: quoted where they must be.

A view's text stays as its author wrote it, so a name gets backticks only if it has other characters
than letters, or if some reader of SQL may take it for a keyword.
"""

from __future__ import annotations

import re
from functools import cache

import pyarrow as pa
from sqlglot.dialects.dialect import Dialect

from viewkeeper.view.definition import Field, Relation
from viewkeeper.view.render import quote_name, spark_type_of
from viewkeeper.view.sql.functions import WITHOUT_BRACKETS

PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_GENERIC = {
    pa.string(): "TEXT",
    pa.binary(): "BLOB",
    pa.float32(): "REAL",
    pa.float64(): "DOUBLE PRECISION",
    pa.int8(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.timestamp("us"): "TIMESTAMP",
    pa.timestamp("us", "UTC"): "TIMESTAMP WITH TIME ZONE",
}


def quote_if_needed(name: str) -> str:
    """A name as a view's SQL has it.

    >>> quote_if_needed("price"), quote_if_needed("order"), quote_if_needed("unit price")
    ('price', '`order`', '`unit price`')
    """
    plain = PLAIN.fullmatch(name) and name.lower() not in (WITHOUT_BRACKETS | _keyword_starts())
    return name if plain else quote_name(name)


@cache
def _keyword_starts() -> frozenset[str]:
    """Words that are keywords by themselves or begin one, like the ORDER of ORDER BY."""
    known = Dialect.get_or_raise("spark").tokenizer_class.KEYWORDS
    return frozenset(keyword.split()[0].lower() for keyword in known if keyword.split())


def quote_relation(relation: Relation) -> str:
    """
    >>> quote_relation(Relation("shop", "sales.order"))
    'shop.sales.`order`'
    """
    return ".".join(quote_if_needed(part) for part in (relation.source, *relation.table.split(".")))


def generic_type_of(kind: pa.DataType) -> str:
    """A type as most databases understand it.

    >>> generic_type_of(pa.decimal128(10, 2)), generic_type_of(pa.string())
    ('DECIMAL(10, 2)', 'TEXT')
    """
    if isinstance(kind, pa.Decimal128Type):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    return _GENERIC.get(kind) or spark_type_of(kind)


def quote_at_source(name: str, mark: str = '"') -> str:
    """A name as a database has it in a statement that we print: somebody may copy and run it.

    >>> quote_at_source("price"), quote_at_source("x; DROP TABLE y"), quote_at_source("Price")
    ('price', '"x; DROP TABLE y"', '"Price"')
    """
    plain = PLAIN.fullmatch(name) and name == name.lower() and name not in _keyword_starts()
    return name if plain else f"{mark}{name.replace(mark, mark * 2)}{mark}"


def quote_source_table(table: str, mark: str = '"') -> str:
    """The same for a table, with the schema that it may have before its name."""
    return ".".join(quote_at_source(part, mark) for part in table.split("."))


def add_column_sql(table: str, field: Field) -> str:
    column = f"{quote_at_source(field.name)} {generic_type_of(field.type)}"
    return f"ALTER TABLE {quote_source_table(table)} ADD COLUMN {column}"


def create_table_sql(table: str, fields: tuple[Field, ...]) -> str:
    columns = ", ".join(f"{quote_at_source(f.name)} {generic_type_of(f.type)}" for f in fields)
    return f"CREATE TABLE {quote_source_table(table)} ({columns})"
