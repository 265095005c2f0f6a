"""The world of the Dyno paper's experiments: four sources, one relation each, and a join of all.

Every relation has two attributes, a key and a value, and the view joins the four by key, so that an
update of one source asks the three others. Sources change their rows and their shape by themselves:
names change, and a table is made again, as tools do that rebuild one, with other values in some of
its rows. What the view must show is computed here from the tables by their names of now.
"""

from __future__ import annotations

import random
import sqlite3
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import psycopg

from viewkeeper.engine.project import Project
from viewkeeper.testing.private_servers import PrivatePostgres

SOURCES = ("s1", "s2", "s3", "s4")
VIEW = "joined"
SQL = f"""CREATE MATERIALIZED VIEW {VIEW} AS
SELECT r1.k, r1.v AS v1, r2.v AS v2, r3.v AS v3, r4.v AS v4
FROM s1.r1 JOIN s2.r2 ON r2.k = r1.k JOIN s3.r3 ON r3.k = r2.k JOIN s4.r4 ON r4.k = r3.k
"""

Reshape = Literal["rename_column", "rename_table", "recreate_table"]
RESHAPES: tuple[Reshape, ...] = ("rename_column", "rename_table", "recreate_table")


@dataclass(slots=True)
class Relation:
    """A relation of the world: what it is called now, and which of its keys are there."""

    table: str
    value: str
    live: list[int]
    gone: list[int] = field(default_factory=list)


class World(ABC):
    """Four databases of one kind, and a project over them; all that is random is seeded."""

    kind: str

    def __init__(self, folder: Path, rows: int, seed: int = 1) -> None:
        self.folder = folder
        self.rows = rows
        self.draw = random.Random(seed)
        self._relations = {
            name: Relation(f"r{i}", "v", list(range(rows))) for i, name in enumerate(SOURCES, 1)
        }
        self._names = 0
        (folder / "views").mkdir(parents=True)
        (folder / "views" / f"{VIEW}.sql").write_text(SQL)

    def write_project(self, settings: str = "") -> None:
        """The project file, with further settings."""
        sources = "".join(f"  {name}: {self.options(name)}\n" for name in SOURCES)
        text = f"warehouse: ./warehouse\nsources:\n{sources}{settings}"
        (self.folder / "viewkeeper.yml").write_text(text)

    @abstractmethod
    def options(self, source: str) -> str:
        """A source's entry in the project file."""

    @abstractmethod
    def commit(self, source: str, statements: Iterable[str]) -> None:
        """One transaction."""

    @abstractmethod
    def read(self, source: str, query: str) -> Mapping[int, int]:
        """Rows of two columns."""

    @abstractmethod
    def close(self) -> None: ...

    def update(self, source: str | None = None) -> None:
        """A data update of a source, or of a random one: a row comes, goes, or changes its value.

        Rows that went come back, so that the world keeps its size.
        """
        name = source or self.draw.choice(SOURCES)
        relation, kind = self._relations[name], self.draw.randrange(3)
        table, value = relation.table, self.draw.randrange(1_000_000)
        if kind == 0 and relation.gone:
            key = relation.gone.pop(self.draw.randrange(len(relation.gone)))
            relation.live.append(key)
            statement = f"INSERT INTO {table} VALUES ({key}, {value})"
        elif kind == 1:
            key = relation.live.pop(self.draw.randrange(len(relation.live)))
            relation.gone.append(key)
            statement = f"DELETE FROM {table} WHERE k = {key}"
        else:
            key = self.draw.choice(relation.live)
            statement = f"UPDATE {table} SET {relation.value} = {value} WHERE k = {key}"
        self.commit(name, [statement])

    def reshape(self, kind: Reshape, source: str | None = None) -> None:
        """A schema change of a source, or of a random one."""
        name = source or self.draw.choice(SOURCES)
        relation = self._relations[name]
        self._names += 1
        table, value = relation.table, relation.value
        if kind == "rename_column":
            relation.value = f"v{self._names}"
            statements = [f"ALTER TABLE {table} RENAME COLUMN {value} TO {relation.value}"]
        elif kind == "rename_table":
            relation.table = f"t{self._names}"
            statements = [f"ALTER TABLE {table} RENAME TO {relation.table}"]
        else:
            other = f"CASE WHEN k % 100 = {self._names % 100} THEN {value} + 1 ELSE {value} END"
            statements = [
                *self.creation("fresh", value),
                f"INSERT INTO fresh SELECT k, {other} FROM {table}",
                f"DROP TABLE {table}",
                f"ALTER TABLE fresh RENAME TO {table}",
            ]
        self.commit(name, statements)

    def creation(self, table: str, value: str) -> list[str]:
        return [f"CREATE TABLE {table} (k INTEGER PRIMARY KEY, {value} INTEGER)"]

    def recomputed(self) -> Counter[tuple[Any, ...]]:
        """What the view must show now."""
        values = [
            self.read(name, f"SELECT k, {relation.value} FROM {relation.table}")
            for name, relation in self._relations.items()
        ]
        keys = set.intersection(*(set(found) for found in values))
        return Counter((key, *(found[key] for found in values)) for key in keys)

    def check(self, project: Project, what: str) -> None:
        """The view is what it must be, or the benchmark ends here."""
        rows = project.view(VIEW).arrow()
        found = Counter(zip(*(column.to_pylist() for column in rows.columns), strict=True))
        assert found == self.recomputed(), f"{what}: the view is not equal to recomputation"


class SqliteSources(World):
    kind = "sqlite"

    def __init__(self, folder: Path, rows: int, seed: int = 1) -> None:
        super().__init__(folder, rows, seed)
        self._connections = {name: self._create(name) for name in SOURCES}
        self.write_project()

    def _create(self, name: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.folder / f"{name}.db", 60.0, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        relation = self._relations[name]
        connection.execute(self.creation(relation.table, relation.value)[0])
        pairs = ((key, key) for key in relation.live)
        connection.execute("BEGIN")
        connection.executemany(f"INSERT INTO {relation.table} VALUES (?, ?)", pairs)
        connection.execute("COMMIT")
        return connection

    def options(self, source: str) -> str:
        return f"{{kind: sqlite, path: {source}.db}}"

    def commit(self, source: str, statements: Iterable[str]) -> None:
        connection = self._connections[source]
        connection.execute("BEGIN IMMEDIATE")
        for statement in statements:
            connection.execute(statement)
        connection.execute("COMMIT")

    def read(self, source: str, query: str) -> Mapping[int, int]:
        return dict(self._connections[source].execute(query))

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()


class PostgresSources(World):
    """Four databases of one private server, which does not sync to disk."""

    kind = "postgres"

    def __init__(self, folder: Path, rows: int, seed: int = 1) -> None:
        super().__init__(folder, rows, seed)
        self._stack = ExitStack()
        self._server = PrivatePostgres(folder / "server")
        self._stack.callback(self._server.stop)
        try:
            self._server.start()
            self._connections = {name: self._create(name) for name in SOURCES}
        except BaseException:
            self._stack.close()
            raise
        self.write_project()

    def _create(self, name: str) -> psycopg.Connection[Any]:
        with psycopg.connect(self._server.url_of(), autocommit=True) as server:
            server.execute(f"CREATE DATABASE {name}".encode())
        connection = psycopg.connect(self._server.url_of(name), autocommit=True)
        self._stack.callback(connection.close)
        relation = self._relations[name]
        for statement in (
            *self.creation(relation.table, relation.value),
            f"INSERT INTO {relation.table} SELECT i, i FROM generate_series(0, {self.rows - 1}) i",
            f"VACUUM ANALYZE {relation.table}",
        ):
            connection.execute(statement.encode())
        return connection

    def creation(self, table: str, value: str) -> list[str]:
        identity = f"ALTER TABLE {table} REPLICA IDENTITY FULL"
        return [f"CREATE TABLE {table} (k bigint PRIMARY KEY, {value} bigint)", identity]

    def options(self, source: str) -> str:
        return f"{{kind: postgres, url: {self._server.url_of(source)!r}}}"

    def commit(self, source: str, statements: Iterable[str]) -> None:
        connection = self._connections[source]
        with connection.transaction():
            for statement in statements:
                connection.execute(statement.encode())

    def read(self, source: str, query: str) -> Mapping[int, int]:
        return {int(k): int(v) for k, v in self._connections[source].execute(query.encode())}

    def close(self) -> None:
        self._stack.close()
