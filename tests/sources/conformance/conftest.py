"""Every kind of source, made ready for the suite: each test that asks for `database` runs on all.

The servers are those of the whole run. Another process stands by for what tasks do; passwords are
in the environment before it starts, as they are on a cluster.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.sources.conformance import mariadb_database, postgres_database
from tests.sources.conformance.database import Database
from tests.sources.conformance.delta_lake_database import DeltaLake
from tests.sources.conformance.files_database import Files
from tests.sources.conformance.mariadb_database import Mariadb
from tests.sources.conformance.postgres_database import Postgres
from tests.sources.conformance.sqlite_database import Sqlite
from viewkeeper.cli.commands.simulate.workers import prepare_worker
from viewkeeper.testing.private_servers import PrivateMariadb, PrivatePostgres

Make = Callable[[pytest.FixtureRequest, Path], Database]
KINDS: dict[str, Make] = {
    "sqlite-wal": lambda request, folder: Sqlite(folder, "WAL"),
    "sqlite-rollback": lambda request, folder: Sqlite(folder, "DELETE"),
    "postgres": lambda request, folder: _postgres(request, folder, "decoding"),
    "mariadb": lambda request, folder: _mariadb(request, folder),
    "files-csv": lambda request, folder: Files(folder, "csv"),
    "files-json": lambda request, folder: Files(folder, "json"),
    "files-parquet": lambda request, folder: Files(folder, "parquet"),
    "delta_lake-feed": lambda request, folder: DeltaLake(folder, feed=True),
    "delta_lake-plain": lambda request, folder: DeltaLake(folder, feed=False),
}
if find_spec("viewkeeper.sources.postgres.triggers.capture"):
    KINDS["postgres-triggers"] = lambda request, folder: _postgres(request, folder, "triggers")
SHARED = ("sqlite", "postgres", "mariadb")
"""A Delta Lake table is one source; of files every project numbers the states by itself."""


def _postgres(request: pytest.FixtureRequest, folder: Path, capture: str) -> Postgres:
    return Postgres(folder, request.getfixturevalue("prepared_postgres"), capture)


def _mariadb(request: pytest.FixtureRequest, folder: Path) -> Mariadb:
    return Mariadb(folder, request.getfixturevalue("prepared_mariadb"))


@pytest.fixture(scope="session")
def passwords() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        # A url is read after its references were put in, so there the password is spelled for it.
        patch.setenv(postgres_database.VARIABLE, postgres_database.PASSWORD)
        patch.setenv(mariadb_database.VARIABLE, mariadb_database.PASSWORD)
        yield


@pytest.fixture(scope="session")
def prepared_postgres(postgres_server: PrivatePostgres, passwords: None) -> PrivatePostgres:
    postgres_database.prepare(postgres_server)
    return postgres_server


@pytest.fixture(scope="session")
def prepared_mariadb(mariadb_server: PrivateMariadb, passwords: None) -> PrivateMariadb:
    mariadb_database.prepare(mariadb_server)
    return mariadb_server


@pytest.fixture(scope="session")
def elsewhere(passwords: None) -> Iterator[ProcessPoolExecutor]:
    """Another process, started from nothing, as Spark's workers are."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, initializer=prepare_worker) as pool:
        yield pool


@pytest.fixture(params=KINDS)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    made = KINDS[request.param](request, tmp_path)
    yield made
    made.close()


@pytest.fixture(params=[kind for kind in KINDS if kind.split("-")[0] in SHARED])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database that several projects may follow, each another of its two tables."""
    made = KINDS[request.param](request, tmp_path)
    for table in ("mine", "yours"):
        made.table(table, {"id": "int", "v": "text"}, key=["id"])
    yield made
    made.close()
