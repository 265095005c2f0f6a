"""Many small files into one, inline: the same signed rows, the same ts, fewer files.

Commits and opens slow down with the number of files, so the engine does this about every fifty
commits. Only the tail is touched, small files beyond the horizon; the body, which may be large,
stays as it is. No state changes, so the log entry says that no data changed. The checkpoint that
goes with every rewrite keeps the log short to read.
"""

from __future__ import annotations

from viewkeeper.warehouse.lake import data_files
from viewkeeper.warehouse.metadata.head import Head
from viewkeeper.warehouse.metadata.record import Rewrite
from viewkeeper.warehouse.rows.view_state import read_signed
from viewkeeper.warehouse.store import Store

SMALL_ROWS = 200_000


def merge_tail(store: Store, view: str, small_rows: int = SMALL_ROWS) -> Head:
    """Merge a view's small tail files into one; does nothing where there is one or none."""
    store.group.flush_tables()
    head = store.head.require_view(view)
    tail = [f for f in store.active_files(view) if f.ts_min > head.horizon and f.rows < small_rows]
    # The table is what the head says, unless somebody else has taken over since.
    store.confirm_lock()
    if len(tail) < 2:
        return store.head
    tail.sort(key=lambda file: (file.ts_min, file.path))
    rows = read_signed(store.root, head, tail, until=head.reach_ts)
    merged = data_files.write_rows(
        store.folder_of(view), head.schema, rows, store.head.record + 1, 0
    )
    assert merged.rows == sum(file.rows for file in tail), "merging changes no row"
    return store.commit([Rewrite(view, (merged,), tuple(file.path for file in tail))])
