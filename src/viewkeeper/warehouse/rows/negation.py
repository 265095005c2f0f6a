"""Taking everything out of a view again, by appending its opposite.

Every stored signed row is written once more with its count reversed, under one ts. The sum of the
two is nothing, and states before that ts stay what they are. Files are read and written piece by
piece, so that a view of any size is emptied in bounded memory; nothing is netted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from viewkeeper.delta.arrow_compute import pc
from viewkeeper.updates.source_protocol import COUNT, TS
from viewkeeper.warehouse.lake.data_files import stored_schema, write_stream
from viewkeeper.warehouse.lake.lake_table import ActiveFile
from viewkeeper.warehouse.lake.verified_files import read_file, translate_read_errors
from viewkeeper.warehouse.metadata.head import ViewHead
from viewkeeper.warehouse.metadata.record import DataFile
from viewkeeper.warehouse.rows.old_columns import fit_columns
from viewkeeper.warehouse.rows.view_state import files_until, table_folder


def write_negation(root: Path, view: ViewHead, ts: int, batch: int) -> tuple[DataFile, ...]:
    """Files that take every row out of the view's newest state, stamped with `ts`."""
    folder, stored = table_folder(root, view), stored_schema(view.schema)
    files = files_until(root, view, view.reach_ts)
    reversed_rows = _negated_batches(folder, view.view, files, stored, ts)
    return tuple(write_stream(folder, stored, reversed_rows, batch, 0))


def _negated_batches(
    folder: Path, view: str, files: Iterable[ActiveFile], stored: pa.Schema, ts: int
) -> Iterator[pa.RecordBatch]:
    for file in files:
        path = folder / file.path
        data = pa.BufferReader(read_file(path, file.size, view))
        with (
            translate_read_errors(path, view),
            pq.ParquetFile(data, page_checksum_verification=True) as parquet,
        ):
            for batch in parquet.iter_batches():
                stamps = pa.array([ts], pa.int64()).take(pa.array([0] * batch.num_rows, pa.int8()))
                reverse = batch.set_column(
                    batch.schema.get_field_index(COUNT), COUNT, pc.negate(batch[COUNT])
                )
                at = batch.schema.get_field_index(TS)
                signed = reverse.set_column(at, TS, stamps).replace_schema_metadata(None)
                yield from fit_columns(pa.Table.from_batches([signed]), stored).to_batches()
