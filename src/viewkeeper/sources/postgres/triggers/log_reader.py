"""Reading a database that triggers capture: changes from the log, answers with it in one snapshot.

A request is refused if this is not the database in which the asked position was reached, or if the
capture has a gap.

The snapshot of an answer was stored as a look, so the cut is that look's number, without holes. The
tail has the rows of the log that the same snapshot shows and the look that the asker names did not
see.

What was committed between two looks is reported as one transaction. The triggers' functions get the
names that the columns have now.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from viewkeeper.errors import BarrierError
from viewkeeper.sources.postgres.answers.lookup import PostgresLayout, layout_of
from viewkeeper.sources.postgres.answers.questions import PostgresQuestions
from viewkeeper.sources.postgres.answers.snapshot import (
    BEGIN,
    PostgresSnapshot,
    SharedSnapshot,
    SnapshotSession,
)
from viewkeeper.sources.postgres.database_description import PostgresDescriber
from viewkeeper.sources.postgres.errors import (
    gap_error,
    partly_emptied_error,
    unlogged_change_error,
)
from viewkeeper.sources.postgres.schema import table_with_oid
from viewkeeper.sources.postgres.shape_query import PostgresShape
from viewkeeper.sources.postgres.shape_steps import (
    PostgresShapeHistory,
    schema_changes_of,
    unexplained_shapes,
)
from viewkeeper.sources.postgres.triggers.capture import TriggerCapture
from viewkeeper.sources.postgres.triggers.installation import renew_function
from viewkeeper.sources.postgres.triggers.log import (
    LoggedTable,
    PendingLog,
    changes_query,
    look_times,
    needed_columns,
    read_history,
    snapshot_of,
    store_shapes,
    tail_query,
)
from viewkeeper.sources.postgres.types import PgConnection, read_row
from viewkeeper.updates.cut import Cut
from viewkeeper.updates.schema_change import name_of_handle
from viewkeeper.updates.source_protocol import (
    COUNT,
    LOOK_TRANSACTIONS,
    Boundary,
    TableBatches,
    Tables,
)

_PIECE_ROWS = 20_000


class TriggerLogReader:
    """Reads changes and prepares snapshots of a source that is captured by triggers."""

    def __init__(
        self, capture: TriggerCapture, describer: PostgresDescriber, questions: PostgresQuestions
    ) -> None:
        self._capture = capture
        self._describer = describer
        self._questions = questions
        self._connections = describer.connections
        self._source = describer.source

    def read_changes(self, tables: Tables, after: int, until: int) -> TableBatches:
        """Streamed from the log; `_position` is the first look that has seen a change."""
        with self._connections.use_control() as control:
            followed = self._capture.check_state(control, after)
            since = snapshot_of(control, self._source, after)
            snapshot_of(control, self._source, until)
            history = read_history(control)
            logs = {handle: self._logged_table(handle, followed) for handle in tables}
            for handle, columns in tables.items():
                self._questions.check_askable(handle, columns, after, history)
            self._check_readable(control, logs, after, until)
        with self._connections.use_coordinator() as connection:
            for handle, columns in tables.items():
                numbers = self._questions.known_numbers(handle, columns)
                shape = self._seen_layout(handle, numbers, history)
                query = changes_query(logs[handle], tuple(numbers.values()), after, since, until)
                for batch in self._fetch_changes(connection, query, shape):
                    yield handle, batch

    def _logged_table(self, handle: str, followed: Mapping[str, LoggedTable]) -> LoggedTable:
        table = str(self._describer.oid_of(handle))
        if table not in followed:
            raise gap_error(
                self._source, f'table "{name_of_handle(handle)}" is not captured any more'
            )
        return followed[table]

    def _seen_layout(
        self, handle: str, numbers: Mapping[str, int], history: PostgresShapeHistory
    ) -> PostgresLayout:
        """How columns are read from the log, in the types that the last look saw."""
        columns = history.latest_shape(self._describer.oid_of(handle)).by_number
        kinds = tuple(
            self._questions.kind_of_column(handle, name, columns[n]) for name, n in numbers.items()
        )
        return PostgresLayout(self._source, handle, tuple(numbers), kinds)

    def _fetch_changes(
        self, connection: PgConnection, query: str, shape: PostgresLayout
    ) -> Iterator[pa.RecordBatch]:
        """The changes in pieces, through a cursor of the server."""
        with self._connections.server.translate_errors():
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
        self, control: PgConnection, logs: Mapping[str, LoggedTable], after: int, until: int
    ) -> None:
        asked = {str(logged.oid): logged for logged in logs.values()}
        for _, each in self._capture.find_pending(control, asked, after):
            if each.trouble is not None and 0 < each.position <= until:
                raise each.trouble

    @contextmanager
    def prepare_snapshots(self, after: int, tables: Tables) -> Iterator[TriggersOpener]:
        """One snapshot, exported and stored as a look, with the shapes that it shows."""
        with self._connections.use_coordinator() as coordinator:
            with self._connections.use_control() as control:
                followed = self._capture.check_state(control, after)
                logs = {handle: self._logged_table(handle, followed) for handle in tables}
                with self._capture.hold_lock(control):
                    locked = self._questions.lock_tables(coordinator, tables)
                    with control.transaction():
                        position = self._capture.store_look(control, locked.shared.snapshot)
                        history = read_history(control)
                        shapes = {each.oid: each for each in locked.shapes.values()}
                        fresh = {
                            oid: each
                            for oid, each in shapes.items()
                            if not history.is_explained(each)
                        }
                        store_shapes(control, position, fresh)
                    history = read_history(control)
                for handle, columns in tables.items():
                    self._questions.check_shown(handle, columns, after, history, locked)
            yield TriggersOpener(locked.shared, position, logs)


@dataclass(frozen=True, slots=True)
class TriggersOpener:
    """Opens the shared snapshot; can be pickled, and holds no secret."""

    shared: SharedSnapshot
    position: int
    logs: Mapping[str, LoggedTable]

    def __call__(self) -> PostgresSnapshot:
        session = SnapshotSession(self.shared)
        return PostgresSnapshot(session, LogTails(self, session))


class LogTails:
    """The tails that the shared snapshot shows in the log."""

    def __init__(self, opener: TriggersOpener, session: SnapshotSession) -> None:
        self._opener = opener
        self._session = session

    def check_barriers(self, table: str, after: int) -> None:
        """A BarrierError if the table was emptied since; other errors if the log has a gap."""
        source = self._session.server.source
        signs = set(self._read_log(table, (), after)[COUNT].to_pylist())
        if None in signs:
            raise unlogged_change_error(source, table)
        if 0 in signs:
            raise BarrierError(source, table, self._opener.position)
        if -2 in signs:
            raise partly_emptied_error(source, table)

    def answer_cut(self, after: int) -> Cut:
        return Cut(self._opener.position)

    def answer_tail(self, table: str, columns: Sequence[str], after: int) -> pa.Table:
        return self._read_log(table, columns, after)

    def _read_log(self, table: str, columns: Sequence[str], after: int) -> pa.Table:
        shape = layout_of(self._session.server.source, self._opener.shared.tables[table], columns)
        with self._session.server.translate_errors():
            connection = self._session.text_connection()
            since = snapshot_of(connection, self._session.server.source, after)
            numbers = [
                self._opener.shared.tables[table].column_numbers[column] for column in columns
            ]
            query = tail_query(self._opener.logs[table], numbers, since, self._opener.position)
            result = connection.execute(query.encode()).pgresult
        assert result is not None
        return shape.changes_from_result(result)


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
            (snapshot,) = read_row(control, "SELECT pg_current_snapshot()::text")
            if self._quiet == (after, snapshot):
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
                    self._quiet = (after, snapshot)
            self._passed = max(passed, newest)
            capture.save_newest(control)
            return reported

    def has_news(self) -> None:
        """Nobody can tell: a NOTIFY by the triggers would make all who commit wait for each other,
        since PostgreSQL orders notifications by one lock."""

    def has_passed(self, position: int) -> bool:
        return position <= self._passed

    def _renew_functions(self, control: PgConnection, fresh: Mapping[int, PostgresShape]) -> None:
        """Let triggers know the names that columns have now."""
        needed = needed_columns(control)
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
        control: PgConnection,
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
