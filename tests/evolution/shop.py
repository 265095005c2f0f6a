"""A small shop whose tables change, for examples of view synchronization.

`Now` says what happened to the tables; `follow` rewrites a view for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from viewkeeper.evolution.preferences import NamedParts, Preferences, Substitute
from viewkeeper.evolution.synchronization.synchronize import (
    NoRewriting,
    Rewriting,
    synchronize_view,
)
from viewkeeper.updates.source_protocol import CurrentNames
from viewkeeper.view.definition import Field, Relation
from viewkeeper.view.sql.view_statement import parse_view

HEAD = "CREATE MATERIALIZED VIEW v AS\n"
TABLES = {
    "shop.orders": ("id", "customer", "price", "note"),
    "shop.items": ("order_id", "product", "amount"),
    "crm.customers": ("id", "name", "region"),
}
JOIN = (
    "SELECT o.id, o.price, c.name"
    " FROM shop.orders AS o JOIN crm.customers AS c ON o.customer = c.id"
)
STRICT = Preferences()


@dataclass(frozen=True)
class Now:
    """What happened: names of tables and columns by their old ones, what was lost, what came."""

    tables: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    lost: Sequence[str] = ()
    came: Mapping[str, Sequence[str]] = field(default_factory=dict)
    types: Mapping[str, pa.DataType] = field(default_factory=dict)

    def shapes(self) -> dict[Relation, CurrentNames | None]:
        found: dict[Relation, CurrentNames | None] = {}
        for full, columns in TABLES.items():
            relation = relation_of(full)
            kept = {
                name: self.columns.get(f"{full}.{name}", name)
                for name in columns
                if f"{full}.{name}" not in self.lost
            }
            name = relation_of(self.tables.get(full, full)).table
            found[relation] = None if full in self.lost else CurrentNames(name, kept)
        return found

    def schema(self, relation: Relation) -> tuple[Field, ...] | None:
        columns: list[str] = list(self.came.get(str(relation), ()))
        there = str(relation) in self.came
        for old, became in self.shapes().items():
            if became is not None and Relation(old.source, became.table) == relation:
                there, columns = True, [*became.columns.values(), *columns]
        kinds = [self.types.get(f"{relation}.{name}", pa.int64()) for name in columns]
        return tuple(map(Field, columns, kinds)) if there else None


def relation_of(full: str) -> Relation:
    source, table = full.split(".", 1)
    return Relation(source, table)


def follow(
    select: str,
    now: Now,
    preferences: Preferences = STRICT,
    substitutes: Sequence[Substitute] = (),
    told: bool = True,
    null_for_lost: bool = False,
    keep_columns: bool = False,
) -> Rewriting | NoRewriting:
    types = {(relation_of(t), name): pa.int64() for t, names in TABLES.items() for name in names}
    return synchronize_view(
        parse_view(HEAD + select),
        now.shapes(),
        now.schema,
        preferences,
        substitutes,
        null_for_lost,
        keep_columns,
        types if told else {},
    )


def text_of(found: Rewriting | NoRewriting) -> str:
    assert isinstance(found, Rewriting), found
    return found.text.removeprefix(HEAD)


def without(**parts: str) -> NamedParts:
    return NamedParts(**{kind: frozenset([name]) for kind, name in parts.items()})
