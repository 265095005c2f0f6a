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

    def next_batch(self, orders: int, together: int = 1) -> Iterator[Sequence[Change]]:
        """Transactions that bring and take so many orders, and change every table; `together` says
        how many orders a transaction brings, or takes."""
        for first in range(0, orders, together):
            some = range(min(together, orders - first))
            yield [change for _ in some for change in self._new_order()]
            gone = {self._history.keys["sales.orders"].pick_key(self._rng) for _ in some}
            yield [change for key in sorted(gone) for change in self._gone_order(key)]
        for relation in UPDATED:
            # Two updates of one row in one transaction would name its old values twice.
            yield [self._update(relation)]

    def _pick(self, relation: str) -> Row:
        return self._history.rows[relation][self._history.keys[relation].pick_key(self._rng)]

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

    def _gone_order(self, key: Row) -> list[Change]:
        items = self._history.rows["sales.lineitem"]
        numbers = self._history.keys["sales.lineitem"].keys_of(key[0])
        gone: list[Change] = [("sales.lineitem", items[number], None) for number in numbers]
        return [*gone, ("sales.orders", self._history.rows["sales.orders"][key], None)]
