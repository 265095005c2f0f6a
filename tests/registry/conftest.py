"""An empty registry at every kind of place; and a parent with a child that reads its views."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.registry.order_places import HttpPlace, Place, PostgresPlace, SqlitePlace
from tests.registry.parents import BuiltParent, child_of
from viewkeeper.upstream.source import WarehouseSource


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


@pytest.fixture(params=["records", "journal"])
def parent(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BuiltParent]:
    """A parent that commits by records, or by the journal."""
    made = BuiltParent(tmp_path / "orders")
    if request.param == "journal":
        made.store.group.begin(nullcontext)
    made.create("lines", {(1, "a"): 1, (2, None): 2})
    yield made
    made.close()


@pytest.fixture
def child(parent: BuiltParent, tmp_path: Path) -> WarehouseSource:
    return child_of(parent, tmp_path / "reports")
