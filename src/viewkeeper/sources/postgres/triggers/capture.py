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
from viewkeeper.sources.postgres.decoding.shape_comparison import unexplained
from viewkeeper.sources.postgres.decoding.state import Known, State, forget_state, write_state
from viewkeeper.sources.postgres.handle_changes import reported
from viewkeeper.sources.postgres.schema import Table, table_at
from viewkeeper.sources.postgres.shape_query import Shape, read_shapes
from viewkeeper.sources.postgres.shape_steps import History
from viewkeeper.sources.postgres.triggers import installation as capture
from viewkeeper.sources.postgres.triggers import readers
from viewkeeper.sources.postgres.triggers.doctor import findings
from viewkeeper.sources.postgres.triggers.log import Logged, Pending
from viewkeeper.sources.postgres.triggers.log_reader import (
    STORE_LOOK,
    TriggersReading,
    database_id,
    microseconds,
)
from viewkeeper.sources.postgres.triggers.look_shapes import looked_at, read_history, store
from viewkeeper.sources.postgres.triggers.removal import release, uninstall
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.updates.source_protocol import (
    LOOK_TRANSACTIONS,
    Behind,
    Boundary,
    Detached,
    Finding,
    Health,
    Tables,
)

_NEWEST = "SELECT position, at FROM viewkeeper.look ORDER BY position DESC LIMIT 1"


class PostgresTriggers(TriggersReading):
    """One PostgreSQL database, followed by the project `reader` through triggers."""

    def __init__(self, settings: SourceSettings, reader: str) -> None:
        super().__init__(settings, reader)
        self._quiet: tuple[int, str] | None = None
        self._known: Known | None = None
        self._passed = 0

    def describe(self) -> str:
        return f"{super().describe()}, captured by triggers"

    def advice(self) -> str | None:
        return None

    def follow(self, tables: Tables) -> int:
        """Capture these columns too. One transaction; it waits for those who write to a table that
        is not captured yet."""
        with self._using() as control:
            followable = self._followable(control, tables)
            with self._alone(control), control.transaction():
                capture.install(control, self.name)
                before = readers.read_reader(control, self.reader)
                wanted = _extended(before[1] if before else {}, followable)
                readers.write_reader(control, self.reader, 0, wanted)
                self._capture(control, [table for table, _ in followable.values()])
                # The shapes first: what a snapshot lacks of them would be taken for known.
                history = read_history(control)
                living = read_shapes(control, readers.needed(control))
                fresh = {oid: each for oid, each in living.items() if oid not in history}
                fresh.update(unexplained(control, history))
                position = self._take_look(control, "SELECT pg_current_snapshot()::text")
                store(control, position, fresh)
                if before is None:
                    readers.acknowledge(control, self.reader, position)
            self._take_names(followable)
            self._verified, self._quiet = True, None
            self._remember(control)
            return position

    def _capture(self, control: psycopg.Connection[Any], tables: Iterable[Table]) -> None:
        """Make or renew the triggers of tables whose columns are not all logged."""
        needed = readers.needed(control)
        for table in tables:
            numbers = needed[table.oid]
            fires = capture.fires(control, table.oid, table.partitioned)
            if not fires or not _logged_columns(control, table.oid).issuperset(numbers):
                capture.capture(control, self.name, table, numbers)
            capture.renew(control, table, numbers)

    def _take_look(self, control: psycopg.Connection[Any], query: str) -> int:
        """Store a snapshot as a position."""
        row = control.execute(query.encode()).fetchone()
        assert row is not None
        stored = control.execute(STORE_LOOK, row[:1]).fetchone()
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
                history = read_history(control)
                fresh = unexplained(control, history)
                latest = control.execute(_NEWEST).fetchone()
                newest, passed = 0, int(latest[0]) if latest else 0
                if fresh or any(each.position == 0 for _, each in found):
                    newest = self._take_look(control, "SELECT pg_current_snapshot()::text")
                    store(control, newest, fresh)
                    self._renew(control, fresh)
                    history = read_history(control)
                told = self._boundaries(control, found, newest, history, after)
                if not told:
                    self._quiet = (after, row[0])
            self._passed = max(passed, newest)
            self._remember(control)
            return told

    def passed(self, position: int) -> bool:
        return position <= self._passed

    def _renew(self, control: psycopg.Connection[Any], fresh: Mapping[int, Shape]) -> None:
        """Let triggers know the names of now."""
        needed = readers.needed(control)
        for oid, shape in fresh.items():
            table = None if shape.gone else table_at(control, self.name, shape.name, oid)
            if table is not None and oid in needed:
                capture.renew(control, table, needed[oid])

    def _boundaries(
        self,
        control: psycopg.Connection[Any],
        found: Sequence[tuple[str, Pending]],
        newest: int,
        history: History,
        after: int,
    ) -> tuple[Boundary, ...]:
        """One boundary per look that has seen something; what none had seen is the newest's."""
        steps = {position for position in history.positions() if position > after}
        at = looked_at(control, steps) if steps else {}
        told = []
        for position in sorted(steps | {each.position or newest for _, each in found}):
            here = [(kept, each) for kept, each in found if (each.position or newest) == position]
            changes = reported(self._names, history.at(position), self._path)
            if here or changes:
                told.append(
                    Boundary(
                        position,
                        min([each.oldest_at for _, each in here] or [at[position]]),
                        sum(max(each.changes, each.trouble is not None) for _, each in here),
                        tuple(h for k, each in here if each.emptied for h in self._names.of(k)),
                        reshaped=changes,
                    )
                )
        return tuple(told[:LOOK_TRANSACTIONS])

    def _remember(self, control: psycopg.Connection[Any]) -> None:
        row = control.execute(_NEWEST).fetchone()
        if row is not None:
            newest = Known(int(row[0]), 0, microseconds(row[1]))
            if newest != self._known:
                state = State(database_id(control), 0, "triggers", newest=newest)
                write_state(self.home, state, durable=False)
                self._known = newest

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
                return list(
                    findings(control, self.name, tables, self._seen_table, self._check_columns)
                )
        except SourceError as error:
            return [Finding("reachable", "bad", str(error), error.hint)]

    def detach(self, force: bool = False) -> Detached:
        """Stop following; triggers and logs go with the last reader, or at once by `force`."""
        with self._using() as control, self._alone(control), control.transaction():
            done = self._detached(control, force)
        # Only when it is done: what cannot be removed can be gone on with.
        forget_state(self.home)
        self._names.clear()
        self._known, self._verified, self._quiet = None, False, None
        return done

    def _detached(self, control: psycopg.Connection[Any], force: bool) -> Detached:
        if not capture.is_installed(control):
            return Detached(was_following=False, capture_dropped=False)
        before = readers.needed(control)
        was, others = readers.remove(control, self.reader)
        if force or not others:
            left = uninstall(control, self.name, before.keys())
            return Detached(was, capture_dropped=True, other_readers=others, left=left)
        for oid in before.keys() - readers.needed(control).keys():
            release(control, self.name, oid)
            control.execute("DELETE FROM viewkeeper.shape WHERE oid = %s", (oid,))
        return Detached(was, capture_dropped=False, other_readers=others)


def _extended(
    followed: Mapping[str, Logged], found: Mapping[str, tuple[Table, Mapping[str, int]]]
) -> dict[str, Logged]:
    """What is followed, and these columns of these tables too."""
    result = dict(followed)
    for table, numbers in found.values():
        before = result.get(str(table.oid))
        both = dict.fromkeys([*(before.columns if before else ()), *numbers.values()])
        result[str(table.oid)] = Logged(table.oid, tuple(both), table.partitioned)
    return result


def _logged_columns(control: psycopg.Connection[Any], oid: int) -> set[int]:
    """The numbers of the columns that a log has room for."""
    query = "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 4"
    found = control.execute(query, (capture.log_name(oid),)).fetchall()
    return {int(str(name)[1:]) for (name,) in found}
