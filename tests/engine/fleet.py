"""Projects that name one registry, over two SQLite databases, maintained in turns by one process.

Every state of a view can be asked for by the number of the id that made it, and what the newest
states must show is computed by SQLite's own join.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import viewkeeper
from viewkeeper.engine.report import Report
from viewkeeper.warehouse.metadata.coordination import read_coordination
from viewkeeper.warehouse.metadata.head import read_head
from viewkeeper.warehouse.metadata.plan_files import load_ledger
from viewkeeper.warehouse.rows import view_state

Row = tuple[Any, ...]
BASES = {name: f"{{kind: sqlite, path: ../{name}.db}}" for name in ("north", "south")}
PARENT = "SELECT n.id, n.v AS nv, s.v AS sv FROM north.t n JOIN south.t s ON n.id = s.id"
CHILD = (
    "SELECT l.id, l.nv, r.sv, r.nv AS again FROM left_.lines l JOIN right_.lines r ON l.id = r.id"
)
SHARED = {"left_": "{kind: warehouse, path: ../v1}", "right_": "{kind: warehouse, path: ../v2}"}


class Fleet:
    """Two databases, and projects that share a registry, by their names."""

    def __init__(self, root: Path, spark: SparkSession) -> None:
        self.root = root
        self.spark = spark
        self.bases = {name: sqlite3.connect(root / f"{name}.db") for name in BASES}
        for base in self.bases.values():
            base.execute("PRAGMA journal_mode = WAL")
            base.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v INTEGER NOT NULL)")
            base.executemany("INSERT INTO t VALUES (?, 0)", [(i,) for i in range(3)])
            base.commit()

    def project(
        self, name: str, sources: dict[str, str], sql: str, registry: str = "../registry.db"
    ) -> None:
        folder = self.root / name
        (folder / "views").mkdir(parents=True, exist_ok=True)
        lines = "".join(f"  {source}: {facts}\n" for source, facts in sources.items())
        named = f"registry: {registry}\n" if registry else ""
        (folder / "viewkeeper.yml").write_text(f"warehouse: ./w\nsources:\n{lines}{named}")
        view = f"CREATE MATERIALIZED VIEW lines AS {sql};"
        (folder / "views" / "lines.sql").write_text(view)

    def diamond(self) -> None:
        self.project("v1", BASES, PARENT)
        self.project("v2", BASES, PARENT)
        self.project("v0", SHARED, CHILD)

    def refresh(self, *names: str) -> Report:
        """Maintain projects in turn; the report of the last."""
        for name in names:
            with viewkeeper.open(self.root / name, spark=self.spark) as project:
                report = project.refresh(strict=False)
        return report

    def write(self, base: str, *changes: tuple[int, int]) -> None:
        """Give rows other values, in one transaction."""
        with self.bases[base] as connection:
            for key, value in changes:
                upsert = "INSERT INTO t VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET v = excluded.v"
                connection.execute(upsert, (key, value))

    def numbers(self, name: str) -> dict[int, int]:
        """The ts of each number, in the newest group of a project."""
        root = self.root / name / "w"
        told = read_coordination(root)
        assert told is not None
        entries = load_ledger(root).entries_between(told.spans[-1].since, 1 << 60)
        return {entry.n: entry.ts for entry in entries}

    def state(self, name: str, ts: int | None = None) -> Counter[Row]:
        root = self.root / name / "w"
        head = read_head(root).views["lines"]
        rows = view_state.read_counted(root, head, ts)
        columns = [rows[column].to_pylist() for column in rows.column_names]
        return Counter({row[:-1]: row[-1] for row in zip(*columns, strict=True)})

    def expected(self) -> dict[str, Counter[Row]]:
        """What the views must show now, by SQLite's own join."""
        joined = self.bases["north"]
        joined.execute("ATTACH ? AS south", (str(self.root / "south.db"),))
        try:
            sql = "SELECT n.id, n.v, s.v FROM main.t n JOIN south.t s ON n.id = s.id"
            parents = Counter(joined.execute(sql).fetchall())
        finally:
            joined.execute("DETACH south")
        child = Counter({(i, n, s, n): count for (i, n, s), count in parents.items()})
        return {"v1": parents, "v2": parents, "v0": child}

    def close(self) -> None:
        for base in self.bases.values():
            base.close()
