"""The catalogue compared with what the stream has told of tables, and messages that tell the rest.

Where no event trigger tells of schema changes, a look compares. What differs is written into the
stream as a message, in a transaction that holds the table's lock from before the shape was read: no
other shape can be committed in between, so from that message on the table has that shape. It comes
again whenever the stream is read again, and with it what is reported.

A table that is gone stays gone; what may still happen is that another one takes its name.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

import psycopg
from psycopg import errors

from viewkeeper.errors import SourceAwayError
from viewkeeper.sources.postgres.decoding.ddl_watch import MESSAGE, plain_columns
from viewkeeper.sources.postgres.decoding.visibility import VisibleTransactions
from viewkeeper.sources.postgres.shape_differences import ShapeCause
from viewkeeper.sources.postgres.shape_query import (
    PostgresShape,
    decode_shape,
    encode_shape,
    read_shapes,
    shape_of,
)
from viewkeeper.sources.postgres.shape_steps import PostgresShapeHistory, ShapeStep
from viewkeeper.sources.postgres.types import quote_name

_LOCK_WAIT = "SET LOCAL lock_timeout = '200ms'"
_EMIT = "SELECT pg_logical_emit_message(true, 'viewkeeper', %s::text)"
_PAUSE_SECONDS = 0.02


def unexplained_shapes(
    connection: psycopg.Connection[Any], history: PostgresShapeHistory
) -> dict[int, PostgresShape]:
    """The shapes that the stream has not told, as far as it was read."""
    living = read_shapes(connection, tuple(history))
    found = {oid: shape for oid, shape in living.items() if not history.is_explained(shape)}
    for oid in set(history) - living.keys():
        shape = dropped_shape(connection, history.latest_shape(oid))
        if not history.is_explained(shape):
            found[oid] = shape
    return found


def dropped_shape(connection: psycopg.Connection[Any], last: PostgresShape) -> PostgresShape:
    """The shape of a table that is not there any more."""
    name = f"{quote_name(last.schema)}.{quote_name(last.name)}"
    row = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (name,)).fetchone()
    return last.as_dropped(again=last.again or bool(row and row[0]))


def emit_shapes(
    connection: psycopg.Connection[Any], found: Mapping[int, PostgresShape], watched: bool
) -> int | None:
    """Write these shapes into the stream; the 64-bit id of the transaction that has them.

    None if one of the tables is being changed right now: whoever looks again finds out.
    """
    locked = [shape for shape in found.values() if not shape.gone]
    try:
        with connection.transaction():
            connection.execute(_LOCK_WAIT)
            for shape in locked:
                name = f"{quote_name(shape.schema)}.{quote_name(shape.name)}"
                connection.execute(f"LOCK TABLE {name} IN ACCESS SHARE MODE".encode())
            shapes = read_shapes(connection, [shape.oid for shape in locked])
            if any(_is_elsewhere(shape, shapes.get(shape.oid)) for shape in locked):
                return None
            for shape in (*shapes.values(), *(each for each in found.values() if each.gone)):
                body = json.dumps({"found": encode_shape(shape), "watched": watched})
                connection.execute(_EMIT, (f"{MESSAGE}{body}",))
            row = connection.execute("SELECT pg_current_xact_id()::text::int8").fetchone()
            assert row is not None
            return int(row[0])
    except (
        errors.LockNotAvailable,
        errors.UndefinedTable,
        errors.InvalidSchemaName,
        errors.InsufficientPrivilege,
    ):
        return None


def _is_elsewhere(shape: PostgresShape, now: PostgresShape | None) -> bool:
    return now is None or (now.schema, now.name) != (shape.schema, shape.name)


def steps_of_message(
    history: PostgresShapeHistory, position: int, message: Mapping[str, Any]
) -> Iterator[ShapeStep]:
    """What a message says of followed tables: of its own, and of those whose name it took."""
    if "gone" in message:
        oid = int(message["gone"])
        if oid in history and not history.latest_shape(oid).gone:
            yield ShapeStep(position, history.latest_shape(oid).as_dropped(again=False))
        return
    if "found" in message:
        shape, cause = decode_shape(message["found"]), ShapeCause(watched=bool(message["watched"]))
    else:
        shape = shape_of(message["shape"])
        cause = _cause_of(history, shape, str(message["query"]))
    if shape.oid in history:
        yield ShapeStep(position, shape, cause)
    for oid in history:
        other = history.latest_shape(oid)
        if (
            other.gone
            and not other.again
            and _qualified_name(other) == _qualified_name(shape)
            and not shape.gone
        ):
            yield ShapeStep(position, other.as_dropped(again=True))


def _cause_of(history: PostgresShapeHistory, shape: PostgresShape, query: str) -> ShapeCause:
    """What a statement says of the columns that it touched."""
    if shape.oid not in history or history.latest_shape(shape.oid).file == shape.file:
        return ShapeCause()
    before = history.latest_shape(shape.oid).by_number
    names = {
        column.number: frozenset((column.name, before.get(column.number, column).name))
        for column in shape.columns
    }
    return ShapeCause(plain_columns(query, names))


def _qualified_name(shape: PostgresShape) -> tuple[str, str]:
    return shape.schema, shape.name


def shape_after(
    connection: psycopg.Connection[Any], source: str, xid: int, oid: int, seconds: float
) -> PostgresShape | None:
    """The shape of a table as the catalogue has it once a transaction is visible."""
    end = time.monotonic() + seconds
    while True:
        row = connection.execute("SELECT pg_current_snapshot()::text").fetchone()
        assert row is not None
        if VisibleTransactions.parse_snapshot(source, row[0]).has_transaction(xid):
            return read_shapes(connection, (oid,)).get(oid)
        if time.monotonic() > end:
            raise SourceAwayError(
                source,
                "a commit that was logged does not become visible",
                hint="look whether a synchronous standby is away",
            )
        time.sleep(_PAUSE_SECONDS)
