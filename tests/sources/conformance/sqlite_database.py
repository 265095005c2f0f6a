"""SQLite databases of the suite, in WAL mode or with a rollback journal.

The writer waits for nobody for long: a snapshot of ours that kept it out would make it fail.
"""

from __future__ import annotations

import datetime
import decimal
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.sources.conformance.changes import Word
from tests.sources.conformance.sql_database import SqlDatabase


class Sqlite(SqlDatabase):
    kind = "sqlite"
    merges_commits = True
    mark = "?"
    same = "{column} IS {mark}"
    one = "rowid = (SELECT rowid FROM {table} WHERE {condition} LIMIT 1)"
    types: Mapping[Word, str] = {
        "int": "INTEGER",
        "text": "TEXT",
        "decimal": "DECIMAL(15,2)",
        "date": "DATE",
        "timestamp": "DATETIME",
        "double": "REAL",
        "bytes": "BLOB",
        "bool": "BOOLEAN",
    }

    def __init__(self, folder: Path, journal: str) -> None:
        super().__init__(folder)
        self.writer = sqlite3.connect(
            folder / "shop.db", timeout=0.3, isolation_level=None, check_same_thread=False
        )
        self.run(f"PRAGMA journal_mode = {journal}", "PRAGMA synchronous = OFF")

    def options(self) -> dict[str, object]:
        return {"path": "shop.db"}

    def absent(self) -> dict[str, object]:
        return {"path": "nowhere/shop.db", "busy_seconds": 1}

    def leftovers(self) -> Sequence[str]:
        found = self.writer.execute("SELECT name FROM sqlite_master ORDER BY name").fetchall()
        return [name for (name,) in found if "viewkeeper" in name]

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.writer.execute(statement)

    def _begin(self) -> None:
        self.run("BEGIN IMMEDIATE")

    def _end(self, commit: bool) -> None:
        self.run("COMMIT" if commit else "ROLLBACK")

    def _execute(self, statement: str, values: Sequence[Any]) -> int:
        return self.writer.execute(statement, values).rowcount

    def _execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        self.writer.executemany(statement, rows)

    def _value(self, value: Any) -> Any:
        if isinstance(value, datetime.datetime):
            return value.isoformat(" ")
        if isinstance(value, datetime.date):
            return value.isoformat()
        return str(value) if isinstance(value, decimal.Decimal) else value

    def close(self) -> None:
        super().close()
        self.writer.close()
