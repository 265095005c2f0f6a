"""The transactions of a MariaDB server, in commit order, from its binlog into a spool.

Every transaction begins with a GTID event. One that changed rows ends with an XID event, or with
COMMIT as a statement; a change of a table is a transaction of its own, one statement long. The
rows of followed tables are kept, everything else only moves the position on.

A followed table may change its shape: its rows are read by the shape that it had when they were
written, and go to the spool by the identities of table and columns (`shape_tracker`).

`BinlogStream` has the connection and decides how far to read; `EventReader` makes transactions of
the events.

What must hold: a transaction is in the spool whole or not at all, and positions only grow. A
stream that meets something that it cannot carry exactly (a value fits no type, a statement changed
rows without listing them) *halts* before it: what came before is in the spool, and `halted` says
what stands in the way. Damaged bytes are read a second time, over another connection, before they
count as such; and again when somebody asks again, for it may be the network that damages them.

A prepared XA transaction has its rows in the log when it is prepared and counts when it is
committed, which is another, later transaction of the log. Its rows wait until then; if it was
prepared before where the reading began, the log is searched backwards for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from viewkeeper.errors import (
    ConversionError,
    GapError,
    SchemaError,
    SourceAwayError,
    SourceError,
    reload_hint,
)
from viewkeeper.sources.mariadb.binlog.event_frames import (
    SIGNS,
    BinlogEvent,
    BinlogEventType,
    EventMark,
    TransactionGroup,
    group_of,
    images_of,
    statement_of,
)
from viewkeeper.sources.mariadb.binlog.log import BinlogReader, read_event_after, read_log_files
from viewkeeper.sources.mariadb.binlog.rows import BinlogLayout, ObscureError
from viewkeeper.sources.mariadb.binlog.shape_tracker import KeyOf, ShapeTracker, ShapeWatch
from viewkeeper.sources.mariadb.binlog.transactions import MisfitAtError, TransactionBuffer
from viewkeeper.sources.mariadb.byte_codes import MalformedBytesError, read_piece
from viewkeeper.sources.mariadb.ddl.statement import LoggedStatement
from viewkeeper.sources.mariadb.position import FIRST_OFFSET, file_of, position_of, spell_place
from viewkeeper.sources.mariadb.server_connection import MariadbServer
from viewkeeper.sources.stream.socket_hint import NO_STREAM
from viewkeeper.sources.stream.spool import Spool
from viewkeeper.sources.stream.stage import TransactionStage

_NO_GROUP = TransactionGroup(alone=False, prepared=False, completed=False, xid=b"")
# The clock is read once for so many events.
_CHECK_EVENTS = 64
_ALL = 1 << 62


class _HaltError(Exception):
    """Something that the stream cannot carry exactly; of one table, if that is known."""

    def __init__(self, error: SourceError, table: str = "") -> None:
        super().__init__(str(error))
        self.error = error
        self.table = table


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """What a stream reads: from `start` on, what the watch asks for.

    Rows are kept of what comes after `rows_after`; before that only shapes are of interest. With
    `blocking` the server sends more when it comes; with `prepared_only` nothing but the rows of
    prepared transactions is kept. Files are written below `home`.
    """

    server: MariadbServer
    watch: ShapeWatch
    start: int
    server_id: int
    home: Path
    blocking: bool = False
    prepared_only: bool = False
    rows_after: int = 0
    key_of: KeyOf | None = None


class BinlogStream:
    """Reads the log by a plan, into a spool."""

    def __init__(self, plan: StreamPlan, spool: Spool) -> None:
        self._plan = plan
        self._server = plan.server
        self._reader = EventReader(plan, spool)
        self._log: BinlogReader | None = None
        self._events: Iterator[BinlogEvent] = iter(())
        self._is_damaged = False
        self.halted: SourceError | None = None
        self.halted_by = ""
        """The identity of the table that is in the way, if it is one."""

    @property
    def position(self) -> int:
        """Up to where the log was read: the end of a transaction."""
        return self._reader.position

    @property
    def tracker(self) -> ShapeTracker:
        return self._reader.tracker

    def advance_to(self, until: int, seconds: float = _ALL, transactions: int = _ALL) -> None:
        """Read up to a position that the log is known to have, or until a limit is reached.

        A connection that was lost is made again once, from the last transaction that has ended.
        """
        end = time.monotonic() + seconds
        if self._is_damaged:
            self.halted, self._is_damaged = None, False
        try:
            try:
                self._read_events(until, end, transactions)
            except (SourceAwayError, MalformedBytesError):
                self.disconnect()
                self._read_events(until, end, transactions)
            self._reader.buffer.flush_to_spool()
        except MalformedBytesError as error:
            self._is_damaged = True
            self._halt_stream(_damaged_error(self._server.source, str(error), self.position))
        except MisfitAtError as error:
            self._halt_stream(_misfit_error(self._server.source, error, self.position), error.table)
        except _HaltError as halt:
            self._halt_stream(halt.error, halt.table)

    def _halt_stream(self, error: SourceError, table: str = "") -> None:
        self.halted, self.halted_by = error, table
        self.disconnect()
        try:
            self._reader.buffer.flush_to_spool()
        except MisfitAtError as earlier:
            self.halted = _misfit_error(self._server.source, earlier, self.position)
            self.halted_by = earlier.table

    def _read_events(self, until: int, end: float, transactions: int) -> None:
        if self.position >= until or self.halted:
            return
        if self._log is None:
            self._check_last()
            self._log = BinlogReader(
                self._server, self._plan.server_id, self.position, blocking=self._plan.blocking
            )
            self._events = self._log.read_events()
        reader = self._reader
        for number, event in enumerate(self._events):
            reader.take_event(event)
            if reader.position >= until or reader.buffer.ended_count >= transactions:
                return
            if number % _CHECK_EVENTS == 0 and time.monotonic() > end:
                return
        raise SourceAwayError(self._server.source, "the server ended its binlog early")

    def _check_last(self) -> None:
        """Before another connection reads on, the log must still have what was read last: it may
        have been reset meanwhile, and have grown beyond the place again."""
        last = self._reader.last_event
        # The first event of a file is sent with other content to who begins behind it.
        if last is None or last.type == BinlogEventType.FORMAT or not last.make_mark().can_be_read:
            return
        found = read_event_after(self._server, self._plan.server_id ^ 2, last.make_mark().start)
        if found is None or (found.position, found.make_mark()) != (
            last.position,
            last.make_mark(),
        ):
            raise GapError(
                self._server.source,
                "its binlog does not have any more what ended at position "
                f"{spell_place(last.position)}",
                detail="its data were restored, or its binlog was reset",
                hint=reload_hint(),
            )

    @property
    def sender_thread(self) -> int | None:
        """The server's thread that sends us the log, if one does."""
        return None if self._log is None else self._log.thread_id

    @property
    def waiting_bytes(self) -> int:
        """How many bytes of the log have come that nobody has read yet."""
        log = self._log
        return NO_STREAM if log is None else log.waiting_bytes

    def mark_at(self, position: int) -> EventMark | None:
        """The mark of the event that ends at a position, if it was read."""
        return self._reader.mark_at(position)

    def forget_before(self, position: int) -> None:
        """Nobody will ask for marks and shapes before a position."""
        self._reader.forget_before(position)

    def disconnect(self) -> None:
        """Forget the connection and the transaction that was being read."""
        if self._log is not None:
            self._log.close()
        self._log, self._events = None, iter(())
        self._reader.abandon_all()

    def prepared_rows(self, xid: bytes) -> TransactionStage | None:
        """The rows of a transaction that was prepared in what was read, if it was not ended."""
        return self._reader.prepared.get(xid)


class EventReader:
    """Makes transactions of events, in a buffer before the spool, and follows shapes meanwhile.

    `prepared` are the rows of XA transactions that wait for their end.
    """

    def __init__(self, plan: StreamPlan, spool: Spool) -> None:
        self._plan = plan
        self.tracker = ShapeTracker(plan.server, plan.watch, plan.start, plan.key_of)
        self.buffer = TransactionBuffer(spool, plan.home)
        self.prepared: dict[bytes, TransactionStage] = {}
        self.position = plan.start
        self.last_event: BinlogEvent | None = None
        self._maps: dict[bytes, BinlogLayout | None] = {}
        self._group: TransactionGroup | None = None
        self._marks: dict[int, EventMark] = {}
        self._handlers = self._make_handlers()

    def take_event(self, event: BinlogEvent) -> None:
        """Take the next event; outside a transaction it moves the position on."""
        handler = self._handlers.get(event.type)
        if handler is not None:
            handler(event)
        if self._group is None and event.position > self.position:
            self.position, self.last_event = event.position, event
            self.tracker.note_reached(event.position)

    def mark_at(self, position: int) -> EventMark | None:
        """The mark of the event that ends at a position, if it was read."""
        if self.last_event is not None and self.last_event.position == position:
            return self.last_event.make_mark()
        return self._marks.get(position)

    def forget_before(self, position: int) -> None:
        self.tracker.forget_before(position)
        for known in [known for known in self._marks if known < position]:
            del self._marks[known]

    def abandon_all(self) -> None:
        """Forget the transaction that was being read; it is read again."""
        self.buffer.abandon_transaction()
        self._abandon_transaction()

    def _abandon_transaction(self) -> None:
        if self._group is not None:
            self.buffer.abandon_transaction()
            self.tracker.abandon_transaction()
        self._group = None
        self._maps.clear()

    def _make_handlers(self) -> dict[int, Callable[[BinlogEvent], None]]:
        """What is done with each type of event; the others say nothing about changes."""
        handlers: dict[BinlogEventType, Callable[[BinlogEvent], None]] = {
            BinlogEventType.TABLE_MAP: self._take_map,
            BinlogEventType.GTID: self._begin_transaction,
            BinlogEventType.XID: self._end_transaction,
            BinlogEventType.QUERY: self._take_statement,
            BinlogEventType.QUERY_COMPRESSED: self._take_statement,
            BinlogEventType.LOAD_STATEMENT: self._take_statement,
            BinlogEventType.XA_PREPARE: self._prepare_transaction,
            BinlogEventType.INCIDENT: self._take_incident,
            # A server that was killed may leave a transaction without an end.
            BinlogEventType.FORMAT: lambda _: self._abandon_transaction(),
        }
        found = {int(kind): handler for kind, handler in handlers.items()}
        return {**found, **dict.fromkeys(SIGNS, self._take_rows)}

    def _begin_transaction(self, event: BinlogEvent) -> None:
        self._abandon_transaction()
        self._group = group_of(event)

    def _take_incident(self, event: BinlogEvent) -> None:
        raise self._lost_error("the server could not write something to its binlog")

    def _take_map(self, event: BinlogEvent) -> None:
        try:
            layout = self.tracker.find_layout(event.body[8:], event.position)
        except ObscureError as error:
            raise self._obscure_error(str(error), error.table) from None
        self._maps[event.body[:6]] = layout

    def _take_rows(self, event: BinlogEvent) -> None:
        signs = SIGNS[event.type]
        layout = self._maps.get(event.body[:6])
        group = self._group or _NO_GROUP
        if layout is None or not (group.prepared or self._keeps_rows()):
            return
        images = images_of(event, len(signs), layout.width)
        if images is None:
            what = f'rows of "{layout.full_name}" were logged without all columns'
            raise self._lost_error(what, layout.table)
        rows = self.buffer.rows_of_table(layout)
        rows.add_images(*images, signs)
        if self.buffer.is_full(rows):
            self.buffer.make_room(rows)

    def _keeps_rows(self) -> bool:
        return not self._plan.prepared_only and self.position >= self._plan.rows_after

    def _take_statement(self, event: BinlogEvent) -> None:
        statement = statement_of(event)
        word = statement.text[:9].upper()
        group = self._group or _NO_GROUP
        if word == "COMMIT":
            self._end_transaction(event)
        elif word in ("ROLLBACK", "ROLLBACK ", "SAVEPOINT"):
            self._roll_back(event, statement.text)
        elif group.completed:
            self._complete_transaction(event, group.xid, committed=word == "XA COMMIT")
        elif word != "BEGIN":
            self._apply_statement(statement, event.position)
            if group.alone:
                self._end_transaction(event)

    def _roll_back(self, event: BinlogEvent, text: str) -> None:
        """Savepoints are in the log only where a table without transactions was changed too."""
        words = text.replace("`", " ").split()
        if words[0].upper() == "SAVEPOINT":
            self.buffer.set_savepoint(words[-1])
        elif len(words) > 1:
            self.buffer.roll_back(words[-1])
        else:
            self.buffer.roll_back()
            self._end_transaction(event)

    def _apply_statement(self, statement: LoggedStatement, position: int) -> None:
        effect = (
            None if self._plan.prepared_only else self.tracker.apply_statement(statement, position)
        )
        if effect is None:
            return
        unlisted = [shape for shape in effect.unlisted if self.tracker.is_wanted(shape.id)]
        if unlisted:
            self.tracker.abandon_transaction()
            what = f'"{unlisted[0].full_name}" was changed by a statement that lists no rows'
            raise self._lost_error(what, unlisted[0].id)
        self.buffer.note_emptied(tuple(effect.emptied))

    def _end_transaction(self, event: BinlogEvent) -> None:
        reshaped = self.tracker.is_reshaping
        self.tracker.end_transaction(event.position)
        if self.buffer.end_transaction(event.position, event.time, reshaped=reshaped):
            self._marks[event.position] = event.make_mark()
        self._group = None
        self._maps.clear()

    def _prepare_transaction(self, event: BinlogEvent) -> None:
        """The first half of an XA transaction, or all of it if it needs no second one."""
        if read_piece(event.body, 0, 1)[0]:
            self._end_transaction(event)
            return
        if self._group is None:
            raise MalformedBytesError("a transaction is prepared that has not begun")
        if self.tracker.is_reshaping:
            raise self._lost_error("rows of a prepared transaction do not fit their table")
        self.prepared[self._group.xid] = self.buffer.take_aside()
        self._abandon_transaction()

    def _complete_transaction(self, event: BinlogEvent, xid: bytes, *, committed: bool) -> None:
        pieces = self.prepared.pop(xid, None)
        if committed and not self._plan.prepared_only:
            self.buffer.bring_back(self._find_prepared(xid) if pieces is None else pieces)
        self._end_transaction(event)

    def _find_prepared(self, xid: bytes) -> TransactionStage:
        """The rows of a transaction that was prepared before this stream began."""
        plan = self._plan
        with plan.server.translate_errors():
            connection = plan.server.open_connection()
            oldest = min(read_log_files(connection))
            connection.close()
        for number in range(file_of(plan.start), oldest - 1, -1):
            before = StreamPlan(
                plan.server,
                plan.watch,
                position_of(number, FIRST_OFFSET),
                plan.server_id ^ 1,
                plan.home,
                prepared_only=True,
            )
            earlier = BinlogStream(before, Spool(plan.home))
            earlier.advance_to(plan.start)
            earlier.disconnect()
            if earlier.halted is not None:
                raise _HaltError(earlier.halted, earlier.halted_by)
            pieces = earlier.prepared_rows(xid)
            if pieces is not None:
                return pieces
        raise self._lost_error("the first half of an XA transaction is not in the binlog any more")

    def _obscure_error(self, what: str, table: str) -> _HaltError:
        return _HaltError(
            SchemaError(
                self._plan.server.source,
                f"{what}, after position {spell_place(self.position)}",
                hint="SET GLOBAL binlog_row_metadata = FULL, or change the type of that column; "
                f"then {reload_hint()}",
            ),
            table,
        )

    def _lost_error(self, what: str, table: str = "") -> _HaltError:
        return _HaltError(
            GapError(
                self._plan.server.source,
                what,
                detail=f"after position {spell_place(self.position)}",
                hint="SET GLOBAL binlog_format = ROW, binlog_row_image = FULL; end the sessions "
                f"that have other settings; then {reload_hint()}",
            ),
            table,
        )


def _misfit_error(source: str, error: MisfitAtError, position: int) -> ConversionError:
    return ConversionError(
        source,
        str(error),
        detail=f"it is in a change that the binlog has after position {spell_place(position)}",
        hint=f"correct the value, or leave the column out of the views; then {reload_hint()}",
    )


def _damaged_error(source: str, what: str, position: int) -> SourceAwayError:
    return SourceAwayError(
        source,
        f"its binlog is damaged after position {spell_place(position)}",
        detail=what,
        hint="it is tried again; if it stays so, the server's file is damaged (mariadb-binlog "
        f"--verify-binlog-checksum): {reload_hint()}",
    )
