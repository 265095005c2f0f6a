"""Addresses of registries, and stores that are not what they were."""

from __future__ import annotations

import pickle
import shutil
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from tests.registry.order_places import (
    FOREVER,
    GROUP,
    Place,
    ids,
    reading,
    reporting,
    whole_order,
)
from viewkeeper.errors import (
    IdentityError,
    ProjectError,
    RegistryAwayError,
    RegistryError,
)
from viewkeeper.order.registry_address import open_registry, open_store
from viewkeeper.order.service.http_registry import HttpRegistry
from viewkeeper.order.store.postgres_store import PostgresStore
from viewkeeper.order.store.sqlite_store import SqliteStore
from viewkeeper.order.store.stored_registry import StoredRegistry
from viewkeeper.testing.private_servers import PrivatePostgres


@pytest.mark.parametrize(
    ("url", "kind", "name"),
    [
        ("registry.db", SqliteStore, "{folder}/registry.db"),
        ("sqlite:///a%20b/registry.db", SqliteStore, "{folder}/a b/registry.db"),
        ("sqlite:////data/registry.db", SqliteStore, "/data/registry.db"),
        ("postgresql://ada:secret@db:5433/fleet", PostgresStore, "postgresql://db:5433/fleet"),
        ("postgres://db/fleet?schema=x", PostgresStore, "postgresql://db/fleet"),
        ("http://registry:8765", HttpRegistry, "http://registry:8765"),
        ("https://registry/", HttpRegistry, "https://registry"),
    ],
)
def test_an_address_names_a_kind(tmp_path: Path, url: str, kind: type, name: str) -> None:
    registry = open_registry(url, tmp_path)
    assert type(getattr(registry, "database", registry)) is kind
    assert registry.name == name.format(folder=tmp_path)
    registry.close()


@pytest.mark.parametrize(
    "url",
    [
        "oracle://ada:secret@db",
        "http://ada:secret@registry:8765",
        "http://registry:secret",
        "http://:8765",
        "http://registry/secret",
        "postgresql://ada:secret@db:port:port/fleet?unknown=secret",
    ],
)
def test_an_address_that_names_nothing_is_refused_without_its_secret(url: str) -> None:
    with pytest.raises(RegistryError) as refused:
        open_registry(url)
    assert "secret" not in str(refused.value)
    assert refused.value.hint


def test_secrets_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ProjectError, match="REGISTRY_PASSWORD is not set"):
        open_registry("postgresql://ada:${REGISTRY_PASSWORD}@db/fleet")
    monkeypatch.setenv("REGISTRY_PASSWORD", "p@ss/word")
    registry = open_registry("postgresql://ada:${REGISTRY_PASSWORD}@db/fleet")
    assert "p@ss" not in registry.name
    registry.close()


def test_a_password_is_in_no_error(postgres_server: PrivatePostgres) -> None:
    url = postgres_server.url_of().replace(":secret@", ":wrong-and-secret@")
    with pytest.raises(RegistryAwayError, match="cannot be reached") as away:
        open_registry(url).fetch_status()
    assert "wrong-and-secret" not in str(away.value)
    copied = pickle.loads(pickle.dumps(away.value))
    assert (str(copied), copied.registry) == (str(away.value), away.value.registry)


def test_only_who_joins_makes_a_store(store: Place) -> None:
    registry = store.open()
    for look in (
        registry.fetch_status,
        lambda: registry.fetch_order(GROUP, 0, 1),
        lambda: registry.claim_source(GROUP, "shop", "north", FOREVER),
        lambda: registry.join_registry("north", reading("shop"), remembered="0" * 32),
    ):
        with pytest.raises(RegistryError, match=r"no such file|holds no registry"):
            look()
    registry.join_registry("north", reading("shop"))
    assert len(store.open().fetch_status().groups) == 1


def test_many_may_make_a_store_at_once(store: Place) -> None:
    registries = [store.open() for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        joins = [
            pool.submit(registry.join_registry, f"member {i}", reading("shop"))
            for i, registry in enumerate(registries)
        ]
        assert len({join.result(timeout=60).identity for join in joins}) == 4
    (group,) = (group for group in registries[0].fetch_status().groups if not group.closed)
    assert [member.name for member in group.members] == [f"member {i}" for i in range(4)]


def test_a_schema_that_was_made_for_us_needs_no_other_right(
    postgres_server: PrivatePostgres,
) -> None:
    with psycopg.connect(postgres_server.url_of(), autocommit=True) as connection:
        connection.execute("CREATE ROLE modest LOGIN PASSWORD 'secret'")
        connection.execute("CREATE DATABASE modest")
    with psycopg.connect(postgres_server.url_of("modest"), autocommit=True) as connection:
        connection.execute("CREATE SCHEMA orders AUTHORIZATION modest")
    url = postgres_server.url_of("modest", user="modest")
    refused = open_registry(url)
    with pytest.raises(RegistryError, match="PostgreSQL failed") as error:
        reporting(refused, "shop")
    assert "viewkeeper_registry" in (error.value.hint or "")
    registry = open_registry(f"{url}?schema=orders")
    registry.register_ids(GROUP, ids("shop", 1), reporting(registry, "shop"))
    assert whole_order(registry) == [(1, "shop@1")]
    for each in (refused, registry):
        each.close()


def test_a_server_that_ends_our_session_is_connected_to_again(
    postgres_server: PrivatePostgres,
) -> None:
    with psycopg.connect(postgres_server.url_of(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE ended")
        registry = open_registry(postgres_server.url_of("ended"))
        reporter = reporting(registry, "shop")
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'ended'"
        )
        with pytest.raises(RegistryAwayError):
            registry.register_ids(GROUP, ids("shop", 1), reporter)
        assert registry.register_ids(GROUP, ids("shop", 1), reporter) == 1
        registry.close()


def test_commits_wait_for_the_disk_whatever_the_role_says(
    postgres_server: PrivatePostgres,
) -> None:
    """Asked of the session: killing processes, as other tests do, cannot show what a disk keeps."""
    with psycopg.connect(postgres_server.url_of(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE careless")
        connection.execute("ALTER DATABASE careless SET synchronous_commit = off")
    registry = StoredRegistry(PostgresStore(postgres_server.url_of("careless")))
    registry.join_registry("north", reading())
    with registry.database.write_transaction() as rows:
        assert rows("SHOW synchronous_commit") == [("on",)]
    registry.close()


def test_a_file_is_synchronous_and_has_no_log_beside_it(tmp_path: Path) -> None:
    made = StoredRegistry(SqliteStore(tmp_path / "registry.db"))
    made.join_registry("north", reading())
    for registry in (made, StoredRegistry(SqliteStore(tmp_path / "registry.db"))):
        with registry.database.read_transaction() as rows:
            assert rows("PRAGMA synchronous") == [(2,)]
            assert rows("PRAGMA journal_mode") == [("persist",)]
        registry.close()


def test_a_file_that_is_replaced_by_another_registry_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    registry = open_registry(str(path))
    reporter = reporting(registry, "shop")
    other = open_registry(str(tmp_path / "other.db"))
    reporting(other, "shop")
    other.close()
    (tmp_path / "other.db").rename(path)
    with pytest.raises(IdentityError, match="not the one that was joined"):
        registry.register_ids(GROUP, ids("shop", 1), reporter)
    registry.close()


def test_a_file_that_vanishes_is_not_made_again(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    registry = open_registry(str(path))
    reporter = reporting(registry, "shop")
    path.rename(tmp_path / "away.db")
    for use in (
        lambda: registry.register_ids(GROUP, ids("shop", 1), reporter),
        lambda: registry.join_registry("north", reading("shop")),
    ):
        with pytest.raises(RegistryAwayError, match="no such file"):
            use()
    assert not path.exists()
    registry.close()


def test_an_older_copy_is_noticed_by_who_knows_more(tmp_path: Path) -> None:
    path, copy = tmp_path / "registry.db", tmp_path / "copy.db"
    registry = open_registry(str(path))
    reporter = reporting(registry, "shop")
    registry.register_ids(GROUP, ids("shop", 1), reporter)
    registry.close()
    shutil.copy(path, copy)
    registry.register_ids(GROUP, ids("shop", 2, 3), reporter)
    registry.note_reached(GROUP, "north", 3)
    registry.close()
    copy.rename(path)
    for look in (
        lambda: registry.fetch_order(GROUP, 3, 10),
        lambda: registry.note_reached(GROUP, "north", 3),
    ):
        with pytest.raises(IdentityError, match="has an order of 1 ids, and a member knows of 3"):
            look()
    registry.close()


def test_files_that_hold_no_registry(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("not a database " * 100)
    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("CREATE TABLE t (a)")
    connection.close()
    for name, words in (("text.db", "no SQLite database"), ("other.db", "holds no registry")):
        with pytest.raises(RegistryError, match=words):
            open_registry(name, tmp_path).fetch_status()


@pytest.mark.parametrize("found", [1, 99])
def test_a_store_of_another_format_is_refused_and_left_alone(tmp_path: Path, found: int) -> None:
    path = tmp_path / "registry.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE registry (one, format, epoch, holder, until)")
        connection.execute("CREATE UNIQUE INDEX one ON registry (one)")
        connection.execute("INSERT INTO registry VALUES (1, ?, 0, '', 0)", (found,))
    connection.close()
    store = open_store(str(path))
    for use in (store.fetch_status, lambda: store.join_registry("north", reading())):
        with pytest.raises(RegistryError, match=f"format {found}") as refused:
            use()
        assert "move the store away" in (refused.value.hint or "")
    store.close()
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall() == [
        ("registry",)
    ]
    connection.close()


def test_a_locked_file_is_away_and_then_back(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    registry = StoredRegistry(SqliteStore(path, busy_seconds=0.1))
    reporter = reporting(registry, "shop")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(RegistryAwayError, match="cannot be used now"):
        registry.register_ids(GROUP, ids("shop", 1), reporter)
    assert registry.fetch_order(GROUP, 0, 1) == ()
    other.execute("ROLLBACK")
    other.close()
    assert registry.register_ids(GROUP, ids("shop", 1), reporter) == 1
    registry.close()
