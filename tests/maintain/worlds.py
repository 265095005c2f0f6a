"""Random views and random concurrent histories, small enough to recompute by definition.

A world has a few memory sources with a few tables, a view over 2 to 5 places (chain, star, cycle,
random; relations may occur twice), and a list of transactions, some before the batch, some in it,
some after it. Values are few, so that joins hit, duplicates occur and NULLs meet.
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pyarrow as pa

from viewkeeper.delta.reference_carrier import Row, evaluate_for_row
from viewkeeper.sources.memory import MemorySource
from viewkeeper.updates.cut import Cut
from viewkeeper.updates.queue import BatchChanges, Stamps, UpdateQueue, change_schema
from viewkeeper.view.definition import Equality, Field, Output, Place, Relation, ViewDefinition
from viewkeeper.view.expression import Arithmetic, Column, Compare, Expression, Literal

COLUMNS = ("a", "b", "c")
TYPES: tuple[pa.DataType, ...] = (pa.int64(), pa.string(), pa.float64())


@dataclass(frozen=True, slots=True)
class Entry:
    """A transaction: its ts, and the position that it has at every source it touches."""

    ts: int
    positions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class World:
    view: ViewDefinition
    sources: Mapping[str, MemorySource]
    entries: tuple[Entry, ...]
    before: int
    until: int
    """The batch is the entries with before < ts <= until; later ones are after the batch."""

    def end(self, source: str) -> int:
        return self.position_at(source, self.until)

    def position_at(self, source: str, ts: int) -> int:
        """The position of a source's last transaction up to a ts."""
        return max([e.positions.get(source, 0) for e in self.entries if e.ts <= ts] + [0])

    def pending(self, folder: str, memory_bytes: int = 1 << 30, known: int = 0) -> BatchChanges:
        """Everything delivered after the ts `known` and up to the batch's end, also what precedes
        the batch."""
        view = self.view
        schemas = {r: change_schema(view.fields_of(r)) for r in view.relations}
        queue = UpdateQueue(schemas, folder, memory_bytes)
        for entry in self.entries:
            for name, position in entry.positions.items():
                if not known < entry.ts <= self.until:
                    continue
                wanted = {
                    r.table: [f.name for f in view.fields_of(r)]
                    for r in view.relations
                    if r.source == name
                }
                changes = self.sources[name].read_changes(wanted, position - 1, position)
                for table, batch in changes:
                    stamps = Stamps([position], [entry.ts])
                    queue.append_changes(Relation(name, table), stamps, batch)
        return queue.seal_changes()

    def origins(self, pending: BatchChanges) -> dict[int, pa.Table]:
        """The changes of the batch itself, per place."""
        result = {}
        for place in self.view.places:
            changes = pending.relations[place.relation]
            table = changes.rows_between(0, changes.rows)
            inside = pa.array(table["_ts"].to_numpy() > self.before)
            result[place.index] = table.filter(inside)
        return result

    def recomputed(self, ts: int) -> Counter[Row]:
        """The view as of a ts, by definition: every combination of rows."""
        bags = []
        for place in self.view.places:
            name = place.relation.source
            cut = Cut(max([e.positions.get(name, 0) for e in self.entries if e.ts <= ts] + [0]))
            names = [f.name for f in self.sources[name].describe_table(place.relation.table).fields]
            state = self.sources[name].rows_under(place.relation.table, cut)
            bags.append(
                [
                    ({f"{place.index}.{n}": v for n, v in zip(names, row, strict=True)}, c)
                    for row, c in state.items()
                    if c
                ]
            )
        conditions: list[Expression] = [
            Compare("<=>" if e.null_safe else "=", e.left, e.right) for e in self.view.equalities
        ] + list(self.view.predicates)
        total: Counter[Row] = Counter()
        for combination in product(*bags):
            row: dict[str, Any] = {}
            count = 1
            for values, n in combination:
                row |= values
                count *= n
            if all(evaluate_for_row(condition, row) is True for condition in conditions):
                total[tuple(evaluate_for_row(o.expression, row) for o in self.view.outputs)] += (
                    count
                )
        return Counter({row: count for row, count in total.items() if count})


def random_world(rng: random.Random) -> World:
    """A world, entirely determined by the generator."""
    names = [f"s{i}" for i in range(rng.randint(1, 4))]
    fields = tuple(Field(n, t) for n, t in zip(COLUMNS, TYPES, strict=True))
    relations = [Relation(rng.choice(names), f"t{i}") for i in range(rng.randint(1, 5))]
    view = _random_view(rng, relations, fields)
    sources = {
        name: MemorySource(name, {r.table: fields for r in relations if r.source == name})
        for name in names
    }
    entries = tuple(_commit(rng, sources, relations, ts) for ts in range(1, rng.randint(4, 14)))
    before = rng.randint(0, len(entries) - 1)
    until = rng.randint(before + 1, len(entries))
    return World(claim_unique_keys(rng, view), sources, entries, before, until)


def claim_unique_keys(rng: random.Random, view: ViewDefinition) -> ViewDefinition:
    """The view whose places say, rightly or not, that some of their columns are unique: another
    join tree, and other orders of asking, for the same rows."""
    # A copy, so that a seed gives the same history with and without the claims.
    rng = copy.copy(rng)
    if rng.random() < 0.3:
        return view
    names = [frozenset({field.name}) for field in view.places[0].fields]
    places = (
        replace(place, unique=frozenset(rng.sample(names, rng.choice([0, 1, 1, 2]))))
        for place in view.places
    )
    return replace(view, places=tuple(places))


def random_cut(rng: random.Random, world: World, source: str, known: int = 0) -> Cut:
    """Any state that the source could show that has all up to the ts `known`: usually a prefix past
    the batch, at times behind it, at times with a hole that touches no row twice."""
    newest = len(world.sources[source].look_for_transactions(0))
    oldest = world.position_at(source, known)
    position = (
        rng.randint(world.end(source), newest)
        if rng.random() < 0.7
        else rng.randint(oldest, newest)
    )
    cut = Cut(position)
    if position > oldest and rng.random() < 0.3:
        holed = Cut(position, frozenset({rng.randint(oldest + 1, position)}))
        if _possible(world.sources[source], holed):
            return holed
    return cut


def _possible(source: MemorySource, cut: Cut) -> bool:
    return all(
        count >= 0 for table in source._tables for count in source.rows_under(table, cut).values()
    )


def _value(rng: random.Random, kind: pa.DataType) -> Any:
    if rng.random() < 0.15:
        return None
    number = rng.randint(0, 2)
    if pa.types.is_string(kind):
        return "xyz"[number]
    return float(number) / 2 if pa.types.is_floating(kind) else number


def _commit(
    rng: random.Random, sources: Mapping[str, MemorySource], relations: list[Relation], ts: int
) -> Entry:
    """A transaction over several rows and relations, now and then over several sources."""
    chosen = rng.sample(sorted(sources), rng.randint(1, 2) if len(sources) > 1 else 1)
    positions = {}
    for name in chosen if rng.random() < 0.3 else chosen[:1]:
        mine = [r.table for r in relations if r.source == name]
        delta: dict[str, list[tuple[Row, int]]] = {}
        for table in rng.choices(mine, k=rng.randint(1, 4)) if mine else []:
            delta.setdefault(table, []).extend(_change(rng, sources[name], table, delta))
        positions[name] = sources[name].commit(delta)
    return Entry(ts, positions)


def _change(
    rng: random.Random, source: MemorySource, table: str, delta: dict[str, list[tuple[Row, int]]]
) -> list[tuple[Row, int]]:
    """An insert, a delete or an update of a row that is there."""
    rows = source.rows_under(table, Cut(1 << 30))
    for row, count in delta.get(table, []):
        rows[row] += count
    present = sorted(rows.elements(), key=repr)
    fresh = tuple(_value(rng, kind) for kind in TYPES)
    if not present or rng.random() < 0.5:
        return [(fresh, 1)]
    victim = rng.choice(present)
    if rng.random() < 0.5:
        return [(victim, -1)]
    changed = list(victim)
    at = rng.randrange(len(COLUMNS))
    changed[at] = fresh[at]
    return [(victim, -1), (tuple(changed), 1)]


def _random_view(
    rng: random.Random, relations: list[Relation], fields: tuple[Field, ...]
) -> ViewDefinition:
    m = rng.randint(2, 5)
    shape = rng.choice(["chain", "star", "cycle", "random", "sparse"])
    pairs = {
        "chain": [(i, i + 1) for i in range(m - 1)],
        "star": [(0, i) for i in range(1, m)],
        "cycle": [(i, (i + 1) % m) for i in range(m)],
        "random": [(rng.randrange(i), i) for i in range(1, m)],
        "sparse": [(i, i + 1) for i in range(m - 2)],
    }[shape]
    places = tuple(Place(i, f"r{i}", rng.choice(relations), fields) for i in range(m))
    equalities = tuple(e for pair in pairs for e in _equalities(rng, pair))
    column = Column(rng.randrange(m), "a", pa.int64())
    predicates: list[Expression] = []
    if rng.random() < 0.4:
        predicates.append(Compare(rng.choice(["<", ">=", "<>"]), column, Literal(1, pa.int64())))
    if rng.random() < 0.3:
        other = Column(rng.randrange(m), "a", pa.int64())
        predicates.append(Compare("<=", column, other))
    return ViewDefinition(
        "v", places, equalities, tuple(predicates), _outputs(rng, m), query="", text=""
    )


def _equalities(rng: random.Random, pair: tuple[int, int]) -> list[Equality]:
    chosen = rng.sample(list(zip(COLUMNS, TYPES, strict=True)), 2 if rng.random() < 0.25 else 1)
    return [
        Equality(Column(pair[0], n, t), Column(pair[1], n, t), rng.random() < 0.25)
        for n, t in chosen
        if pair[0] != pair[1]
    ]


def _outputs(rng: random.Random, m: int) -> tuple[Output, ...]:
    columns = [
        Column(rng.randrange(m), *rng.choice(list(zip(COLUMNS, TYPES, strict=True))))
        for _ in range(rng.randint(1, 3))
    ]
    outputs = [Output(f"o{i}", column) for i, column in enumerate(columns)]
    left, right = Column(rng.randrange(m), "a", pa.int64()), Literal(1, pa.int64())
    return (*outputs, Output("total", Arithmetic("+", left, right, pa.int64())))
