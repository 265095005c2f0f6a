"""What `doctor` finds about a database that is captured by triggers, and what mends it.

Triggers can be put on a table by its owner; the log needs a schema, which somebody must let us
make.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psycopg

from viewkeeper.errors import SchemaError
from viewkeeper.sources.postgres.decoding.follow import check_privilege
from viewkeeper.sources.postgres.doctor import check_clock
from viewkeeper.sources.postgres.schema import PostgresTable
from viewkeeper.sources.postgres.triggers.installation import is_installed
from viewkeeper.sources.postgres.types import quote_name
from viewkeeper.updates.source_protocol import Finding, Tables

Check = Callable[[PostgresTable, Sequence[str]], None]
Find = Callable[[psycopg.Connection[Any], str], PostgresTable]
_SERVER = """
SELECT has_database_privilege(current_database(), 'CREATE'), current_database(),
       extract(epoch FROM clock_timestamp())::float8
"""
_OWNER = (
    "SELECT pg_has_role(relowner, 'USAGE'), relowner::regrole::text FROM pg_class WHERE oid = %s"
)


def trigger_findings(
    control: psycopg.Connection[Any], source: str, tables: Tables, find: Find, check: Check
) -> Iterator[Finding]:
    """Everything that can be wrong with a server that answers."""
    version = control.info.server_version
    yield Finding("reachable", "good", "the server answers")
    yield Finding("version", "good", f"PostgreSQL {version // 10000}.{version % 10000}")
    row = control.execute(_SERVER).fetchone()
    assert row is not None
    may_create, database, now = row
    if may_create or is_installed(control):
        yield Finding("privileges", "good", "the schema viewkeeper can be made")
    else:
        mend = (
            f"GRANT CREATE ON DATABASE {quote_name(database)} TO {quote_name(control.info.user)};"
        )
        yield Finding("privileges", "bad", "the schema viewkeeper cannot be made", mend)
    for name, columns in tables.items():
        yield _check_table(control, source, find, name, columns, check)
    yield check_clock(float(now))


def _check_table(
    control: psycopg.Connection[Any],
    source: str,
    find: Find,
    name: str,
    columns: Sequence[str],
    check: Check,
) -> Finding:
    title = f"table {name}"
    try:
        table = find(control, name)
        check(table, columns)
        check_privilege(control, source, table)
    except SchemaError as error:
        return Finding(title, "bad", error.message, error.hint)
    row = control.execute(_OWNER, (table.oid,)).fetchone()
    if row is not None and not row[0]:
        mend = f"GRANT {row[1]} TO {quote_name(control.info.user)};"
        return Finding(title, "bad", "only its owner can put triggers on it", mend)
    return Finding(title, "good", f"{len(columns)} columns can be kept exactly")
