"""The indexes of stored tables, kept by the process that maintains a warehouse.

A batch needs what is stored of the groups that it touches, and of views that others read the rows
with some keys. An index finds them without reading the table (`viewkeeper.stages.key_index`). It is
opened or made when a table is first asked by these columns, is brought up to the ts that is asked
for from the table, and gets what each commit adds. Whatever is wrong with one, it is made again
from the table.

A file that is torn, old or of another table is seen when it is opened. An index that is whole, but
says something else than its table, would be believed, and retractions would be written of rows that
are not there. So upkeep reads the tables whose indexes have gone along with something, and compares
(`StateIndexes.compare_table`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterator
from pathlib import Path

import pyarrow as pa

from viewkeeper.delta.algebra import COUNT, TS
from viewkeeper.delta.arrow_compute import pc
from viewkeeper.errors import StateError, reload_hint
from viewkeeper.stages.fold_layout import ROWS_COLUMN, layout_of
from viewkeeper.stages.key_index import (
    IndexDigest,
    IndexOwner,
    KeyIndex,
    digest_rows,
    open_index,
    rebuild_index,
)
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.view.definition import Fold
from viewkeeper.warehouse.metadata.head import ViewHead, owner_of
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
        self._compared: dict[tuple[str, tuple[str, ...]], int] = {}
        """As of which ts an index was last found to be what its table has."""

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

        An index that is not as of the first of them misses others too, and one from before the
        table got other columns is no more than that: the table has all, when it is next asked.
        """
        for names, index in self._open.get(head.table, {}).items():
            if index.ts == since and index.is_of_owner(_owner_of(head, names)):
                index.apply_rows(rows.select([*head.schema.names, COUNT]), until)
        if head.table in self._largest:
            added = pc.max(rows[ROWS_COLUMN]).as_py() or 0
            self._largest[head.table] = max(self._largest[head.table], added)

    def compare_table(self, head: ViewHead) -> Iterator[StateError]:
        """Compare the indexes of a table with it, if they have changed since that was last done.

        One that differs is made again, and is an error to be reported.
        """
        for names, index in self._open.get(head.table, {}).items():
            at = (head.table, names)
            # One from before the table got other columns is made again when it is next asked.
            is_current = index.is_of_owner(_owner_of(head, names)) and index.ts >= head.horizon
            if not is_current or index.ts == self._compared.get(at):
                continue
            theirs = self._digest_table(head, index.ts)
            if not index.is_sum_of(theirs):
                self._open[head.table][names] = index.rebuild_from(
                    read_stored(self._root, head, index.ts)
                )
                yield _difference_error(head, names, index, theirs)
            self._compared[at] = index.ts

    def _digest_table(self, head: ViewHead, as_of: int) -> IndexDigest:
        files = files_until(self._root, head, as_of)
        pieces = (read_signed(self._root, head, [file], until=as_of) for file in files)
        return digest_rows(pieces, head.schema)

    def forget_others(self, tables: Container[str]) -> None:
        """Let go of the indexes of all other tables: their files take room as long as they are
        mapped."""
        for table in [*self._open]:
            if table not in tables:
                del self._open[table]
                self._largest.pop(table, None)
        self._compared = {at: ts for at, ts in self._compared.items() if at[0] in tables}

    def largest_key(self, head: ViewHead) -> int | None:
        """The most rows of one group of a fold, now or since its index was opened; None if nobody
        has asked for a group yet."""
        return self._largest.get(head.table)

    def _index_at(
        self, head: ViewHead, names: tuple[str, ...], as_of: int, folder: Path
    ) -> KeyIndex:
        owner = _owner_of(head, names)
        known = self._open.setdefault(head.table, {})
        index = known.get(names)
        if index is None or not index.is_of_owner(owner) or index.ts < head.horizon:
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


def _difference_error(
    head: ViewHead, names: tuple[str, ...], index: KeyIndex, table: IndexDigest
) -> StateError:
    view, ours = owner_of(head.view), index.digest
    counts = f"{ours.rows:,} rows where the table has {table.rows:,}"
    same = f"as many rows as the table has, {table.rows:,}, but not the same ones"
    return StateError(
        f'view "{view}": the index of its table "{head.view}" by {", ".join(names)} was wrong',
        detail=f"as of ts {index.ts} it had {counts if ours.rows != table.rows else same}",
        hint="the index was made again from the table; `viewkeeper verify "
        f"{view}` says whether batches have written wrong rows meanwhile, and if so, "
        f"{reload_hint([view])}",
    )


def _owner_of(head: ViewHead, names: tuple[str, ...]) -> IndexOwner:
    return IndexOwner(head.table, head.created_ts, head.schema, names)


def _digest_names(names: tuple[str, ...]) -> str:
    return hashlib.sha256("\n".join(names).encode(), usedforsecurity=False).hexdigest()[:16]
