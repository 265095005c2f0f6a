"""Views and nodes of the project as relations that a batch reads.

What a view or a node was before the batch, as of T0, is asked for like the rows of any table: by
keys, through a lookup. One that is stored is read from its table. One that is not is computed for
just those keys: a core by a probe, a union from its inputs, a recompute from its input's rows of
the same keys. The answer is exact as of T0, so its
cut is T0 and it has no tail; the changes of the batch are known, with their ts as positions, and
compensation adds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import assert_never

import numpy as np
import pyarrow as pa

from viewkeeper.delta.algebra import LAST_TS
from viewkeeper.delta.arrow_compute import pc
from viewkeeper.delta.evaluate import evaluate_expression
from viewkeeper.delta.kernel import Kernel, matching_pairs
from viewkeeper.engine.batch.generated_rows import split_rows
from viewkeeper.maintain.compensation import KnownChanges
from viewkeeper.maintain.probe import probe_in_pages
from viewkeeper.maintain.view_change import run_pages
from viewkeeper.stages.key_recompute import distinct_keys, evaluate_rows, touched_keys
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.updates.answer_pages import DEFAULT_PAGING, Paging, gather_pages
from viewkeeper.updates.cut import Cut
from viewkeeper.updates.queue import RelationChanges
from viewkeeper.updates.source_protocol import COUNT, POSITION, TS, Answer, Lookup
from viewkeeper.view.definition import (
    Constant,
    Core,
    Expand,
    Field,
    Fold,
    Generate,
    KeyRecompute,
    Node,
    Output,
    Relation,
    Union,
    ViewDefinition,
)
from viewkeeper.view.expression import Column
from viewkeeper.view.graph import stored_nodes
from viewkeeper.view.sweep_plan import sweep_plan_of
from viewkeeper.warehouse.metadata.head import ViewHead
from viewkeeper.warehouse.rows.file_search import search_for
from viewkeeper.warehouse.rows.lookup import find_rows
from viewkeeper.warehouse.rows.view_state import read_counted, repeat_rows, sum_rows

Ask = Callable[[ViewDefinition, Lookup], Answer]
"""Asks a lookup of a place of a view or core."""
FindStored = Callable[[ViewHead, pa.Table, int], pa.Table | None]
"""The rows of a table with some keys as of a ts, each with its count; None: read its files."""


@dataclass(frozen=True, slots=True)
class OwnRelations:
    """The project's own views and nodes as of `since`, the ts before a batch.

    `stored` are those with a table, `nodes` the others, by the names that `Relation.table` has.
    `find_stored` finds rows by an index, in the process that maintains the warehouse.
    """

    root: StoragePath
    since: int
    stored: Mapping[str, ViewHead]
    nodes: Mapping[str, Node]
    find_stored: FindStored | None = None
    paging: Paging = DEFAULT_PAGING

    def answer_lookup(self, lookup: Lookup, pending: KnownChanges, ask: Ask) -> Answer:
        """The rows that a lookup asks for, or more of them, as of T0."""
        names = [*lookup.columns, COUNT]
        found = (rows.select(names) for rows in self._pieces_before(lookup, pending, ask))
        first = next(found)
        batches = (batch for rows in chain([first], found) for batch in rows.to_batches())
        # A row may be in several pieces, also with counts that cancel: in memory they are summed.
        rows, pages = gather_pages(batches, first.schema, lookup.paging)
        plain = repeat_rows(Kernel().consolidate(rows) if rows.num_rows else rows)
        tail = plain.schema.empty_table().append_column(COUNT, pa.array([], pa.int64()))
        tail = tail.append_column(POSITION, pa.array([], pa.int64()))
        return Answer(plain, Cut(self.since), LAST_TS, tail, pages)

    def _pieces_before(self, lookup: Lookup, pending: KnownChanges, ask: Ask) -> Iterator[pa.Table]:
        """The rows that a lookup asks for, with `_count`, in at least one piece."""
        node = None if lookup.relation.table in self.stored else self.nodes[lookup.relation.table]
        if not isinstance(node, Core):
            yield self.rows_before(lookup, pending, ask)
            return
        yield empty_rows(node.fields)
        yield from self._probed_pieces(node, lookup, pending, ask)

    def rows_before(self, lookup: Lookup, pending: KnownChanges, ask: Ask) -> pa.Table:
        """The same, each row with `_count`."""
        name = lookup.relation.table
        if name in self.stored:
            return self._stored_rows(self.stored[name], lookup.keys)
        node = self.nodes[name]
        match node:
            case Core():
                return self._probed_rows(node, lookup, pending, ask)
            case Union():
                return self._union_rows(node, lookup, pending, ask)
            case Expand():
                return self._expanded_rows(node, lookup, pending, ask)
            case Generate():
                return self._generated_rows(node, lookup, pending, ask)
            case KeyRecompute():
                return self._recomputed_rows(node, lookup, pending, ask)
            case Constant():
                return constant_rows(node)
            case Fold():
                raise AssertionError("every fold is stored")
            case _:
                assert_never(node)

    def _stored_rows(self, head: ViewHead, keys: pa.Table | None) -> pa.Table:
        if keys is None or not keys.num_columns:
            return read_counted(self.root, head, self.since)
        found = self.find_stored(head, keys, self.since) if self.find_stored else None
        if found is None:
            found = find_rows(self.root, head, [search_for(keys)], self.since)
        found = found.filter(pc.field(COUNT) > 0)
        return sum_rows(found.drop_columns(list(head.hidden))) if head.hidden else found

    def _probed_rows(self, node: Core, lookup: Lookup, pending: KnownChanges, ask: Ask) -> pa.Table:
        """The rows of a core; of the asked columns, if it is asked for some, summed on the way."""
        every = [field.name for field in node.fields]
        names = [
            *(dict.fromkeys((*lookup.columns, *lookup.on)) if lookup.columns else every),
            COUNT,
        ]
        held: list[pa.Table] = []
        least = self.paging.rows
        for piece in self._probed_pieces(node, lookup, pending, ask):
            held.append(piece.select(names))
            if sum(each.num_rows for each in held) > least:
                held = [Kernel().consolidate(pa.concat_tables(held))]
                least = max(self.paging.rows, 2 * held[0].num_rows)
        if len(held) > 1:
            return Kernel().consolidate(pa.concat_tables(held))
        return held[0] if held else empty_rows(node.fields).select(names)

    def _probed_pieces(
        self, node: Core, lookup: Lookup, pending: KnownChanges, ask: Ask
    ) -> Iterator[pa.Table]:
        """The rows of a core, by those of the asked columns that are columns of its places."""
        plain = {o.name for o in node.view.outputs if isinstance(o.expression, Column)}
        keys = lookup.keys if lookup.keys is not None else pa.table({})
        on = [name for name in lookup.on if name in plain and name in keys.column_names]
        plan = sweep_plan_of(node.view)
        probe = probe_in_pages(
            Kernel(), plan, on, keys.select(on), pending, self.since, self.paging
        )
        names = [*(field.name for field in node.fields), COUNT]
        for rows in run_pages(probe, partial(ask, node.view)):
            yield multiply_copies(node, rows).select(names)

    def _union_rows(self, node: Union, lookup: Lookup, pending: KnownChanges, ask: Ask) -> pa.Table:
        pieces = [empty_rows(node.fields)]
        names = [field.name for field in node.fields]
        for relation, columns in zip(node.inputs, node.columns, strict=True):
            known = dict(zip(names, columns, strict=True))
            asked = _asked_of(lookup, relation, known, tuple(dict.fromkeys(columns)))
            found = self.rows_before(asked, pending, ask)
            pieces.append(renamed_rows(found, columns, node.fields))
        return pa.concat_tables(pieces)

    def _expanded_rows(
        self, node: Expand, lookup: Lookup, pending: KnownChanges, ask: Ask
    ) -> pa.Table:
        pieces = [empty_rows(node.fields)]
        for projection in node.projections:
            plain = {
                o.name: o.expression.name for o in projection if isinstance(o.expression, Column)
            }
            asked = _asked_of(lookup, node.input, plain, ())
            pieces.append(expand_rows(node, self.rows_before(asked, pending, ask), (projection,)))
        return pa.concat_tables(pieces)

    def _generated_rows(
        self, node: Generate, lookup: Lookup, pending: KnownChanges, ask: Ask
    ) -> pa.Table:
        """What is made of the rows of its input, by those of the asked columns that it keeps."""
        pairs = zip(node.fields, node.columns, strict=True)
        known = {field.name: column.kept for field, column in pairs if column.kept is not None}
        asked = _asked_of(lookup, node.input, known, ())
        return split_rows(node, self.rows_before(asked, pending, ask))

    def _recomputed_rows(
        self, node: KeyRecompute, lookup: Lookup, pending: KnownChanges, ask: Ask
    ) -> pa.Table:
        """The rows of a recompute, from all rows of its input that have the same keys."""
        columns = [field.name for field in node.read]
        keys = self._asked_keys(node, lookup, pending, ask)
        asked = keyed_lookup(node.input, columns, pa.table({}) if keys is None else keys)
        found = self.rows_before(asked, pending, ask)
        if keys is not None:
            found = matching_rows(found, keys)
        return evaluate_rows(node, found, self.since)

    def _asked_keys(
        self, node: KeyRecompute, lookup: Lookup, pending: KnownChanges, ask: Ask
    ) -> pa.Table | None:
        """The keys of the rows that a lookup asks for, some of their columns; None for all rows."""
        plain = {
            o.name: o.expression.name
            for o in node.outputs
            if isinstance(o.expression, Column) and o.expression.name in names_read(node)
        }
        by_key = {name: column for name, column in plain.items() if column in node.keys}
        asked = _asked_of(lookup, node.input, by_key, node.keys)
        if asked.keys is not None:
            return distinct_keys(asked.keys)
        asked = _asked_of(lookup, node.input, plain, node.keys)
        if asked.keys is None or not node.keys or node.is_grouped:
            return None
        # Rows are asked for by other columns: the rows themselves say which keys they have.
        rows = matching_rows(self.rows_before(asked, pending, ask), asked.keys)
        return touched_keys(node, rows)


def names_read(node: KeyRecompute) -> frozenset[str]:
    """The names of the input's columns that a recompute reads."""
    return frozenset(field.name for field in node.read)


def keyed_lookup(relation: Relation, columns: Sequence[str], keys: pa.Table) -> Lookup:
    """The question for rows by keys, NULL being one like any other; for all rows without keys."""
    on = tuple(keys.column_names)
    return Lookup(0, relation, tuple(columns), on, (True,) * len(on), keys if on else None)


def matching_rows(rows: pa.Table, keys: pa.Table) -> pa.Table:
    """The rows whose key is among the given ones, NULL equal to NULL."""
    if not keys.num_columns:
        return rows
    names = keys.column_names
    found, _ = matching_pairs(
        [(rows[name], True) for name in names],
        [(keys[name], True) for name in names],
        (rows.num_rows, keys.num_rows),
    )
    return rows.take(found)


def _asked_of(
    lookup: Lookup, relation: Relation, known: Mapping[str, str], columns: tuple[str, ...]
) -> Lookup:
    """The same lookup of another relation, by those of its columns that are known there.

    One that asks by fewer columns finds more rows, which are joined again.
    """
    lookup = replace(lookup, conditions=())
    on = [(i, name) for i, name in enumerate(lookup.on) if name in known]
    names = tuple(known[name] for _, name in on)
    if lookup.keys is None or not on or len({*names}) < len(names):
        return replace(lookup, relation=relation, columns=columns, on=(), null_safe=(), keys=None)
    keys = lookup.keys.select([name for _, name in on]).rename_columns(list(names))
    safe = tuple(lookup.null_safe[i] for i, _ in on)
    return replace(lookup, relation=relation, columns=columns, on=names, null_safe=safe, keys=keys)


def empty_rows(fields: tuple[Field, ...]) -> pa.Table:
    """No rows, with these columns and `_count`."""
    columns = [(field.name, field.type) for field in fields]
    return pa.schema([*columns, (COUNT, pa.int64())]).empty_table()


def renamed_rows(rows: pa.Table, columns: tuple[str, ...], fields: tuple[Field, ...]) -> pa.Table:
    """Rows under other names, and the ts and counts that they have."""
    own = [name for name in (TS, COUNT) if name in rows.column_names]
    arrays = [rows[name] for name in (*columns, *own)]
    return pa.table(arrays, names=[*(field.name for field in fields), *own])


def constant_rows(node: Constant) -> pa.Table:
    """The rows of a constant node, each counted once."""
    arrays = [
        pa.array([row[i] for row in node.rows], field.type) for i, field in enumerate(node.fields)
    ]
    counts = pa.array(np.ones(len(node.rows), np.int64))
    return pa.table([*arrays, counts], names=[*(field.name for field in node.fields), COUNT])


def expand_rows(
    node: Expand, rows: pa.Table, projections: Sequence[tuple[Output, ...]] | None = None
) -> pa.Table:
    """Signed rows, once per projection."""
    own = [name for name in (TS, COUNT) if name in rows.column_names]
    labelled = rows.rename_columns([n if n in own else f"0.{n}" for n in rows.column_names])
    pieces = []
    for projection in node.projections if projections is None else projections:
        arrays = [evaluate_expression(output.expression, labelled) for output in projection]
        names = [field.name for field in node.fields]
        pieces.append(pa.table([*arrays, *(rows[n] for n in own)], names=[*names, *own]))
    return pa.concat_tables(pieces)


def multiply_copies(node: Core, rows: pa.Table) -> pa.Table:
    """The rows of a core, counted as often as its `copies` say."""
    if node.copies is None:
        return rows
    times = pc.multiply_checked(rows[COUNT], rows[node.copies.name].cast(pa.int64()))
    kept = rows.set_column(rows.schema.get_field_index(COUNT), COUNT, times)
    return kept.drop_columns([node.copies.name]).filter(pc.not_equal(times, 0))


def changes_of_rows(rows: pa.Table) -> RelationChanges:
    """Signed rows with their ts, as changes whose positions are their ts; in ts order."""
    ordered = rows.sort_by([(TS, "ascending")])
    table = ordered.append_column(POSITION, ordered[TS]).combine_chunks()
    return RelationChanges(table.num_rows, table)


def merge_stamps(rows: pa.Table, ts: int) -> pa.Table:
    """The same signed rows, all with one ts."""
    stamps = pa.array(np.full(rows.num_rows, ts, np.int64))
    return rows.set_column(rows.schema.get_field_index(TS), TS, stamps)


def own_nodes(views: Mapping[str, ViewDefinition]) -> dict[str, Node]:
    """The nodes of the graphs of these views that have no table, by their names."""
    found: dict[str, Node] = {}
    for name, view in views.items():
        if view.graph is not None:
            stored = stored_nodes(view.graph)
            virtual = [node for node in view.graph.nodes[:-1] if node.number not in stored]
            found |= {f"{name}#{node.number}": node for node in virtual}
    return found
