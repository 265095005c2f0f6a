"""An empty registry at every kind of place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.registry.order_places import HttpPlace, Place, PostgresPlace, SqlitePlace


@pytest.fixture(params=["sqlite", "postgres", "http"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Every kind; PostgreSQL is started only when a test comes to it."""
    opened = make_place(request, tmp_path)
    yield opened
    opened.close()


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """The kinds that keep an order themselves."""
    opened = make_place(request, tmp_path)
    yield opened
    opened.close()


def make_place(request: pytest.FixtureRequest, folder: Path) -> Place:
    match request.param:
        case "sqlite":
            return SqlitePlace(folder / "registry.db")
        case "http":
            return HttpPlace(folder / "registry.db")
        case _:
            return PostgresPlace(request.getfixturevalue("postgres_server"))
