"""Messages that put every schema change into the change stream, at its place.

Event triggers write them. They are put into the database when tables are followed, where the role
may, which takes a superuser, into a schema of this reader's own; detaching removes them. After
every command on a table, and whenever one is dropped, they write a message with the table's shape
(`shape_query`) and the text of the statement. The message is part of the transaction, so it lies
between the rows of before and after. No error in them makes the application's statement fail: the
shapes that they could not report are found by looking.

A message counts as lying at its end in the log, which is where the next record begins. The block
that catches errors is a subtransaction, and of two of those the one record might be decoded before
the other. So an empty message follows, and no row comes between.

Without event triggers, a look compares the catalogue with the history of shapes, and writes such a
message itself (`emit_shapes`), in a transaction that holds the table's lock from before the shape
was read: no other shape can be committed in between, so from that message on the table has that
shape. The message comes again whenever the stream is read again, and with it what is reported.

An event trigger sees that a column has another type, not how its values were made. The text of the
statement says it (`plain_columns`): without USING, or with one that is the cast alone, the values
are casts. A text that is anything else than plain DDL (a function that does it, a block) says
nothing.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict

import sqlglot
from psycopg import errors
from sqlglot import exp
from sqlglot.errors import SqlglotError

from viewkeeper.sources.postgres.schema import drop_empty_schema
from viewkeeper.sources.postgres.shape_query import BODY, PostgresShape, read_shapes
from viewkeeper.sources.postgres.types import PgConnection, quote_name, read_row

MESSAGE = "shape "
"""What such a message begins with, before the JSON."""

_LOCK_WAIT = "SET LOCAL lock_timeout = '200ms'"
_EMIT_SHAPE = "SELECT pg_logical_emit_message(true, 'viewkeeper', %s::text)"
_EMIT = f"""PERFORM pg_logical_emit_message(true, 'viewkeeper', '{MESSAGE}' || json_build_object(
    'shape', {BODY}, 'query', current_query())::text)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
   WHERE c.relkind IN ('r', 'p') AND c.relpersistence <> 't' AND NOT c.relispartition"""
_NAME_MAX = 63 - len("_changed")
_PAD = "PERFORM pg_logical_emit_message(true, 'viewkeeper', '')"
_PRESENT = """
SELECT count(*) FROM pg_event_trigger e JOIN pg_proc p ON p.oid = e.evtfoid
  JOIN pg_namespace n ON n.oid = p.pronamespace
 WHERE n.nspname = %s AND e.evtenabled IN ('O', 'A')
   AND (p.proname <> 'changed' OR p.prosrc LIKE '%%pg_enum%%')
"""
_USERS = """WITH RECURSIVE used (type) AS (
      SELECT d.objid FROM pg_event_trigger_ddl_commands() d JOIN pg_type t ON t.oid = d.objid
       WHERE d.classid = 'pg_type'::regclass AND t.typtype = 'e'
      UNION SELECT u.oid FROM used b JOIN pg_type u ON b.type IN (CASE u.typtype WHEN 'd'
        THEN u.typbasetype END, CASE u.typcategory WHEN 'A' THEN u.typelem END))
    SELECT a.attrelid FROM used u JOIN pg_attribute a ON a.atttypid = u.type
     WHERE NOT a.attisdropped"""
"""The tables that have a column of an enum, of an array of it, or of a domain over either."""


def watch_statements(name: str) -> tuple[str, ...]:
    """The statements with which a superuser has schema changes reported to this reader."""
    schema = quote_name(name)
    changed, dropped = (quote_name(trigger) for trigger in event_trigger_names(name))
    return (
        f"CREATE SCHEMA IF NOT EXISTS {schema}",
        f"""CREATE FUNCTION {schema}.changed() RETURNS event_trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $viewkeeper$
BEGIN
  {_EMIT} AND c.oid IN (
    SELECT coalesce(i.indrelid, d.objid) FROM pg_event_trigger_ddl_commands() d
      LEFT JOIN pg_index i ON i.indexrelid = d.objid WHERE d.classid = 'pg_class'::regclass
    UNION SELECT k.oid FROM pg_event_trigger_ddl_commands() d
      JOIN pg_class k ON k.relnamespace = d.objid WHERE d.classid = 'pg_namespace'::regclass);
  IF EXISTS (SELECT FROM pg_event_trigger_ddl_commands() WHERE classid = 'pg_type'::regclass) THEN
    {_EMIT} AND c.oid = ANY(ARRAY({_USERS}));
  END IF;
  {_PAD};
EXCEPTION WHEN OTHERS THEN NULL;
END $viewkeeper$""",
        f"""CREATE FUNCTION {schema}.dropped() RETURNS event_trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $viewkeeper$
BEGIN
  {_EMIT} AND c.oid IN (
    SELECT objid FROM pg_event_trigger_dropped_objects() WHERE classid = 'pg_class'::regclass);
  PERFORM pg_logical_emit_message(true, 'viewkeeper',
    '{MESSAGE}' || json_build_object('gone', objid::int8)::text)
    FROM pg_event_trigger_dropped_objects()
   WHERE classid = 'pg_class'::regclass AND objsubid = 0 AND object_type = 'table';
  {_PAD};
EXCEPTION WHEN OTHERS THEN NULL;
END $viewkeeper$""",
        f"CREATE EVENT TRIGGER {changed} ON ddl_command_end EXECUTE FUNCTION {schema}.changed()",
        f"CREATE EVENT TRIGGER {dropped} ON sql_drop EXECUTE FUNCTION {schema}.dropped()",
        f"ALTER EVENT TRIGGER {changed} ENABLE ALWAYS",
        f"ALTER EVENT TRIGGER {dropped} ENABLE ALWAYS",
    )


def is_watched(connection: PgConnection, name: str) -> bool:
    """Whether the event triggers are there and fire."""
    return read_row(connection, _PRESENT, (name,)) == (2,)


def create_watch(connection: PgConnection, name: str) -> bool:
    """Have event triggers report schema changes, if the role may; whether they do."""
    if is_watched(connection, name):
        return True
    try:
        with connection.transaction():
            _drop_watch(connection, name)
            for statement in watch_statements(name):
                connection.execute(statement.encode())
    except errors.InsufficientPrivilege:
        return False
    return True


def remove_watch(connection: PgConnection, name: str) -> tuple[str, ...]:
    """Remove the event triggers; what of others is left in their schema, or depends on them."""
    try:
        with connection.transaction():
            _drop_watch(connection, name)
            return drop_empty_schema(connection, name)
    except errors.InsufficientPrivilege:
        # Those that a superuser made for us are his to drop.
        return (
            f"the event triggers {' and '.join(event_trigger_names(name))}, made by another role",
        )
    except errors.DependentObjectsStillExist as error:
        return (f"schema {name}: {error.diag.message_detail}",)


def _drop_watch(connection: PgConnection, name: str) -> None:
    """Drop what is ours one by one: others may have put something of theirs beside it."""
    for trigger in event_trigger_names(name):
        connection.execute(f"DROP EVENT TRIGGER IF EXISTS {quote_name(trigger)}".encode())
    for function in ("changed", "dropped"):
        connection.execute(f"DROP FUNCTION IF EXISTS {quote_name(name)}.{function}()".encode())


def event_trigger_names(name: str) -> tuple[str, str]:
    """The names of both event triggers; a long name keeps its end, which is the project's."""
    short = name if len(name) <= _NAME_MAX else f"{name[: _NAME_MAX - 9]}{name[-9:]}"
    return f"{short}_changed", f"{short}_dropped"


def emit_shapes(
    connection: PgConnection, shapes: Mapping[int, PostgresShape], watched: bool
) -> int | None:
    """Write these shapes into the stream; the 64-bit id of the transaction that has them.

    None if one of the tables is being changed right now: the next look tries again.
    """
    locked = [shape for shape in shapes.values() if not shape.gone]
    try:
        with connection.transaction():
            connection.execute(_LOCK_WAIT)
            for shape in locked:
                name = f"{quote_name(shape.schema)}.{quote_name(shape.name)}"
                connection.execute(f"LOCK TABLE {name} IN ACCESS SHARE MODE".encode())
            living = read_shapes(connection, [shape.oid for shape in locked])
            if any(_is_elsewhere(shape, living.get(shape.oid)) for shape in locked):
                return None
            for shape in (*living.values(), *(each for each in shapes.values() if each.gone)):
                body = json.dumps({"found": asdict(shape), "watched": watched})
                connection.execute(_EMIT_SHAPE, (f"{MESSAGE}{body}",))
            return int(read_row(connection, "SELECT pg_current_xact_id()::text::int8")[0])
    except (
        errors.LockNotAvailable,
        errors.UndefinedTable,
        errors.InvalidSchemaName,
        errors.InsufficientPrivilege,
    ):
        return None


def _is_elsewhere(shape: PostgresShape, now: PostgresShape | None) -> bool:
    return now is None or (now.schema, now.name) != (shape.schema, shape.name)


# A longer one is not written by hand, and reading it would hold everybody up.
_READ_MAX = 100_000
_HARMLESS = (exp.Alter, exp.Create, exp.Drop, exp.Transaction, exp.Commit, exp.Rollback)


def plain_columns(text: str, columns: Mapping[int, frozenset[str]]) -> tuple[int, ...]:
    """Which of these columns, by all their names, the statement only casts, or leaves alone.

    >>> columns = {1: frozenset({"a"}), 2: frozenset({"b"})}
    >>> plain_columns("ALTER TABLE t ALTER a TYPE int USING a * 2, ALTER b TYPE text", columns)
    (2,)
    >>> plain_columns("ALTER TABLE t ALTER a TYPE bigint USING a::bigint", columns)
    (1, 2)
    >>> plain_columns("SELECT change_everything()", columns)
    ()
    """
    statements = _parse_statements(text) if len(text) <= _READ_MAX else []
    if not statements or not all(isinstance(each, _HARMLESS) for each in statements):
        return ()
    computed = {
        action.this.name if action.this.args.get("quoted") else action.this.name.lower()
        for each in statements
        for action in each.find_all(exp.AlterColumn)
        if action.args.get("using") and not _is_cast(action)
    }
    return tuple(number for number, names in columns.items() if not names & computed)


def _parse_statements(text: str) -> list[exp.Expr]:
    logger = logging.getLogger("sqlglot")
    level = logger.level
    # What it cannot read is no news for anybody: it counts as unknown here.
    logger.setLevel(logging.ERROR)
    try:
        return [each for each in sqlglot.parse(text, read="postgres") if each is not None]
    except (SqlglotError, RecursionError):
        return []
    finally:
        logger.setLevel(level)


def _is_cast(action: exp.AlterColumn) -> bool:
    """Whether USING is what would be done without it."""
    using = action.args["using"]
    return (
        isinstance(using, exp.Cast)
        and isinstance(using.this, exp.Column)
        and using.this.name == action.this.name
        and using.to == action.args.get("dtype")
    )
