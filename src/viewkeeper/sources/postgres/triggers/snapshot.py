"""Answers of a database that is captured by triggers: rows and log in one shared snapshot.

The snapshot was stored as a look, so the cut is that look's number, without holes. The tail is what
the same snapshot shows of the log and the look that the asker names did not see.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from viewkeeper.errors import BarrierError
from viewkeeper.sources.postgres.answers.rows import layout_of
from viewkeeper.sources.postgres.answers.snapshot import SharedSnapshot
from viewkeeper.sources.postgres.errors import partly_emptied_error, unlogged_change_error
from viewkeeper.sources.postgres.schema import PostgresTable
from viewkeeper.sources.postgres.triggers.log import LoggedTable, snapshot_of, tail_query
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.updates.cut import Cut
from viewkeeper.updates.source_protocol import COUNT


@dataclass(frozen=True, slots=True)
class TriggersOpener:
    """Opens the shared snapshot; can be pickled, and holds no secret."""

    settings: SourceSettings
    exported: str
    snapshot: str
    position: int
    tables: Mapping[str, PostgresTable]
    logs: Mapping[str, LoggedTable]

    def __call__(self) -> TriggersSnapshot:
        return TriggersSnapshot(self)


class TriggersSnapshot(SharedSnapshot):
    """The shared snapshot, and the log that it shows."""

    def __init__(self, opener: TriggersOpener) -> None:
        super().__init__(opener)
        self._opener = opener

    def _check_barriers(self, table: str, after: int) -> None:
        """A BarrierError if the table was emptied since; other errors if the log could not tell."""
        source = self._server.source
        signs = set(self._read_log(table, (), after)[COUNT].to_pylist())
        if None in signs:
            raise unlogged_change_error(source, table)
        if 0 in signs:
            raise BarrierError(source, table, self._opener.position)
        if -2 in signs:
            raise partly_emptied_error(source, table)

    def _answer_cut(self, after: int) -> Cut:
        return Cut(self._opener.position)

    def _answer_tail(self, table: str, columns: Sequence[str], after: int) -> pa.Table:
        return self._read_log(table, columns, after)

    def _read_log(self, table: str, columns: Sequence[str], after: int) -> pa.Table:
        shape = layout_of(self._server.source, self._opener.tables[table], columns)
        with self._server.translate_errors():
            connection = self._text_connection()
            since = snapshot_of(connection, self._server.source, after)
            numbers = [self._opener.tables[table].column_numbers[column] for column in columns]
            query = tail_query(self._opener.logs[table], numbers, since, self._opener.position)
            result = connection.execute(query.encode()).pgresult
        assert result is not None
        return shape.changes_from_result(result)
