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

The function has the names that the columns had when it was made. Before it uses them it asks what
they are called now, in a way that no snapshot of the writer makes look older than it is, and
composes its statement again if the names have changed. So a renamed column is logged under its
number at once, and one that is gone as NULL: whatever happens to the table, no write to it fails
because of us. The next look makes the function with the new names.

Others may have put tables into the schema `viewkeeper`, or views over our logs. So every object of
ours is removed by its own name and without CASCADE, and the schema only if nothing is left in it.
An object of somebody else that depends on ours makes the whole removal an error that names it, and
nothing is changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress

from psycopg import errors

from viewkeeper.errors import SchemaError
from viewkeeper.sources.postgres.schema import PostgresTable, drop_empty_schema
from viewkeeper.sources.postgres.types import PgConnection, quote_literal, quote_name, read_row
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
    "\"IntervalStyle\" = 'postgres'",
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


def is_installed(connection: PgConnection) -> bool:
    return bool(read_row(connection, "SELECT to_regclass('viewkeeper.reader') IS NOT NULL")[0])


def install_tables(connection: PgConnection, source: str) -> None:
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
    connection: PgConnection, source: str, table: PostgresTable, numbers: Collection[int]
) -> None:
    """Have these columns of a table, by their numbers, logged from now on."""
    for statement in _capture_statements(table, numbers):
        try:
            connection.execute(statement.encode())
        except errors.InsufficientPrivilege as error:
            raise _owner_error(connection, source, table, str(error).strip()) from None


def require_owner(connection: PgConnection, source: str, table: PostgresTable) -> None:
    """An error if the role may not put triggers on a table."""
    query = "SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = %s"
    if connection.execute(query, (table.oid,)).fetchone() == (False,):
        raise _owner_error(connection, source, table, "it is not a member of the table's owner")


def _owner_error(
    connection: PgConnection, source: str, table: PostgresTable, detail: str
) -> SchemaError:
    return SchemaError(
        source,
        f'the role may not put triggers on table "{name_of_handle(table.asked)}"',
        detail=detail,
        hint=f"let it be a member of the table's owner: GRANT ... TO "
        f"{quote_name(connection.info.user)};",
    )


def renew_function(
    connection: PgConnection, table: PostgresTable, numbers: Collection[int]
) -> None:
    """Let the triggers know what columns are called now; they find out themselves if not."""
    row = connection.execute(_SOURCE, (f"capture_{table.oid}",)).fetchone()
    if row is None or row[0] == _function_body(table, numbers, log_name(table.oid)):
        return
    # The function may belong to another reader's role.
    with suppress(errors.InsufficientPrivilege), connection.transaction():
        connection.execute(_function_statement(table, numbers).encode())


def log_name(oid: int) -> str:
    return f"{SCHEMA}.log_{oid}"


def _capture_statements(table: PostgresTable, numbers: Collection[int]) -> Iterator[str]:
    log = log_name(table.oid)
    # First, since its writers hold it when their triggers want the log.
    yield f"LOCK TABLE {table.quoted_name} IN SHARE ROW EXCLUSIVE MODE"
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
    body = _function_body(table, numbers, log_name(table.oid))
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


def has_triggers(connection: PgConnection, oid: int, partitioned: bool) -> bool:
    """Whether all triggers of a capture are there and enabled."""
    return read_row(connection, _FIRES, (oid, f"capture_{oid}")) == (2 if partitioned else 4,)


# A cast would spell a boolean and the blanks of a char otherwise.
_TEXT = "CASE WHEN {0} IS NULL THEN NULL ELSE concat({0}) END"
_BODY = """
DECLARE
  called text[]; listed text; picked text;
BEGIN
  IF TG_OP = 'TRUNCATE' THEN
    INSERT INTO {log} (sign) VALUES (CASE TG_RELID WHEN {oid} THEN 0 ELSE -2 END);
    RETURN NULL;
  END IF;
  called := ARRAY(SELECT nullif(a.name, '........pg.dropped.' || n.number || '........')
    FROM unnest({numbers}) WITH ORDINALITY AS n(number, place), LATERAL (SELECT
      (pg_identify_object_as_address('pg_class'::regclass, {oid}, n.number)).object_names[3]
      AS name) a ORDER BY n.place);
  IF called IS NOT DISTINCT FROM {expected} THEN
    {block}
    IF TG_OP IN ('UPDATE', 'DELETE') THEN
      INSERT INTO {log} (sign{targets}) SELECT -1{old};
    END IF;
    IF TG_OP IN ('UPDATE', 'INSERT') THEN
      INSERT INTO {log} (sign{targets}) SELECT 1{new};
    END IF;
    RETURN NULL;
    {ended}
  END IF;
  SELECT coalesce(string_agg(format(', c%s', n.number), '' ORDER BY n.place), ''),
      coalesce(string_agg(format(', {text}', called[n.place]), '' ORDER BY n.place), '')
    INTO listed, picked FROM unnest({numbers}) WITH ORDINALITY AS n(number, place)
   WHERE called[n.place] IS NOT NULL;
  IF TG_OP IN ('UPDATE', 'DELETE') THEN
    EXECUTE 'INSERT INTO {log} (sign' || listed || ') SELECT -1' || picked || ' FROM {stale};
  END IF;
  IF TG_OP IN ('UPDATE', 'INSERT') THEN
    EXECUTE 'INSERT INTO {log} (sign' || listed || ') SELECT 1' || picked || ' FROM {fresh};
  END IF;
  RETURN NULL;
EXCEPTION
  WHEN undefined_table THEN
    -- The log was removed, which whoever looks finds out.
    RETURN NULL;
  WHEN OTHERS THEN
    INSERT INTO {log} (sign) VALUES (NULL);
    RETURN NULL;
END """


def _function_body(table: PostgresTable, numbers: Collection[int], log: str) -> str:
    """What logs these columns of a table, as it is called now."""
    names = {column.number: column.name for column in table.columns if column.number in numbers}
    ordered = sorted(numbers)
    expected = ", ".join(quote_literal(names[n]) if n in names else "NULL" for n in ordered)

    def values(alias: str) -> str:
        texts = (_TEXT.format(f"{alias}.{quote_name(names[n])}") for n in ordered if n in names)
        return "".join(f", {text}" for text in texts)

    if table.partitioned:
        # Row by row, since a partition may have its columns in another order. A session that has
        # planned this does not take another type for a column: it goes on to the statement below.
        block, ended = "BEGIN", "EXCEPTION WHEN datatype_mismatch THEN NULL; END;"
        rows = {"old": values("OLD"), "new": values("NEW")}
        rows |= {"stale": "(SELECT ($1).*) t' USING OLD", "fresh": "(SELECT ($1).*) t' USING NEW"}
    else:
        block = ended = ""
        rows = {"old": f"{values('t')} FROM stale t", "new": f"{values('t')} FROM fresh t"}
        rows |= {"stale": "stale t'", "fresh": "fresh t'"}
    return _BODY.format(
        log=log,
        oid=table.oid,
        numbers=f"'{{{','.join(str(number) for number in ordered)}}}'::int[]",
        expected=f"ARRAY[{expected}]::text[]",
        targets="".join(f", c{number}" for number in ordered if number in names),
        text=_TEXT.format("t.%1$I"),
        block=block,
        ended=ended,
        **rows,
    )


_TRIGGERS = """
SELECT g.tgname, c.oid::regclass::text FROM pg_trigger g
  JOIN pg_proc p ON p.oid = g.tgfoid JOIN pg_class c ON c.oid = g.tgrelid
 WHERE p.proname = %s AND p.pronamespace = to_regnamespace('viewkeeper')
   AND NOT g.tgisinternal AND g.tgparentid = 0 AND starts_with(g.tgname, 'viewkeeper_')
"""


def remove_capture(connection: PgConnection, source: str, oid: int) -> None:
    """Stop capturing a table: triggers, function and log go."""
    with _name_dependents(source):
        for trigger, table in connection.execute(_TRIGGERS, (f"capture_{oid}",)).fetchall():
            connection.execute(f"DROP TRIGGER {quote_name(trigger)} ON {table}".encode())
        connection.execute(f"DROP FUNCTION IF EXISTS {SCHEMA}.capture_{oid}()".encode())
        connection.execute(f"DROP TABLE IF EXISTS {log_name(oid)}".encode())


def remove_installation(
    connection: PgConnection, source: str, captured: Collection[int]
) -> tuple[str, ...]:
    """Remove everything of ours; what of others is left in the schema, which stays for it."""
    if connection.execute("SELECT to_regclass('viewkeeper.shape')").fetchone() != (None,):
        stored = connection.execute("SELECT DISTINCT oid::int8 FROM viewkeeper.shape").fetchall()
        captured = {*captured, *(int(oid) for (oid,) in stored)}
    for oid in sorted(captured):
        remove_capture(connection, source, oid)
    with _name_dependents(source):
        for table in OWN_TABLES:
            connection.execute(f"DROP TABLE IF EXISTS {SCHEMA}.{table}".encode())
    return drop_empty_schema(connection, SCHEMA)


@contextmanager
def _name_dependents(source: str) -> Iterator[None]:
    """An error that names them if objects of others depend on what is dropped inside."""
    try:
        yield
    except errors.DependentObjectsStillExist as error:
        raise SchemaError(
            source,
            "objects that are not Viewkeeper's depend on its capture",
            detail=" ".join((error.diag.message_detail or str(error)).split()),
            hint="drop or change them, then `viewkeeper detach` again; nothing was removed",
        ) from None
