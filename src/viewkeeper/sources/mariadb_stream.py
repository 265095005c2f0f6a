"""The transactions of a MariaDB server, in commit order, from its binlog into a spool.

Every transaction begins with a GTID event. One that changed rows ends with an XID event, or with
COMMIT as a statement; a change of a table is a transaction of its own, one statement long. The
rows of followed tables are kept, everything else only moves the position on.

What must hold: a transaction is in the spool whole or not at all, and positions only grow. A
stream that meets something that it cannot carry exactly (a followed table changed its shape, a
value fits no type, a statement changed rows without listing them) *halts* before it: what came
before is in the spool, and `halted` says what stands in the way.

A prepared XA transaction has its rows in the log when it is prepared and counts when it is
committed, which is another, later transaction of the log. Its rows wait; if it was prepared before
where the reading began, the log is searched backwards for it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from viewkeeper.errors import ConversionError, GapError, SchemaError, SourceAwayError, SourceError
from viewkeeper.sources.mariadb_ddl import Emptied, Followed, Reshaped, Unlisted, effect_of
from viewkeeper.sources.mariadb_log import Event, Log, Type, length_coded, uncompressed
from viewkeeper.sources.mariadb_log_table import read_log_table
from viewkeeper.sources.mariadb_open import Server
from viewkeeper.sources.mariadb_rows import (
    PIECE_ROWS,
    ChangedError,
    Columns,
    Layout,
    Pieces,
    TableRows,
    ValueMisfitError,
    layout_of,
)
from viewkeeper.sources.spool import Spool, Streamed
from viewkeeper.updates.protocol import POSITION

_STANDALONE, _GROUP_COMMIT, _PREPARED, _COMPLETED = 1, 2, 64, 128
_INSERTED, _DELETED, _UPDATED = (1,), (-1,), (-1, 1)
_ROWS = {
    Type.WRITE_V1: _INSERTED,
    Type.WRITE: _INSERTED,
    Type.WRITE_COMPRESSED_V1: _INSERTED,
    Type.WRITE_COMPRESSED: _INSERTED,
    Type.UPDATE_V1: _UPDATED,
    Type.UPDATE: _UPDATED,
    Type.UPDATE_COMPRESSED_V1: _UPDATED,
    Type.UPDATE_COMPRESSED: _UPDATED,
    Type.DELETE_V1: _DELETED,
    Type.DELETE: _DELETED,
    Type.DELETE_COMPRESSED_V1: _DELETED,
    Type.DELETE_COMPRESSED: _DELETED,
}
_SIGNS: Mapping[int, Sequence[int]] = {int(kind): signs for kind, signs in _ROWS.items()}
_SECOND_FORM = {
    int(kind)
    for kind in (
        Type.WRITE,
        Type.UPDATE,
        Type.DELETE,
        Type.WRITE_COMPRESSED,
        Type.UPDATE_COMPRESSED,
        Type.DELETE_COMPRESSED,
    )
}
_QUERY_HEADER, _LOAD_HEADER = 13, 26
_CHECK_EVENTS = 64


@dataclass(frozen=True, slots=True)
class Tables:
    """What a stream keeps: the columns of each followed table, by its full name."""

    columns: Mapping[str, Columns]
    folds: bool = False
    strict: bool = False

    def followed(self) -> Followed:
        names = {
            table: frozenset(name.lower() for name, _ in columns)
            for table, columns in self.columns.items()
        }
        return Followed(names, self.folds)


class Stream:
    """Reads from a position on, into a spool."""

    def __init__(
        self,
        server: Server,
        tables: Tables,
        start: int,
        spool: Spool,
        server_id: int,
        home: Path,
        *,
        blocking: bool,
    ) -> None:
        self._server = server
        self._tables = tables
        self._followed = tables.followed()
        self._spool = spool
        self._server_id = server_id
        self._blocking = blocking
        self._log: Log | None = None
        self._events: Iterator[Event] = iter(())
        self._layouts: dict[bytes, Layout | ChangedError | None] = {}
        self._maps: dict[bytes, Layout | ChangedError | None] = {}
        self._rows: dict[str, TableRows] = {}
        self._pieces = Pieces(home)
        self._prepared: dict[bytes, Pieces] = {}
        self._savepoints: dict[str, tuple[int, dict[str, int]]] = {}
        self._ended: list[Streamed] = []
        self._in_group = False
        self._flags = 0
        self._xid = b""
        self._emptied: tuple[str, ...] = ()
        self.position = start
        self.halted: SourceError | None = None

    def advance(self, until: int, seconds: float, transactions: int) -> None:
        """Read up to a position that the log is known to have, or until a limit is reached.

        A connection that was lost is made again once, from the last transaction that has ended.
        """
        end = time.monotonic() + seconds
        try:
            self._read(until, end, transactions)
        except SourceAwayError:
            self.disconnect()
            self._read(until, end, transactions)
        finally:
            self._flush()

    def _read(self, until: int, end: float, transactions: int) -> None:
        if self.position >= until or self.halted:
            return
        if self._log is None:
            self._log = Log(self._server, self._server_id, self.position, blocking=self._blocking)
            self._events = self._log.events()
        for number, event in enumerate(self._events):
            try:
                self._take(event)
            except _HaltError as halt:
                self._halt(halt.error)
                return
            if self.halted or (self.position >= until and not self._in_group):
                return
            if number % _CHECK_EVENTS == 0 and time.monotonic() > end:
                return
            if len(self._ended) >= transactions:
                return
        raise SourceAwayError(self._server.source, "the server ended its binlog early")

    def disconnect(self) -> None:
        """Forget the connection and the transaction that was being read."""
        if self._log is not None:
            self._log.close()
        self._log, self._events = None, iter(())
        self._abandon()

    def _take(self, event: Event) -> None:
        kind = event.type
        signs = _SIGNS.get(kind)
        if signs is not None:
            self._take_rows(event, signs)
        elif kind == Type.TABLE_MAP:
            self._take_map(event.body)
        elif kind == Type.GTID:
            self._begin(event)
        elif kind == Type.XID:
            self._end(event)
        elif kind in (Type.QUERY, Type.QUERY_COMPRESSED):
            self._take_statement(event, _QUERY_HEADER)
        elif kind == Type.LOAD_STATEMENT:
            self._take_statement(event, _LOAD_HEADER)
        elif kind == Type.XA_PREPARE:
            self._prepare(event)
        elif kind == Type.INCIDENT:
            raise _HaltError(self._lost("the server could not write something to its binlog"))
        elif kind == Type.FORMAT:
            # A server that was killed may leave a transaction without an end.
            self._abandon()
        if not self._in_group:
            self.position = max(self.position, event.position)

    def _begin(self, event: Event) -> None:
        self._abandon()
        self._in_group = True
        self._flags = flags = event.body[12]
        if flags & (_PREPARED | _COMPLETED):
            self._xid = event.body[13 + (8 if flags & _GROUP_COMMIT else 0) :]

    def _take_map(self, body: bytes) -> None:
        described = body[8:]
        if described not in self._layouts:
            self._layouts[described] = self._layout(described)
        self._maps[body[:6]] = self._layouts[described]

    def _layout(self, described: bytes) -> Layout | ChangedError | None:
        log = read_log_table(described)
        table = self._followed.find(log.database, log.name)
        if table is None:
            return None
        if not log.named:
            return ChangedError("the binlog does not name its columns")
        try:
            columns = self._tables.columns[table]
            return layout_of(table, columns, log, strict=self._tables.strict)
        except ChangedError as error:
            return ChangedError(f'table "{table}": {error}')

    def _take_rows(self, event: Event, signs: Sequence[int]) -> None:
        body = event.body
        layout = self._maps.get(body[:6])
        if layout is None:
            return
        if isinstance(layout, ChangedError):
            raise _HaltError(self._changed(str(layout)))
        rows = self._rows.get(layout.table)
        if rows is None or rows.layout is not layout:
            if rows is not None:
                self._make_room(rows)
            rows = self._rows[layout.table] = TableRows(layout)
        data, at = self._images(event, layout, len(signs))
        rows.add(data, at, signs)
        if len(rows.counts) >= PIECE_ROWS:
            self._make_room(rows)

    def _images(self, event: Event, layout: Layout, images: int) -> tuple[bytes, int]:
        """The bytes with the row images of an event, and where the first one begins."""
        body, at = event.body, 8
        if event.type in _SECOND_FORM:
            at += int.from_bytes(body[8:10], "little")
        width, at = length_coded(body, at)
        size = (width + 7) // 8
        for _ in range(images):
            present = int.from_bytes(body[at : at + size], "little")
            if present & (1 << width) - 1 != (1 << width) - 1:
                raise _HaltError(
                    self._lost(f'rows of "{layout.table}" were logged without all columns')
                )
            at += size
        if event.type >= Type.WRITE_COMPRESSED_V1:
            return uncompressed(body[at:]), 0
        return body, at

    def _take_statement(self, event: Event, header: int) -> None:
        body = event.body
        database = body[8]
        start = header + int.from_bytes(body[11:13], "little")
        name = body[start : start + database].decode(errors="replace")
        raw = body[start + database + 1 :]
        if event.type == Type.QUERY_COMPRESSED:
            raw = uncompressed(raw)
        statement = raw.decode(errors="replace")
        word = statement[:12].upper()
        if word in ("BEGIN", "COMMIT"):
            if word == "COMMIT":
                self._end(event)
        elif word.startswith(("ROLLBACK", "SAVEPOINT")):
            self._roll_back(event, statement)
        elif self._flags & _COMPLETED:
            self._complete(event, word.startswith("XA COMMIT"))
        else:
            self._apply(statement, name)
            if self._flags & _STANDALONE:
                self._end(event)

    def _roll_back(self, event: Event, statement: str) -> None:
        """Savepoints are in the log only where a table without transactions was changed too."""
        words = statement.replace("`", " ").split()
        if words[0].upper() == "SAVEPOINT":
            marks = {table: len(rows.counts) for table, rows in self._rows.items()}
            self._savepoints[words[-1]] = (len(self._pieces), marks)
        elif len(words) > 1:
            self._keep(*self._savepoints.get(words[-1], (0, {})))
        else:
            self._keep(0, {})
            self._end(event)

    def _keep(self, pieces: int, marks: Mapping[str, int]) -> None:
        """Forget what the transaction did after a mark."""
        for table, rows in self._rows.items():
            rows.keep(max(marks.get(table, 0), len(rows.positions)))
        self._pieces.keep(pieces)

    def _apply(self, statement: str, database: str) -> None:
        match effect_of(statement, database, self._followed):
            case Emptied(tables):
                self._emptied += tables
            case Reshaped(table, what):
                raise _HaltError(self._changed(f'table "{table}": {what}'))
            case Unlisted(table):
                raise _HaltError(
                    self._lost(f'"{table}" was changed by a statement that lists no rows')
                )
            case None:
                pass

    def _prepare(self, event: Event) -> None:
        if event.body[0]:
            self._end(event)
            return
        self._flush()
        for rows in self._rows.values():
            self._put_aside(rows)
        self._prepared[self._xid], self._pieces = self._pieces, Pieces(self._pieces.home)
        self._abandon()

    def _complete(self, event: Event, committed: bool) -> None:
        pieces = self._prepared.pop(self._xid, None)
        if pieces is None and committed:
            pieces = self._find_prepared(self._xid, event.position)
        if pieces is not None and committed:
            self._pieces, pieces = pieces, self._pieces
        if pieces is not None:
            pieces.keep(0)
        self._end(event)

    def _find_prepared(self, xid: bytes, before: int) -> Pieces:
        raise _HaltError(self._lost("an XA transaction was prepared before the reading began"))

    def _end(self, event: Event) -> None:
        """The transaction has ended, at this event."""
        changes = self._pieces.rows + sum(rows.open for rows in self._rows.values())
        position = event.position
        if self._pieces:
            self._flush()
            for table, piece in self._pieces:
                positions = pa.array([position], pa.int64()).take(
                    pa.array([0] * piece.num_rows, pa.int64())
                )
                self._spool.write(table, piece.append_column(POSITION, positions))
            self._pieces.keep(0)
        for rows in self._rows.values():
            rows.commit(position)
        if changes or self._emptied:
            self._ended.append(
                Streamed(position, float(event.time), changes, emptied=self._emptied)
            )
        self._emptied, self._in_group, self._savepoints = (), False, {}

    def _abandon(self) -> None:
        self._keep(0, {})
        self._emptied, self._in_group, self._savepoints = (), False, {}
        self._maps.clear()

    def _make_room(self, rows: TableRows) -> None:
        self._flush()
        if not self.halted:
            self._put_aside(rows)

    def _put_aside(self, rows: TableRows) -> None:
        """Make a piece of the rows of a transaction that has not ended."""
        if not rows.open:
            return
        try:
            piece = rows.take_open()
        except ValueMisfitError as error:
            raise _HaltError(self._misfit(rows, error)) from None
        if piece is not None:
            self._pieces.add(rows.layout.table, piece)

    def _flush(self) -> None:
        """Bring the rows and the transactions that have ended into the spool."""
        ready = []
        for rows in self._rows.values():
            try:
                ready.append((rows, rows.committed()))
            except ValueMisfitError as error:
                self._halt_before(rows.positions[error.index], self._misfit(rows, error))
                self._flush()
                return
        for rows, batch in ready:
            self._spool.write(rows.layout.table, batch)
            rows.drop_committed()
        for transaction in self._ended:
            self._spool.end(transaction)
        self._ended = []

    def _halt_before(self, position: int, error: SourceError) -> None:
        """Something in the transaction at a position cannot be carried: end before it."""
        for rows in self._rows.values():
            rows.keep(rows.before(position))
        self._ended = [one for one in self._ended if one.position < position]
        self.position = self._ended[-1].position if self._ended else self.position
        self._halt(error)

    def _halt(self, error: SourceError) -> None:
        self.halted = error
        self.disconnect()

    def _misfit(self, rows: TableRows, error: ValueMisfitError) -> ConversionError:
        return ConversionError(
            self._server.source,
            f'table "{rows.layout.table}", {error}',
            detail="it is in a change that the binlog has",
            hint="such a change can only be passed over by loading the views anew",
        )

    def _changed(self, what: str) -> SchemaError:
        return SchemaError(
            self._server.source,
            f"{what}, after position {self.position}",
            hint="change the views that use it, then load them anew",
        )

    def _lost(self, what: str) -> GapError:
        return GapError(
            self._server.source,
            what,
            detail=f"after position {self.position}",
            hint="SET GLOBAL binlog_format = ROW, binlog_row_image = FULL; end the sessions that "
            "have other settings; then load the views anew",
        )


class _HaltError(Exception):
    """Something that the stream cannot carry exactly."""

    def __init__(self, error: SourceError) -> None:
        super().__init__(str(error))
        self.error = error
