"""The indexes of stored tables, kept by the process that maintains a warehouse.

A batch needs what is stored of the groups that it touches, and of views that others read the rows
with some keys. An index finds them without reading the table (`viewkeeper.stages.key_index`). It is
opened or made when a table is first asked by these columns, is brought up to the ts that is asked
for from the table, and gets what each commit adds. Whatever is wrong with one, it is made again
from the table.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyarrow as pa

from viewkeeper.delta.algebra import COUNT, TS
from viewkeeper.delta.arrow_compute import pc
from viewkeeper.stages.fold_layout import ROWS_COLUMN, layout_of
from viewkeeper.stages.key_index import IndexOwner, KeyIndex, open_index, rebuild_index
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.view.definition import Fold
from viewkeeper.warehouse.metadata.head import ViewHead
from viewkeeper.warehouse.rows.view_state import files_until, read_signed, read_stored

FOLDER = "indexes"
ROWS_MAX = 2_000_000
"""Larger tables have no indexes but those of their groups: others ask them by reading files."""


class StateIndexes:
    """The indexes of one warehouse, by the tables that they are of."""

    def __init__(self, root: StoragePath, local: Path) -> None:
        self._root = root
        self._local = local
        self._open: dict[str, dict[tuple[str, ...], KeyIndex]] = {}
        """Per table, its indexes by their columns."""
        self._largest: dict[str, int] = {}

    def find_groups(self, head: ViewHead, fold: Fold, keys: pa.Table, as_of: int) -> pa.Table:
        """What is stored of these groups of a fold as of a ts, hidden columns too."""
        names = layout_of(fold).group_columns
        if not names:
            return read_stored(self._root, head, as_of).drop_columns([COUNT])
        index = self._index_at(head, names, as_of, self._local / FOLDER / head.table)
        if self._largest.get(head.table) is None:
            self._largest[head.table] = index.largest_value(ROWS_COLUMN)
        return index.find_rows(keys.rename_columns(list(names))).drop_columns([COUNT])

    def find_stored(self, head: ViewHead, keys: pa.Table, as_of: int) -> pa.Table | None:
        """The rows of a table with these keys as of a ts, each with its count; None where files
        have to be read: for too many rows, a past ts, or keys of another type."""
        names = tuple(sorted(keys.column_names))
        if head.rows > ROWS_MAX or any(head.schema.field(n).type != keys[n].type for n in names):
            return None
        known = self._open.get(head.table, {})
        names = next((each for each in known if {*each} == {*names}), names)
        if names in known and known[names].ts > as_of:
            return None
        folder = self._local / FOLDER / head.table / f"by-{_digest_names(names)}"
        return self._index_at(head, names, as_of, folder).find_rows(keys)

    def note_rows(self, head: ViewHead, rows: pa.Table, since: int, until: int) -> None:
        """Signed rows were committed that take a table from one ts to another.

        An index that is not as of the first of them misses others too: the table has them, when it
        is next asked.
        """
        for index in self._open.get(head.table, {}).values():
            if index.ts == since:
                index.apply_rows(rows.select([*head.schema.names, COUNT]), until)
        if head.table in self._largest:
            added = pc.max(rows[ROWS_COLUMN]).as_py() or 0
            self._largest[head.table] = max(self._largest[head.table], added)

    def largest_key(self, head: ViewHead) -> int | None:
        """The most rows of one group of a fold, now or since its index was opened; None if nobody
        has asked for a group yet."""
        return self._largest.get(head.table)

    def _index_at(
        self, head: ViewHead, names: tuple[str, ...], as_of: int, folder: Path
    ) -> KeyIndex:
        owner = IndexOwner(head.table, head.created_ts, head.schema, names)
        known = self._open.setdefault(head.table, {})
        index = known.get(names)
        if index is None or index.ts < head.horizon:
            index = open_index(folder, owner, head.horizon, as_of)
        if index is not None and index.ts < as_of:
            index.apply_rows(self._rows_between(head, index.ts, as_of), as_of)
        if index is None or index.ts != as_of:
            rows = read_stored(self._root, head, as_of)
            index = rebuild_index(folder, owner, [rows], as_of)
        known[names] = index
        return index

    def _rows_between(self, head: ViewHead, since: int, until: int) -> pa.Table:
        files = [f for f in files_until(self._root, head, until) if f.ts_max > since]
        rows = read_signed(self._root, head, files, after=since, until=until)
        return rows.filter(pc.field(TS) > since).drop_columns([TS])


def _digest_names(names: tuple[str, ...]) -> str:
    return hashlib.sha256("\n".join(names).encode(), usedforsecurity=False).hexdigest()[:16]
