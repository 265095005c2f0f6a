"""PostgreSQL as a source where logical decoding is not allowed: triggers write a log.

A position is the number of a *look*: a snapshot that was taken and stored
(`triggers_log`). Rows and log are read in one snapshot, so an answer's tail is exact,
there is nothing to wait for, and the replica identity does not matter. What was committed between
two looks is reported as one transaction: whole commits, never split. `triggers_install`
says what is put into the database.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import psycopg

from viewkeeper.errors import GapError, SourceError
from viewkeeper.sources.postgres.decoding.shape_comparison import unexplained_shapes
from viewkeeper.sources.postgres.decoding.state import (
    KnownTransaction,
    PostgresState,
    forget_state,
    write_state,
)
from viewkeeper.sources.postgres.handle_changes import schema_changes_of
from viewkeeper.sources.postgres.schema import PostgresTable, table_with_oid
from viewkeeper.sources.postgres.shape_query import PostgresShape, read_shapes
from viewkeeper.sources.postgres.shape_steps import PostgresShapeHistory
from viewkeeper.sources.postgres.triggers import installation as capture
from viewkeeper.sources.postgres.triggers import readers
from viewkeeper.sources.postgres.triggers.doctor import trigger_findings
from viewkeeper.sources.postgres.triggers.log import LoggedTable, PendingLog
from viewkeeper.sources.postgres.triggers.log_reader import (
    STORE_LOOK,
    TriggerLogReader,
    database_id,
    microseconds_of,
)
from viewkeeper.sources.postgres.triggers.look_shapes import look_times, read_history, store_shapes
from viewkeeper.sources.postgres.triggers.removal import remove_capture, remove_installation
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.updates.source_protocol import (
    LOOK_TRANSACTIONS,
    Boundary,
    ChangesBehind,
    DetachResult,
    Finding,
    Health,
    Tables,
)

_NEWEST = "SELECT position, at FROM viewkeeper.look ORDER BY position DESC LIMIT 1"


class PostgresTriggerSource(TriggerLogReader):
    """One PostgreSQL database, followed by the project `reader` through triggers."""

    def __init__(self, settings: SourceSettings, reader: str) -> None:
        super().__init__(settings, reader)
        self._quiet: tuple[int, str] | None = None
        self._known: KnownTransaction | None = None
        self._passed = 0

    def describe_source(self) -> str:
        return f"{super().describe_source()}, captured by triggers"

    def follow_tables(self, tables: Tables) -> int:
        """Capture these columns too. One transaction; it waits for those who write to a table that
        is not captured yet."""
        with self._use_control() as control:
            followable = self._followable_tables(control, tables)
            with self._hold_lock(control), control.transaction():
                capture.install_tables(control, self.name)
                before = readers.read_reader(control, self.reader)
                wanted = _extend_logged(before[1] if before else {}, followable)
                readers.write_reader(control, self.reader, 0, wanted)
                self._capture_tables(control, [table for table, _ in followable.values()])
                # The shapes first: what a snapshot lacks of them would be taken for known.
                history = read_history(control)
                living = read_shapes(control, readers.needed_columns(control))
                fresh = {oid: each for oid, each in living.items() if oid not in history}
                fresh.update(unexplained_shapes(control, history))
                position = self._take_look(control, "SELECT pg_current_snapshot()::text")
                store_shapes(control, position, fresh)
                if before is None:
                    readers.advance_reader(control, self.reader, position)
            self._add_handles(followable)
            self._verified, self._quiet = True, None
            self._save_newest(control)
            return position

    def _capture_tables(
        self, control: psycopg.Connection[Any], tables: Iterable[PostgresTable]
    ) -> None:
        """Make or renew the triggers of tables whose columns are not all logged."""
        needed = readers.needed_columns(control)
        for table in tables:
            numbers = needed[table.oid]
            fires = capture.has_triggers(control, table.oid, table.partitioned)
            if not fires or not _logged_columns(control, table.oid).issuperset(numbers):
                capture.capture_table(control, self.name, table, numbers)
            capture.renew_function(control, table, numbers)

    def _take_look(self, control: psycopg.Connection[Any], query: str) -> int:
        """Store a snapshot as a position."""
        row = control.execute(query.encode()).fetchone()
        assert row is not None
        stored = control.execute(STORE_LOOK, row[:1]).fetchone()
        assert stored is not None
        return int(stored[0])

    def look_for_transactions(self, after: int) -> tuple[Boundary, ...]:
        """At most one boundary beyond the looks that snapshots have taken meanwhile."""
        with self._use_control() as control:
            row = control.execute("SELECT pg_current_snapshot()::text").fetchone()
            assert row is not None
            if self._quiet == (after, row[0]):
                return ()
            with self._hold_lock(control), control.transaction():
                control.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                tables = self._check_state(control, after)
                found = self._find_pending(control, tables, after)
                history = read_history(control)
                fresh = unexplained_shapes(control, history)
                latest = control.execute(_NEWEST).fetchone()
                newest, passed = 0, int(latest[0]) if latest else 0
                if fresh or any(each.position == 0 for _, each in found):
                    newest = self._take_look(control, "SELECT pg_current_snapshot()::text")
                    store_shapes(control, newest, fresh)
                    self._renew_functions(control, fresh)
                    history = read_history(control)
                told = self._report_boundaries(control, found, newest, history, after)
                if not told:
                    self._quiet = (after, row[0])
            self._passed = max(passed, newest)
            self._save_newest(control)
            return told

    def has_passed(self, position: int) -> bool:
        return position <= self._passed

    def _renew_functions(
        self, control: psycopg.Connection[Any], fresh: Mapping[int, PostgresShape]
    ) -> None:
        """Let triggers know the names of now."""
        needed = readers.needed_columns(control)
        for oid, shape in fresh.items():
            table = None if shape.gone else table_with_oid(control, self.name, shape.name, oid)
            if table is not None and oid in needed:
                capture.renew_function(control, table, needed[oid])

    def _report_boundaries(
        self,
        control: psycopg.Connection[Any],
        found: Sequence[tuple[str, PendingLog]],
        newest: int,
        history: PostgresShapeHistory,
        after: int,
    ) -> tuple[Boundary, ...]:
        """One boundary per look that has seen something; what none had seen is the newest's."""
        steps = {position for position in history.step_positions() if position > after}
        at = look_times(control, steps) if steps else {}
        told = []
        for position in sorted(steps | {each.position or newest for _, each in found}):
            here = [(kept, each) for kept, each in found if (each.position or newest) == position]
            changes = schema_changes_of(self._names, history.differences_at(position), self._path)
            if here or changes:
                told.append(
                    Boundary(
                        position,
                        min([each.oldest_at for _, each in here] or [at[position]]),
                        sum(max(each.changes, each.trouble is not None) for _, each in here),
                        tuple(
                            h for k, each in here if each.emptied for h in self._names.handles_of(k)
                        ),
                        reshaped=changes,
                    )
                )
        return tuple(told[:LOOK_TRANSACTIONS])

    def _save_newest(self, control: psycopg.Connection[Any]) -> None:
        row = control.execute(_NEWEST).fetchone()
        if row is not None:
            newest = KnownTransaction(int(row[0]), 0, microseconds_of(row[1]))
            if newest != self._known:
                state = PostgresState(database_id(control), 0, "triggers", newest=newest)
                write_state(self.home, state, durable=False)
                self._known = newest

    def acknowledge_position(self, position: int) -> None:
        """Store the position, then trim what every reader has acknowledged."""
        with self._use_control() as control, self._hold_lock(control), control.transaction():
            installed = capture.is_installed(control)
            readers.require_reader(control, self.name, self.reader, installed)
            readers.advance_reader(control, self.reader, position)
            readers.trim_logs(control)

    def begin_hold(self, name: str, seconds: float) -> None:
        with self._use_control() as control:
            readers.require_reader(control, self.name, self.reader, capture.is_installed(control))
            readers.write_lease(control, self.reader, name, seconds)

    def end_hold(self, name: str) -> None:
        with self._use_control() as control:
            if capture.is_installed(control):
                held = (readers.lease_name(self.reader, name),)
                control.execute("DELETE FROM viewkeeper.reader WHERE reader = %s", held)

    def read_health(self, positions: Iterable[int]) -> Health:
        with self._use_control() as control:
            found = None
            if capture.is_installed(control):
                found = readers.read_reader(control, self.reader)
            if found is None:
                return Health(followed=False, position=None)
            row = control.execute(_NEWEST).fetchone()
            kept = tuple(
                readers.retained_by_readers(control, self.reader, readers.needed_columns(control))
            )
            behind = {at: self._behind_of(control, found[1], at) for at in positions}
            return Health(
                followed=True,
                position=int(row[0]) if row else None,
                retained=max((each.amount for each in kept), default=0),
                readers=kept,
                behind={at: each for at, each in behind.items() if each is not None},
            )

    def _behind_of(
        self, control: psycopg.Connection[Any], tables: Mapping[str, LoggedTable], after: int
    ) -> ChangesBehind | None:
        try:
            found = [each for _, each in self._find_pending(control, tables, after)]
        except GapError:
            # Whoever looks is told; here it is only a number that is not known.
            return None
        if not found:
            return None
        return ChangesBehind(
            sum(each.changes for each in found), min(each.oldest_at for each in found)
        )

    def diagnose_source(self, tables: Tables) -> list[Finding]:
        try:
            with self._use_control() as control:
                return list(
                    trigger_findings(
                        control, self.name, tables, self._table_by_handle, self._check_columns
                    )
                )
        except SourceError as error:
            return [Finding("reachable", "bad", str(error), error.hint)]

    def detach_source(self, force: bool = False) -> DetachResult:
        """Stop following; triggers and logs go with the last reader, or at once by `force`."""
        with self._use_control() as control, self._hold_lock(control), control.transaction():
            done = self._remove_reader(control, force)
        # Only when it is done: what cannot be removed can be gone on with.
        forget_state(self.home)
        self._names.forget_all()
        self._known, self._verified, self._quiet = None, False, None
        return done

    def _remove_reader(self, control: psycopg.Connection[Any], force: bool) -> DetachResult:
        if not capture.is_installed(control):
            return DetachResult(was_following=False, capture_dropped=False)
        before = readers.needed_columns(control)
        was, others = readers.remove_reader(control, self.reader)
        if force or not others:
            left = remove_installation(control, self.name, before.keys())
            return DetachResult(was, capture_dropped=True, other_readers=others, left=left)
        for oid in before.keys() - readers.needed_columns(control).keys():
            remove_capture(control, self.name, oid)
            control.execute("DELETE FROM viewkeeper.shape WHERE oid = %s", (oid,))
        return DetachResult(was, capture_dropped=False, other_readers=others)


def _extend_logged(
    followed: Mapping[str, LoggedTable],
    found: Mapping[str, tuple[PostgresTable, Mapping[str, int]]],
) -> dict[str, LoggedTable]:
    """What is followed, and these columns of these tables too."""
    result = dict(followed)
    for table, numbers in found.values():
        before = result.get(str(table.oid))
        both = dict.fromkeys([*(before.columns if before else ()), *numbers.values()])
        result[str(table.oid)] = LoggedTable(table.oid, tuple(both), table.partitioned)
    return result


def _logged_columns(control: psycopg.Connection[Any], oid: int) -> set[int]:
    """The numbers of the columns that a log has room for."""
    query = "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 4"
    found = control.execute(query, (capture.log_name(oid),)).fetchall()
    return {int(str(name)[1:]) for (name,) in found}
