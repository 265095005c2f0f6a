"""The tail of a snapshot: the changes after a position that its cut includes, from the binlog.

It is read once per snapshot, when it is first needed, for all tables that the snapshot may be asked
about, and only if anything was logged since. Reading goes on a little beyond the cut, to where the
tables were touched: what they are called and how they are shaped there is what the snapshot shows.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

import pyarrow as pa

from viewkeeper.errors import BarrierError, SourceAwayError
from viewkeeper.sources.mariadb.binlog.log import make_server_id
from viewkeeper.sources.mariadb.binlog.rows import select_columns
from viewkeeper.sources.mariadb.binlog.shape_tracker import ShapeWatch
from viewkeeper.sources.mariadb.binlog.stream import BinlogStream, StreamPlan
from viewkeeper.sources.mariadb.logged_shapes import LoggedChange, LoggedShapes
from viewkeeper.sources.mariadb.server_connection import MariadbServer
from viewkeeper.sources.stream.spool import Spool, is_alive

_ALL = 1 << 62
_FOLDER = "viewkeeper-tail-"


def make_private_folder() -> Path:
    """A new folder for rows of a database, which are for nobody else on this machine: nobody can
    guess its name, enter it, or have made it before."""
    below = tempfile.gettempdir()
    _remove_stale_folders(below)
    return Path(tempfile.mkdtemp(prefix=f"{_FOLDER}{os.getpid()}-", dir=below))


@cache
def _remove_stale_folders(below: str) -> None:
    """Remove, once in a process, what processes left that were killed; only what is our own."""
    for folder in Path(below).glob(f"{_FOLDER}*"):
        number = folder.name.removeprefix(_FOLDER).partition("-")[0]
        with suppress(OSError):
            found = folder.lstat()
            is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
            if is_ours and number.isdigit() and not is_alive(int(number)):
                shutil.rmtree(folder, ignore_errors=True)


class BinlogTail:
    """The changes of some tables from a position on, read from the log when asked for."""

    def __init__(
        self, server: MariadbServer, reader: str, watch: ShapeWatch, start: int, cut: int
    ) -> None:
        self._home = make_private_folder()
        self.start = start
        self._server = server
        self._cut = cut
        self._spool = Spool(self._home)
        plan = StreamPlan(
            server,
            watch,
            min(start, watch.position),
            make_server_id(reader),
            self._home,
            rows_after=start,
        )
        self._stream = BinlogStream(plan, self._spool)

    def read_to(self, end: int) -> None:
        """Read up to a position of the log, if that was not done yet."""
        stream = self._stream
        stream.advance_to(end, self._server.statement_seconds, _ALL)
        stream.disconnect()
        if stream.halted is not None:
            raise stream.halted
        if stream.position < end:
            raise SourceAwayError(
                self._server.source,
                f"reading the binlog from position {self.start} took too long",
                hint="raise statement_seconds of this source",
            )

    @property
    def shapes(self) -> LoggedShapes:
        """As of where reading has ended."""
        return self._stream.tracker.shapes

    def changes_after(self, after: int) -> list[LoggedChange]:
        """The changes of shapes after a position, also those beyond the cut."""
        return self._stream.tracker.changes_between(after, _ALL)

    def require_rows(self, handle: str, table: str, after: int) -> None:
        """A BarrierError if a table was emptied after a position."""
        for transaction in self._spool.transactions_after(after):
            if transaction.position <= self._cut and table in transaction.emptied:
                raise BarrierError(self._server.source, handle, transaction.position)

    def read_batches(
        self, table: str, columns: Mapping[str, tuple[str, pa.DataType]], after: int
    ) -> Iterator[pa.RecordBatch]:
        """The changes of a table that the cut includes."""
        return select_columns(self._spool.changes_of(table, after, self._cut), columns)

    def close(self) -> None:
        self._stream.disconnect()
        self._spool.clear_all()
        shutil.rmtree(self._home, ignore_errors=True)
