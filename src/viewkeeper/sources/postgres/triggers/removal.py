"""Taking capture by triggers out of a database again: what is ours, and nothing else.

Others may have put tables into the schema `viewkeeper`, or views over our logs. So every object of
ours is dropped by its own name and without CASCADE, and the schema only if nothing is left in it.
What somebody else has made to depend on ours makes the whole removal an error that names it, and
nothing is changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import errors

from viewkeeper.errors import SchemaError
from viewkeeper.sources.postgres.triggers.installation import OWN_TABLES, SCHEMA, log_name
from viewkeeper.sources.postgres.types import quote_name

_TRIGGERS = """
SELECT g.tgname, c.oid::regclass::text FROM pg_trigger g
  JOIN pg_proc p ON p.oid = g.tgfoid JOIN pg_class c ON c.oid = g.tgrelid
 WHERE p.proname = %s AND p.pronamespace = to_regnamespace('viewkeeper')
   AND NOT g.tgisinternal AND g.tgparentid = 0 AND starts_with(g.tgname, 'viewkeeper_')
"""
_LEFT = """
SELECT pg_describe_object(d.classid, d.objid, d.objsubid)
  FROM pg_depend d WHERE d.refclassid = 'pg_namespace'::regclass
   AND d.refobjid = to_regnamespace(%s) ORDER BY 1
"""


def remove_capture(connection: psycopg.Connection[Any], source: str, oid: int) -> None:
    """Stop capturing a table: triggers, function and log go."""
    with _name_dependents(source):
        for trigger, table in connection.execute(_TRIGGERS, (f"capture_{oid}",)).fetchall():
            connection.execute(f"DROP TRIGGER {quote_name(trigger)} ON {table}".encode())
        connection.execute(f"DROP FUNCTION IF EXISTS {SCHEMA}.capture_{oid}()".encode())
        connection.execute(f"DROP TABLE IF EXISTS {log_name(oid)}".encode())


def remove_installation(
    connection: psycopg.Connection[Any], source: str, captured: Collection[int]
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
    return drop_if_empty(connection, SCHEMA)


def drop_if_empty(connection: psycopg.Connection[Any], schema: str) -> tuple[str, ...]:
    """Drop a schema that has nothing in it; else what it has, or whose it is."""
    left = connection.execute(_LEFT, (quote_name(schema),)).fetchall()
    if left:
        return tuple(f"{what} in schema {schema}" for (what,) in left)
    try:
        with connection.transaction():
            connection.execute(f"DROP SCHEMA IF EXISTS {quote_name(schema)}".encode())
    except errors.InsufficientPrivilege:
        return (f"schema {schema}, which belongs to another role",)
    return ()


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
