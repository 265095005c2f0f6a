"""Tables with one column per type, in every kind of database, and rows written as the kind does.

A row is a list of written values, one per case, None for NULL. The first column is `id`, the number
of the row.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from tests.sources.conformance import types_files, types_mariadb, types_postgres, types_sqlite
from tests.sources.conformance.database import Database
from tests.sources.conformance.delta_lake_database import DeltaLake
from tests.sources.conformance.files_database import Files
from tests.sources.conformance.sql_database import SqlDatabase
from tests.sources.conformance.types_case import Case

Rows = Sequence[Sequence[Any]]

MATRIX: Mapping[str, tuple[Case, ...]] = {
    "sqlite": types_sqlite.CASES,
    "postgres": types_postgres.CASES,
    "mariadb": types_mariadb.CASES,
    "files-csv": types_files.CSV,
    "files-json": types_files.JSON,
    "files-parquet": types_files.PARQUET,
    "delta_lake": types_files.DELTA_LAKE,
}


def cases_of(kind: str) -> tuple[Case, ...]:
    """The cases of a kind of the suite, whose names say more than the matrix distinguishes."""
    return next(cases for name, cases in MATRIX.items() if kind.startswith(name))


class TypeTable(ABC):
    """One table of a database: `id`, then `c0`, `c1`, ... of the types of some cases."""

    def __init__(self, database: Database, name: str, cases: Sequence[Case]) -> None:
        self.database = database
        self.name = name
        self.cases = cases
        database.columns[name] = {}
        self.create()

    @abstractmethod
    def create(self) -> None: ...

    @abstractmethod
    def fill(self, rows: Rows) -> None:
        """Put rows in, in one transaction."""

    @abstractmethod
    def empty(self) -> None:
        """Take all rows out, one by one as far as the change stream is concerned."""

    def options(self) -> dict[str, object] | None:
        """The source's options, if those of the database do not do."""
        return None


class SqlTable(TypeTable):
    database: SqlDatabase

    def create(self) -> None:
        if self.database.kind == "postgres":
            self.database.run(*types_postgres.BEFORE)
        if self.database.kind == "mariadb":
            self.database.run("SET sql_mode = 'ALLOW_INVALID_DATES'")
        columns = "".join(f", c{n} {case.declared}" for n, case in enumerate(self.cases))
        self.database.run(f"CREATE TABLE {self.name} (id INTEGER NOT NULL PRIMARY KEY{columns})")
        if self.database.kind == "postgres":
            self.database.run(f"ALTER TABLE {self.name} REPLICA IDENTITY FULL")

    def fill(self, rows: Rows) -> None:
        lists = [
            [str(number), *(value or "NULL" for value in row)] for number, row in enumerate(rows)
        ]
        listed = ", ".join(f"({', '.join(values)})" for values in lists)
        self.database.run(f"INSERT INTO {self.name} VALUES {listed}")

    def empty(self) -> None:
        self.database.run(f"DELETE FROM {self.name}")


class FileTable(TypeTable):
    database: Files

    def options(self) -> dict[str, object]:
        columns = {"id": "bigint", **{f"c{n}": case.declared for n, case in enumerate(self.cases)}}
        tables = {} if self.database.format == "parquet" else {self.name: {"columns": columns}}
        options: dict[str, object] = {"path": "exports", "tables": tables, "settle_seconds": 0}
        return {**options, "format": self.database.format}

    def create(self) -> None:
        (self.database.folder / "exports").mkdir()
        self.fill([])

    def fill(self, rows: Rows) -> None:
        path = self.database.folder / "exports" / f"{self.name}.{self.database.format}"
        temporary = path.with_name(f"_{path.name}")
        if self.database.format == "parquet":
            pq.write_table(arrow_rows(self.cases, rows), temporary)
        else:
            write = _csv if self.database.format == "csv" else _json
            temporary.write_text(write(len(self.cases), rows), encoding="utf-8")
        temporary.rename(path)

    def empty(self) -> None:
        self.fill([])


def _csv(columns: int, rows: Rows) -> str:
    lines = ["id" + "".join(f",c{number}" for number in range(columns))]
    for number, row in enumerate(rows):
        quoted = ("" if text is None else '"' + text.replace('"', '""') + '"' for text in row)
        lines.append(",".join([str(number), *quoted]))
    return "\n".join(lines) + "\n"


def _json(columns: int, rows: Rows) -> str:
    lines = []
    for number, row in enumerate(rows):
        given = [f"{json.dumps(f'c{n}')}: {v}" for n, v in enumerate(row) if v is not None]
        lines.append("{" + ", ".join([f'"id": {number}', *given]) + "}\n")
    return "".join(lines)


class LakeTable(TypeTable):
    database: DeltaLake

    def create(self) -> None:
        settings = {"delta.enableChangeDataFeed": str(self.database.feed).lower()}
        empty = arrow_rows(self.cases, [])
        write_deltalake(self.database.folder / self.name, empty, configuration=settings)

    def fill(self, rows: Rows) -> None:
        table = arrow_rows(self.cases, rows)
        write_deltalake(self.database.folder / self.name, table, mode="append")

    def empty(self) -> None:
        DeltaTable(str(self.database.folder / self.name)).delete()


def arrow_rows(cases: Sequence[Case], rows: Rows) -> pa.Table:
    """Rows whose values are Python's, in the Arrow types that the cases are stored in."""
    columns: dict[str, Any] = {"id": pa.array(range(len(rows)), pa.int64())}
    for number, case in enumerate(cases):
        columns[f"c{number}"] = pa.array([row[number] for row in rows], case.stored)
    return pa.table(columns)


def type_table(database: Database, name: str, cases: Sequence[Case]) -> TypeTable:
    if isinstance(database, SqlDatabase):
        return SqlTable(database, name, cases)
    kinds: dict[type[Database], type[TypeTable]] = {Files: FileTable, DeltaLake: LakeTable}
    return kinds[type(database)](database, name, cases)
