"""Following tables by triggers, and ending it.

A table is captured with the columns that any reader uses. Triggers and logs are removed with the
last reader.

To put triggers on several tables in one transaction is to hold one and wait for the next, and a
writer that holds the next may wait for the first: a circle, which PostgreSQL ends by an error for
either of the two. So each table gets its triggers in a transaction of its own, which locks that
table before anything else and follows it for the reader; what is killed between two of them is gone
on with. The transaction that follows them all and gives the position finds nothing to wait for.

To end it is one transaction, so that all is removed or nothing. It can meet a circle, and so can a
table with partitions. The victim must not be the writer: we wait less than the usual
deadlock_timeout of a second, let go of everything, and try again a moment later. Following waits as
long as writers need in the end; ending does not, since it can be asked for again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from psycopg import errors

from viewkeeper.errors import SourceError
from viewkeeper.sources.postgres.database_description import FollowableTables, PostgresDescriber
from viewkeeper.sources.postgres.schema import PostgresTable
from viewkeeper.sources.postgres.shape_query import read_shapes
from viewkeeper.sources.postgres.shape_steps import unexplained_shapes
from viewkeeper.sources.postgres.triggers import installation
from viewkeeper.sources.postgres.triggers.capture import TriggerCapture
from viewkeeper.sources.postgres.triggers.log import (
    LoggedTable,
    advance_reader,
    needed_columns,
    read_history,
    read_reader,
    remove_reader,
    store_shapes,
    write_reader,
)
from viewkeeper.sources.postgres.types import PgConnection
from viewkeeper.updates.source_protocol import DetachResult, Tables

_SHORT_WAIT = "400ms"
_SHORT_WAITS = 10
"""So often following waits only `_SHORT_WAIT` for writers, before it waits as long as they need."""
_FOLLOW_ATTEMPTS = 30
_DETACH_ATTEMPTS = 40


class TriggerFollower:
    """Begins, extends and ends what one source follows."""

    def __init__(self, capture: TriggerCapture, describer: PostgresDescriber) -> None:
        self._capture = capture
        self._describer = describer
        self._source = describer.source
        self._reader = capture.reader

    def follow_tables(self, tables: Tables) -> int:
        """Capture these columns too; it waits for those who write to a table that is not captured
        yet."""
        describer = self._describer
        with describer.connections.use_control() as control:
            followable = describer.followable_tables(control, tables)
            fresh = {
                handle: each
                for handle, each in followable.items()
                if not _is_captured(control, each[0], each[1].values())
            }
            for table, _ in fresh.values():
                installation.require_owner(control, self._source, table)
            for group in ({handle: each} for handle, each in fresh.items()):
                self._capture_beside_writers(control, group)
            position = self._capture_beside_writers(control, followable)
            describer.add_handles(followable)
            self._capture.mark_followed()
            self._capture.save_newest(control)
            return position

    def _capture_beside_writers(self, control: PgConnection, tables: FollowableTables) -> int:
        for attempt in range(1, _FOLLOW_ATTEMPTS):
            wait = _SHORT_WAIT if attempt <= _SHORT_WAITS else "0"
            with _pause_if_locked():
                return self._capture_at_once(control, tables, wait)
        return self._capture_at_once(control, tables, "0")

    def _capture_at_once(self, control: PgConnection, tables: FollowableTables, wait: str) -> int:
        with self._capture.hold_lock(control), control.transaction():
            installation.install_tables(control, self._source)
            before = read_reader(control, self._reader)
            wanted = _extend_logged(before[1] if before else {}, tables)
            write_reader(control, self._reader, 0, wanted)
            _limit_waiting(control, wait)
            self._capture_tables(control, [table for table, _ in tables.values()])
            # The shapes first: what a snapshot lacks of them would be taken for known.
            history = read_history(control)
            living = read_shapes(control, needed_columns(control))
            fresh = {oid: each for oid, each in living.items() if oid not in history}
            fresh.update(unexplained_shapes(control, history))
            position = self._capture.take_look(control)
            store_shapes(control, position, fresh)
            if before is None:
                advance_reader(control, self._reader, position)
        return position

    def _capture_tables(self, control: PgConnection, tables: Iterable[PostgresTable]) -> None:
        """Make or renew the triggers of tables whose columns are not all logged."""
        needed = needed_columns(control)
        for table in tables:
            numbers = needed[table.oid]
            if not _is_captured(control, table, numbers):
                installation.capture_table(control, self._source, table, numbers)
            installation.renew_function(control, table, numbers)

    def detach_source(self, force: bool = False) -> DetachResult:
        """Stop following; triggers and logs go with the last reader, or at once by `force`."""
        with self._describer.connections.use_control() as control:
            done = self._remove_beside_writers(control, force)
        # Only when it is done: what cannot be removed can be gone on with.
        self._capture.forget_all()
        return done

    def _remove_beside_writers(self, control: PgConnection, force: bool) -> DetachResult:
        for _ in range(_DETACH_ATTEMPTS):
            with (
                _pause_if_locked(),
                self._capture.hold_lock(control),
                control.transaction(),
            ):
                _limit_waiting(control, _SHORT_WAIT)
                return self._remove_reader(control, force)
        raise SourceError(
            self._source,
            "a table stays locked by those who write to it",
            detail=f"its triggers can only be removed between two writers; {_DETACH_ATTEMPTS} times"
            " one was in the way",
            hint="run it again when transactions are shorter or fewer; nothing was removed",
        )

    def _remove_reader(self, control: PgConnection, force: bool) -> DetachResult:
        if not installation.is_installed(control):
            return DetachResult(was_following=False, capture_dropped=False)
        before = needed_columns(control)
        was, others = remove_reader(control, self._reader)
        if force or not others:
            left = installation.remove_installation(control, self._source, before.keys())
            return DetachResult(was, capture_dropped=True, other_readers=others, left=left)
        for oid in before.keys() - needed_columns(control).keys():
            installation.remove_capture(control, self._source, oid)
            control.execute("DELETE FROM viewkeeper.shape WHERE oid = %s", (oid,))
        return DetachResult(was, capture_dropped=False, other_readers=others)


@contextmanager
def _pause_if_locked() -> Iterator[None]:
    """Wait a moment if writers were in the way of what is done inside, and had to be let by."""
    try:
        yield
    except (errors.DeadlockDetected, errors.LockNotAvailable):
        time.sleep(random.uniform(0.05, 0.5))


def _limit_waiting(control: PgConnection, wait: str) -> None:
    control.execute(f"SET LOCAL lock_timeout = '{wait}'".encode())


def _is_captured(control: PgConnection, table: PostgresTable, numbers: Iterable[int]) -> bool:
    """Whether triggers log these columns."""
    fires = installation.has_triggers(control, table.oid, table.partitioned)
    return fires and _logged_columns(control, table.oid).issuperset(numbers)


def _extend_logged(
    followed: Mapping[str, LoggedTable], tables: FollowableTables
) -> dict[str, LoggedTable]:
    """What is followed, and these columns of these tables too."""
    result = dict(followed)
    for table, numbers in tables.values():
        before = result.get(str(table.oid))
        both = dict.fromkeys([*(before.columns if before else ()), *numbers.values()])
        result[str(table.oid)] = LoggedTable(table.oid, tuple(both), table.partitioned)
    return result


def _logged_columns(control: PgConnection, oid: int) -> set[int]:
    """The numbers of the columns that a log has room for."""
    query = "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 4"
    found = control.execute(query, (installation.log_name(oid),)).fetchall()
    return {int(str(name)[1:]) for (name,) in found}
