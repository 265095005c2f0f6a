"""Private servers for tests: one of each kind for the whole run, started when asked.

Tests make databases of their own in them, so that they do not see each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from viewkeeper.testing.private_servers import PrivateMariadb, PrivatePostgres


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivatePostgres]:
    server = PrivatePostgres(tmp_path_factory.mktemp("postgres") / "server")
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def mariadb_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateMariadb]:
    server = PrivateMariadb(tmp_path_factory.mktemp("mariadb") / "server")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def own_postgres(tmp_path: Path) -> Iterator[PrivatePostgres]:
    """A server of one test: it may be stopped, and get roles, which all its databases share."""
    server = PrivatePostgres(tmp_path / "server")
    server.start()
    yield server
    server.stop()
