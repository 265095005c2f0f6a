"""The transaction that is being read, and those that have ended but are not in the spool yet.

What must hold: rows reach the spool in commit order, and a transaction is in it whole or not at
all. So everything that has ended is converted first and written then. A value that cannot be kept
ends what is written before the transaction that has it.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from viewkeeper.sources.mariadb.binlog.rows import (
    PIECE_ROWS,
    BinlogLayout,
    TableRows,
    ValueMisfitError,
)
from viewkeeper.sources.stream.spool import Spool, StreamedTransaction
from viewkeeper.sources.stream.stage import TransactionStage
from viewkeeper.updates.source_protocol import POSITION


class MisfitAtError(ValueError):
    """A value of a table cannot be kept; everything before its transaction is in the spool."""

    def __init__(self, layout: BinlogLayout, error: ValueMisfitError) -> None:
        super().__init__(f'table "{layout.full_name}", {error}')
        self.table = layout.table


class TransactionBuffer:
    """Rows on their way to the spool."""

    def __init__(self, spool: Spool, home: Path) -> None:
        self._spool = spool
        self._home = home
        self._rows: dict[str, TableRows] = {}
        self._pieces = TransactionStage(home)
        self._savepoints: dict[str, int] = {}
        self._emptied: tuple[str, ...] = ()
        self._ended: list[StreamedTransaction] = []

    @property
    def ended_count(self) -> int:
        """How many transactions have ended since the spool was written."""
        return len(self._ended)

    def rows_of_table(self, layout: BinlogLayout) -> TableRows:
        """Where the rows of a table go; the table may have got another shape."""
        found = self._rows.get(layout.table)
        if found is None or found.layout is not layout:
            if found is not None:
                self.make_room(found)
            found = self._rows[layout.table] = TableRows(layout)
        return found

    def make_room(self, rows: TableRows) -> None:
        """Bring rows out of memory, those of the transaction being read as a piece."""
        self.flush_to_spool()
        self._put_aside(rows)

    def is_full(self, rows: TableRows) -> bool:
        return len(rows.counts) >= PIECE_ROWS

    def note_emptied(self, tables: tuple[str, ...]) -> None:
        self._emptied += tables

    def set_savepoint(self, name: str) -> None:
        self._put_all_aside()
        self._savepoints[name] = len(self._pieces)

    def roll_back(self, savepoint: str | None = None) -> None:
        """Forget what the transaction did, or what it did after a savepoint."""
        for rows in self._rows.values():
            rows.keep_first(len(rows.positions))
        self._pieces.keep_first(0 if savepoint is None else self._savepoints.get(savepoint, 0))

    def end_transaction(self, position: int, time: int, *, reshaped: bool) -> bool:
        """The transaction has ended, at this position; whether it did anything."""
        changes = self._pieces.row_count + sum(rows.open_count for rows in self._rows.values())
        if self._pieces:
            self.flush_to_spool()
            for table, piece in self._pieces:
                positions = pa.repeat(pa.scalar(position, pa.int64()), piece.num_rows)
                self._spool.write_batch(table, piece.append_column(POSITION, positions))
        for rows in self._rows.values():
            rows.commit_open(position)
        has_effect = bool(changes or self._emptied or reshaped)
        if has_effect:
            self._ended.append(
                StreamedTransaction(position, float(time), changes, emptied=self._emptied)
            )
        self._begin_transaction()
        return has_effect

    def abandon_transaction(self) -> None:
        """The transaction that was being read has no end here."""
        self.roll_back()
        self._begin_transaction()

    def _begin_transaction(self) -> None:
        self._pieces.keep_first(0)
        self._savepoints, self._emptied = {}, ()

    def take_aside(self) -> TransactionStage:
        """All of the transaction that is being read, which is here no longer."""
        self._put_all_aside()
        found, self._pieces = self._pieces, TransactionStage(self._home)
        return found

    def bring_back(self, pieces: TransactionStage) -> None:
        self._pieces.keep_first(0)
        self._pieces = pieces

    def _put_all_aside(self) -> None:
        self.flush_to_spool()
        for rows in self._rows.values():
            self._put_aside(rows)

    def _put_aside(self, rows: TableRows) -> None:
        if rows.open_count:
            try:
                piece = rows.take_open()
            except ValueMisfitError as error:
                raise MisfitAtError(rows.layout, error) from None
            self._pieces.add_batch(rows.layout.table, piece)

    def flush_to_spool(self) -> None:
        """Bring what has ended into the spool; a MisfitAtError after all that can be brought."""
        full = [rows for rows in self._rows.values() if rows.positions]
        try:
            ready = [(rows, self._committed_batch(rows)) for rows in full]
        except _HereError as here:
            self._keep_before(here.position)
            self.flush_to_spool()
            raise here.error from None
        for rows, batch in ready:
            self._spool.write_batch(rows.layout.table, batch)
            rows.drop_committed()
        for transaction in self._ended:
            self._spool.end_transaction(transaction)
        self._ended = []

    def _committed_batch(self, rows: TableRows) -> pa.RecordBatch:
        try:
            return rows.committed_batch()
        except ValueMisfitError as error:
            position = rows.positions[error.index]
            raise _HereError(position, MisfitAtError(rows.layout, error)) from None

    def _keep_before(self, position: int) -> None:
        for rows in self._rows.values():
            rows.keep_first(rows.count_before(position))
        self._ended = [one for one in self._ended if one.position < position]


class _HereError(Exception):
    def __init__(self, position: int, error: MisfitAtError) -> None:
        super().__init__(str(error))
        self.position = position
        self.error = error
