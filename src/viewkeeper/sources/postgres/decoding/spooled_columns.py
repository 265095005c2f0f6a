"""Changes in the spool: columns by number and type, brought to the names and types of now.

A column is spooled under its number and the type that it had (`3:701`), so that neither a rename
nor another type changes what is there already. Text that was written in an earlier type reads the
same in a wider one, with one exception: a `real` has fewer digits than the `double precision` that
it becomes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from viewkeeper.updates.source_protocol import COUNT, POSITION

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
