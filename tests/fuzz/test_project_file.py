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
from viewkeeper.sources.kinds import open_source

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
ALONE = """\
warehouse: warehouse
history: 0
access: group
refresh: auto
on_gap: reanchor
views:
  top_products: {refresh: full, on_gap: stop}
  lines: {refresh: incremental, algorithm: sweep, evolution: {policy: ignore}}
sources:
  clock: {kind: clock, ahead_days: 7.5, global: time}
  shop: {kind: postgres, url: "postgresql://u@db/shop", capture: decoding, slot: s, publication: p,
         statement_seconds: 60}
  stock: {kind: mariadb, url: "mariadb://u@db/stock?ssl_mode=verify-full", statement_seconds: 9}
  logs: {kind: files, path: logs, format: json, allow_outside: false,
         tables: {line: {columns: {at: timestamp, text: string}}}}
"""
"""Settings that a project with a registry cannot have."""
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
WORDS += [b"refresh: ", b"on_gap: ", b"ahead_days: ", b"full", b"reanchor", b"auto", b"clock: "]
WORDS += [b"[" * 2000, b"9" * 5000, b"{", b"|\n", b"---\n", b"%YAML 9.9\n---\n", b"\xef\xbb\xbf"]


def test_damaged_project_file(scratch: Path) -> None:
    file = scratch / "viewkeeper.yml"

    def read(data: bytes) -> None:
        file.write_bytes(data)
        settings = read_settings(file)
        for source in settings.sources.values():
            if source.kind != "warehouse":
                with suppress(ProjectError):
                    open_source(source, "reader").close()
        settings.with_algorithm("sweep", "complete")
        for view in ("top_products", "x"):
            settings.refresh.word_of(view)
            settings.on_gap.word_of(view)

    good = [text.encode() for text in (FULL, ALONE, SMALL)]
    for data in good:
        read(data)
    fuzz(read, good, inputs=2000, words=WORDS)


@pytest.mark.parametrize("key", ["~", "&ath", "7", "1.5", "true", "2024-01-31"])
def test_an_option_that_is_no_text_is_unknown(scratch: Path, key: str) -> None:
    """The nearest option was looked for to a text that was none."""
    file = scratch / "viewkeeper.yml"
    file.write_text(f"{SMALL}    {key}: crm.db\n")
    with pytest.raises(ProjectError, match='source "crm": unknown option'):
        read_settings(file)
