"""How rows and changes look in Arrow, whatever kind of source they come from.

Changes have the columns that were asked for and behind them their count and position. Rows of which
no column was asked for must still be counted, and Arrow only lets a selection do that.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from viewkeeper.updates.source_protocol import COUNT, POSITION


def change_columns_of(columns: Mapping[str, pa.DataType]) -> dict[str, pa.DataType]:
    """The columns of a change batch."""
    return {**columns, COUNT: pa.int64(), POSITION: pa.int64()}


def change_schema_of(schema: pa.Schema) -> pa.Schema:
    """The schema of changes of rows that have a schema."""
    return pa.schema([*schema, (COUNT, pa.int64()), (POSITION, pa.int64())])


def batch_without_columns(rows: int) -> pa.RecordBatch:
    """So many rows of nothing: only a selection still knows how many there are.

    >>> batch_without_columns(3).num_rows
    3
    """
    return pa.record_batch([pa.nulls(rows)], names=["row"]).select([])
