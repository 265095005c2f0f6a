"""Small tables in the manner of TPC-DS and of the raw data of a shop, and a history of them.

Every column has a handful of values, so that statements meet matches, misses, NULLs, ties and
groups that are emptied. The history is random and the same in every run.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tests.sql.relation_history import KEY, RowChange, TableShape, Transaction, decimal_column

INTEGER, TEXT, DATE = ("INTEGER", pa.int64()), ("TEXT", pa.string()), ("DATE", pa.date32())
MONEY = decimal_column(7, 2)


def _money(*values: str) -> tuple[Decimal | None, ...]:
    return (*map(Decimal, values), None)


def _days(*values: str) -> tuple[datetime.date | None, ...]:
    return tuple(datetime.date.fromisoformat(value) if value else None for value in values)


PRICES = _money("1.00", "2.50", "9.99", "20.00", "20.00")
PROFITS = _money("-3.00", "0.00", "1.25", "8.00")
KEYS = (1, 2, 3, 3, 4, None)
DAYS = _days("2024-01-01", "2024-01-02", "2024-01-05", "2024-02-01", "2024-02-10", "2025-01-03")
STATES = ("CA", "CA", "TX", None)
PAYLOADS = (
    '{"page":"/a","tags":["x","y"],"ms":120}',
    '{"page":"/b","tags":[],"ms":80}',
    '{"page":"/a"}',
    "no json",
    None,
)

Domain = dict[str, tuple[tuple[str, pa.DataType], Sequence[Any]]]
"""The columns of a table besides its key: their types, and the values that they take."""

COLUMNS: dict[str, Domain] = {
    "shop.store_sales": {
        "day_sk": (INTEGER, (1, 2, 3, 4, 5)),
        "item": (INTEGER, KEYS),
        "buyer": (INTEGER, KEYS),
        "store": (INTEGER, (1, 2, None)),
        "ticket": (INTEGER, (1, 2, 3)),
        "quantity": (INTEGER, (1, 2, 5, None)),
        "price": (MONEY, PRICES),
        "profit": (MONEY, PROFITS),
    },
    "shop.web_sales": {
        "day_sk": (INTEGER, (1, 2, 3, 4, 5)),
        "item": (INTEGER, KEYS),
        "buyer": (INTEGER, KEYS),
        "site": (INTEGER, (1, 2)),
        "order_no": (INTEGER, (1, 2, 3)),
        "warehouse": (INTEGER, (1, 2, None)),
        "quantity": (INTEGER, (1, 3, 5)),
        "price": (MONEY, PRICES),
        "profit": (MONEY, PROFITS),
    },
    "shop.catalog_sales": {
        "day_sk": (INTEGER, (1, 2, 3, 4, 5)),
        "item": (INTEGER, KEYS),
        "buyer": (INTEGER, KEYS),
        "page": (INTEGER, (1, 2)),
        "quantity": (INTEGER, (1, 2, 4)),
        "price": (MONEY, PRICES),
        "profit": (MONEY, PROFITS),
    },
    "shop.store_returns": {
        "day_sk": (INTEGER, (2, 3, 4, 5)),
        "item": (INTEGER, KEYS),
        "buyer": (INTEGER, KEYS),
        "store": (INTEGER, (1, 2, None)),
        "ticket": (INTEGER, (1, 2, 3)),
        "amount": (MONEY, PRICES),
        "loss": (MONEY, PROFITS),
    },
    "shop.web_returns": {
        "day_sk": (INTEGER, (2, 3, 4, 5)),
        "order_no": (INTEGER, (1, 2, 3)),
        "item": (INTEGER, KEYS),
        "amount": (MONEY, PRICES),
        "loss": (MONEY, PROFITS),
    },
    "crm.days": {
        "day": (DATE, DAYS),
        "year": (INTEGER, (2024, 2024, 2025)),
        "month": (INTEGER, (1, 1, 2)),
        "week": (INTEGER, (1, 2, 5)),
    },
    "crm.items": {
        "brand": (INTEGER, (1, 2)),
        "class": (INTEGER, (1, 2)),
        "category": (TEXT, ("Books", "Music", None)),
        "price": (MONEY, PRICES),
    },
    "crm.buyers": {
        "name": (TEXT, ("ann", "bob", "eve", None)),
        "address": (INTEGER, (1, 2, None)),
        "gender": (TEXT, ("F", "M")),
        "birth_year": (INTEGER, (1980, 1990)),
    },
    "crm.addresses": {"state": (TEXT, STATES), "county": (TEXT, ("Ada", "Bay"))},
    "crm.stores": {
        "name": (TEXT, ("north", "south")),
        "state": (TEXT, STATES),
        "county": (TEXT, ("Ada", "Bay")),
    },
    "shop.raw_orders": {
        "customer": (INTEGER, KEYS),
        "status": (TEXT, ("placed", "shipped", "returned", None)),
        "day": (DATE, DAYS[:5]),
        "amount": (MONEY, PRICES),
        "version": (INTEGER, (1, 2, 3)),
    },
    "shop.raw_payments": {
        "order_id": (INTEGER, (1, 2, 3, 4, 5, None)),
        "method": (TEXT, ("card", "cash", "coupon")),
        "cents": (INTEGER, (100, 250, 1999)),
        "day": (DATE, DAYS[:5]),
    },
    "shop.raw_events": {
        "visitor": (TEXT, ("v1", "v1", "v2", None)),
        "kind": (TEXT, ("view", "cart", "buy")),
        "at": (INTEGER, (0, 600, 3000, 9000, 9100)),
        "day": (DATE, DAYS[:4]),
        "payload": (TEXT, PAYLOADS),
    },
    "crm.raw_customers": {
        "first_name": (TEXT, (" Ann", "Bob ", None)),
        "last_name": (TEXT, ("Lee", "Kim")),
        "email": (TEXT, ("ann@x.org", "BOB@Y.com", "broken", None)),
        "day": (DATE, DAYS[:5]),
    },
    "crm.tiers": {
        "customer": (INTEGER, (1, 2, 3)),
        "tier": (TEXT, ("gold", "silver")),
        "valid_from": (DATE, _days("2024-01-01", "2024-01-05", "2024-02-01")),
        "valid_to": (DATE, _days("2024-01-05", "2024-02-01", "")),
    },
    "crm.subscriptions": {
        "customer": (INTEGER, (1, 2, 3)),
        "plan": (TEXT, ("basic", "pro")),
        "started": (DATE, _days("2024-01-01", "2024-01-15", "2024-02-01")),
        "ended": (DATE, _days("2024-01-31", "2024-03-15", "")),
        "monthly": (MONEY, _money("5.00", "9.00")),
    },
}


def _shape_of(relation: str, columns: Domain) -> TableShape:
    source, _, name = relation.partition(".")
    types = {column: kind for column, (kind, _) in columns.items()}
    return TableShape(source, name, {"id": KEY, **types}, True)


CORPUS_TABLES = tuple(_shape_of(relation, columns) for relation, columns in COLUMNS.items())
SOURCES = ("shop", "crm")


class CorpusHistory:
    """Writes transactions over the tables of the corpora, with one random generator."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._keys: dict[str, list[int]] = {relation: [] for relation in COLUMNS}
        self._last = dict.fromkeys(COLUMNS, 0)

    def fill_tables(self, rows: int) -> list[Transaction]:
        """One transaction per source, with so many rows for each of its tables."""
        return [
            tuple(
                self._new_row(relation)
                for relation in COLUMNS
                if relation.startswith(source)
                for _ in range(rows)
            )
            for source in SOURCES
        ]

    def make_batch(self, transactions: int) -> list[Transaction]:
        """Transactions with one to six changes each."""
        return [self._make_transaction() for _ in range(transactions)]

    def _make_transaction(self) -> Transaction:
        source = self._random.choice(SOURCES)
        tables = [relation for relation in COLUMNS if relation.startswith(source)]
        changed: dict[tuple[str, int], RowChange] = {}
        for _ in range(self._random.randint(1, 6)):
            change = self._make_change(self._random.choice(tables))
            changed.setdefault((change.relation, change.row), change)
        return tuple(changed.values())

    def _make_change(self, relation: str) -> RowChange:
        keys = self._keys[relation]
        choice = self._random.random()
        if choice < 0.4 or not keys:
            return self._new_row(relation)
        key = self._random.choice(keys)
        if choice < 0.75:
            return RowChange(relation, key, self._values(relation, key))
        keys.remove(key)
        return RowChange(relation, key, None)

    def _new_row(self, relation: str) -> RowChange:
        self._last[relation] += 1
        key = self._last[relation]
        self._keys[relation].append(key)
        return RowChange(relation, key, self._values(relation, key), is_new=True)

    def _values(self, relation: str, key: int) -> tuple[Any, ...]:
        return (key, *(self._random.choice(values) for _, values in COLUMNS[relation].values()))
