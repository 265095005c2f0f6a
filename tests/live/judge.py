"""The judge of a live test: every state of the view, recomputed from the databases' own logs.

Transactions of the real database come from its log in commit order, those of SQLite from a journal
table that their writer kept. The views over the ledgers say which ts each transaction got. The
judge plays everything again in ts order and compares what each ts did to the view.
"""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from contextlib import closing
from pathlib import Path

import pyarrow as pa

from tests.live.kinds import Logged, Row
from viewkeeper.engine.project import Project
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.warehouse.metadata.head import ViewHead
from viewkeeper.warehouse.rows import view_state

VIEW = """CREATE MATERIALIZED VIEW order_lines AS
SELECT o.id, o.note, c.name, i.product, i.quantity
FROM shop.orders o JOIN shop.item i ON i.order_id = o.id
JOIN crm.customer c ON c.id = o.customer_id"""


def feed(project: Project, name: str) -> dict[int, Counter[Row]]:
    """What each ts did to a view; the initial load is under its own ts."""
    return feed_of_head(project.settings.warehouse, project.view(name).head)


def feed_of_head(warehouse: StoragePath, head: ViewHead) -> dict[int, Counter[Row]]:
    """What each ts did to a table."""
    changes = view_state.read_view_changes(warehouse, head, 0)
    found: dict[int, Counter[Row]] = defaultdict(Counter)
    columns = [changes[column].to_pylist() for column in changes.column_names]
    for *row, count, ts in zip(*columns, strict=True):
        found[ts][tuple(row)] += count
    return found


def stamps(project: Project, name: str) -> dict[int, int]:
    """The ts of every ledger number; each must be there exactly once."""
    found: dict[int, int] = {}
    for ts, rows in feed(project, name).items():
        for (n,), count in rows.items():
            assert count == 1, f"{name}: number {n} is there {count} times at ts {ts}"
            assert n not in found, f"{name}: number {n} has ts {found[n]} and {ts}"
            found[n] = ts
    return found


def number_of(logged: Logged) -> int | None:
    numbers = [int(row[0]) for table, sign, row in logged if table == "ledger" and sign > 0]
    assert len(numbers) <= 1
    return numbers[0] if numbers else None


def judge(project: Project, log: list[Logged], crm: Path, initial: dict[int, str]) -> int:
    """Compare every state of the view; how many transactions were judged."""
    shop = [(number_of(logged), logged) for logged in log]
    shop_ts, crm_ts = stamps(project, "ledger_shop"), stamps(project, "ledger_crm")
    ordered = [n for n, _ in shop if n is not None]
    assert sorted(shop_ts) == sorted(ordered), "the ledger view has not exactly the logged numbers"
    assert [shop_ts[n] for n in ordered] == sorted(shop_ts.values()), "not in commit order"
    at: dict[int, list[Logged]] = defaultdict(list)
    first = project.view("order_lines").head.created_ts
    for n, logged in shop:
        at[first if n is None else max(first, shop_ts[n])].append(logged)
    with closing(sqlite3.connect(crm)) as connection:
        journal = connection.execute("SELECT n, who, name FROM journal ORDER BY n").fetchall()
    assert sorted(crm_ts) == [n for n, _, _ in journal]
    renamed: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for n, who, name in journal:
        renamed[max(first, crm_ts[n])].append((who, name))
    _compare(feed(project, "order_lines"), at, renamed, initial)
    return len(shop_ts) + len(crm_ts)


def _compare(
    shown: dict[int, Counter[Row]],
    at: dict[int, list[Logged]],
    renamed: dict[int, list[tuple[int, str]]],
    names: dict[int, str],
) -> None:
    tables: dict[str, Counter[Row]] = defaultdict(Counter)
    names = dict(names)
    before: Counter[Row] = Counter()
    for ts in sorted({*shown, *at, *renamed}):
        for logged in at.get(ts, []):
            for table, sign, row in logged:
                tables[table][row] += sign
        names.update(renamed.get(ts, []))
        now = _view(tables["orders"], tables["item"], names)
        expected = Counter(now)
        expected.subtract(before)
        wanted = {row: count for row, count in expected.items() if count}
        found = {row: count for row, count in shown.get(ts, Counter()).items() if count}
        assert found == wanted, f"ts {ts}: {found} instead of {wanted}"
        before = now


def _view(orders: Counter[Row], items: Counter[Row], names: dict[int, str]) -> Counter[Row]:
    found: Counter[Row] = Counter()
    by_order: dict[int, list[tuple[Row, int]]] = defaultdict(list)
    for row, count in items.items():
        assert count >= 0, f"an item went twice: {row}"
        if count:
            by_order[row[0]].append((row, count))
    for (order, customer, note), count in orders.items():
        if count and customer in names:
            for (_, product, quantity), many in by_order[order]:
                found[order, note, names[customer], product, quantity] += count * many
    return found


def arrow_rows(table: pa.Table) -> Counter[Row]:
    columns = [table[name].to_pylist() for name in table.column_names]
    return Counter(zip(*columns, strict=True))
