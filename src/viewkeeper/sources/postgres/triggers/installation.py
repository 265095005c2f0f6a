"""What capture by triggers puts into a PostgreSQL database, all of it in the schema `viewkeeper`.

    viewkeeper.database    one row: a random id
    viewkeeper.look        positions: each is a snapshot that was taken, with its time
    viewkeeper.reader      who follows which columns, and how far each has read; leases have an end
    viewkeeper.shape       the shapes of followed tables, each from some position on
    viewkeeper.log_OID     changes of one table: transaction id, sign, values by column number
    viewkeeper.capture_OID the function that its triggers call

The sign is 1 or -1; 0 says that the table was emptied, -2 that one of its partitions was, NULL that
a change could not be logged: a trigger never makes the application's write fail. Values are what
PostgreSQL itself would write, under settings that belong to the function.

Making a trigger waits for everybody who is writing to the table, so every transaction is captured
as a whole or visible before the next look.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import errors

from viewkeeper.errors import SchemaError
from viewkeeper.sources.postgres.schema import PostgresTable
from viewkeeper.sources.postgres.triggers.capture_function import function_body
from viewkeeper.sources.postgres.types import quote_literal, quote_name
from viewkeeper.updates.schema_change import name_of_handle

SCHEMA = "viewkeeper"
LOCK = 1986618741
"""The advisory lock under which positions are made and captures changed."""
_COLUMNS = {
    "database": ["id"],
    "look": ["position", "snapshot", "at"],
    "reader": ["reader", "position", "tables", "until"],
    "shape": ["position", "oid", "shape"],
}
OWN_TABLES = tuple(_COLUMNS)

_TABLES = """
CREATE SCHEMA IF NOT EXISTS viewkeeper;
CREATE TABLE IF NOT EXISTS viewkeeper.database (id uuid NOT NULL DEFAULT gen_random_uuid());
CREATE TABLE IF NOT EXISTS viewkeeper.look (
  position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, snapshot pg_snapshot NOT NULL,
  at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE TABLE IF NOT EXISTS viewkeeper.reader (
  reader text PRIMARY KEY, position bigint NOT NULL, tables jsonb NOT NULL, until timestamptz);
CREATE TABLE IF NOT EXISTS viewkeeper.shape (
  position bigint NOT NULL, oid bigint NOT NULL, shape jsonb NOT NULL, PRIMARY KEY (oid, position));
INSERT INTO viewkeeper.database SELECT WHERE NOT EXISTS (SELECT FROM viewkeeper.database)
"""
_SETTINGS = (
    "search_path = pg_catalog, pg_temp",
    "\"TimeZone\" = 'UTC'",
    "\"DateStyle\" = 'ISO'",
    "extra_float_digits = 1",
    "bytea_output = 'hex'",
)
_FOUND = """
SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0
   AND NOT attisdropped ORDER BY attnum
"""
_SOURCE = """
SELECT prosrc FROM pg_proc WHERE proname = %s AND pronamespace = to_regnamespace('viewkeeper')
"""
_FIRES = """
SELECT count(*) FROM pg_trigger g JOIN pg_proc p ON p.oid = g.tgfoid
 WHERE g.tgrelid = %s AND p.proname = %s AND p.pronamespace = to_regnamespace('viewkeeper')
   AND g.tgenabled IN ('O', 'A')
"""


def is_installed(connection: psycopg.Connection[Any]) -> bool:
    row = connection.execute("SELECT to_regclass('viewkeeper.reader') IS NOT NULL").fetchone()
    return row is not None and bool(row[0])


def install_tables(connection: psycopg.Connection[Any], source: str) -> None:
    try:
        connection.execute(_TABLES.encode())
    except errors.InsufficientPrivilege as error:
        raise SchemaError(
            source,
            "the role may not make the schema viewkeeper",
            detail=str(error).strip(),
            hint=f"GRANT CREATE ON DATABASE {quote_name(connection.info.dbname)} TO "
            f"{quote_name(connection.info.user)};",
        ) from None
    for table, columns in _COLUMNS.items():
        if [name for (name,) in connection.execute(_FOUND, (f"{SCHEMA}.{table}",))] != columns:
            raise SchemaError(
                source,
                f"{SCHEMA}.{table} is there and is not a table of Viewkeeper",
                hint=f"rename it: ALTER TABLE {SCHEMA}.{table} RENAME TO another_name;",
            )


def capture_table(
    connection: psycopg.Connection[Any], source: str, table: PostgresTable, numbers: Collection[int]
) -> None:
    """Have these columns of a table, by their numbers, logged from now on."""
    for statement in _capture_statements(table, numbers):
        try:
            connection.execute(statement.encode())
        except errors.InsufficientPrivilege as error:
            raise SchemaError(
                source,
                f'the role may not put triggers on table "{name_of_handle(table.asked)}"',
                detail=str(error).strip(),
                hint=f"let it be a member of the table's owner: GRANT ... TO "
                f"{quote_name(connection.info.user)};",
            ) from None


def renew_function(
    connection: psycopg.Connection[Any], table: PostgresTable, numbers: Collection[int]
) -> None:
    """Let the triggers know what columns are called now; they find out themselves if not."""
    row = connection.execute(_SOURCE, (f"capture_{table.oid}",)).fetchone()
    if row is None or row[0] == function_body(table, numbers, log_name(table.oid)):
        return
    # The function may belong to another reader's role.
    with suppress(errors.InsufficientPrivilege), connection.transaction():
        connection.execute(_function_statement(table, numbers).encode())


def log_name(oid: int) -> str:
    return f"{SCHEMA}.log_{oid}"


def _capture_statements(table: PostgresTable, numbers: Collection[int]) -> Iterator[str]:
    log = log_name(table.oid)
    yield (
        f"CREATE TABLE IF NOT EXISTS {log} (seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
        " xid xid8 NOT NULL DEFAULT pg_current_xact_id(),"
        " at timestamptz NOT NULL DEFAULT clock_timestamp(), sign smallint)"
    )
    yield f"CREATE INDEX IF NOT EXISTS log_{table.oid}_xid ON {log} (xid)"
    for number in sorted(numbers):
        yield f"ALTER TABLE {log} ADD COLUMN IF NOT EXISTS c{number} text"
    yield _function_statement(table, numbers)
    yield from _trigger_statements(table)


def _function_statement(table: PostgresTable, numbers: Collection[int]) -> str:
    settings = " ".join(f"SET {setting}" for setting in _SETTINGS)
    body = function_body(table, numbers, log_name(table.oid))
    return f"""
CREATE OR REPLACE FUNCTION {SCHEMA}.capture_{table.oid}() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER {settings} AS {quote_literal(body)}"""


def _trigger_statements(table: PostgresTable) -> Iterator[str]:
    call = f"EXECUTE FUNCTION {SCHEMA}.capture_{table.oid}()"
    if table.partitioned:
        events = {"row": "AFTER INSERT OR UPDATE OR DELETE"}
        yield (
            f"CREATE OR REPLACE TRIGGER viewkeeper_row {events['row']} ON {table.quoted_name} "
            f"FOR EACH ROW {call}"
        )
    else:
        tables = {
            "insert": "NEW TABLE AS fresh",
            "update": "OLD TABLE AS stale NEW TABLE AS fresh",
            "delete": "OLD TABLE AS stale",
        }
        for event, referencing in tables.items():
            yield (
                f"CREATE OR REPLACE TRIGGER viewkeeper_{event} AFTER {event} ON "
                f"{table.quoted_name} "
                f"REFERENCING {referencing} FOR EACH STATEMENT {call}"
            )
    for name in dict.fromkeys([table.quoted_name, *(part.name for part in table.parts)]):
        yield (
            f"CREATE OR REPLACE TRIGGER viewkeeper_truncate AFTER TRUNCATE ON {name} "
            f"FOR EACH STATEMENT {call}"
        )
    yield from (
        f"ALTER TABLE {table.quoted_name} ENABLE ALWAYS TRIGGER {n}"
        for n in capture_trigger_names(table)
    )


def capture_trigger_names(table: PostgresTable) -> tuple[str, ...]:
    if table.partitioned:
        return ("viewkeeper_row", "viewkeeper_truncate")
    return ("viewkeeper_insert", "viewkeeper_update", "viewkeeper_delete", "viewkeeper_truncate")


def has_triggers(connection: psycopg.Connection[Any], oid: int, partitioned: bool) -> bool:
    """Whether all triggers of a capture are there and enabled."""
    row = connection.execute(_FIRES, (oid, f"capture_{oid}")).fetchone()
    return row is not None and int(row[0]) == (2 if partitioned else 4)
