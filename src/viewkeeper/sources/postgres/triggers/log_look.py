"""A look at a database that is captured by triggers: a snapshot is stored if it shows anything new.

What was committed between two looks is reported as one transaction. The triggers' functions get the
names that the columns have now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg

from viewkeeper.sources.postgres.database_description import PostgresDescriber
from viewkeeper.sources.postgres.schema import table_with_oid
from viewkeeper.sources.postgres.shape_query import PostgresShape
from viewkeeper.sources.postgres.shape_steps import (
    PostgresShapeHistory,
    schema_changes_of,
    unexplained_shapes,
)
from viewkeeper.sources.postgres.triggers import readers
from viewkeeper.sources.postgres.triggers.capture import TriggerCapture
from viewkeeper.sources.postgres.triggers.installation import renew_function
from viewkeeper.sources.postgres.triggers.log import (
    PendingLog,
    look_times,
    read_history,
    store_shapes,
)
from viewkeeper.updates.source_protocol import LOOK_TRANSACTIONS, Boundary


class TriggerLook:
    """Looks of one source; it remembers after which one nothing was new."""

    def __init__(self, capture: TriggerCapture, describer: PostgresDescriber) -> None:
        self._capture = capture
        self._describer = describer
        self._quiet: tuple[int, str] | None = None
        self._passed = 0

    def look_for_transactions(self, after: int) -> tuple[Boundary, ...]:
        """At most one boundary beyond the looks that snapshots have taken meanwhile."""
        capture = self._capture
        with self._describer.connections.use_control() as control:
            row = control.execute("SELECT pg_current_snapshot()::text").fetchone()
            assert row is not None
            if self._quiet == (after, row[0]):
                return ()
            with capture.hold_lock(control), control.transaction():
                control.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                tables = capture.check_state(control, after)
                pending = capture.find_pending(control, tables, after)
                history = read_history(control)
                fresh = unexplained_shapes(control, history)
                passed, newest = capture.newest_look(control) or 0, 0
                if fresh or any(each.position == 0 for _, each in pending):
                    newest = capture.take_look(control)
                    store_shapes(control, newest, fresh)
                    self._renew_functions(control, fresh)
                    history = read_history(control)
                reported = self._report_boundaries(control, pending, newest, history, after)
                if not reported:
                    self._quiet = (after, row[0])
            self._passed = max(passed, newest)
            capture.save_newest(control)
            return reported

    def has_passed(self, position: int) -> bool:
        return position <= self._passed

    def _renew_functions(
        self, control: psycopg.Connection[Any], fresh: Mapping[int, PostgresShape]
    ) -> None:
        """Let triggers know the names that columns have now."""
        needed = readers.needed_columns(control)
        for oid, shape in fresh.items():
            table = (
                None
                if shape.gone
                else table_with_oid(control, self._describer.source, shape.name, oid)
            )
            if table is not None and oid in needed:
                renew_function(control, table, needed[oid])

    def _report_boundaries(
        self,
        control: psycopg.Connection[Any],
        pending: Sequence[tuple[str, PendingLog]],
        newest: int,
        history: PostgresShapeHistory,
        after: int,
    ) -> tuple[Boundary, ...]:
        """One boundary per look that has seen something; what none had seen is the newest's."""
        steps = {position for position in history.step_positions() if position > after}
        at = look_times(control, steps) if steps else {}
        handles, path = self._describer.handles, self._describer.connections.search_path
        reported = []
        for position in sorted(steps | {each.position or newest for _, each in pending}):
            here = [entry for entry in pending if (entry[1].position or newest) == position]
            changes = schema_changes_of(handles, history.changes_at(position), path)
            if here or changes:
                reported.append(
                    Boundary(
                        position,
                        min([each.oldest_at for _, each in here] or [at[position]]),
                        sum(max(each.changes, each.trouble is not None) for _, each in here),
                        tuple(
                            handle
                            for identity, each in here
                            if each.emptied
                            for handle in handles.handles_of(identity)
                        ),
                        reshaped=changes,
                    )
                )
        return tuple(reported[:LOOK_TRANSACTIONS])
