"""Following tables by triggers, and ending it; each is one transaction.

A table is captured with the columns that any reader uses. Triggers and logs are removed with the
last reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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


class TriggerFollower:
    """Begins, extends and ends what one source follows."""

    def __init__(self, capture: TriggerCapture, describer: PostgresDescriber) -> None:
        self._capture = capture
        self._describer = describer
        self._source = describer.source
        self._reader = capture.reader

    def follow_tables(self, tables: Tables) -> int:
        """Capture these columns too. One transaction; it waits for those who write to a table that
        is not captured yet."""
        describer = self._describer
        with describer.connections.use_control() as control:
            followable = describer.followable_tables(control, tables)
            with self._capture.hold_lock(control), control.transaction():
                installation.install_tables(control, self._source)
                before = read_reader(control, self._reader)
                wanted = _extend_logged(before[1] if before else {}, followable)
                write_reader(control, self._reader, 0, wanted)
                self._capture_tables(control, [table for table, _ in followable.values()])
                # The shapes first: what a snapshot lacks of them would be taken for known.
                history = read_history(control)
                living = read_shapes(control, needed_columns(control))
                fresh = {oid: each for oid, each in living.items() if oid not in history}
                fresh.update(unexplained_shapes(control, history))
                position = self._capture.take_look(control)
                store_shapes(control, position, fresh)
                if before is None:
                    advance_reader(control, self._reader, position)
            describer.add_handles(followable)
            self._capture.mark_followed()
            self._capture.save_newest(control)
            return position

    def _capture_tables(self, control: PgConnection, tables: Iterable[PostgresTable]) -> None:
        """Make or renew the triggers of tables whose columns are not all logged."""
        needed = needed_columns(control)
        for table in tables:
            numbers = needed[table.oid]
            fires = installation.has_triggers(control, table.oid, table.partitioned)
            if not fires or not _logged_columns(control, table.oid).issuperset(numbers):
                installation.capture_table(control, self._source, table, numbers)
            installation.renew_function(control, table, numbers)

    def detach_source(self, force: bool = False) -> DetachResult:
        """Stop following; triggers and logs go with the last reader, or at once by `force`."""
        with (
            self._describer.connections.use_control() as control,
            self._capture.hold_lock(control),
            control.transaction(),
        ):
            done = self._remove_reader(control, force)
        # Only when it is done: what cannot be removed can be gone on with.
        self._capture.forget_all()
        return done

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
