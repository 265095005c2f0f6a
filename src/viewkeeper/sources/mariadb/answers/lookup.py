"""Lookups in MariaDB: which rows of a table have one of many keys.

One key column is asked for with an IN list, which searches an index where there is one, reads the
table once where there is none, and finds each row once. Several columns are joined with a list of
values, led by the columns that an index begins with. Columns that no index helps with are left out:
the answer has more rows then, which is allowed, and the asker joins again.

Texts are compared by the column's own collation, so that its index is used. Whatever bytes are
equal are equal under it too; what else it calls equal (case, trailing blanks) comes along. So two
keys may be one to the collation: the list is made distinct by it, and no row comes twice.
"""

from __future__ import annotations

import datetime
import decimal
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from viewkeeper.sources.mariadb.schema import MariadbTable
from viewkeeper.sources.mariadb.server_connection import quote_name
from viewkeeper.sources.mariadb.types import MariadbKind, select_list_of
from viewkeeper.updates.source_protocol import Lookup
from viewkeeper.view.local_condition import LocalCondition

# Keys beyond this part of the rows touch so many pages that reading all of them is cheaper.
SCAN_PART = 0.2
_ADDRESS = re.compile(r"[0-9a-f.:-]{2,45}")
# What an index of numbers can be searched for by the text of a label is not worth knowing.
_UNJOINABLE = ("enum", "set")


@dataclass(frozen=True, slots=True)
class MariadbKeyColumn:
    """A column that a lookup compares."""

    index: int
    name: str
    kind: MariadbKind
    null_safe: bool


def build_lookup_query(table: MariadbTable, lookup: Lookup) -> str:
    """The query that finds at least the rows that a lookup asks for."""
    searched = _searched_columns(table, lookup)
    literals = _literal_keys(lookup, searched) if searched else None
    filters = _filter_conditions(table, lookup.conditions)
    if literals is None:
        return build_scan_query(table, lookup.columns, lookup.conditions)
    if len(searched) == 1:
        everything = build_scan_query(table, lookup.columns)
        return _query_by_list(everything, searched[0], [key for (key,) in literals], filters)
    select = select_list_of([table.require_kept_column(name) for name in lookup.columns])
    joined = _query_by_join(table, select, searched, literals)
    return f"{joined}{''.join(f' AND {each}' for each in filters)}"


def build_scan_query(
    table: MariadbTable, columns: Sequence[str], conditions: Sequence[LocalCondition] = ()
) -> str:
    """The query for all rows that may meet some conditions."""
    select = select_list_of([table.require_kept_column(name) for name in columns])
    filters = " AND ".join(_filter_conditions(table, conditions))
    where = f" WHERE {filters}" if filters else ""
    return f"SELECT {select} FROM {table.quoted_name} AS r{where}"


_ORDERED = ("integer", "decimal", "date")
_MOMENTS = ("datetime", "timestamp")
_CLOCK = re.compile(r"-?\d{2,3}:[0-5]\d:[0-5]\d(\.\d{1,6})?")


def _filter_conditions(table: MariadbTable, conditions: Sequence[LocalCondition]) -> list[str]:
    """What of these conditions MariaDB decides as the kernel does, or calls true more often."""
    found = []
    for condition in conditions:
        name, kind = table.require_kept_column(condition.column)
        column, spell = f"r.{quote_name(name)}", speller_of(kind)
        if kind.arrow != condition.type or kind.family not in (*_ORDERED, *_MOMENTS, "text"):
            # The column has another type by now, or one whose values are not what they show.
            continue
        spelled = [text for value in condition.values if (text := spell(value)) is not None]
        if condition.operator == "within":
            spans = zip(spelled[::2], spelled[1::2], strict=True)
            inside = [f"{column} BETWEEN {low} AND {high}" for low, high in spans]
            if len(spelled) == len(condition.values):
                found.append(f"({' OR '.join(inside)})")
        elif condition.operator == "in" and kind.family not in _MOMENTS:
            found.append(f"{column} IN ({', '.join(spelled)})" if spelled else "FALSE")
        elif kind.family in _ORDERED:
            found.append(f"{column} {condition.operator} {spelled[0]}")
    return found


def _searched_columns(table: MariadbTable, lookup: Lookup) -> list[MariadbKeyColumn]:
    """The columns that are worth comparing: those that an index begins with, else the first."""
    found = [
        MariadbKeyColumn(index, *table.require_kept_column(name), safe)
        for index, (name, safe) in enumerate(zip(lookup.on, lookup.null_safe, strict=True))
    ]
    plain = [key for key in found if key.kind.family not in _UNJOINABLE]
    prefix = table.index_prefix_of([key.name for key in plain])
    return [key for key in plain if key.name in prefix] or found[:1]


def _literal_keys(
    lookup: Lookup, searched: Sequence[MariadbKeyColumn]
) -> list[tuple[str, ...]] | None:
    """The distinct keys as SQL; None if they are of another type than the columns."""
    if lookup.keys is None:
        return None
    asked = lookup.keys.select(list(lookup.on))
    columns = []
    for key in searched:
        try:
            cast: Any = asked.column(key.index).cast(key.kind.arrow)
        except pa.ArrowException:
            return None
        spell = speller_of(key.kind)
        columns.append([_spell_key(value, spell, key.null_safe) for value in cast.to_pylist()])
    rows = dict.fromkeys(zip(*columns, strict=True))
    return [row for row in rows if None not in row]


def _spell_key(value: object, spell: Callable[[object], str | None], null_safe: bool) -> str | None:
    """A key as SQL; None if it finds nothing."""
    if value is None:
        return "NULL" if null_safe else None
    return spell(value)


def _query_by_list(
    relation: str, key: MariadbKeyColumn, keys: Sequence[str], filters: Sequence[str]
) -> str:
    column, more = f"r.{quote_name(key.name)}", "".join(f" AND {each}" for each in filters)
    listed = ", ".join(literal for literal in keys if literal != "NULL")
    parts = [f"{relation} WHERE {column} IN ({listed}){more}"] if listed else []
    if "NULL" in keys:
        parts.append(f"{relation} WHERE {column} IS NULL{more}")
    return " UNION ALL ".join(parts) or f"{relation} WHERE FALSE"


def _query_by_join(
    table: MariadbTable,
    select: str,
    searched: Sequence[MariadbKeyColumn],
    keys: Sequence[tuple[str, ...]],
) -> str:
    if not keys:
        return f"SELECT {select} FROM {table.quoted_name} AS r WHERE FALSE"
    names = ", ".join(f"k{i}" for i in range(len(searched)))
    rows = ", ".join(f"({', '.join(row)})" for row in keys)
    distinct = ", ".join(
        f"{_collate_column(key.kind, f'k{i}')} AS k{i}" for i, key in enumerate(searched)
    )
    matches = " AND ".join(
        f"r.{quote_name(key.name)} {'<=>' if key.null_safe else '='} k.k{i}"
        for i, key in enumerate(searched)
    )
    return (
        f"WITH v({names}) AS (VALUES {rows}) SELECT {select}"
        f" FROM (SELECT DISTINCT {distinct} FROM v) AS k"
        f" STRAIGHT_JOIN {table.quoted_name} AS r ON {matches}"
    )


def speller_of(kind: MariadbKind) -> Callable[[object], str | None]:
    """How a value of a kind is written in SQL; None for a value that its column cannot have."""
    match kind.family:
        case "integer" | "unsigned" | "decimal" | "year" | "bits":
            return _spell_number
        case "float":
            return _spell_float
        case "text" | "enum" | "set":
            return _text_speller(kind)
        case "binary":
            return _spell_binary
        case "date":
            return lambda value: f"DATE'{value}'"
        case "datetime" | "timestamp":
            return _spell_moment
        case "time":
            return lambda value: f"TIME'{value}'" if _CLOCK.fullmatch(str(value)) else None
        case "uuid" | "inet4" | "inet6":
            return lambda value: f"'{value}'" if _ADDRESS.fullmatch(str(value)) else None


def _spell_number(value: object) -> str:
    if isinstance(value, decimal.Decimal):
        return f"{value:f}"
    return str(int(value)) if isinstance(value, bool) else str(value)


def _spell_float(value: object) -> str | None:
    assert isinstance(value, float)
    if not math.isfinite(value):
        return None
    text = repr(value)
    return text if "e" in text else text + "e0"


def _text_speller(kind: MariadbKind) -> Callable[[object], str | None]:
    charset = kind.charset
    if kind.characters:
        numbers = {character: number for number, character in enumerate(kind.characters)}
    elif charset == "ascii":
        numbers = {chr(number): number for number in range(128)}
    else:
        numbers = {}
    narrow = charset in ("utf8", "utf8mb3")

    def spell(value: object) -> str | None:
        text = str(value)
        if numbers:
            if not numbers.keys() >= set(text):
                return None
            return f"_{charset} X'{bytes(numbers[c] for c in text).hex()}'"
        if narrow and any(c > "\uffff" for c in text):
            return None
        return f"_{charset} X'{text.encode().hex()}'"

    return spell


def _spell_binary(value: object) -> str:
    assert isinstance(value, bytes)
    return f"_binary X'{value.hex()}'"


def _spell_moment(value: object) -> str:
    assert isinstance(value, datetime.datetime)
    return f"TIMESTAMP'{value.replace(tzinfo=None).isoformat(' ', 'microseconds')}'"


def _collate_column(kind: MariadbKind, column: str) -> str:
    if not kind.collation:
        return column
    return f"CONVERT({column} USING {kind.charset}) COLLATE {kind.collation}"
