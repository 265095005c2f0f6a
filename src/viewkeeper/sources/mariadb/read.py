"""A snapshot of a MariaDB server: lookups, scans and tails under an exactly known cut.

`START TRANSACTION WITH CONSISTENT SNAPSHOT` fixes what is seen and at which place of the binlog
that is; the place is the cut, and what lies before it is included, nothing else. Connections
cannot share a snapshot, so every task opens its own and reads its own tail, from the binlog.

A table that was altered between the snapshot and our first touch of it may show its new shape in
the old snapshot. From the first touch on nobody can alter it. So the log is read up to there, and
what it says about the tables since `after` either changes nothing, or ends the reading.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pymysql

from viewkeeper.errors import SchemaError, SourceAwayError
from viewkeeper.sources.mariadb.answer import Answers
from viewkeeper.sources.mariadb.log import log_end, newest
from viewkeeper.sources.mariadb.lookup import SCAN_PART, question, whole
from viewkeeper.sources.mariadb.open import Server, execute, texts
from viewkeeper.sources.mariadb.table import Table, folds_names, read_table
from viewkeeper.sources.mariadb.tail import Tail, change_schema, followed
from viewkeeper.updates.cut import Cut
from viewkeeper.updates.protocol import Answer, Lookup, Scan
from viewkeeper.view.definition import Relation

_RETRIES = 5
# A table was altered, or was not there under its name for a moment.
_ALTERED = {1412, 1146}
# So many keys are asked for without looking how many rows the table has.
_FEW_KEYS = 1_000


@dataclass(frozen=True, slots=True)
class MariadbOpener:
    """Opens snapshots, here or in a task; carries the settings as the project file has them."""

    server: Server
    reader: str
    tables: Mapping[str, tuple[str, ...]]

    def __call__(self) -> MariadbSnapshot:
        return MariadbSnapshot(self.server, self.reader, self.tables)


class MariadbSnapshot:
    """Reads one server under one cut; used by one task."""

    def __init__(self, server: Server, reader: str, columns: Mapping[str, Sequence[str]]) -> None:
        self._server = server
        self._reader = reader
        self._columns = columns
        self._database = server.address().database
        self._tables: dict[str, Table] = {}
        self._touched = 0
        self._tail: Tail | None = None
        self._answers: Answers | None = None
        self._connection = server.connect()
        try:
            with server.errors():
                self.cut = self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> int:
        """Fix what is seen and touch every table; again if one was altered in between."""
        connection = self._connection
        execute(connection, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        for attempt in range(_RETRIES):
            execute(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
            cut = newest(connection)
            try:
                self._tables = {name: self._touch(name) for name in self._columns}
            except pymysql.Error as error:
                if error.args[0] not in _ALTERED or attempt == _RETRIES - 1:
                    raise
                execute(connection, "ROLLBACK")
            else:
                self._touched = log_end(connection)
                return cut
        raise AssertionError("the last attempt returns or raises")

    def _touch(self, name: str) -> Table:
        """The shape of a table; from now on it stays as it is."""
        source = self._server.source
        table = read_table(self._connection, source, self._database, name)
        texts(self._connection, f"SELECT 1 FROM {table.quoted} LIMIT 1")
        return read_table(self._connection, source, self._database, name)

    def _table(self, name: str) -> Table:
        if name not in self._tables:
            raise SchemaError(
                self._server.source, f'table "{name}" is not among those of this snapshot'
            )
        return self._tables[name]

    def ask(self, lookup: Lookup, after: int) -> Answer:
        name = lookup.relation.table
        table = self._table(name)
        tail = self._tail_after(after).batches(name, table, lookup.columns, after)
        self._free()
        with self._server.errors():
            asked = self._question(table, lookup)
        rows = self._answers_to(asked, table, lookup.columns).read()
        changes = pa.Table.from_batches(tail, change_schema(table, lookup.columns))
        return Answer(rows, Cut(self.cut), after, changes)

    def _question(self, table: Table, lookup: Lookup) -> str:
        """By key, or the whole table where the keys would touch most of it."""
        keys = 0 if lookup.keys is None else lookup.keys.num_rows
        if keys < _FEW_KEYS:
            return question(table, lookup)
        query = (
            "SELECT table_rows, @@max_allowed_packet FROM information_schema.tables"
            " WHERE table_schema = %s AND table_name = %s"
        )
        rows, longest = texts(self._connection, query, (table.database, table.name))[0]
        everything = whole(table, lookup.columns)
        if keys > SCAN_PART * int(rows or 0):
            return everything
        asked = question(table, lookup)
        return everything if len(asked) > int(longest) // 2 else asked

    def scan(self, relation: Relation, columns: Sequence[str], after: int) -> Scan:
        table = self._table(relation.table)
        tail = self._tail_after(after).batches(relation.table, table, columns, after)
        self._free()
        with self._server.errors():
            # The rows are taken as fast as whoever asked for them works on them.
            execute(self._connection, "SET SESSION max_statement_time = 0")
        self._answers = self._answers_to(whole(table, columns), table, columns)
        return Scan(Cut(self.cut), iter(self._answers), tail)

    def _answers_to(self, query: str, table: Table, columns: Sequence[str]) -> Answers:
        kinds = [(column, table.kept(column)[1]) for column in columns]
        return Answers(self._server, self._connection, query, table.full_name, kinds)

    def _free(self) -> None:
        """Let the connection take another query while a scan is being read."""
        if self._answers is not None:
            self._answers.drain()
            self._answers = None

    def _tail_after(self, after: int) -> Tail:
        if self.cut < after:
            raise SourceAwayError(
                self._server.source,
                f"a snapshot of it ends at position {self.cut}, before {after}",
                detail="another server answers under this address, or it was restored",
            )
        if self._tail is None or after < self._tail.start:
            self.close_tail()
            self._free()
            with self._server.errors():
                folds = folds_names(self._connection)
            kept = followed(self._tables, self._columns, folds=folds, strict=True)
            self._tail = Tail(self._server, self._reader, kept, after, self.cut)
            self._tail.read_to(max(self._touched, self.cut))
        return self._tail

    def close_tail(self) -> None:
        if self._tail is not None:
            self._tail.close()
            self._tail = None

    def close(self) -> None:
        self.close_tail()
        if self._answers is not None:
            self._answers.finish()
        if self._connection.open:
            # Not an orderly end, which would first read all that is left of a scan.
            connection: Any = self._connection
            connection._force_close()
