"""Random views with keyed places, and what they show by definition.

Places are joined in the order of their numbers: inner, left, semi, anti and existence, in chains,
stars and snowflakes, with inner places below left ones, relations that occur twice, conditions in
ON and in WHERE over several places, keys that are unique or not, NULL or not. The evaluator knows
nothing of join trees, touches or sweeps: it goes through the places one by one and asks for every
row which rows match.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tests.maintain.worlds import Entry, World, claim_unique_keys
from viewkeeper.delta.reference_carrier import Row, evaluate_for_row
from viewkeeper.sources.memory import MemorySource
from viewkeeper.updates.cut import Cut
from viewkeeper.view.definition import (
    EXISTS,
    Equality,
    Field,
    KeyedJoin,
    Output,
    Place,
    Relation,
    ViewDefinition,
)
from viewkeeper.view.expression import (
    Arithmetic,
    Column,
    Compare,
    Expression,
    IsNull,
    Literal,
    Logic,
    Not,
)

INT = pa.int64()
FIELDS = (Field("a", INT), Field("b", pa.string()), Field("c", pa.float64()), Field("d", INT))
KINDS = (
    ("left",),
    ("left", "inner"),
    ("left", "left", "inner", "semi", "anti", "exists"),
    ("semi", "anti", "exists", "inner"),
    ("left", "anti"),
)

Values = dict[str, Any]


# -- what a view shows -----------------------------------------------------------------------------


def recompute_keyed(world: World, ts: int) -> Counter[Row]:
    """The view as of a ts, by definition, place by place."""
    view = world.view
    rows: list[tuple[Values, int]] = [({}, 1)]
    for place in view.places:
        bag = _bag_of(world, place, ts)
        joined = [
            ({**row, **shown}, count * times)
            for row, count in rows
            for shown, times in _shown(place, row, bag)
        ]
        present = {p.index for p in view.places[: place.index + 1]}
        ready = [
            e
            for e in view.equalities
            if max(e.left.place, e.right.place) == place.index
            and {e.left.place, e.right.place} <= present
        ]
        rows = [(row, n) for row, n in joined if all(_is_equal(e, row) for e in ready)]
    total: Counter[Row] = Counter()
    for row, count in rows:
        if all(evaluate_for_row(condition, row) is True for condition in view.predicates):
            total[tuple(evaluate_for_row(o.expression, row) for o in view.outputs)] += count
    return Counter({row: count for row, count in total.items() if count})


def _bag_of(world: World, place: Place, ts: int) -> list[tuple[Values, int]]:
    name, table = place.relation.source, place.relation.table
    until = max([e.positions.get(name, 0) for e in world.entries if e.ts <= ts] + [0])
    names = [field.name for field in world.sources[name].describe_table(table).fields]
    return [
        ({f"{place.index}.{n}": v for n, v in zip(names, row, strict=True)}, count)
        for row, count in world.sources[name].rows_under(table, Cut(until)).items()
        if count
    ]


def _shown(
    place: Place, row: Values, bag: Sequence[tuple[Values, int]]
) -> Sequence[tuple[Values, int]]:
    """What a place adds to a row."""
    if place.keyed is None:
        return bag
    on, conditions = place.keyed.on, place.keyed.conditions
    hit = [
        (other, n)
        for other, n in bag
        if all(_is_equal(e, {**row, **other}) for e in on)
        and all(evaluate_for_row(c, {**row, **other}) is True for c in conditions)
    ]
    if place.keyed.kind == "left":
        return hit or [({f"{place.index}.{name}": None for name in place.columns}, 1)]
    if place.keyed.kind == "exists":
        return [({f"{place.index}.{EXISTS}": bool(hit)}, 1)]
    return [({}, 1)] if bool(hit) == (place.keyed.kind == "semi") else []


def _is_equal(equality: Equality, row: Values) -> bool:
    left, right = row[equality.left.label], row[equality.right.label]
    if left is None or right is None:
        return equality.null_safe and left is right
    return bool(left == right)


# -- random views ----------------------------------------------------------------------------------


@dataclass
class _Builder:
    """A view under construction."""

    rng: random.Random
    relations: Sequence[Relation]
    unique: frozenset[Relation]
    kinds: Sequence[str]

    def build(self) -> ViewDefinition:
        self.places = [Place(0, "r0", self.rng.choice(self.relations), FIELDS)]
        self.equalities: list[Equality] = []
        for index in range(1, self.rng.choice([2, 2, 3, 3, 4, 5])):
            self._add_place(index)
        return ViewDefinition(
            "v",
            tuple(self.places),
            tuple(self.equalities),
            tuple(self._predicates()),
            self._outputs(),
            query="",
            text="",
        )

    def _open(self) -> list[int]:
        """The places that others can be joined to."""
        return [p.index for p in self.places if p.keyed is None or p.keyed.kind == "left"]

    def _add_place(self, index: int) -> None:
        kind, relation = self.rng.choice(self.kinds), self.rng.choice(self.relations)
        parent = self.rng.choice([*self._open(), self._open()[-1]])
        if kind == "inner":
            if self.rng.random() < 0.93:
                self.equalities += self._key(parent, index, self.rng.random() < 0.2)
            if self.rng.random() < 0.2:
                other = self.rng.choice(self._open())
                self.equalities += self._key(other, index, self.rng.random() < 0.2)[:1]
            self.places.append(Place(index, f"r{index}", relation, FIELDS))
            return
        is_padded = self.places[parent].keyed is not None
        on = self._key(parent, index, not is_padded and self.rng.random() < 0.25)
        if relation in self.unique and self.rng.random() < 0.6:
            name = self.rng.choice(["a", "d"])
            on = [Equality(Column(parent, name, INT), Column(index, "a", INT), False)]
        is_key = relation in self.unique and any(
            e.right.name == "a" and not e.null_safe for e in on
        )
        keyed = KeyedJoin(
            kind,  # type: ignore[arg-type]  # one of the four
            parent,
            tuple(on),
            tuple(self._conditions(index, parent)),
            unique=is_key and self.rng.random() < 0.7,
        )
        self.places.append(Place(index, f"r{index}", relation, FIELDS, keyed))

    def _key(self, parent: int, index: int, null_safe: bool) -> list[Equality]:
        pairs = [("a", "a"), ("a", "d"), ("d", "a"), ("d", "d"), ("b", "b"), ("c", "c")]
        weights = [6, 2, 3, 2, 2, 1]
        chosen = self.rng.choices(pairs, weights, k=1 if self.rng.random() < 0.7 else 2)
        types = {field.name: field.type for field in FIELDS}
        return [
            Equality(
                Column(parent, here, types[here]),
                Column(index, there, types[there]),
                null_safe and number == 0,
            )
            for number, (here, there) in enumerate(dict.fromkeys(chosen))
        ]

    def _conditions(self, index: int, parent: int) -> list[Expression]:
        rng, found = self.rng, list[Expression]()
        mine = Column(index, rng.choice(["a", "d"]), INT)
        if rng.random() < 0.2:
            found.append(Compare(rng.choice(["<", "<>", ">="]), mine, Literal(1, INT)))
        if rng.random() < 0.15:
            found.append(Compare(rng.choice(["<=", "<>"]), Column(parent, "d", INT), mine))
        if rng.random() < 0.15:
            other = Column(rng.choice(self._open()), rng.choice(["a", "d"]), INT)
            found.append(Compare(rng.choice(["=", "<", "<=>"]), other, mine))
        if rng.random() < 0.05:
            found.append(IsNull(Column(rng.choice([parent, index]), "b", pa.string())))
        if rng.random() < 0.05:
            found.append(Compare("=", Literal(1, INT), Literal(rng.choice([1, 2]), INT)))
        return found

    def _predicates(self) -> list[Expression]:
        rng, found = self.rng, list[Expression]()
        number = Column(rng.choice(self._open()), rng.choice(["a", "d"]), INT)
        if rng.random() < 0.15:
            found.append(Compare(rng.choice(["<", ">=", "<>"]), number, Literal(1, INT)))
        if rng.random() < 0.15:
            other = Column(rng.choice(self._open()), "d", INT)
            found.append(Compare("<=", number, other))
        if rng.random() < 0.15:
            unmatched: Expression = IsNull(Column(rng.choice(self._open()), "a", INT))
            found.append(unmatched if rng.random() < 0.6 else Not(unmatched))
        for place in self.places:
            if place.keyed is not None and place.keyed.kind == "exists" and rng.random() < 0.5:
                is_there = Column(place.index, EXISTS, pa.bool_())
                found.append(Logic("or", is_there, Compare("=", number, Literal(2, INT))))
        return found

    def _outputs(self) -> tuple[Output, ...]:
        shown = [Column(p.index, f.name, f.type) for p in self.places for f in p.shown_fields]
        chosen = self.rng.sample(shown, min(len(shown), self.rng.randint(1, 5)))
        outputs = [Output(f"o{i}", column) for i, column in enumerate(chosen)]
        number = Column(self.rng.choice(self._open()), "a", INT)
        outputs.append(Output("more", Arithmetic("+", number, Literal(1, INT), INT)))
        return tuple(outputs)


def random_keyed_world(rng: random.Random, kinds: Sequence[str] | None = None) -> World:
    """A world whose view has keyed places, entirely determined by the generator."""
    names = [f"s{i}" for i in range(rng.randint(1, 3))]
    relations = [Relation(rng.choice(names), f"t{i}") for i in range(rng.randint(1, 5))]
    unique = frozenset(r for r in relations if rng.random() < 0.4)
    view = _Builder(rng, relations, unique, kinds or rng.choice(KINDS)).build()
    relations = list(view.relations)
    sources = {
        name: MemorySource(name, {r.table: FIELDS for r in relations if r.source == name})
        for name in names
    }
    entries = tuple(
        _commit(rng, sources, relations, unique, ts) for ts in range(1, rng.randint(5, 12))
    )
    before = rng.choice([0, 1, 1, 2, rng.randint(0, len(entries) - 1)])
    until = rng.randint(before + 1, len(entries))
    return World(claim_unique_keys(rng, view), sources, entries, before, until)


# -- random histories ------------------------------------------------------------------------------


def _commit(
    rng: random.Random,
    sources: Mapping[str, MemorySource],
    relations: Sequence[Relation],
    unique: frozenset[Relation],
    ts: int,
) -> Entry:
    """A transaction over several rows and relations, now and then over several sources."""
    chosen = rng.sample(sorted(sources), rng.randint(1, len(sources)))
    is_first = ts == 1
    positions = {}
    for name in sorted(sources) if is_first else chosen if rng.random() < 0.5 else chosen[:1]:
        mine = [r for r in relations if r.source == name]
        delta: dict[str, list[tuple[Row, int]]] = {}
        size = 5 * len(mine) if is_first else rng.choice([1, 2, 4, 6])
        for relation in rng.choices(mine, k=size) if mine else []:
            rows = sources[name].rows_under(relation.table, Cut(1 << 30))
            for row, count in delta.get(relation.table, []):
                rows[row] += count
            changes = _change(rng, rows, relation in unique)
            delta.setdefault(relation.table, []).extend(changes)
        positions[name] = sources[name].commit(delta)
    return Entry(ts, positions)


def _change(rng: random.Random, rows: Counter[Row], is_unique: bool) -> list[tuple[Row, int]]:
    """An insert, a delete or an update of a row that is there."""
    present = sorted(rows.elements(), key=repr)
    victim = rng.choice(present) if present and rng.random() < 0.55 else None
    taken = [] if victim is None else [(victim, -1)]
    if victim is not None and rng.random() < 0.45:
        return taken
    fresh = [_value(rng, field.type) for field in FIELDS]
    if victim is not None:
        changed = rng.sample(range(len(FIELDS)), rng.randint(1, 2))
        fresh = [fresh[i] if i in changed else value for i, value in enumerate(victim)]
    if is_unique:
        used = {row[0] for row in present} - {victim[0] if victim is not None else None}
        free = [number for number in range(4) if number not in used]
        if not free:
            return taken
        fresh[0] = fresh[0] if fresh[0] in free else rng.choice(free)
    count = rng.choice([1, 1, 2]) if victim is None and not is_unique else 1
    return [*taken, *[(tuple(fresh), 1)] * count]


def _value(rng: random.Random, kind: pa.DataType) -> Any:
    if rng.random() < 0.12:
        return None
    number = rng.randint(0, 2)
    if pa.types.is_string(kind):
        return "xyz"[number]
    return float(number) / 2 if pa.types.is_floating(kind) else number
