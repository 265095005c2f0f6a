"""PostgreSQL as a source where logical decoding is not allowed: triggers write a log.

A position is the number of a *look*: a snapshot that was taken and stored
(`triggers_log`). Rows and log are read in one snapshot, so an answer's tail is exact,
there is nothing to wait for, and the replica identity does not matter. What was committed between
two looks is reported as one transaction: whole commits, never split. `triggers_install`
says what is put into the database.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
import pyarrow as pa

from viewkeeper.errors import GapError, SourceError
from viewkeeper.sources.postgres import triggers_install as capture
from viewkeeper.sources.postgres import triggers_readers as readers
from viewkeeper.sources.postgres.database import PostgresDatabase
from viewkeeper.sources.postgres.export import lock_and_export
from viewkeeper.sources.postgres.follow import check_privilege
from viewkeeper.sources.postgres.rows import Layout, layout
from viewkeeper.sources.postgres.shared import BEGIN
from viewkeeper.sources.postgres.state import Known, State, forget_state, read_state, write_state
from viewkeeper.sources.postgres.table import Table, read_table
from viewkeeper.sources.postgres.triggers_log import (
    Logged,
    Pending,
    changes_query,
    pending,
    snapshot_of,
)
from viewkeeper.sources.postgres.triggers_report import findings
from viewkeeper.sources.postgres.triggers_snapshot import TriggersOpener
from viewkeeper.sources.postgres.troubles import gap, other_shape, other_table
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.updates.protocol import (
    LOOK_TRANSACTIONS,
    Behind,
    Boundary,
    Detached,
    Finding,
    Health,
    Tables,
)

_LOOK = "INSERT INTO viewkeeper.look (snapshot) VALUES (%s::pg_snapshot) RETURNING position, at"
_PIECE_ROWS = 20_000
_NEWEST = "SELECT position, at FROM viewkeeper.look ORDER BY position DESC LIMIT 1"


class PostgresTriggers(PostgresDatabase):
    """One PostgreSQL database, followed by the project `reader` through triggers."""

    def __init__(self, settings: SourceSettings, reader: str) -> None:
        super().__init__(settings, reader)
        self._quiet: tuple[int, str] | None = None
        self._known: Known | None = None
        self._verified = False

    def describe(self) -> str:
        return f"{super().describe()}, captured by triggers"

    def advice(self) -> str | None:
        return None

    def follow(self, tables: Tables) -> int:
        """Capture these columns too. One transaction; it waits for those who write to a table that
        is not captured yet."""
        with self._using() as control:
            found = {name: read_table(control, self.name, name) for name in tables}
            for name, table in found.items():
                self._check_columns(table, tables[name])
                check_privilege(control, self.name, table)
            with self._alone(control), control.transaction():
                capture.install(control, self.name)
                before = readers.read_reader(control, self.reader)
                wanted = _extended(self.name, before[1] if before else {}, found, tables)
                readers.write_reader(control, self.reader, 0, wanted)
                self._capture(control, found.values())
                position = self._take_look(control, "SELECT pg_current_snapshot()::text")
                if before is None:
                    readers.acknowledge(control, self.reader, position)
            self._verified, self._quiet = True, None
            self._remember(control)
            return position

    def _capture(self, control: psycopg.Connection[Any], tables: Iterable[Table]) -> None:
        """Make or renew the triggers of tables whose columns are not all logged."""
        needed = readers.needed(control)
        for table in tables:
            logged = _logged_columns(control, table.oid)
            fires = capture.fires(control, table.oid, table.partitioned)
            if not fires or not logged.issuperset(needed[table.oid].values()):
                columns = {n: at for n, at in needed[table.oid].items() if table.has(n)}
                capture.capture(control, self.name, table, columns)

    def _take_look(self, control: psycopg.Connection[Any], query: str) -> int:
        """Store a snapshot as a position."""
        row = control.execute(query.encode()).fetchone()
        assert row is not None
        stored = control.execute(_LOOK, row[:1]).fetchone()
        assert stored is not None
        return int(stored[0])

    def look(self, after: int) -> tuple[Boundary, ...]:
        """At most one boundary beyond the looks that snapshots have taken meanwhile."""
        with self._using() as control:
            row = control.execute("SELECT pg_current_snapshot()::text").fetchone()
            assert row is not None
            if self._quiet == (after, row[0]):
                return ()
            with self._alone(control), control.transaction():
                control.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                tables = self._check_state(control, after)
                found = self._pending(control, tables, after)
                if not found:
                    self._quiet = (after, row[0])
                    return ()
                if any(each.position == 0 for _, each in found):
                    newest = self._take_look(control, "SELECT pg_current_snapshot()::text")
                else:
                    newest = 0
            self._remember(control)
            return _boundaries(found, newest)

    def _pending(
        self, control: psycopg.Connection[Any], tables: Mapping[str, Logged], after: int
    ) -> list[tuple[str, Pending]]:
        since = snapshot_of(control, self.name, after)
        return [
            (name, each)
            for name, table in tables.items()
            for each in pending(control, self.name, name, table, after, since, 0)
            if each.changes or each.emptied or each.trouble
        ]

    def _check_state(self, control: psycopg.Connection[Any], after: int) -> dict[str, Logged]:
        """What is followed, if this is still the database in which `after` was reached."""
        installed = capture.is_installed(control)
        _, tables = readers.require_reader(control, self.name, self.reader, installed)
        self._verify(control)
        snapshot_of(control, self.name, after)
        for name, table in tables.items():
            if not capture.fires(control, table.oid, table.partitioned):
                raise gap(self.name, f'table "{name}": its triggers are gone or switched off')
        return tables

    def _verify(self, control: psycopg.Connection[Any]) -> None:
        """A GapError if the newest look that we know of is not the one of this database."""
        remembered = read_state(self.home)
        if self._verified or remembered is None or remembered.newest is None:
            return
        query = "SELECT at FROM viewkeeper.look WHERE position = %s"
        row = control.execute(query, (remembered.newest.position,)).fetchone()
        at = _microseconds(row[0]) if row else None
        if at != remembered.newest.committed_us or _database_id(control) != remembered.system:
            raise gap(self.name, "it was restored to an earlier state, or replaced by another one")
        self._verified = True

    def _remember(self, control: psycopg.Connection[Any]) -> None:
        row = control.execute(_NEWEST).fetchone()
        if row is not None:
            newest = Known(int(row[0]), 0, _microseconds(row[1]))
            if newest != self._known:
                state = State(_database_id(control), 0, "triggers", newest=newest)
                write_state(self.home, state, durable=False)
                self._known = newest

    @contextmanager
    def _alone(self, control: psycopg.Connection[Any]) -> Iterator[None]:
        """Looks are taken one after the other, whoever takes them."""
        control.execute("SELECT pg_advisory_lock(%s)", (capture.LOCK,))
        try:
            yield
        finally:
            if not control.closed and not control.broken:
                control.execute("SELECT pg_advisory_unlock(%s)", (capture.LOCK,))

    def changes(
        self, tables: Tables, after: int, until: int
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Streamed from the log; `_position` is the first look that has seen a change."""
        with self._using() as control:
            followed = self._check_state(control, after)
            since = snapshot_of(control, self.name, after)
            snapshot_of(control, self.name, until)
            self._check_readable(control, followed, tables, after, until)
            found = {name: read_table(control, self.name, name) for name in tables}
        with self._coordinator() as connection:
            for name, columns in tables.items():
                shape = layout(self.name, found[name], columns)
                query = changes_query(followed[name], columns, after, since, until)
                for batch in self._fetched(connection, query, shape):
                    yield name, batch

    def _fetched(
        self, connection: psycopg.Connection[Any], query: str, shape: Layout
    ) -> Iterator[pa.RecordBatch]:
        """The changes in pieces, through a cursor of the server."""
        with self._server.errors():
            connection.execute(BEGIN.encode())
            connection.execute(f"DECLARE changes NO SCROLL CURSOR FOR {query}".encode())
            while True:
                result = connection.execute(f"FETCH {_PIECE_ROWS} FROM changes".encode()).pgresult
                assert result is not None
                if not result.ntuples:
                    break
                yield from shape.changes_from_result(result).to_batches()
            connection.execute("ROLLBACK")

    def _check_readable(
        self,
        control: psycopg.Connection[Any],
        followed: Mapping[str, Logged],
        tables: Tables,
        after: int,
        until: int,
    ) -> None:
        asked = {name: followed[name] for name in tables}
        for _, each in self._pending(control, asked, after):
            if each.trouble is not None and 0 < each.position <= until:
                raise each.trouble

    @contextmanager
    def snapshots(self, after: int, tables: Tables) -> Iterator[TriggersOpener]:
        """One snapshot, exported and stored as a look."""
        with self._coordinator() as coordinator:
            with self._using() as control:
                followed = self._check_state(control, after)
                found = {name: read_table(control, self.name, name) for name in tables}
                for name, table in found.items():
                    _check_shape(self.name, name, table, followed[name])
                with self._alone(control):
                    snapshot, exported = lock_and_export(coordinator, found)
                    row = control.execute(_LOOK, (snapshot,)).fetchone()
                assert row is not None
            logs = {name: followed[name] for name in tables}
            yield TriggersOpener(self.settings, exported, snapshot, int(row[0]), found, logs)

    def acknowledge(self, position: int) -> None:
        """Store the position, then trim what every reader has acknowledged."""
        with self._using() as control, self._alone(control), control.transaction():
            installed = capture.is_installed(control)
            readers.require_reader(control, self.name, self.reader, installed)
            readers.acknowledge(control, self.reader, position)
            readers.trim(control)

    def hold(self, name: str, seconds: float) -> None:
        with self._using() as control:
            readers.require_reader(control, self.name, self.reader, capture.is_installed(control))
            readers.hold(control, self.reader, name, seconds)

    def release(self, name: str) -> None:
        with self._using() as control:
            if capture.is_installed(control):
                held = (readers.lease_name(self.reader, name),)
                control.execute("DELETE FROM viewkeeper.reader WHERE reader = %s", held)

    def health(self, positions: Iterable[int]) -> Health:
        with self._using() as control:
            found = None
            if capture.is_installed(control):
                found = readers.read_reader(control, self.reader)
            if found is None:
                return Health(followed=False, position=None)
            row = control.execute(_NEWEST).fetchone()
            kept = tuple(readers.retained(control, self.reader, readers.needed(control)))
            behind = {at: self._behind(control, found[1], at) for at in positions}
            return Health(
                followed=True,
                position=int(row[0]) if row else None,
                retained=max((each.amount for each in kept), default=0),
                readers=kept,
                behind={at: each for at, each in behind.items() if each is not None},
            )

    def _behind(
        self, control: psycopg.Connection[Any], tables: Mapping[str, Logged], after: int
    ) -> Behind | None:
        try:
            found = [each for _, each in self._pending(control, tables, after)]
        except GapError:
            # Whoever looks is told; here it is only a number that is not known.
            return None
        if not found:
            return None
        return Behind(sum(each.changes for each in found), min(each.oldest_at for each in found))

    def diagnose(self, tables: Tables) -> list[Finding]:
        try:
            with self._using() as control:
                return list(findings(control, self.name, tables, self._check_columns))
        except SourceError as error:
            return [Finding("reachable", "bad", str(error), error.hint)]

    def detach(self, force: bool = False) -> Detached:
        """Stop following; triggers and logs go with the last reader, or at once by `force`."""
        with self._using() as control, self._alone(control), control.transaction():
            forget_state(self.home)
            self._known, self._verified, self._quiet = None, False, None
            if not capture.is_installed(control):
                return Detached(was_following=False, capture_dropped=False)
            before = readers.needed(control)
            was, others = readers.remove(control, self.reader)
            if force or not others:
                capture.uninstall(control)
                return Detached(was, capture_dropped=True, other_readers=others)
            for oid in before.keys() - readers.needed(control).keys():
                capture.release(control, oid)
            return Detached(was, capture_dropped=False, other_readers=others)


def _extended(
    source: str, followed: Mapping[str, Logged], found: Mapping[str, Table], tables: Tables
) -> dict[str, Logged]:
    """What is followed, and these columns of these tables too."""
    result = dict(followed)
    for name, table in found.items():
        before = result.get(name)
        kept = before.columns if before and before.oid == table.oid else {}
        columns = (table.column(source, each) for each in [*kept, *tables[name]] if table.has(each))
        facts = {each.name: (each.number, each.type, each.modifier) for each in columns}
        result[name] = Logged(table.oid, facts, table.partitioned)
    return result


def _logged_columns(control: psycopg.Connection[Any], oid: int) -> set[int]:
    """The numbers of the columns that a log has room for."""
    query = "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 4"
    found = control.execute(query, (capture.log_name(oid),)).fetchall()
    return {int(str(name)[1:]) for (name,) in found}


def _check_shape(source: str, name: str, table: Table, logged: Logged) -> None:
    """A SchemaError if the table is not the one that is followed, or a column is not."""
    if table.oid != logged.oid:
        raise other_table(source, name)
    now = {column.name: (column.number, column.type, column.modifier) for column in table.columns}
    for column, facts in logged.columns.items():
        if now.get(column) != facts:
            raise other_shape(source, name, column)


def _boundaries(found: Sequence[tuple[str, Pending]], newest: int) -> tuple[Boundary, ...]:
    """One boundary per look that has seen something; what none had seen is the newest look's."""
    at = sorted({each.position or newest for _, each in found})
    told = []
    for position in at:
        here = [(name, each) for name, each in found if (each.position or newest) == position]
        told.append(
            Boundary(
                position,
                min(each.oldest_at for _, each in here),
                sum(max(each.changes, each.trouble is not None) for _, each in here),
                tuple(name for name, each in here if each.emptied),
            )
        )
    return tuple(told[:LOOK_TRANSACTIONS])


def _microseconds(moment: datetime.datetime) -> int:
    return round(moment.timestamp() * 1e6)


def _database_id(control: psycopg.Connection[Any]) -> str:
    row = control.execute("SELECT id::text FROM viewkeeper.database").fetchone()
    return str(row[0]) if row else ""
