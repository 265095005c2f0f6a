"""A Delta Lake table and a folder of files under writers, the maintainer killed meanwhile.

The judge of the Delta Lake table is the table itself, read version by version; the judge of the
folder is its writer, who remembers every state that it handed over. Each state that the view ever
had must be the one of a version, or of a state, and these must follow each other in order.
"""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from pyspark.sql import SparkSession

import viewkeeper
from tests.faults.processes import maintainer
from tests.live.judge import arrow_rows
from viewkeeper.engine.project import Project
from viewkeeper.warehouse.metadata.plan_files import load_ledger

PRODUCTS = 20
NAMES = {n: f"product {n}" for n in range(PRODUCTS)}
Rows = Counter[tuple[Any, ...]]


def make_project(folder: Path, source: str, table: str) -> None:
    with closing(sqlite3.connect(folder / "crm.db")) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE product (id INTEGER PRIMARY KEY, name TEXT)")
        connection.executemany("INSERT INTO product VALUES (?, ?)", NAMES.items())
        connection.commit()
    (folder / "views").mkdir()
    (folder / "views" / "v.sql").write_text(
        "CREATE MATERIALIZED VIEW v AS SELECT r.product, r.stars, p.name"
        f" FROM {table} r JOIN crm.product p ON p.id = r.product"
    )
    (folder / "viewkeeper.yml").write_text(
        "warehouse: ./warehouse\nfreshness: 100ms\nbatch: {inline_rows: 1000000}\nsources:\n"
        f"  shop: {source}\n  crm: {{kind: sqlite, path: crm.db}}\n"
    )


def expected(rows: Rows) -> Rows:
    return Counter({(p, s, NAMES[p]): n for (p, s), n in rows.items() if p in NAMES and n})


@contextmanager
def writing(*jobs: Callable[[], None]) -> Iterator[Callable[[int], None]]:
    """Repeats jobs in threads of their own; gives a way to wait for so many more rounds."""
    stop, rounds, errors = threading.Event(), [0], list[BaseException]()

    def repeat(job: Callable[[], None]) -> None:
        try:
            while not stop.is_set():
                job()
                rounds[0] += 1
                time.sleep(0.01)
        except BaseException as error:  # noqa: BLE001 - raised again where the writers are ended
            errors.append(error)

    def wait_for(more: int) -> None:
        target, end = rounds[0] + more, time.monotonic() + 120
        while rounds[0] < target and not errors:
            assert time.monotonic() < end, "the writers do not get on"
            time.sleep(0.01)

    threads = [threading.Thread(target=repeat, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    try:
        yield wait_for
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]


def survive(folder: Path, wait_for: Callable[[int], None]) -> None:
    """Maintain while the writers write, killed in the middle, then stopped in order."""
    with maintainer(folder) as process:
        process.wait_for("batch")
        wait_for(15)
        process.kill()
    wait_for(5)
    with maintainer(folder) as process:
        process.wait_for("batch")
        wait_for(15)
        assert process.stop() == 0, process.output


def states(project: Project) -> list[tuple[int, Rows]]:
    """Every state that the view has had since its load, by ts."""
    view = project.view("v")
    kept = range(view.head.created_ts, view.ts + 1)
    return [(ts, arrow_rows(view.arrow(as_of=ts))) for ts in kept]


def test_a_lake_table_under_four_writers(tmp_path: Path, spark: SparkSession) -> None:
    path = tmp_path / "rating"
    fields: dict[str, pa.DataType] = {"product": pa.int64(), "stars": pa.float64()}
    schema = pa.schema(fields)
    write_deltalake(path, pa.table({"product": [1, 2], "stars": [1.0, 2.0]}, schema=schema))
    make_project(tmp_path, f"{{kind: delta_lake, path: {path}}}", "shop.rating")

    def job(seed: int) -> Callable[[], None]:
        rng = random.Random(seed)

        def change() -> None:
            product = rng.randrange(PRODUCTS + 2)
            try:
                match rng.randrange(3):
                    case 0:
                        DeltaTable(path).update(
                            {"stars": "stars + 0.5"}, predicate=f"product = {product}"
                        )
                    case 1:
                        DeltaTable(path).delete(f"product = {product}")
                    case _:
                        rows = {"product": [product, product], "stars": [0.5, rng.randrange(9) / 2]}
                        write_deltalake(path, pa.table(rows, schema=schema), mode="append")
            except CommitFailedError:
                # Another writer was faster: nothing of this one is in the table.
                return

        return change

    with viewkeeper.open(tmp_path, spark=spark) as project:
        project.refresh()
    with writing(*(job(seed) for seed in range(4))) as wait_for:
        survive(tmp_path, wait_for)
    with viewkeeper.open(tmp_path, spark=spark) as project:
        assert project.refresh().waiting == {}
        ledger = load_ledger(tmp_path / "warehouse")
        shown_at = states(project)
        versions = [ledger.position_at("shop", ts) for ts, _ in shown_at]
        newest = DeltaTable(path).version()
        assert versions[-1] == newest
        reported = [entry.until for entry in ledger.entries if entry.source == "shop"]
        assert reported == sorted(set(reported))
        for (ts, shown), version in zip(shown_at, versions, strict=True):
            at = 0 if version is None else version
            assert shown == expected(version_rows(path, at)), f"ts {ts}, version {version}"
        assert newest > 30


def version_rows(path: Path, version: int) -> Rows:
    from pyarrow import parquet

    files = DeltaTable(path, version=version).file_uris()
    tables = [parquet.read_table(file) for file in files]
    found: Rows = Counter()
    for table in tables:
        found += Counter(zip(*(table[c].to_pylist() for c in ("product", "stars")), strict=True))
    return found


def test_a_folder_that_is_handed_over_again_and_again(tmp_path: Path, spark: SparkSession) -> None:
    folder = tmp_path / "exports"
    folder.mkdir()
    rng = random.Random(3)
    content: Rows = Counter({(1, 1.5): 1, (2, 2.5): 2})
    handed: list[Rows] = []

    def hand_over() -> None:
        """A new state under another name, then renamed: whole or not at all."""
        product = rng.randrange(PRODUCTS + 2)
        gone = [row for row in content if row[0] == product and rng.random() < 0.7]
        for row in gone:
            del content[row]
        content[product, rng.randrange(9) / 2] += rng.randint(1, 2)
        lines = [f"{p},{s}" for (p, s), n in content.items() for _ in range(n)]
        rng.shuffle(lines)
        fresh = folder / "rating.csv.tmp"
        fresh.write_text("\n".join(["product,stars", *lines]) + "\n")
        handed.append(Counter(content))
        fresh.rename(folder / "rating.csv")
        time.sleep(0.15)

    hand_over()
    columns = "{rating: {columns: {product: bigint, stars: double}}}"
    source = f"{{kind: files, path: {folder}, format: csv, settle_seconds: 0, tables: {columns}}}"
    make_project(tmp_path, source, "shop.rating")
    with viewkeeper.open(tmp_path, spark=spark) as project:
        project.refresh()
    with writing(hand_over) as wait_for:
        survive(tmp_path, wait_for)
    with viewkeeper.open(tmp_path, spark=spark) as project:
        assert project.refresh().waiting == {}
        at, seen = 0, 0
        wanted = [expected(state) for state in handed]
        for ts, shown in states(project):
            assert shown in wanted[at:], f"ts {ts} is no state that was handed over later"
            seen += wanted.index(shown, at) > at
            at = wanted.index(shown, at)
        assert shown == wanted[-1]
        assert seen > 10
