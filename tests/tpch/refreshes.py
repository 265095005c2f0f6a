"""Refreshes: orders come and go with their items, and every other table changes a little.

TPC-H's two refresh functions insert and delete orders; ours also change orders, items, customers,
suppliers, parts, offers, and now and then move a nation to another region and back. Values are
taken from other rows, so that they stay those of TPC-H.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from tests.tpch.databases import Row, TableHistory
from tests.tpch.tables import BY_RELATION

Change = tuple[str, Row | None, Row | None]

# What an update of a table takes from another row of it.
UPDATED = {
    "sales.orders": ("o_orderstatus", "o_orderpriority", "o_comment", "o_custkey"),
    "sales.lineitem": ("l_quantity", "l_discount", "l_shipdate", "l_receiptdate", "l_returnflag"),
    "people.customer": ("c_acctbal", "c_mktsegment", "c_nationkey", "c_phone"),
    "people.nation": ("n_regionkey",),
    "people.region": ("r_comment",),
    "stock.part": ("p_size", "p_container", "p_brand", "p_type", "p_name"),
    "stock.supplier": ("s_acctbal", "s_nationkey", "s_comment"),
    "stock.partsupp": ("ps_availqty", "ps_supplycost"),
}


class RefreshWriter:
    """Writes transactions over what is there now."""

    def __init__(self, history: TableHistory, rng: random.Random) -> None:
        self._history = history
        self._rng = rng
        self._next_order = max(key[0] for key in history.rows["sales.orders"]) + 1

    def next_batch(self, orders: int) -> Iterator[Sequence[Change]]:
        """Transactions that bring and take so many orders, and change every table."""
        for _ in range(orders):
            yield self._new_order()
            yield self._gone_order()
        for relation in UPDATED:
            # Two updates of one row in one transaction would name its old values twice.
            yield [self._update(relation)]

    def _pick(self, relation: str) -> Row:
        rows = self._history.rows[relation]
        return rows[self._rng.choice(list(rows))]

    def _update(self, relation: str) -> Change:
        old, other, names = self._pick(relation), self._pick(relation), BY_RELATION[relation].names
        new = list(old)
        for column in self._rng.sample(UPDATED[relation], min(2, len(UPDATED[relation]))):
            new[names.index(column)] = other[names.index(column)]
        return relation, old, tuple(new)

    def _new_order(self) -> list[Change]:
        key = self._next_order
        self._next_order += 1
        order = self._changed("sales.orders", o_orderkey=key)
        changes: list[Change] = [("sales.orders", None, order)]
        for number in range(1, self._rng.randint(1, 7) + 1):
            item = self._changed("sales.lineitem", l_orderkey=key, l_linenumber=number)
            changes.append(("sales.lineitem", None, item))
        return changes

    def _changed(self, relation: str, **values: Any) -> Row:
        """Another row of a relation, with other values in some columns."""
        names, row = BY_RELATION[relation].names, self._pick(relation)
        return tuple(values.get(name, value) for name, value in zip(names, row, strict=True))

    def _gone_order(self) -> list[Change]:
        order = self._pick("sales.orders")
        items = [
            row for key, row in self._history.rows["sales.lineitem"].items() if key[0] == order[0]
        ]
        gone: list[Change] = [("sales.lineitem", item, None) for item in items]
        return [*gone, ("sales.orders", order, None)]
