"""Barriers: transactions after which something that was there before cannot be read any more.

A table was emptied without its rows being listed (TRUNCATE), or rows went of which only the key is
known. What the view has of them goes by what is stored: all of it, or what has those keys (Strobe's
key delete). Everything that is uncommitted up to the barrier and may have to ask that table becomes
visible together with it, as one transaction, because states in between cannot be computed: strong
there, complete elsewhere.

Why that is exact: let K be the rows that went. Taking K's share out of the stored view leaves the
view over R without K, at the old state. From there to the barrier, R's changes are the listed ones
of other rows and, for keys of K, only what is there after the last of them went. A lookup reads R
as of the barrier, and taking those changes back gives R without K, as compensation needs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from viewkeeper.delta.arrow_compute import pc
from viewkeeper.engine.connections.open_sources import Connections
from viewkeeper.engine.views.algorithm_choice import shown_keys
from viewkeeper.updates.source_protocol import COUNT, POSITION, TS
from viewkeeper.updates.view_actions import DeleteKeys
from viewkeeper.view.definition import Relation, ViewDefinition
from viewkeeper.warehouse.lake.data_files import write_rows
from viewkeeper.warehouse.metadata.plan_files import LedgerEntry
from viewkeeper.warehouse.metadata.record import DataFile
from viewkeeper.warehouse.rows.stored_actions import evaluate_actions, write_negation
from viewkeeper.warehouse.store import Store


def is_barrier(entry: LedgerEntry, view: ViewDefinition) -> bool:
    """Whether something of the view's relations went unlisted in this transaction."""
    return any(
        Relation(entry.source, table) in view.relations for table in (*entry.emptied, *entry.keyed)
    )


def barrier_of(store: Store, view: ViewDefinition, until: int) -> int | None:
    """The ts of the newest barrier up to `until` that a view has still to cross."""
    head = store.head.views[view.name]
    found = [e.ts for e in store.ledger.entries_between(head.ts, until) if is_barrier(e, view)]
    return max((found[-1], *head.ahead)) if found else None


class Sieve:
    """Makes one transaction of all changes up to a barrier: what went, and what is left."""

    def __init__(
        self, entries: Sequence[LedgerEntry], keys: Mapping[Relation, Sequence[str]]
    ) -> None:
        self._keys = {
            relation: tuple(key)
            for relation, key in keys.items()
            if any(e.source == relation.source and relation.table in e.keyed for e in entries)
        }
        self._since = {Relation(e.source, table): e.until for e in entries for table in e.emptied}
        self._held: dict[Relation, list[pa.RecordBatch]] = {relation: [] for relation in self._keys}
        self.gone: dict[Relation, pa.Table] = {}
        """Per relation, the keys of rows that went; known when all changes have passed."""

    @property
    def emptied_relations(self) -> frozenset[Relation]:
        return frozenset(self._since)

    def sift_batch(self, relation: Relation, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """What of these changes counts, as far as that is known already."""
        since = self._since.get(relation)
        if since is not None:
            batch = batch.filter(pc.greater_equal(batch[POSITION], since))
        if relation in self._held:
            self._held[relation].append(batch)
        elif batch.num_rows:
            yield batch

    def sift_remainder(self) -> Iterator[tuple[Relation, pa.RecordBatch]]:
        """What counts of the changes that had to wait for all others."""
        for relation, batches in self._held.items():
            if not batches:
                continue
            changes = pa.Table.from_batches(batches)
            left, self.gone[relation] = _settle_changes(changes, self._keys[relation])
            for batch in left.to_batches():
                yield relation, batch


def _settle_changes(changes: pa.Table, key: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """The changes that count, and the keys of which rows went: only what comes after that stays.

    >>> changes = pa.table({"k": [1, 2, 1, 2], "_count": [1, 1, 0, 1], "_position": [1, 1, 2, 3]})
    >>> left, gone = _settle_changes(changes, ["k"])
    >>> left["k"].to_pylist(), gone["k"].to_pylist()
    ([2, 2], [1])
    """
    keys = list(zip(*(changes[name].to_pylist() for name in key), strict=True))
    counts = changes[COUNT].to_pylist()
    last = {k: row for row, (k, count) in enumerate(zip(keys, counts, strict=True)) if count == 0}
    keep = [
        count != 0 and row > last.get(k, -1)
        for row, (k, count) in enumerate(zip(keys, counts, strict=True))
    ]
    gone = changes.select(list(key)).take(pa.array(sorted(last.values()), pa.int64()))
    return changes.filter(pa.array(keep, pa.bool_())), gone


def removal_files(
    store: Store, view: ViewDefinition, sieve: Sieve, ts: int, batch: int
) -> tuple[DataFile, ...]:
    """Files that take out of the stored view what went, as of its newest state."""
    head = store.head.views[view.name]
    if sieve.emptied_relations & {*view.relations}:
        return write_negation(store.root, head, ts, batch)
    deletes = [
        DeleteKeys(tuple(names), keys.rename_columns(names))
        for relation, keys in sieve.gone.items()
        for names in shown_keys(view, relation, keys.column_names)
    ]
    rows = evaluate_actions(store.root, head, deletes)
    if not rows.num_rows:
        return ()
    stamped = rows.append_column(TS, pa.array([ts] * rows.num_rows, pa.int64()))
    ordered = stamped.select([*head.schema.names, COUNT, TS])
    return (write_rows(store.folder_of(view.name), head.schema, ordered, batch, 0),)


def keys_of(
    view: ViewDefinition, entries: Iterable[LedgerEntry], connections: Connections
) -> dict[Relation, tuple[str, ...]]:
    """The keys of a view's relations of which rows went by key, as their sources have them."""
    keyed = {Relation(entry.source, table) for entry in entries for table in entry.keyed}
    found = [relation for relation in view.relations if relation in keyed]
    return {r: connections.get_source(r.source).describe_table(r.table).key for r in found}
