"""What is to be followed, checked against the tables as they are, and added to what already is.

A table must tell the old values of every followed column (REPLICA IDENTITY), or be one that the
user lets go by key; else the table is refused with the statement that mends it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import psycopg

from viewkeeper.errors import SchemaError
from viewkeeper.sources.postgres.decoding.state import FollowedTable
from viewkeeper.sources.postgres.schema import PostgresTable
from viewkeeper.sources.postgres.types import quote_name
from viewkeeper.updates.schema_change import name_of_handle


def extend_followed(
    source: str,
    followed: Mapping[str, FollowedTable],
    found: Mapping[str, PostgresTable],
    columns: Mapping[str, Collection[int]],
    by_key: Sequence[str],
) -> dict[str, FollowedTable]:
    """What is followed, and these columns, by their numbers, of these tables too.

    A table is kept once, under its oid, however many handles it is asked for by.
    """
    result = dict(followed)
    for handle, table in found.items():
        name = str(table.oid)
        before = result.get(name)
        key = _key_of_deletes(source, table, by_key)
        wanted = [*(before.columns if before else ()), *columns[handle], *key]
        numbers = tuple(dict.fromkeys(wanted))
        if not key:
            check_identity(source, table, [c.name for c in table.columns if c.number in numbers])
        leaves = tuple(part.oid for part in table.parts) if table.partitioned else ()
        result[name] = FollowedTable(table.oid, numbers, key, leaves)
    return result


def _key_of_deletes(source: str, table: PostgresTable, by_key: Sequence[str]) -> tuple[int, ...]:
    """The key by which the rows of a table go; () if its old rows are told as a whole."""
    names = {table.asked, name_of_handle(table.asked), table.name, f"{table.schema}.{table.name}"}
    if not names.intersection(by_key):
        return ()
    if not table.primary_key or any(part.identity not in "df" for part in table.parts):
        raise SchemaError(
            source,
            f'table "{name_of_handle(table.asked)}" cannot go by key',
            detail="delete_by_key needs a primary key that is the table's replica identity",
            hint=f"ALTER TABLE {table.quoted_name} REPLICA IDENTITY DEFAULT",
        )
    return tuple(table.column_numbers[name] for name in table.primary_key)


def check_identity(source: str, table: PostgresTable, columns: Sequence[str]) -> None:
    """A SchemaError if the old values of one of these columns would not be told."""
    lacking = table.parts_without_old(columns)
    if lacking:
        mend = "; ".join(f"ALTER TABLE {part.name} REPLICA IDENTITY FULL" for part in lacking)
        more = (
            f" or list it in delete_by_key, which needs its key {', '.join(table.primary_key)}"
            if table.primary_key
            else ""
        )
        raise SchemaError(
            source,
            f'table "{name_of_handle(table.asked)}" does not tell the old values of changed rows',
            detail="its replica identity does not cover every column that the views read",
            hint=f"let its owner run: {mend};{more}",
        )


def check_privilege(control: psycopg.Connection[Any], source: str, table: PostgresTable) -> None:
    row = control.execute("SELECT has_table_privilege(%s::oid, 'SELECT')", (table.oid,)).fetchone()
    if row is None or not row[0]:
        raise SchemaError(
            source,
            f'the role may not read table "{name_of_handle(table.asked)}"',
            hint=f"GRANT SELECT ON {table.quoted_name} TO {quote_name(control.info.user)};",
        )
