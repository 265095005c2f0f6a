"""One changed row that meets millions: what the driver holds meanwhile.

A row of a dimension comes, goes, or gets another name, and every fact is under it. Each measurement
is a process of its own, so that a peak is that of one batch: the project is loaded without the
dimension row, a small batch is maintained first, and then the peak of the resident set is set back
(`/proc/self/clear_refs`), the row comes, and the peak is read again.

- *rows*: every fact with the name of its dimension row is a row of the view, and is written.
- *left*: the same with the fact on the left of a LEFT JOIN, so that a row of NULLs goes for each.
- *fold*: count and sum by name: one group.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import psycopg

from benchmarks.maintenance import Attentive
from viewkeeper.engine.project import open_project
from viewkeeper.testing.private_servers import PrivatePostgres

JOIN = "FROM shop.fact f {kind} JOIN shop.dim d ON d.id = f.d"
VIEWS = {
    "rows": f"SELECT f.id, f.amount, d.name {JOIN.format(kind='INNER')}",
    "left": f"SELECT f.id, f.amount, d.name {JOIN.format(kind='LEFT')}",
    "fold": f"SELECT d.name, count(*) AS n, sum(f.amount) AS total {JOIN.format(kind='INNER')} "
    "GROUP BY d.name",
}
TABLES = (
    "CREATE TABLE dim (id INTEGER PRIMARY KEY, name TEXT)",
    "CREATE TABLE fact (id INTEGER PRIMARY KEY, d INTEGER, amount INTEGER)",
)
FACTS = {
    "sqlite": "INSERT INTO fact WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n "
    "WHERE i + 1 < {rows}) SELECT i, 1, i % 1000 FROM n",
    "postgres": "INSERT INTO fact SELECT i, 1, i % 1000 FROM generate_series(0, {rows} - 1) i",
}
Execute = Callable[[str], object]


def measure_fan_out(folder: Path, kind: str, view: str, rows: int) -> dict[str, object]:
    """One batch in which a row meets so many others."""
    with ExitStack() as stack:
        source, execute = _open_database(stack, folder, kind)
        for statement in TABLES:
            execute(statement)
        for table in ("dim", "fact") if kind == "postgres" else ():
            execute(f"ALTER TABLE {table} REPLICA IDENTITY FULL")
        execute(FACTS[kind].format(rows=rows))
        execute("CREATE INDEX fact_d ON fact (d)")
        execute("ANALYZE")
        execute("INSERT INTO dim VALUES (2, 'nobody')")
        (folder / "views").mkdir()
        (folder / "viewkeeper.yml").write_text(
            f"warehouse: ./warehouse\nhistory: 0\nsources:\n  shop: {source}\n"
        )
        text = f"CREATE MATERIALIZED VIEW v AS\n{VIEWS[view]}\n"
        (folder / "views" / "v.sql").write_text(text)
        with open_project(folder) as project:
            project.refresh()
        observer = Attentive()
        project = stack.enter_context(open_project(folder))
        maintainer = stack.enter_context(project.open_maintainer("benchmark", observer))
        maintainer.start_run()
        for name in ("b", "c"):
            execute(f"UPDATE dim SET name = '{name}' WHERE id = 2")
            maintainer.see_commits()
            maintainer.maintain_views()
        reset_peak()
        before = read_status_mb("VmRSS")
        execute("INSERT INTO dim VALUES (1, 'all')")
        maintainer.see_commits()
        started = time.perf_counter()
        maintainer.maintain_views()
        seconds = time.perf_counter() - started
        grown = read_status_mb("VmHWM") - before
        assert observer.last is not None
        _check_view(maintainer.store.local_root, maintainer.store.head.views["v"], view, rows)
        return {
            "source": kind,
            "view": view,
            "rows": rows,
            "seconds": round(seconds, 2),
            "grown_mb": round(grown),
            "lookups": sum(observer.last.lookups.values()),
            "where": observer.last.where,
        }


def _open_database(stack: ExitStack, folder: Path, kind: str) -> tuple[str, Execute]:
    if kind == "sqlite":
        connection = sqlite3.connect(folder / "shop.db", isolation_level=None)
        stack.enter_context(closing(connection))
        connection.execute("PRAGMA journal_mode = WAL")
        return "{kind: sqlite, path: shop.db}", connection.execute
    server = PrivatePostgres(folder / "server")
    server.start()
    stack.callback(server.stop)
    connected = psycopg.connect(server.url_of(), autocommit=True)
    stack.enter_context(closing(connected))
    source = json.dumps({"kind": "postgres", "url": server.url_of()})
    return source, lambda statement: connected.execute(statement.encode())


def _check_view(root: Path, head: object, view: str, rows: int) -> None:
    """The view is what it must be: every fact once, under the name of its row."""
    from viewkeeper.warehouse.metadata.head import ViewHead
    from viewkeeper.warehouse.rows.view_state import read_state

    assert isinstance(head, ViewHead)
    table = read_state(root, head)
    amounts = sum(each % 1000 for each in range(rows))
    if view == "fold":
        assert table.to_pylist() == [{"name": "all", "n": rows, "total": amounts}], "wrong"
        return
    assert table.num_rows == rows, f"{table.num_rows} rows instead of {rows}"
    ids = table["id"].to_numpy()
    ids.sort()
    assert (ids == range(rows)).all(), "not every fact once"
    assert sum(table["amount"].to_numpy()) == amounts, "wrong amounts"
    assert table["name"].unique().to_pylist() == ["all"], "wrong names"


def reset_peak() -> None:
    """Let the peak of the resident set begin again at what it is now."""
    Path("/proc/self/clear_refs").write_text("5")


def read_status_mb(name: str) -> float:
    """A figure of this process, as Linux tells it."""
    text = Path("/proc/self/status").read_text()
    line = next(line for line in text.splitlines() if line.startswith(name))
    return int(line.split()[1]) / 1024


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fan_out")
    parser.add_argument("--rows", type=int, nargs="*", default=[1_000_000, 3_000_000])
    parser.add_argument("--sources", nargs="*", default=["sqlite", "postgres"])
    parser.add_argument("--views", nargs="*", default=list(VIEWS))
    parser.add_argument("--one", action="store_true", help="measure here, not in a process")
    options = parser.parse_args(arguments)
    for kind in options.sources:
        for view in options.views:
            for rows in options.rows:
                if options.one:
                    with tempfile.TemporaryDirectory(prefix="viewkeeper-fan-out-") as folder:
                        found = measure_fan_out(Path(folder), kind, view, rows)
                    print(json.dumps(found), flush=True)
                    continue
                words = ["--rows", str(rows), "--sources", kind, "--views", view, "--one"]
                subprocess.run([sys.executable, "-m", "benchmarks.fan_out", *words], check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
