"""Stored rows by the values of some columns, without reading the whole view.

All searches of one commit go together, so that a stored row is found once, whichever of them it
answers. A search finds a superset; but the signed rows of a tuple are found all together or not at
all, so their sums are right.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from viewkeeper.delta.arrow_compute import pc
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.updates.source_protocol import TS
from viewkeeper.warehouse.lake.data_files import stored_schema
from viewkeeper.warehouse.metadata.head import ViewHead
from viewkeeper.warehouse.rows.file_search import Search, fit_columns, search_file, search_rows
from viewkeeper.warehouse.rows.view_state import (
    files_until,
    state_ts,
    sum_rows,
    table_folder,
    unflushed_rows,
)


def find_rows(
    root: StoragePath, view: ViewHead, searches: Sequence[Search], as_of: int | None = None
) -> pa.Table:
    """The rows stored as of a ts, the newest if none is given, that answer a search, and perhaps
    more.

    Each is there once, hidden columns too, with its non-zero `_count`.
    """
    folder = table_folder(root, view)
    until = state_ts(view, as_of)
    stored = stored_schema(view.schema)
    plain = pa.schema([field for field in stored if field.name != TS])
    pieces = [plain.empty_table()]
    for file in files_until(root, view, until) if searches else []:
        cut = file.ts_max > until
        wanted, unflushed = stored if cut else plain, unflushed_rows(view, file)
        if unflushed is None:
            answers = [rows for _, rows in search_file(folder, view.view, file, wanted, searches)]
        else:
            answers = [search_rows(fit_columns(unflushed, wanted), searches)]
        for piece in answers:
            found = piece.filter(pc.field(TS) <= until) if cut else piece
            pieces.append(found.select(plain.names))
    return sum_rows(pa.concat_tables(pieces))
