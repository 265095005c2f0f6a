"""The shapes of tables that triggers capture, each stored with the look that saw it first.

A look has a snapshot, and the shapes that this snapshot shows are what the tables were as of it.
What is stored is only what differs from before. There is no order between a schema change and the
rows that were written between the same two looks; the log has values by column numbers, so it needs
none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import psycopg

from viewkeeper.sources.postgres.shape_query import PostgresShape, decode_shape, encode_shape
from viewkeeper.sources.postgres.shape_steps import PostgresShapeHistory, ShapeStep

_STEPS = "SELECT position, shape FROM viewkeeper.shape ORDER BY position"


def read_history(connection: psycopg.Connection[Any]) -> PostgresShapeHistory:
    """The shapes that are stored; the first of a table is what it began with."""
    # A trigger logs a column from when it is followed: what was written to it before is not told.
    history = PostgresShapeHistory(with_generated=True, tells_added=False)
    for position, found in connection.execute(_STEPS):
        shape = decode_shape(found)
        if shape.oid in history:
            history.add_step(ShapeStep(int(position), shape))
        else:
            history.begin_table(shape)
    return history


def store_shapes(
    connection: psycopg.Connection[Any], position: int, shapes: Mapping[int, PostgresShape]
) -> None:
    """Have these shapes from a position on."""
    for oid, shape in shapes.items():
        connection.execute(
            "INSERT INTO viewkeeper.shape VALUES (%s, %s, %s::jsonb) ON CONFLICT DO NOTHING",
            (position, oid, json.dumps(encode_shape(shape))),
        )


def look_times(connection: psycopg.Connection[Any], positions: set[int]) -> dict[int, float]:
    """When looks were taken."""
    query = (
        "SELECT position, extract(epoch FROM at)::float8 FROM viewkeeper.look"
        " WHERE position = ANY(%s)"
    )
    found = connection.execute(query, (sorted(positions),))
    return {int(position): float(at) for position, at in found}
