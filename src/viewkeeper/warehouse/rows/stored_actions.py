"""Changes that depend on what is stored, turned into the signed rows that carry them out.

Some algorithms do not compute signed rows: they delete by key, insert what is not there yet, or
replace everything. Here such actions are evaluated, in order, against the newest stored state, and
what comes out is appended like any other rows: the log stays signed rows only, and as-of reads,
changes and compaction know of nothing else.

`apply_actions` is the meaning, a pure function of the stored rows; `evaluate_actions` reads just
those stored rows that the actions can touch. Values are compared as they are stored: NULL is a
value like any other, NaN equals itself.

To empty a view, every stored signed row is written once more with its count reversed, under one ts.
The sum of the two is nothing, and states before that ts stay what they are. Files are read and
written piece by piece, so that a view of any size is emptied in bounded memory; nothing is netted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from viewkeeper.delta.arrow_compute import pc
from viewkeeper.delta.kernel import canonical_floats, matching_pairs
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.updates.source_protocol import COUNT, TS
from viewkeeper.updates.view_actions import DeleteKeys, InsertMissing, ReplaceRows, StoredAction
from viewkeeper.warehouse.lake.data_files import stored_schema, write_stream
from viewkeeper.warehouse.lake.listed_files import ActiveFile
from viewkeeper.warehouse.lake.verified_files import read_file, translate_read_errors
from viewkeeper.warehouse.metadata.head import ViewHead
from viewkeeper.warehouse.metadata.record import DataFile
from viewkeeper.warehouse.rows.file_search import Search, fit_columns, search_for
from viewkeeper.warehouse.rows.lookup import find_rows
from viewkeeper.warehouse.rows.view_state import (
    files_until,
    read_stored,
    sum_rows,
    table_folder,
    unflushed_rows,
)


def evaluate_actions(
    root: StoragePath, view: ViewHead, actions: Sequence[StoredAction]
) -> pa.Table:
    """The signed rows that carry out actions, in order, on a view's newest stored state.

    The stored columns and `_count`; one row per tuple, no zeros, none that is not needed.
    """
    exact = [_exact_action(action, view.schema) for action in actions]
    if any(isinstance(action, ReplaceRows) for action in exact):
        return apply_actions(read_stored(root, view), exact)
    return apply_actions(find_rows(root, view, [*_searches_for(exact)]), exact)


def apply_actions(rows: pa.Table, actions: Iterable[StoredAction]) -> pa.Table:
    """What actions change in stored rows (each once, with `_count`), as signed rows.

    >>> rows = pa.table({"k": [1, 2], "v": ["a", "b"], "_count": [1, 1]})
    >>> delete = DeleteKeys(("k",), pa.table({"k": [2, 3]}))
    >>> insert = InsertMissing(pa.table({"k": [1, 4, 4], "v": ["a", "d", "d"]}))
    >>> apply_actions(rows, [delete, insert]).sort_by("k").to_pylist()
    [{'k': 2, 'v': 'b', '_count': -1}, {'k': 4, 'v': 'd', '_count': 1}]
    """
    made = [rows.slice(0, 0)]
    for action in actions:
        # Only the next action needs the state that this one leaves.
        rows = sum_rows(pa.concat_tables([rows, made[-1]])) if made[-1].num_rows else rows
        made.append(_change_of(rows, action))
    return sum_rows(pa.concat_tables(made))


def _change_of(rows: pa.Table, action: StoredAction) -> pa.Table:
    match action:
        case DeleteKeys(columns, keys):
            hit, _ = _matching_pairs(rows, keys, columns)
            return _negate_rows(rows.take(pc.unique(hit)))
        case InsertMissing(new):
            return _insert_missing(rows, new)
        case ReplaceRows(bag):
            return sum_rows(pa.concat_tables([bag, _negate_rows(rows)]))
        case _:
            assert_never(action)


def _insert_missing(rows: pa.Table, new: pa.Table) -> pa.Table:
    """What makes each of the new rows occur at least once."""
    names = new.column_names
    once = sum_rows(new.append_column(COUNT, pa.array(np.ones(new.num_rows, np.int64))))
    there, found = _matching_pairs(rows, once, names)
    counts = np.zeros(once.num_rows, np.int64)
    counts[found.to_numpy()] = rows[COUNT].take(there).to_numpy()
    lacking = once.set_column(len(names), COUNT, pa.array(1 - counts))
    return lacking.filter(pa.array(counts < 1))


def _matching_pairs(left: pa.Table, right: pa.Table, columns: Sequence[str]) -> tuple[Any, Any]:
    return matching_pairs(
        [(left[name], True) for name in columns],
        [(right[name], True) for name in columns],
        (left.num_rows, right.num_rows),
    )


def _negate_rows(rows: pa.Table) -> pa.Table:
    return rows.set_column(rows.num_columns - 1, COUNT, pc.negate(rows[COUNT]))


def _searches_for(actions: Iterable[StoredAction]) -> Iterable[Search]:
    """What must be read for these actions; key deletes by the same columns are one search."""
    keys: dict[tuple[str, ...], list[pa.Table]] = {}
    for action in actions:
        match action:
            case DeleteKeys():
                keys.setdefault(action.columns, []).append(action.keys)
            case InsertMissing():
                keys.setdefault(_cheap_columns(action.rows.schema), []).append(action.rows)
            case ReplaceRows():
                pass
            case _:
                assert_never(action)
    for columns, tables in keys.items():
        together = pa.concat_tables([table.select(list(columns)) for table in tables])
        if together.num_rows:
            yield search_for(together)


def _cheap_columns(schema: pa.Schema) -> tuple[str, ...]:
    """The columns by which rows are searched for that must agree in all of them.

    Those of fixed width are read fastest, and keys are mostly among them.
    """
    fixed = [f.name for f in schema if pa.types.is_primitive(f.type)]
    return tuple(fixed or schema.names)


def _exact_action(action: StoredAction, schema: pa.Schema) -> StoredAction:
    """The same with columns in the stored order, of the stored types, and canonical values."""
    match action:
        case DeleteKeys(columns, keys):
            fields = [schema.field(name) for name in columns]
            return DeleteKeys(columns, _cast_rows(keys, pa.schema(fields)))
        case InsertMissing(rows):
            return InsertMissing(_cast_rows(rows, schema))
        case ReplaceRows(rows):
            return ReplaceRows(_cast_rows(rows, pa.schema([*schema, pa.field(COUNT, pa.int64())])))
        case _:
            assert_never(action)


def _cast_rows(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    arrays = [canonical_floats(rows[field.name].cast(field.type)) for field in schema]
    return pa.table(arrays, schema=schema)


def write_negation(root: StoragePath, view: ViewHead, ts: int, batch: int) -> tuple[DataFile, ...]:
    """Files that take every row out of the view's newest state, stamped with `ts`."""
    folder, stored = table_folder(root, view), stored_schema(view.schema)
    files = files_until(root, view, view.reach_ts)
    reversed_rows = (
        piece for file in files for piece in _negated_batches(folder, view, file, stored, ts)
    )
    return tuple(write_stream(folder, stored, reversed_rows, batch, 0))


def _negated_batches(
    folder: StoragePath, view: ViewHead, file: ActiveFile, stored: pa.Schema, ts: int
) -> Iterator[pa.RecordBatch]:
    for batch in _file_batches(folder, view, file):
        stamps = pa.array([ts], pa.int64()).take(pa.array([0] * batch.num_rows, pa.int8()))
        reverse = batch.set_column(
            batch.schema.get_field_index(COUNT), COUNT, pc.negate(batch[COUNT])
        )
        at = batch.schema.get_field_index(TS)
        signed = reverse.set_column(at, TS, stamps).replace_schema_metadata(None)
        yield from fit_columns(pa.Table.from_batches([signed]), stored).to_batches()


def _file_batches(
    folder: StoragePath, view: ViewHead, file: ActiveFile
) -> Iterator[pa.RecordBatch]:
    unflushed = unflushed_rows(view, file)
    if unflushed is not None:
        yield from unflushed.to_batches()
        return
    path = folder / file.path
    data = pa.BufferReader(read_file(path, file.size, view.view))
    with (
        translate_read_errors(path, view.view),
        pq.ParquetFile(data, page_checksum_verification=True) as parquet,
    ):
        yield from parquet.iter_batches()
