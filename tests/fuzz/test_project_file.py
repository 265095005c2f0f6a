"""Damaged project files: settings, or a ProjectError that names the file.

The settings of sources are checked as far as without a connection: what opening one reads of them
is a part of it.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from tests.fuzz.mutation import fuzz
from viewkeeper.engine.settings.project_file import read_settings
from viewkeeper.errors import ProjectError
from viewkeeper.sources.files import open_source

FULL = """\
warehouse: ./warehouse
freshness: 500ms
history: 2h
retention: 7d
publish: 1h
algorithm: sweep
registry: {url: "../registry.db", member: shop, token: "${TOKEN}", together: a}
batch: {rows: 1000, inline_rows: 0, part_rows: 10, wait_rows: 100, memory: 64mb}
spark: {master: "local[2]", memory: 1g, job_minutes: 5, config: {spark.ui.enabled: false}}
evolution: {policy: {default: evolve, drop_column: approve}, detection: optimistic}
substitutes:
  - {for: shop.orders.price, use: crm.prices.amount, extent: equal,
     join: shop.orders.id = crm.prices.id}
  - {for: shop.customers, use: crm.clients, columns: {id: client_id}, extent: superset}
views:
  order_lines:
    algorithm: nested_sweep
    level: strong
    evolution: {policy: ignore, dispensable: {columns: [note], conditions: ["o.flag = 1"]}}
sources:
  shop: {kind: postgres, url: "postgresql://u:${PGPASSWORD}@db/shop", capture: triggers,
         retention: 10gb, delete_by_key: [a.b]}
  crm: {kind: sqlite, path: crm.db, busy_seconds: 5}
  stock: {kind: mariadb, url: "mariadb://u:p@db/stock", server_id: 4711}
  lake: {kind: delta_lake, path: lake/events, table: events, allow_outside: true, global: big}
  parent: {kind: warehouse, path: ../orders}
  exports:
    kind: files
    path: exports
    format: csv
    settle_seconds: 0.5
    tables: &tables
      price: {columns: {sku: string, price: "decimal(10,2)"}, key: [sku], delimiter: ";"}
      other: {columns: {a: bigint}, header: false, quote: "'", escape: "\\\\", "null": "-"}
"""
SMALL = "warehouse: w\nsources:\n  crm:\n    kind: sqlite\n    path: crm.db\n"
WORDS = [b"&a ", b"*a", b"<<: *tables\n", b"!!python/object:os.system ", b"!!int ", b"!!timestamp "]
WORDS += [
    b"2024-02-30",
    b".nan",
    b".inf",
    b"-1",
    b"1e400",
    b"yes",
    b"~",
    b'"\\0"',
    b'"\\ud800"',
    b"? ",
]
WORDS += [b"[" * 2000, b"9" * 5000, b"{", b"|\n", b"---\n", b"%YAML 9.9\n---\n", b"\xef\xbb\xbf"]


def test_damaged_project_file(scratch: Path) -> None:
    file = scratch / "viewkeeper.yml"

    def read(data: bytes) -> None:
        file.write_bytes(data)
        settings = read_settings(file)
        for name, source in settings.sources.items():
            if source.kind == "files":
                with suppress(ProjectError):
                    open_source(source, name)
        settings.with_algorithm("sweep", "complete")

    for good in (FULL, SMALL):
        read(good.encode())
    fuzz(read, [FULL.encode(), SMALL.encode()], inputs=2000, words=WORDS)


@pytest.mark.parametrize("key", ["~", "&ath", "7", "1.5", "true", "2024-01-31"])
def test_an_option_that_is_no_text_is_unknown(scratch: Path, key: str) -> None:
    """The nearest option was looked for to a text that was none."""
    file = scratch / "viewkeeper.yml"
    file.write_text(f"{SMALL}    {key}: crm.db\n")
    with pytest.raises(ProjectError, match='source "crm": unknown option'):
        read_settings(file)
