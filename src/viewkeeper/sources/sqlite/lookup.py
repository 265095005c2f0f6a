"""How a lookup is put to SQLite: keys in a temporary table, and the query that uses an index.

Keys are bound as SQLite stores the column (a date as text, a boolean as 0 or 1), into columns of
the same affinity, so that `=` compares like with like and can search the index on either side.

- An index, or the rowid, that begins with key columns: the keys drive, and each searches it.
- It covers only some of the key columns: the distinct values of those drive, and the rows that they
  find are checked against the whole keys; no row is visited twice.
- No index: the relation is read once, and every row searches the keys.

Every row is found at most once, as the bag needs: keys are distinct, and text is compared byte by
byte in the end, also where an index that ignores case found it.

Columns whose type has several spellings (timestamps) are left out of the keys, which finds more
rows than asked for, never fewer. For all other types SQLite's `=` never misses what Spark calls
equal.
"""

from __future__ import annotations

import datetime
import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from viewkeeper.sources.sqlite.schema import (
    OWN_PREFIX,
    KeyPart,
    SqliteTable,
    affinity_of,
    quote_name,
)
from viewkeeper.sources.sqlite.types import SqliteKind, as_is, kind_or_refuse
from viewkeeper.view.local_condition import LocalCondition, spans_of

MOMENT = pa.timestamp("us")
_SECOND = datetime.timedelta(seconds=1)
# What SQLite itself brings; any other collation exists only in the application's connections.
_BUILT_IN = frozenset({"BINARY", "NOCASE", "RTRIM"})


@dataclass(frozen=True, slots=True)
class SqliteKeyColumn:
    """A column that a lookup compares: its name, how it is stored, whether NULL equals NULL."""

    column: str
    kind: SqliteKind
    affinity: str
    null_safe: bool

    def match_condition(self, left: str, right: str, collation: str) -> str:
        operator = "IS" if self.null_safe else "="
        return f"{left} {operator} {right} COLLATE {quote_name(collation)}"


def key_columns(
    source: str, table: SqliteTable, on: Sequence[str], null_safe: Sequence[bool]
) -> tuple[tuple[int, SqliteKeyColumn], ...]:
    """The columns of a lookup that can be compared by key, with their index in `on`."""
    found = []
    for index, (name, safe) in enumerate(zip(on, null_safe, strict=True)):
        column, kind = table.column_named(source, name), kind_or_refuse(source, table, name)
        if kind.one_spelling:
            key = SqliteKeyColumn(column.name, kind, affinity_of(column.declared), safe)
            found.append((index, key))
    return tuple(found)


def stored_keys(
    keys: pa.Table, columns: Sequence[tuple[int, SqliteKeyColumn]]
) -> dict[tuple[object, ...], None] | None:
    """The distinct keys as SQLite stores them; None if they are of another type than the column."""
    try:
        cast = keys.select([index for index, _ in columns]).cast(
            pa.schema([(keys.column_names[index], key.kind.arrow) for index, key in columns])
        )
    except pa.ArrowException:
        return None
    # In order, they search an index from one end to the other.
    ordered = cast.sort_by([(name, "ascending") for name in cast.column_names])
    converted = [
        _stored_values(key.kind, values)
        for (_, key), values in zip(columns, ordered.to_pydict().values(), strict=True)
    ]
    return dict.fromkeys(zip(*converted, strict=True))


def _stored_values(kind: SqliteKind, values: Sequence[object]) -> Sequence[object]:
    if kind.to_stored is as_is:
        return values
    return [None if value is None else kind.to_stored(value) for value in values]


@dataclass(frozen=True, slots=True)
class KeyTable:
    """The temporary table of keys of these columns; indexed unless the keys only drive the search.

    It stays on its connection, so that the next lookup of the same kind finds it there: making a
    table would have SQLite compile all statements again.
    """

    affinities: tuple[str, ...]
    is_indexed: bool

    @property
    def name(self) -> str:
        kind = "indexed" if self.is_indexed else "plain"
        return "_".join((f"{OWN_PREFIX}keys", kind, *self.affinities)).lower()

    def make_table(self, connection: sqlite3.Connection) -> None:
        fields = ", ".join(f"k{i} {affinity}" for i, affinity in enumerate(self.affinities))
        connection.execute(f"CREATE TABLE IF NOT EXISTS temp.{self.name} ({fields})")
        if self.is_indexed:
            names = ", ".join(f"k{i}" for i in range(len(self.affinities)))
            index = f"temp.{self.name}_all ON {self.name}"
            connection.execute(f"CREATE INDEX IF NOT EXISTS {index} ({names})")

    def load_keys(
        self, connection: sqlite3.Connection, keys: dict[tuple[object, ...], None], integers: bool
    ) -> None:
        """Replace the keys; `integers` are single whole numbers."""
        connection.execute(f"DELETE FROM temp.{self.name}")
        if integers:
            # One statement instead of one per key; SQLite's JSON cuts text at a zero.
            numbers = json.dumps([key for (key,) in keys])
            query = f"INSERT INTO temp.{self.name} SELECT value FROM json_each(?)"
            connection.execute(query, (numbers,))
        else:
            marks = ", ".join("?" for _ in self.affinities)
            connection.executemany(f"INSERT INTO temp.{self.name} VALUES ({marks})", keys)


def key_table_of(table: SqliteTable, columns: Sequence[SqliteKeyColumn]) -> KeyTable:
    """Where the keys of a lookup go."""
    driving = len(prefix_of(table, [column.column for column in columns])) == len(columns)
    return KeyTable(tuple(column.affinity for column in columns), not driving)


def has_integer_keys(columns: Sequence[SqliteKeyColumn]) -> bool:
    """Whether keys are single whole numbers."""
    return len(columns) == 1 and pa.types.is_integer(columns[0].kind.arrow)


def filter_conditions(
    source: str, table: SqliteTable, conditions: Sequence[LocalCondition]
) -> tuple[list[str], list[object]]:
    """What of these conditions SQLite decides as the kernel does, or calls true more often; and
    the values that they compare with.

    Which of two values is the greater one is asked of whole numbers only: others have no storage
    class of their own.
    """
    found: list[str] = []
    values: list[object] = []
    for condition in conditions:
        column = table.column_named(source, condition.column)
        kind = kind_or_refuse(source, table, condition.column)
        name = f"r.{quote_name(column.name)}"
        if condition.operator == "within" and kind.arrow == condition.type == MOMENT:
            spans = [each for span in spans_of(condition) for each in _spelled_spans(*span)]
            each = f"({name} >= ? COLLATE BINARY AND {name} < ? COLLATE BINARY)"
            found.append(f"({' OR '.join([each] * len(spans))})")
            values += [text for span in spans for text in span]
            continue
        if kind.arrow != condition.type or not kind.one_spelling:
            continue
        if condition.operator == "in":
            # A column's own collation may be one that only the application has.
            equal = " OR ".join(f"{name} = ? COLLATE BINARY" for _ in condition.values)
            found.append(f"({equal})")
        elif pa.types.is_integer(kind.arrow):
            found.append(f"{name} {condition.operator} ?")
        else:
            continue
        values += _stored_values(kind, condition.values)
    return found, values


def _spelled_spans(low: object, high: object) -> list[tuple[str, str]]:
    """A span of time as texts, from the second of its start to the one after its end, once for each
    way to write a moment: within one way, texts have the order of the moments."""
    assert isinstance(low, datetime.datetime), "a span of time"
    assert isinstance(high, datetime.datetime), "a span of time"
    start, stop = (each.replace(microsecond=0, tzinfo=None) for each in (low, high))
    is_last = stop == datetime.datetime.max.replace(microsecond=0)
    spans = []
    for mark in " T":
        # No text of a moment is greater than this one, which no moment has.
        after = f"9999-12-31{mark}24" if is_last else (stop + _SECOND).isoformat(mark)
        spans.append((start.isoformat(mark), after))
    return spans


def prefix_of(table: SqliteTable, columns: Sequence[str]) -> tuple[KeyPart, ...]:
    """The longest start of an index, or the rowid, that consists of these columns."""
    wanted = set(columns)
    best: tuple[KeyPart, ...] = ()
    for parts in _searchable_indexes(table):
        length = next((i for i, p in enumerate(parts) if not _is_usable(p, wanted)), len(parts))
        if length > len(best):
            best = parts[:length]
    return best


def _searchable_indexes(table: SqliteTable) -> Iterator[tuple[KeyPart, ...]]:
    yield table.identity
    for key in table.keys:
        if not key.partial:
            yield key.parts


def _is_usable(part: KeyPart, wanted: set[str]) -> bool:
    return part.column in wanted and part.collation in _BUILT_IN


def lookup_query(table: SqliteTable, select: str, columns: Sequence[SqliteKeyColumn]) -> str:
    """The query for the rows `r` of a table that match the loaded keys."""
    loaded = f"temp.{key_table_of(table, columns).name}"
    prefix = prefix_of(table, [column.column for column in columns])
    relation = f"main.{quote_name(table.name)} AS r"
    numbers = {column.column: i for i, column in enumerate(columns)}
    exact = [
        column.match_condition(f"r.{quote_name(column.column)}", f"k.k{i}", "BINARY")
        for i, column in enumerate(columns)
    ]
    probe = [
        column.match_condition(f"k.k{i}", f"r.{quote_name(column.column)}", "BINARY")
        for i, column in enumerate(columns)
    ]
    checked = f"EXISTS (SELECT 1 FROM {loaded} AS k WHERE {' AND '.join(probe)})"
    if not prefix:
        return f"SELECT {select} FROM {relation} WHERE {checked}"
    led = [(numbers[part.column], part) for part in prefix]
    search = [
        columns[i].match_condition(f"r.{quote_name(part.column)}", f"k.k{i}", part.collation)
        for i, part in led
    ]
    if len(prefix) == len(columns):
        where = " AND ".join(dict.fromkeys([*search, *exact]))
        return f"SELECT {select} FROM {loaded} AS k CROSS JOIN {relation} WHERE {where}"
    drivers = f"(SELECT DISTINCT {', '.join(f'k{i}' for i, _ in led)} FROM {loaded}) AS k"
    where = " AND ".join(dict.fromkeys([*search, *(exact[i] for i, _ in led), checked]))
    return f"SELECT {select} FROM {drivers} CROSS JOIN {relation} WHERE {where}"
