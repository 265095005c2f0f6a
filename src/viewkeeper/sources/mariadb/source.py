"""MariaDB as a source: the row binlog is the stream, consistent snapshots are the answers.

Positions are places in the binlog (`position`), which is read as a replica reads it
(`binlog`) into a spool. A snapshot says by itself at which place of the binlog it was taken
(`answers.snapshot`), so a cut is one number and exact. Types are in `types`; what the server must
be like is in `follow`, what we remember of it in `state`.

Tables and columns have identities of our own, which the DDL in the binlog carries along
(`logged_shapes`, `binlog.shape_tracker`); a handle means them by these (`bound_handles`).

There is no thread: a look reads what the binlog has got since the last one. Nothing is put into the
database. Any number of readers may read its binlog side by side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

from viewkeeper.errors import SourceError
from viewkeeper.sources.bucket_state import open_state_files
from viewkeeper.sources.mariadb.answers.snapshot import MariadbOpener, make_opener
from viewkeeper.sources.mariadb.binlog.capture import BinlogCapture, TableDescriber
from viewkeeper.sources.mariadb.binlog.log import read_newest_position
from viewkeeper.sources.mariadb.binlog.shape_tracker import ShapeWatch
from viewkeeper.sources.mariadb.binlog.spooled_changes import SpooledChanges
from viewkeeper.sources.mariadb.bound_handles import bind_handle
from viewkeeper.sources.mariadb.doctor import MariadbDoctor, health_of, measure_behind
from viewkeeper.sources.mariadb.follow import TableFollower
from viewkeeper.sources.mariadb.logged_shapes import LoggedShapes
from viewkeeper.sources.mariadb.schema import has_folded_names
from viewkeeper.sources.mariadb.server_connection import MariadbServer, MariadbSession
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.updates.source_protocol import (
    Boundary,
    DetachResult,
    Finding,
    Health,
    TableBatches,
    TableDescription,
    Tables,
    TableSize,
)


def open_source(settings: SourceSettings, reader: str) -> MariadbSource:
    return MariadbSource(settings, reader)


class MariadbSource:
    """One database of a MariaDB server, followed by the project `reader`."""

    def __init__(self, settings: SourceSettings, reader: str) -> None:
        self.name = settings.name
        self.reader = reader
        self._session = MariadbSession(MariadbServer(settings))
        self._capture = BinlogCapture(self._session, reader, open_state_files(settings))
        self._changes = SpooledChanges(self._capture)
        self._describer = TableDescriber(self._capture)

    def describe_source(self) -> str:
        return f"MariaDB at {self._session.server.describe_address()}"

    def handle_of(self, name: str) -> str:
        return self._describer.handle_of(name)

    def describe_table(self, handle: str) -> TableDescription:
        return self._describer.describe_table(handle)

    def estimate_size(self, table: str) -> TableSize:
        return self._describer.estimate_size(table)

    def follow_tables(self, tables: Tables) -> int:
        return TableFollower(self._capture).follow_tables(tables)

    def look_for_transactions(self, after: int) -> tuple[Boundary, ...]:
        return self._changes.look_for_transactions(after)

    def has_news(self) -> bool | None:
        return self._changes.has_news()

    def has_passed(self, position: int) -> bool:
        return self._changes.has_passed(position)

    def read_changes(self, tables: Tables, after: int, until: int) -> TableBatches:
        return self._changes.read_changes(tables, after, until)

    @contextmanager
    def prepare_snapshots(self, after: int, tables: Tables) -> Iterator[MariadbOpener]:
        """Every opening has a connection, a cut and a tail of its own."""
        yield self._make_opener(after, tables)

    def _make_opener(self, after: int, tables: Tables) -> MariadbOpener:
        capture = self._capture
        with self._session.use_connection() as connection:
            if capture.read_state() is None:
                latest = shapes = LoggedShapes({}, has_folded_names(connection))
            else:
                stream = capture.stream_from(connection, after)
                capture.advance_stream(stream, after)
                latest, shapes = stream.tracker.shapes, stream.tracker.shapes_at(after)
            bound = {
                name: bind_handle(name, own, capture.handles, latest)
                for name, own in tables.items()
            }
            watch = ShapeWatch(shapes, after, {})
            return make_opener(capture.server, self.reader, bound, watch)

    def acknowledge_position(self, position: int) -> None:
        self._capture.acknowledge_position(position)

    def begin_hold(self, name: str, seconds: float) -> None:
        """Nothing to do: the server keeps its binlog for its own time."""

    def end_hold(self, name: str) -> None:
        """Nothing was held."""

    def read_health(self, positions: Iterable[int]) -> Health:
        """Bytes of the binlog that we still need; what lies beyond positions, as far as it has
        been read in this process."""
        capture = self._capture
        with self._session.use_connection() as connection:
            read = capture.start if capture.stream else read_newest_position(connection)
            known = measure_behind(capture.spool, read, positions)
            return health_of(capture.server, connection, self.reader, capture.read_state(), known)

    def diagnose_source(self, tables: Tables) -> list[Finding]:
        doctor = MariadbDoctor(self._session.server, self.reader, self._capture.read_state())
        return doctor.collect_findings(self._name_tables(tables))

    def _name_tables(self, tables: Tables) -> Tables:
        """The tables and columns as they are called now, as far as that can be seen."""
        found: dict[str, Sequence[str]] = {}
        for handle, columns in tables.items():
            found[handle] = columns
            if self._capture.handles.target_of(handle) is not None:
                with suppress(SourceError):
                    # What cannot be seen is a finding under the name that it had.
                    names = self.describe_table(handle).names
                    del found[handle]
                    found[names.table] = [names.columns.get(name, name) for name in columns]
        return found

    def detach_source(self, force: bool = False) -> DetachResult:
        """Forget the source; nothing of ours is in the database."""
        return DetachResult(self._capture.forget_source(), True)

    def close(self) -> None:
        self._capture.close()
