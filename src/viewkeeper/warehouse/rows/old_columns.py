"""Rows of older files in the columns that a view has now.

A view that lost a column, gained one or got a wider type keeps its files as they are; the table's
own schema says what they mean from then on. What a file has too much is left out (the same row's
counts then add up wherever rows are summed), what it lacks is NULL, and narrower values are cast.
Compaction writes them anew, in time.
"""

from __future__ import annotations

import pyarrow as pa


def fit_columns(rows: pa.Table, stored: pa.Schema) -> pa.Table:
    """The rows with exactly the columns of `stored`.

    >>> rows = pa.table({"a": [1], "b": ["x"], "_count": [1]})
    >>> now = pa.schema([("a", pa.decimal128(20, 0)), ("c", pa.string()), ("_count", pa.int64())])
    >>> fit_columns(rows, now).to_pylist()
    [{'a': Decimal('1'), 'c': None, '_count': 1}]
    """
    if rows.schema.equals(stored):
        return rows
    there = set(rows.schema.names)
    arrays = [
        rows[field.name].cast(field.type)
        if field.name in there
        else pa.nulls(rows.num_rows, field.type)
        for field in stored
    ]
    return pa.table(arrays, schema=stored)
