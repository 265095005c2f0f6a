"""What `doctor` finds about a database that is captured by triggers, and what mends it.

Triggers can be put on a table by its owner; the log needs a schema, which somebody must let us
make.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from viewkeeper.errors import GapError, SchemaError, SourceError
from viewkeeper.sources.postgres.database_description import PostgresDescriber
from viewkeeper.sources.postgres.doctor import check_clock, table_findings
from viewkeeper.sources.postgres.triggers.capture import TriggerCapture
from viewkeeper.sources.postgres.triggers.installation import is_installed
from viewkeeper.sources.postgres.triggers.log import (
    LoggedTable,
    needed_columns,
    read_reader,
    retained_by_readers,
)
from viewkeeper.sources.postgres.types import PgConnection, quote_name, read_row
from viewkeeper.updates.schema_change import name_of_handle
from viewkeeper.updates.source_protocol import (
    ChangesBehind,
    Finding,
    Health,
    Tables,
    finding_of_error,
)

_SERVER = """
SELECT has_database_privilege(current_database(), 'CREATE'), current_database(),
       extract(epoch FROM clock_timestamp())::float8
"""
_OWNER = (
    "SELECT pg_has_role(relowner, 'USAGE'), relowner::regrole::text FROM pg_class WHERE oid = %s"
)


class TriggerDoctor:
    """Examines one source that is captured by triggers."""

    def __init__(self, capture: TriggerCapture, describer: PostgresDescriber) -> None:
        self._capture = capture
        self._describer = describer

    def read_health(self, positions: Iterable[int]) -> Health:
        """How far the database is, and who keeps how many rows of the log."""
        own = self._capture.reader
        with self._describer.connections.use_control() as control:
            followed = read_reader(control, own) if is_installed(control) else None
            if followed is None:
                return Health(followed=False, position=None)
            retained = tuple(retained_by_readers(control, own, needed_columns(control)))
            behind = {at: self._behind_of(control, followed[1], at) for at in positions}
            return Health(
                followed=True,
                position=self._capture.newest_look(control),
                retained=max((each.amount for each in retained), default=0),
                readers=retained,
                behind={at: each for at, each in behind.items() if each is not None},
            )

    def _behind_of(
        self, control: PgConnection, tables: Mapping[str, LoggedTable], after: int
    ) -> ChangesBehind | None:
        try:
            pending = [each for _, each in self._capture.find_pending(control, tables, after)]
        except GapError:
            # A look reports it; here it is only a number that is not known.
            return None
        if not pending:
            return None
        oldest = min(each.oldest_at for each in pending)
        return ChangesBehind(sum(each.changes for each in pending), oldest)

    def diagnose_source(self, tables: Tables) -> list[Finding]:
        """Everything that can be wrong; one finding if the server does not answer."""
        try:
            with self._describer.connections.use_control() as control:
                return list(self._examine_server(control, tables))
        except SourceError as error:
            return [finding_of_error("reachable", error)]

    def _examine_server(self, control: PgConnection, tables: Tables) -> Iterator[Finding]:
        version = control.info.server_version
        yield Finding("reachable", "good", "the server answers")
        yield Finding("version", "good", f"PostgreSQL {version // 10000}.{version % 10000}")
        may_create, database, now = read_row(control, _SERVER)
        if may_create or is_installed(control):
            yield Finding("privileges", "good", "the schema viewkeeper can be made")
        else:
            role = quote_name(control.info.user)
            mend = f"GRANT CREATE ON DATABASE {quote_name(database)} TO {role};"
            yield Finding("privileges", "bad", "the schema viewkeeper cannot be made", mend)
        for name, columns in tables.items():
            yield from self._check_table(control, name, columns)
        yield check_clock(float(now))

    def _check_table(
        self, control: PgConnection, name: str, columns: Sequence[str]
    ) -> Iterator[Finding]:
        check = f"table {name_of_handle(name)}"
        try:
            table = self._describer.read_by_handle(control, name)
        except SchemaError as error:
            yield finding_of_error(check, error)
            return
        row = control.execute(_OWNER, (table.oid,)).fetchone()
        if row is not None and not row[0]:
            mend = f"GRANT {row[1]} TO {quote_name(control.info.user)};"
            yield Finding(check, "bad", "only its owner can put triggers on it", mend)
        obstacles = self._describer.find_obstacles(table, columns)
        yield from table_findings(control, check, table, columns, obstacles)
