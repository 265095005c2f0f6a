"""What capture by triggers puts into a PostgreSQL database, all of it in the schema `viewkeeper`.

    viewkeeper.database    one row: a random id
    viewkeeper.look        positions: each is a snapshot that was taken, with its time
    viewkeeper.reader      who follows which columns, and how far each has read; leases have an end
    viewkeeper.log_OID     changes of one table: transaction id, sign, values by column number
    viewkeeper.capture_OID the function that its triggers call

The sign is 1 or -1; 0 says that the table was emptied, -2 that one of its partitions was, NULL that
a followed column was not there any more: a trigger never makes the application's write fail. Values
are what PostgreSQL itself would write, under settings that belong to the function.

Making a trigger waits for everybody who is writing to the table, so every transaction is captured
as a whole or visible before the next look.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import psycopg
from psycopg import errors

from viewkeeper.errors import SchemaError
from viewkeeper.sources.postgres.table import Table
from viewkeeper.sources.postgres.types import quote

SCHEMA = "viewkeeper"
LOCK = 1986618741
"""The advisory lock under which positions are made and captures changed."""

_TABLES = """
CREATE SCHEMA IF NOT EXISTS viewkeeper;
CREATE TABLE IF NOT EXISTS viewkeeper.database (id uuid NOT NULL DEFAULT gen_random_uuid());
CREATE TABLE IF NOT EXISTS viewkeeper.look (
  position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, snapshot pg_snapshot NOT NULL,
  at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE TABLE IF NOT EXISTS viewkeeper.reader (
  reader text PRIMARY KEY, position bigint NOT NULL, tables jsonb NOT NULL, until timestamptz);
INSERT INTO viewkeeper.database SELECT WHERE NOT EXISTS (SELECT FROM viewkeeper.database)
"""
_SETTINGS = (
    "search_path = pg_catalog, pg_temp",
    "\"TimeZone\" = 'UTC'",
    "\"DateStyle\" = 'ISO'",
    "extra_float_digits = 1",
    "bytea_output = 'hex'",
)
_FIRES = """
SELECT count(*) FROM pg_trigger g JOIN pg_proc p ON p.oid = g.tgfoid
 WHERE g.tgrelid = %s AND p.proname = %s AND p.pronamespace = to_regnamespace('viewkeeper')
   AND g.tgenabled IN ('O', 'A')
"""


def is_installed(connection: psycopg.Connection[Any]) -> bool:
    row = connection.execute("SELECT to_regclass('viewkeeper.reader') IS NOT NULL").fetchone()
    return row is not None and bool(row[0])


def install(connection: psycopg.Connection[Any], source: str) -> None:
    try:
        connection.execute(_TABLES.encode())
    except errors.InsufficientPrivilege as error:
        raise SchemaError(
            source,
            "the role may not make the schema viewkeeper",
            detail=str(error).strip(),
            hint=f"GRANT CREATE ON DATABASE {quote(connection.info.dbname)} TO "
            f"{quote(connection.info.user)};",
        ) from None


def capture(
    connection: psycopg.Connection[Any],
    source: str,
    table: Table,
    columns: Mapping[str, int],
) -> None:
    """Have these columns (names with their numbers) of a table logged from now on."""
    for statement in _statements(table, columns):
        try:
            connection.execute(statement.encode())
        except errors.InsufficientPrivilege as error:
            raise SchemaError(
                source,
                f'the role may not put triggers on table "{table.asked}"',
                detail=str(error).strip(),
                hint=f"let it be a member of the table's owner: GRANT ... TO "
                f"{quote(connection.info.user)};",
            ) from None


def log_name(oid: int) -> str:
    return f"{SCHEMA}.log_{oid}"


def _statements(table: Table, columns: Mapping[str, int]) -> Iterator[str]:
    log = log_name(table.oid)
    yield (
        f"CREATE TABLE IF NOT EXISTS {log} (seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
        " xid xid8 NOT NULL DEFAULT pg_current_xact_id(),"
        " at timestamptz NOT NULL DEFAULT clock_timestamp(), sign smallint)"
    )
    yield f"CREATE INDEX IF NOT EXISTS log_{table.oid}_xid ON {log} (xid)"
    for number in columns.values():
        yield f"ALTER TABLE {log} ADD COLUMN IF NOT EXISTS c{number} text"
    yield _function(table, columns)
    yield from _triggers(table)


def _function(table: Table, columns: Mapping[str, int]) -> str:
    log = log_name(table.oid)
    targets = "".join(f", c{number}" for number in columns.values())
    settings = " ".join(f"SET {setting}" for setting in _SETTINGS)

    def row(sign: int, alias: str) -> str:
        values = "".join(f", {_text(table, name, alias)}" for name in columns)
        return f"SELECT {sign}{values}"

    if table.partitioned:
        old, new = row(-1, "OLD"), row(1, "NEW")
    else:
        old, new = f"{row(-1, 't')} FROM stale t", f"{row(1, 't')} FROM fresh t"
    return f"""
CREATE OR REPLACE FUNCTION {SCHEMA}.capture_{table.oid}() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER {settings} AS $viewkeeper$
BEGIN
  IF TG_OP IN ('UPDATE', 'DELETE') THEN
    INSERT INTO {log} (sign{targets}) {old};
  END IF;
  IF TG_OP IN ('UPDATE', 'INSERT') THEN
    INSERT INTO {log} (sign{targets}) {new};
  END IF;
  IF TG_OP = 'TRUNCATE' THEN
    INSERT INTO {log} (sign) VALUES (CASE TG_RELID WHEN {table.oid} THEN 0 ELSE -2 END);
  END IF;
  RETURN NULL;
EXCEPTION
  WHEN undefined_column THEN
    INSERT INTO {log} (sign) VALUES (NULL);
    RETURN NULL;
  WHEN undefined_table THEN
    -- The log was removed, which whoever looks finds out.
    RETURN NULL;
END $viewkeeper$"""


def _text(table: Table, name: str, alias: str) -> str:
    """A value as PostgreSQL writes it; a cast would spell these otherwise."""
    value = f"{alias}.{quote(name)}"
    base = next(column.base for column in table.columns if column.name == name)
    if base in ("bool", "bpchar"):
        return f"CASE WHEN {value} IS NULL THEN NULL ELSE concat({value}) END"
    return f"{value}::text"


def _triggers(table: Table) -> Iterator[str]:
    call = f"EXECUTE FUNCTION {SCHEMA}.capture_{table.oid}()"
    if table.partitioned:
        events = {"row": "AFTER INSERT OR UPDATE OR DELETE"}
        yield (
            f"CREATE OR REPLACE TRIGGER viewkeeper_row {events['row']} ON {table.quoted} "
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
                f"CREATE OR REPLACE TRIGGER viewkeeper_{event} AFTER {event} ON {table.quoted} "
                f"REFERENCING {referencing} FOR EACH STATEMENT {call}"
            )
    for name in dict.fromkeys([table.quoted, *(part.name for part in table.parts)]):
        yield (
            f"CREATE OR REPLACE TRIGGER viewkeeper_truncate AFTER TRUNCATE ON {name} "
            f"FOR EACH STATEMENT {call}"
        )
    yield from (f"ALTER TABLE {table.quoted} ENABLE ALWAYS TRIGGER {n}" for n in names(table))


def names(table: Table) -> tuple[str, ...]:
    if table.partitioned:
        return ("viewkeeper_row", "viewkeeper_truncate")
    return ("viewkeeper_insert", "viewkeeper_update", "viewkeeper_delete", "viewkeeper_truncate")


def fires(connection: psycopg.Connection[Any], oid: int, partitioned: bool) -> bool:
    """Whether all triggers of a capture are there and enabled."""
    row = connection.execute(_FIRES, (oid, f"capture_{oid}")).fetchone()
    return row is not None and int(row[0]) == (2 if partitioned else 4)


def release(connection: psycopg.Connection[Any], oid: int) -> None:
    """Stop capturing a table: triggers, function and log go."""
    connection.execute(f"DROP FUNCTION IF EXISTS {SCHEMA}.capture_{oid}() CASCADE".encode())
    connection.execute(f"DROP TABLE IF EXISTS {log_name(oid)}".encode())


def uninstall(connection: psycopg.Connection[Any]) -> None:
    """Everything goes, also the triggers, which depend on the functions."""
    connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE".encode())
