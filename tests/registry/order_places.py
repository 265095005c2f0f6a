"""The places that a registry can be at, each empty and its own: what the one suite runs over.

A place opens any number of registries on the same order, as members in different processes would.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psycopg

from viewkeeper.errors import ClosedGroupError
from viewkeeper.order.global_id import GlobalId
from viewkeeper.order.registry_address import open_registry, open_store
from viewkeeper.order.registry_protocol import MemberFacts, Registry, Reporter
from viewkeeper.order.service.http_registry import HttpRegistry
from viewkeeper.order.service.http_server import ServiceAccess
from viewkeeper.order.service.registry_service import RegistryService
from viewkeeper.order.store.stored_registry import StoredRegistry
from viewkeeper.testing.private_servers import PrivatePostgres

GROUP = "north"
"""The group that the member of this name has for itself."""
LABEL = "sales"
FOREVER = 600.0
SECRET = "a-secret-that-nobody-must-see"
"""Of all members that join a service here; each has its own elsewhere."""
ADMINISTRATOR = "a-token-that-only-one-has"
_numbers = itertools.count()


class Place(ABC):
    """Where an order is kept; `url` is what a member in another process is given."""

    url: str

    def __init__(self) -> None:
        self._opened: list[Registry] = []

    def open(self) -> Registry:
        """Another member's view of the registry."""
        registry = open_registry(self.url, secret=SECRET)
        self._opened.append(registry)
        return registry

    def open_administration(self) -> Registry:
        """The registry as its administrator has it; of a store, everybody is."""
        return self.open()

    @abstractmethod
    def open_store(self) -> StoredRegistry:
        """The store itself, past any service."""

    def close(self) -> None:
        for registry in self._opened:
            registry.close()


class SqlitePlace(Place):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.url = str(path)

    def open_store(self) -> StoredRegistry:
        store = open_store(self.url)
        self._opened.append(store)
        return store


class PostgresPlace(Place):
    """A database of its own, and a role that may do nothing but make a schema in it."""

    def __init__(self, server: PrivatePostgres) -> None:
        super().__init__()
        name = f"registry_{next(_numbers)}"
        with psycopg.connect(server.url_of(), autocommit=True) as connection:
            connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret'".encode())
            connection.execute(f"CREATE DATABASE {name}".encode())
            connection.execute(f"GRANT CREATE ON DATABASE {name} TO {name}".encode())
        self.url = server.url_of(name, user=name)

    def open_store(self) -> StoredRegistry:
        store = open_store(self.url)
        self._opened.append(store)
        return store


class HttpPlace(Place):
    """A service of this process over a SQLite file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._kept = SqlitePlace(path)
        self._served = self._kept.open_store()
        access = ServiceAccess(administrator=ADMINISTRATOR)
        self._service = RegistryService(self._served, ("127.0.0.1", 0), access)
        self._service.start()
        self.url = self._service.url

    def open(self) -> Registry:
        registry = super().open()
        assert isinstance(registry, HttpRegistry)
        return registry

    def open_administration(self) -> Registry:
        return HttpRegistry(self.url, ADMINISTRATOR)

    def open_store(self) -> StoredRegistry:
        return self._kept.open_store()

    def close(self) -> None:
        super().close()
        self._service.stop()
        self._kept.close()


def ids(source: str, *positions: int) -> list[GlobalId]:
    return [GlobalId(source, position) for position in positions]


def reading(*sources: str, parents: tuple[str, ...] = ()) -> MemberFacts:
    """What a member says that wants to be together with all others."""
    return MemberFacts(dict.fromkeys(sources, ()), parents, LABEL)


def gather(registry: Registry, members: Mapping[str, MemberFacts]) -> str:
    """Let members join, and again, when all are there; the group that they are in."""
    for name, facts in (*members.items(), *members.items()):
        found = registry.join_registry(name, facts)
    assert tuple(member.name for member in found.members) == tuple(sorted(members))
    return found.group


def reporting(registry: Registry, source: str, member: str = "north") -> Reporter:
    """A member that has joined and may report a source to the group that it is in."""
    return claimed(registry, source, member, registry.join_registry(member, reading(source)).group)


def claimed(registry: Registry, source: str, member: str, group: str = GROUP) -> Reporter:
    reporter = registry.claim_source(group, source, member, FOREVER)
    assert reporter is not None, f"{source} is reported by another member"
    return reporter


def whole_order(registry: Registry, group: str = GROUP) -> list[tuple[int, str]]:
    """All of it, up to its end, read page by page, as (1, 'shop@7')."""
    found: list[tuple[int, str]] = []
    with suppress(ClosedGroupError):
        while page := registry.fetch_order(group, len(found), 700):
            found += [(each.n, str(each.id)) for each in page]
    return found
