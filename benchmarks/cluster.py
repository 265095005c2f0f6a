"""A standalone cluster of one and of two workers: `python -m benchmarks.cluster`.

The same project over two PostgreSQL databases is loaded and maintained by workers with one core
each. What is compared is the time of the load and of large batches, by the clock, with one worker
and with two, once their code is compiled; and how much of that the driver computes, which no worker
can take over.

On one machine, driver, databases and workers share the processors, so a second worker would only
take from the others. Therefore each worker gets a share of one (`--share`, by the kernel's control
groups, which needs root): a slow machine of its own, while driver and databases have the rest.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psycopg

import viewkeeper
from benchmarks import report
from viewkeeper.testing.private_servers import PrivatePostgres
from viewkeeper.testing.standalone_cluster import StandaloneCluster, standalone_cluster

ROOT = Path(__file__).resolve().parent.parent
CONTROL_GROUPS = Path("/sys/fs/cgroup/cpu")
PERIOD_US = 100_000
LOADS, BATCHES = 4, 8
"""The later half counts: every executor is a JVM of its own, and with a third of a processor it
compiles what it runs for the first half a minute. Two of them do that twice."""

VIEW = """CREATE MATERIALIZED VIEW lines AS
SELECT o.id, o.amount, c.name, c.segment
FROM shop.orders o JOIN crm.customer c ON o.customer_id = c.id
"""


def make_databases(server: PrivatePostgres, orders: int) -> None:
    """Orders in one database, a tenth as many customers in another."""
    with psycopg.connect(server.url_of(), autocommit=True) as connection:
        for name in ("shop", "crm"):
            connection.execute(f"CREATE DATABASE {name}")
    with psycopg.connect(server.url_of("shop")) as shop:
        shop.execute("CREATE TABLE orders (id bigint PRIMARY KEY, customer_id int, amount int)")
        shop.execute(
            f"INSERT INTO orders SELECT n, n::bigint * 7919 % {orders // 10}, n % 1000"
            f" FROM generate_series(0, {orders - 1}) n"
        )
        shop.execute("CREATE INDEX ON orders (customer_id)")
        shop.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
    with psycopg.connect(server.url_of("crm")) as crm:
        crm.execute("CREATE TABLE customer (id int PRIMARY KEY, name text, segment int)")
        crm.execute(
            "INSERT INTO customer SELECT n, 'customer ' || n, n % 7"
            f" FROM generate_series(0, {orders // 10 - 1}) n"
        )
        crm.execute("ALTER TABLE customer REPLICA IDENTITY FULL")


def measure_project(shop_url: str, crm_url: str, folder: Path, master: str, changes: int) -> None:
    """Load, then batches of so many changes; prints one line of JSON."""
    (folder / "views").mkdir(parents=True)
    (folder / "views" / "lines.sql").write_text(VIEW)
    (folder / "viewkeeper.yml").write_text(
        "warehouse: ./warehouse\n"
        f"batch: {{inline_rows: 0, part_rows: {changes // 8}}}\nsources:\n"
        f"  shop: {{kind: postgres, url: '{shop_url}'}}\n"
        f"  crm: {{kind: postgres, url: '{crm_url}'}}\n"
        f"spark:\n  master: {master}\n  memory: 1g\n  config:\n"
        "    spark.executor.memory: 512m\n    spark.driver.host: 127.0.0.1\n"
        "    spark.ui.enabled: 'false'\n"
    )
    with viewkeeper.open(folder) as project:
        project.refresh()  # binds, and starts Spark and the executors
        loads = []
        for _ in range(LOADS):
            started = time.perf_counter()
            project.refresh(full_refresh=["lines"])
            loads.append(time.perf_counter() - started)
        batches, driver = [], []
        for number in range(BATCHES):
            with psycopg.connect(shop_url) as shop:
                low = number * changes // 2
                shop.execute(
                    "UPDATE orders SET amount = amount + 1 WHERE id >= %s AND id < %s",
                    (low, low + changes // 2),
                )
            began, used = time.perf_counter(), time.process_time()
            report = project.refresh()
            assert report.batches_on_spark == 1, report
            batches.append(time.perf_counter() - began)
            driver.append(time.process_time() - used)
        found = {
            "load": statistics.median(loads[LOADS // 2 :]),
            "batch": statistics.median(batches[BATCHES // 2 :]),
            "driver_cpu": statistics.median(driver[BATCHES // 2 :]),
        }
        print(json.dumps({key: round(value, 2) for key, value in found.items()}), flush=True)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster")
    parser.add_argument("--orders", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, default=100_000)
    parser.add_argument("--share", type=float, default=0.35, help="processors of each worker")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "out")
    parser.add_argument("--one", nargs=4, help="two databases, a folder and a master")
    options = parser.parse_args(arguments)
    if options.one:
        shop, crm, folder, master = options.one
        measure_project(shop, crm, Path(folder), master, options.changes)
        return
    with tempfile.TemporaryDirectory(prefix="viewkeeper-cluster-") as folder:
        server = PrivatePostgres(Path(folder) / "pg")
        server.start()
        try:
            orders, changes = (
                (20_000, 4_000) if options.quick else (options.orders, options.changes)
            )
            make_databases(server, orders)
            found = compare_workers(server, Path(folder), changes, options.share)
        finally:
            server.stop()
    options.out.mkdir(parents=True, exist_ok=True)
    body = {**report.environment(), "share": options.share, "workers": found}
    (options.out / "cluster.json").write_text(json.dumps(body, indent=2) + "\n")


@contextmanager
def limited_group(share: float) -> Iterator[Path]:
    """A control group whose processes together have a share of one processor."""
    group = CONTROL_GROUPS / f"viewkeeper-bench-{os.getpid()}-{time.monotonic_ns()}"
    group.mkdir()
    (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
    (group / "cpu.cfs_quota_us").write_text(str(int(share * PERIOD_US)))
    try:
        yield group
    finally:
        # The last processes of a group take a moment to end.
        for _ in range(100):
            with suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.1)


@contextmanager
def limited_cluster(folder: Path, workers: int, share: float) -> Iterator[StandaloneCluster]:
    """A cluster whose workers have a share of a processor each, with all that they start."""
    with ExitStack() as stack:
        groups = [stack.enter_context(limited_group(share)) for _ in range(workers)]
        cluster = stack.enter_context(standalone_cluster(folder, workers))
        for group, pid in zip(groups, cluster.worker_pids(), strict=True):
            (group / "cgroup.procs").write_text(str(pid))
        yield cluster


def compare_workers(
    server: PrivatePostgres, folder: Path, changes: int, share: float
) -> dict[int, list[dict[str, float]]]:
    """Every measurement in a process of its own, one worker and two in turn."""
    found: dict[int, list[dict[str, float]]] = {1: [], 2: []}
    for number, workers in enumerate((1, 2, 1, 2)):
        home = folder / str(number)
        with limited_cluster(home / "cluster", workers, share) as cluster:
            words = [sys.executable, "-m", "benchmarks.cluster", "--changes", str(changes), "--one"]
            words += [server.url_of("shop"), server.url_of("crm"), str(home), cluster.url]
            said = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
        print(f"{workers} workers: {said.strip()}", flush=True)
        found[workers].append(json.loads(said))
    for key in ("load", "batch"):
        one, two = (min(each[key] for each in found[workers]) for workers in (1, 2))
        print(f"{key}: {one / two:.2f} times as fast with two workers", flush=True)
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
