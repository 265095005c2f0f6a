"""Connections whose answers are Arrow (ADBC). Imported when the first one is opened.

The driver takes a second to import, which a task that asks for a few keys need not pay.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import adbc_driver_manager
from adbc_driver_postgresql import dbapi

from viewkeeper.sources.postgres.postgres_server import PostgresServer


def connect_arrow(server: PostgresServer) -> dbapi.Connection:
    """A connection in autocommit mode."""
    with server.translate_errors(), translate_arrow_errors(server):
        return dbapi.connect(server.connection_string(), autocommit=True)


@contextmanager
def translate_arrow_errors(server: PostgresServer) -> Iterator[None]:
    """Inside, every error of the driver becomes one of ours."""
    try:
        yield
    except adbc_driver_manager.Error as error:
        is_connection = isinstance(error, adbc_driver_manager.OperationalError)
        raise server.to_source_error(error, error.sqlstate, is_connection) from None
