"""Connections whose answers are Arrow (ADBC). Imported when the first one is opened.

The driver takes a second to import, which a task that asks for a few keys need not pay.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import adbc_driver_manager
from adbc_driver_postgresql import dbapi  # type: ignore[import-untyped] # it comes without types

from viewkeeper.sources.postgres.postgres_server import Server


def connect(server: Server) -> dbapi.Connection:
    """A connection in autocommit mode."""
    with server.errors(), errors(server):
        return dbapi.connect(server.conninfo(), autocommit=True)


@contextmanager
def errors(server: Server) -> Iterator[None]:
    """Inside, every error of the driver becomes one of ours."""
    try:
        yield
    except adbc_driver_manager.Error as error:
        is_connection = isinstance(error, adbc_driver_manager.OperationalError)
        raise server.translate(error, error.sqlstate, is_connection) from None
