"""Rows of the spool: columns by number and type, and values that did not come.

A column is spooled under its number and the type that it had (`3:701`), so that neither a rename
nor another type changes what is there already. Text that was written in an earlier type reads the
same in a wider one, with one exception: a `real` has fewer digits than the `double precision` that
it becomes.

In a table whose rows are deleted by key, a large value that an update left as it was comes with
neither the old row, which is not logged, nor the new one. If the row was changed again in the range
that is read, nobody needs the value: it stays NULL. If not, the row is read by its key, in a
snapshot that has every event of that key up to there and none after. If there is one after, a
BarrierError names its position: read as one range, the value is not needed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from viewkeeper.delta.arrow_compute import pc
from viewkeeper.sources.postgres.answers.lookup import PostgresLayout
from viewkeeper.updates.source_protocol import COUNT, POSITION

ABSENT = b"\xff\xff"
"""In place of a value that did not come; no text of PostgreSQL, which is UTF-8."""
_REAL = 700


def spooled_name(number: int, kind: int) -> str:
    """
    >>> spooled_name(3, 701)
    '3:701'
    """
    return f"{number}:{kind}"


def select_spooled(batch: pa.RecordBatch, columns: Mapping[str, tuple[int, int]]) -> pa.RecordBatch:
    """The columns with these numbers by their names, as text in these types; NULL for those that
    were not there yet."""
    held: dict[int, tuple[str, int]] = {}
    for name in batch.schema.names:
        number, mark, kind = name.partition(":")
        if mark:
            held[int(number)] = (name, int(kind))
    arrays: list[Any] = []
    for wanted, now in columns.values():
        if wanted not in held:
            arrays.append(pa.nulls(batch.num_rows, pa.binary()))
            continue
        name, then = held[wanted]
        values = batch.column(name)
        arrays.append(_widen_real(values) if then == _REAL != now else values)
    arrays += [batch.column(COUNT), batch.column(POSITION)]
    return pa.RecordBatch.from_arrays(arrays, [*columns, COUNT, POSITION])


def _widen_real(values: Any) -> Any:
    """The text of a real as that of the double precision with the same value."""
    doubles = values.cast(pa.string()).cast(pa.float32()).cast(pa.float64())
    texts = [None if value is None else repr(value).encode() for value in doubles.to_pylist()]
    return pa.array(texts, pa.binary())


Key = tuple[bytes | None, ...]
Batches = Callable[[], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class IncompleteRows:
    """Rows that lack a value and are the last of their key: by their number in the range."""

    rows: Mapping[int, Key]

    @property
    def keys(self) -> list[Key]:
        return list(dict.fromkeys(self.rows.values()))


def without_absent(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """The batch with NULL for what did not come."""
    for name in names:
        column = batch.column(name)
        absent = pc.equal(column, pa.scalar(ABSENT, pa.binary()))
        if pc.any(absent, min_count=0).as_py():
            cleared = pc.if_else(absent, pa.scalar(None, pa.binary()), column)
            batch = batch.set_column(batch.schema.get_field_index(name), name, cleared)
    return batch


def find_incomplete(batches: Batches, key: Sequence[str], names: Sequence[str]) -> IncompleteRows:
    """The rows of a range that have to be completed."""
    lacking = {
        row for batch in batches() for row, lacks in _keys_lacking(batch, key, names) if lacks
    }
    if not lacking:
        return IncompleteRows({})
    last: dict[Key, tuple[int, bool]] = {}
    number = 0
    for batch in batches():
        for row, lacks in _keys_lacking(batch, key, names):
            if row in lacking:
                last[row] = (number, lacks)
            number += 1
    return IncompleteRows({at: row for row, (at, lacks) in last.items() if lacks})


def _keys_lacking(
    batch: pa.RecordBatch, key: Sequence[str], names: Sequence[str]
) -> Iterator[tuple[Key, bool]]:
    """Per row its key, and whether it lacks one of the named values."""
    lacks: Any = pa.repeat(pa.scalar(False), batch.num_rows)
    for name in names:
        absent: Any = pc.equal(batch.column(name), pa.scalar(ABSENT, pa.binary()))
        lacks = pc.or_(lacks, absent.fill_null(False))
    columns = [batch.column(name).to_pylist() for name in key]
    return zip(zip(*columns, strict=True), lacks.to_pylist(), strict=True)


def later_event(
    batches: Iterable[pa.RecordBatch],
    key: Sequence[str],
    keys: Sequence[Key],
    holes: Collection[int],
) -> int | None:
    """The last position at which one of these keys was changed, leaving out what is not visible."""
    asked, last = set(keys), None
    for batch in batches:
        positions = batch.column(POSITION).to_pylist()
        for (row, _), position in zip(_keys_lacking(batch, key, ()), positions, strict=True):
            if row in asked and position not in holes:
                last = position
    return last


def complete_rows(
    batches: Batches,
    shape: PostgresLayout,
    rows: IncompleteRows,
    values: Mapping[Key, Mapping[str, object]],
) -> Iterator[pa.RecordBatch]:
    """The batches typed, with the values that were read put in."""
    number = 0
    for batch in batches():
        typed = shape.from_spool(without_absent(batch, shape.names))
        inside = {at - number: k for at, k in rows.rows.items() if 0 <= at - number < len(batch)}
        for index, name in enumerate(shape.names):
            places = {
                at: values[key][name]
                for at, key in inside.items()
                if batch.column(name)[at].as_py() == ABSENT
            }
            if places:
                column = typed.column(name).to_pylist()
                for at, value in places.items():
                    column[at] = value
                typed = typed.set_column(index, name, pa.array(column, shape.kinds[index].arrow))
        number += len(batch)
        yield typed.select([*shape.names, COUNT, POSITION])
