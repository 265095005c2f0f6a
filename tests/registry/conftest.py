"""An empty registry at every kind of place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.registry.order_places import HttpPlace, Place, PostgresPlace, SqlitePlace


@pytest.fixture(params=["sqlite", "postgres", "http"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """One place; PostgreSQL is started only when a test comes to it."""
    opened: Place
    if request.param == "sqlite":
        opened = SqlitePlace(tmp_path / "registry.db")
    elif request.param == "postgres":
        opened = PostgresPlace(request.getfixturevalue("postgres_server"))
    else:
        opened = HttpPlace(tmp_path / "registry.db")
    yield opened
    opened.close()
