"""A source in memory: what a source is by definition, for tests and simulation.

Every commit is a transaction with its own position. A snapshot may be opened at any cut, also one
with holes, which is how the races of real databases are tried out without them.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from viewkeeper.delta.arrow_compute import pc
from viewkeeper.errors import SchemaError
from viewkeeper.updates.cut import Cut
from viewkeeper.updates.source_protocol import (
    COUNT,
    POSITION,
    Answer,
    Boundary,
    CurrentNames,
    KeyRange,
    Lookup,
    Scan,
    TableBatches,
    TableDescription,
)
from viewkeeper.view.definition import Field, Relation
from viewkeeper.view.local_condition import LocalCondition, spans_of

Row = tuple[Any, ...]
Delta = Mapping[str, Sequence[tuple[Row, int]]]
"""Per table: rows with signed counts."""


class MemorySource:
    """Tables as lists of signed rows, by position."""

    def __init__(
        self,
        name: str,
        tables: Mapping[str, tuple[Field, ...]],
        initial: Mapping[str, Mapping[Row, int]] | None = None,
        keys: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        self.name = name
        self._tables = dict(tables)
        self._initial = {table: Counter(rows) for table, rows in (initial or {}).items()}
        self._keys = dict(keys or {})
        self._log: list[tuple[int, Delta]] = []

    def commit(self, delta: Delta) -> int:
        """Append a transaction; its position."""
        position = len(self._log) + 1
        self._log.append((position, delta))
        return position

    def describe_table(self, handle: str) -> TableDescription:
        """A table with the key that the maker of this source promised to keep."""
        if handle not in self._tables:
            raise SchemaError(self.name, f'table "{handle}" does not exist')
        fields, key = self._tables[handle], self._keys.get(handle, ())
        names = {field.name: field.name for field in fields}
        assert names.keys() >= set(key), f"{key} are not among the columns of {handle}"
        return TableDescription(CurrentNames(handle, names), fields, key=key)

    def look_for_transactions(self, after: int) -> tuple[Boundary, ...]:
        return tuple(
            Boundary(position, 0.0, sum(len(rows) for rows in delta.values()))
            for position, delta in self._log[after:]
        )

    def read_changes(
        self, tables: Mapping[str, Sequence[str]], after: int, until: int
    ) -> TableBatches:
        for table, columns in tables.items():
            for batch in self._changes_under(table, columns, after, Cut(until)).to_batches():
                yield table, batch

    def open_snapshot(self, cut: Cut | None = None) -> MemorySnapshot:
        return MemorySnapshot(self, cut or Cut(len(self._log)))

    def rows_under(self, table: str, cut: Cut) -> Counter[Row]:
        """The rows of a table under a cut, with counts; a hole may make a count negative."""
        rows = Counter(self._initial.get(table, Counter()))
        for position, delta in self._log:
            if cut.includes(position):
                for row, count in delta.get(table, ()):
                    rows[row] += count
        return rows

    def _changes_under(self, table: str, columns: Sequence[str], after: int, cut: Cut) -> pa.Table:
        rows = [
            (*row, count, position)
            for position, delta in self._log[after:]
            if cut.includes(position)
            for row, count in delta.get(table, ())
        ]
        extra = (Field(COUNT, pa.int64()), Field(POSITION, pa.int64()))
        whole = _arrow_table(rows, (*self._tables[table], *extra))
        return whole.select([*columns, COUNT, POSITION])


class MemorySnapshot:
    """One cut of a memory source."""

    def __init__(self, source: MemorySource, cut: Cut) -> None:
        self._source = source
        self._cut = cut

    def answer_lookup(self, lookup: Lookup, after: int) -> Answer:
        table = lookup.relation.table
        rows = self._rows_of(table).select(list(lookup.columns))
        if lookup.keys is not None:
            keys = {tuple(key.values()) for key in lookup.keys.to_pylist()}
            found = zip(*(rows[name].to_pylist() for name in lookup.on), strict=True)
            rows = rows.filter(pa.array([key in keys for key in found], pa.bool_()))
        for condition in lookup.conditions:
            rows = rows.filter(_meets_condition(rows[condition.column], condition))
        tail = self._source._changes_under(table, lookup.columns, after, self._cut)
        return Answer(rows, self._cut, after, tail)

    def find_key_range(self, relation: Relation, columns: Sequence[str]) -> KeyRange | None:
        """What is in memory is there at once."""
        return None

    def scan_relation(
        self,
        relation: Relation,
        columns: Sequence[str],
        after: int,
        part: KeyRange | None = None,
    ) -> Scan:
        table = relation.table
        tail = self._source._changes_under(table, columns, after, self._cut)
        rows = self._rows_of(table).select(list(columns))
        return Scan(self._cut, iter(rows.to_batches()), iter(tail.to_batches()))

    def close(self) -> None:
        pass

    def _rows_of(self, table: str) -> pa.Table:
        counts = self._source.rows_under(table, self._cut)
        assert all(count >= 0 for count in counts.values()), "a cut must be a possible state"
        return _arrow_table(counts.elements(), self._source.describe_table(table).fields)


def _meets_condition(values: Any, condition: LocalCondition) -> Any:
    """Which values meet a condition; NULL does not."""
    if condition.operator == "within":
        inside = [
            pc.and_(
                pc.greater_equal(values, pa.scalar(low, condition.type)),
                pc.less_equal(values, pa.scalar(high, condition.type)),
            )
            for low, high in spans_of(condition)
        ]
        return functools.reduce(pc.or_, inside)
    if condition.operator == "in":
        return pc.is_in(values, value_set=pa.array(condition.values, condition.type))
    compare = {
        "<": pc.less,
        "<=": pc.less_equal,
        ">": pc.greater,
        ">=": pc.greater_equal,
    }[condition.operator]
    return compare(values, pa.scalar(condition.values[0], condition.type))


def _arrow_table(rows: Iterable[Row], fields: tuple[Field, ...]) -> pa.Table:
    """Rows as Arrow has them; kept, because a simulation asks for the same few again and again.

    Not those with floats: zeros of either sign are equal, and only one of them would be kept.
    """
    has_floats = any(pa.types.is_floating(field.type) for field in fields)
    return (_make_table if has_floats else _kept_table)(tuple(rows), fields)


def _make_table(rows: tuple[Row, ...], fields: tuple[Field, ...]) -> pa.Table:
    if not rows:
        return pa.schema([(field.name, field.type) for field in fields]).empty_table()
    columns = zip(*rows, strict=True)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, fields, strict=True)]
    return pa.table(arrays, names=[field.name for field in fields])


_kept_table = lru_cache(maxsize=1024)(_make_table)
