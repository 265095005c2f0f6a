"""The shape of a table of PostgreSQL at one moment: its name, its columns by number, its keys.

A table is its oid and a column its number, whatever both are called. Two more things say what may
have happened to values: the *file* that holds the rows, which is another one after the table was
rewritten, and for every column the *stamp* of its entry in the catalogue, which is another one
after the column was touched. A column of a rewritten table whose stamp is the same has the values
that it had: VACUUM FULL and CLUSTER make a new file and touch no column.

The same query reads shapes in snapshots, in looks and in the event triggers (`ddl_watch`), so the
shapes of all of them can be compared.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from viewkeeper.sources.postgres.types import PgConnection, PostgresKind, kind_of
from viewkeeper.sources.tables.column_type import ColumnRefusal

BODY = """json_build_object(
  'oid', c.oid::int8, 'schema', n.nspname, 'name', c.relname, 'width', c.relnatts,
  'file', CASE c.relkind WHEN 'p' THEN
      (SELECT md5(string_agg(l.relfilenode::text, ',' ORDER BY l.oid))
         FROM pg_partition_tree(c.oid) p JOIN pg_class l ON l.oid = p.relid WHERE p.isleaf)
    ELSE c.relfilenode::text END,
  'columns', (SELECT json_agg(json_build_array(a.attnum, a.attname, a.atttypid::int8, a.atttypmod,
        format_type(a.atttypid, a.atttypmod),
        CASE t.typtype WHEN 'd' THEN (
          WITH RECURSIVE below AS (SELECT t.typbasetype AS type, t.typtypmod AS modifier
            UNION ALL SELECT d.typbasetype, d.typtypmod FROM below b
            JOIN pg_type d ON d.oid = b.type WHERE d.typtype = 'd')
          SELECT json_build_array(coalesce(e.typname || '[]', d.typname), b.modifier,
              coalesce(e.typtype, d.typtype) = 'e', (SELECT json_agg(v.oid || ':' || v.enumlabel
                ORDER BY v.oid) FROM pg_enum v WHERE v.enumtypid = coalesce(e.oid, d.oid)))
            FROM below b JOIN pg_type d ON d.oid = b.type
            LEFT JOIN pg_type e ON e.oid = d.typelem AND d.typcategory = 'A'
           WHERE d.typtype <> 'd')
        ELSE json_build_array(coalesce(e.typname || '[]', t.typname), a.atttypmod,
          coalesce(e.typtype, t.typtype) = 'e', (SELECT json_agg(v.oid || ':' || v.enumlabel
            ORDER BY v.oid) FROM pg_enum v WHERE v.enumtypid = coalesce(e.oid, t.oid))) END,
        a.attnotnull, a.attgenerated <> '', a.atthasmissing, a.xmin::text || a.ctid::text)
      ORDER BY a.attnum)
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
   WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
  'keys', (SELECT json_agg(i.indkey::int2[] ORDER BY NOT i.indisprimary, i.indexrelid)
    FROM pg_index i WHERE i.indrelid = c.oid AND i.indisunique AND i.indimmediate
     AND i.indpred IS NULL AND i.indisvalid AND i.indnkeyatts = i.indnatts))"""
"""The shape of the table `c` in the schema `n`, as JSON; it reads pg_catalog only."""

_PREPARE = f"""
PREPARE viewkeeper_shapes (int8[]) AS SELECT {BODY}
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.oid = ANY($1::oid[]) AND c.relkind IN ('r', 'p')
"""


@dataclass(frozen=True, slots=True)
class PostgresShapeColumn:
    """A column by its number.

    `filled` says that rows from before it was added have a value that was never logged. One that is
    not `sure` is there, but which of the logged values are its own is not known. `labels` are those
    of an enum, each after its oid: a label that is renamed is another value in all rows.
    """

    number: int
    name: str
    type: int
    modifier: int
    declared: str = field(compare=False)
    base: str
    base_modifier: int
    is_enum: bool
    not_null: bool
    generated: bool
    filled: bool
    stamp: str
    sure: bool = True
    labels: tuple[str, ...] = ()

    @property
    def kind(self) -> PostgresKind | ColumnRefusal:
        return kind_of(self.base, self.base_modifier, self.is_enum, self.declared)


@dataclass(frozen=True, slots=True)
class PostgresShape:
    """A table; `width` counts all columns that it ever had.

    One that is `gone` has the name and columns that it had last, and `again` says whether another
    table has taken its name.
    """

    oid: int
    schema: str
    name: str
    width: int
    file: str
    columns: tuple[PostgresShapeColumn, ...]
    keys: tuple[tuple[int, ...], ...] = ()
    gone: bool = False
    again: bool = False

    @property
    def by_number(self) -> Mapping[int, PostgresShapeColumn]:
        return {column.number: column for column in self.columns}

    def usable_key(self, with_generated: bool) -> tuple[int, ...]:
        """The first key that cannot be NULL and whose columns can all be kept."""
        fit = {
            column.number
            for column in self.columns
            if column.not_null
            and not isinstance(column.kind, ColumnRefusal)
            and (with_generated or not column.generated)
        }
        return next((key for key in self.keys if fit.issuperset(key)), ())

    def as_dropped(self, again: bool) -> PostgresShape:
        """The table, dropped."""
        return replace(self, gone=True, again=again)


def shape_of(row: Mapping[str, Any]) -> PostgresShape:
    """The shape in a row of the query."""
    columns = (_column_of(*each) for each in row["columns"] or ())
    keys = tuple(tuple(key) for key in row["keys"] or ())
    return PostgresShape(
        row["oid"],
        row["schema"],
        row["name"],
        row["width"],
        row["file"] or "",
        tuple(columns),
        keys,
    )


def _column_of(*facts: Any) -> PostgresShapeColumn:
    """A column of the query; a nested list holds what is below all domains.

    Event triggers from before enums had labels give none, and the name that the type of an array
    has itself.
    """
    base, modifier, is_enum, *labels = facts[5]
    if not labels and str(base).startswith("_"):
        base = f"{base[1:]}[]"
    names = tuple(labels[0] or ()) if labels else ()
    parts: list[Any] = [*facts[:5], base, modifier, is_enum, *facts[6:]]
    return replace(PostgresShapeColumn(*parts), labels=names)


def is_sound(shape: PostgresShape) -> bool:
    """Whether every part has the type that it should have, wherever the shape comes from."""
    texts = [shape.schema, shape.name, shape.file]
    numbers: list[object] = [shape.oid, shape.width, *(n for key in shape.keys for n in key)]
    flags: list[object] = [shape.gone, shape.again]
    for each in shape.columns:
        texts += [each.name, each.declared, each.base, each.stamp, *each.labels]
        numbers += [each.number, each.type, each.modifier, each.base_modifier]
        flags += [each.is_enum, each.not_null, each.generated, each.filled, each.sure]
    return (
        all(isinstance(text, str) for text in texts)
        and all(type(number) is int and abs(number) < 1 << 63 for number in numbers)
        and all(isinstance(flag, bool) for flag in flags)
        and len(shape.by_number) == len(shape.columns)
    )


def decode_shape(stored: Mapping[str, Any]) -> PostgresShape:
    """A shape from what `asdict` made of it."""
    columns = tuple(
        PostgresShapeColumn(**{**each, "labels": tuple(each.get("labels", ()))})
        for each in stored["columns"]
    )
    keys = tuple(tuple(key) for key in stored["keys"])
    return PostgresShape(**{**stored, "columns": columns, "keys": keys})


def prepare_shapes(connection: PgConnection) -> None:
    """Let a new connection be able to read shapes; planning would take longer than reading."""
    connection.execute("SET plan_cache_mode = force_generic_plan")
    connection.execute(_PREPARE.encode())


def read_shapes(connection: PgConnection, oids: Collection[int]) -> dict[int, PostgresShape]:
    """The tables that are there, as this connection sees them now."""
    shapes: dict[int, PostgresShape] = {}
    listed = ",".join(str(oid) for oid in oids)
    for (row,) in connection.execute(f"EXECUTE viewkeeper_shapes ('{{{listed}}}')".encode()):
        shape = shape_of(row if isinstance(row, dict) else json.loads(row))
        shapes[shape.oid] = shape
    return shapes
