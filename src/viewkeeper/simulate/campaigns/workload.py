"""Random scenarios, entirely determined by a seed: small, and mean where it matters.

Values are few, so that joins hit; keys are used again after a delete, because that is where key
deletes go wrong; payloads change under a key; rows that are not keyed occur twice. Shapes are
`chain:m` (each relation joins the next), `star:m` (the first joins all others), `cycle:m` and
`self:m` (a chain in which every other place is the same relation).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from viewkeeper.check.history.recorded_history import CommittedTransaction, Row
from viewkeeper.errors import ProjectError
from viewkeeper.maintain.algorithm_protocol import TransactionKind as Transactions
from viewkeeper.simulate.scenario import Scenario, ScenarioTable
from viewkeeper.view.definition import Field, Relation, ViewDefinition
from viewkeeper.view.sql.bind import bind_view
from viewkeeper.view.sql.view_statement import parse_view

Signed = dict[Relation, list[tuple[Row, int]]]

SHAPES = ("chain", "star", "cycle", "self")
VALUES = 3


@dataclass(frozen=True, slots=True)
class JoinShape:
    """How the relations of a view are joined."""

    name: str
    places: int

    @staticmethod
    def read_shape(text: str) -> JoinShape:
        """A shape from text like `chain:4`."""
        name, _, places = text.partition(":")
        if name not in SHAPES or not places.isdigit() or not 1 <= int(places) <= 8:
            raise ProjectError(
                f"--view {text}: not a shape",
                hint="chain:4, star:3, cycle:3 or self:3; from 1 to 8 relations",
            )
        return JoinShape(name, int(places))

    def __str__(self) -> str:
        return f"{self.name}:{self.places}"

    @property
    def table_count(self) -> int:
        return -(-self.places // 2) if self.name == "self" else self.places

    def table_at(self, place: int) -> int:
        """The number of the table at a place."""
        return place // 2 if self.name == "self" else place

    @property
    def joined_pairs(self) -> list[tuple[int, int]]:
        """The places that are joined, and which columns: b of the first, a of the second."""
        if self.name == "star":
            return [(0, other) for other in range(1, self.places)]
        pairs = [(place, place + 1) for place in range(self.places - 1)]
        if self.name == "cycle" and self.places > 2:
            pairs.append((self.places - 1, 0))
        return pairs


@dataclass(frozen=True, slots=True)
class Workload:
    """What kind of scenario is wanted."""

    shape: JoinShape
    transactions: Transactions
    keyed: bool
    one_source: bool


def random_scenario(rng: random.Random, workload: Workload) -> Scenario:
    """A scenario of the wanted kind."""
    relations = _random_relations(rng, workload)
    # Drawn in any case, so that the choices after it do not depend on who asks.
    keyed = (rng.random() < 0.5) or workload.keyed
    view = _random_view(rng, workload.shape, relations)
    tables = tuple(_random_table(rng, relation, keyed) for relation in relations)
    transactions = _random_transactions(rng, workload, tables)
    fifo = rng.random() < 0.5
    late: frozenset[tuple[str, str]] = frozenset()
    if not fifo and rng.random() < 0.5:
        late = frozenset((s, t.name) for t in transactions for s in t.parts if rng.random() < 0.5)
    reporter = {t.name: rng.choice(sorted(t.parts)) for t in transactions if rng.random() < 0.25}
    return Scenario(
        view,
        tables,
        transactions,
        fifo=fifo,
        tails=not fifo and rng.random() < 0.6,
        reporter=reporter,
        late=late,
    )


def _random_relations(rng: random.Random, workload: Workload) -> list[Relation]:
    """Tables, spread over sources: each at its own, or some together."""
    count = workload.shape.table_count
    if workload.one_source:
        return [Relation("x", f"r{i + 1}") for i in range(count)]
    together = count > 2 and rng.random() < 0.5
    names = [chr(ord("u") + i) if count <= 6 else f"s{i}" for i in range(count)]
    chosen = [rng.choice(names[: count - 1]) for _ in range(count)] if together else names
    if len(set(chosen)) == 1 and count > 1:
        chosen[-1] = names[-1]
    return [Relation(source, f"r{i + 1}") for i, source in enumerate(chosen)]


FIELDS = (
    Field("k", pa.int64()),
    Field("a", pa.int64()),
    Field("b", pa.int64()),
    Field("v", pa.int64()),
)


def _random_view(rng: random.Random, shape: JoinShape, relations: list[Relation]) -> ViewDefinition:
    used = [relations[shape.table_at(place)] for place in range(shape.places)]
    columns = [f"p{i}.{rng.choice('kabv')} AS c{i}" for i in range(shape.places)]
    if rng.random() < 0.3:
        columns = columns[:1]
    conditions = [f"p{i}.b = p{j}.a" for i, j in shape.joined_pairs]
    if rng.random() < 0.3:
        conditions.append(f"p{rng.randrange(shape.places)}.v < 2")
    where = " WHERE " + " AND ".join(conditions) if conditions else ""
    tables = ", ".join(f"{relation} p{i}" for i, relation in enumerate(used))
    return define_view(f"SELECT {', '.join(columns)} FROM {tables}{where}")


@lru_cache(maxsize=10_000)
def define_view(select: str) -> ViewDefinition:
    """A view over tables with the columns k, a, b and v."""
    parsed = parse_view(f"CREATE MATERIALIZED VIEW v AS {select}", None)
    return bind_view(parsed, lambda _: FIELDS)


def _random_table(rng: random.Random, relation: Relation, keyed: bool) -> ScenarioTable:
    rows: Counter[Row] = Counter()
    for key in range(1, rng.randint(1, 5)):
        rows[_random_row(rng, key if keyed else rng.randint(1, 2))] += 1
    return ScenarioTable(relation, FIELDS, ("k",) if keyed else (), dict(rows))


def _random_row(rng: random.Random, key: int) -> Row:
    return (key, _random_value(rng), _random_value(rng), rng.randrange(VALUES))


def _random_value(rng: random.Random) -> int | None:
    if rng.random() < 0.06:
        return None
    # Skewed: the first value meets most others.
    return 0 if rng.random() < 0.5 else rng.randrange(VALUES)


def _random_transactions(
    rng: random.Random, workload: Workload, tables: tuple[ScenarioTable, ...]
) -> tuple[CommittedTransaction, ...]:
    now = {table.relation: Counter(dict(table.rows)) for table in tables}
    keyed = {table.relation: bool(table.key) for table in tables}
    made = []
    for number in range(1, rng.randint(3, 9)):
        parts: dict[str, Signed] = {}
        for source in _random_sources(rng, workload, sorted({r.source for r in now})):
            mine = sorted(r for r in now if r.source == source)
            size = 1 if workload.transactions is Transactions.SINGLE else rng.randint(1, 3)
            part: Signed = {}
            for _ in range(size):
                relation = rng.choice(mine)
                rows = _random_change(rng, now[relation], keyed[relation], workload.transactions)
                part.setdefault(relation, []).extend(rows)
                for row, count in rows:
                    now[relation][row] += count
            parts[source] = part
        frozen = {s: {r: tuple(rows) for r, rows in part.items()} for s, part in parts.items()}
        made.append(CommittedTransaction(f"T{number}", frozen))
    return tuple(made)


def _random_sources(rng: random.Random, workload: Workload, sources: list[str]) -> list[str]:
    wanted = 1
    if workload.transactions is Transactions.GLOBAL and rng.random() < 0.5:
        wanted = rng.randint(2, 3)
    return rng.sample(sources, min(wanted, len(sources)))


def _random_change(
    rng: random.Random, rows: Mapping[Row, int], keyed: bool, transactions: Transactions
) -> list[tuple[Row, int]]:
    """An insert, a delete, or (where a transaction may have several) an update."""
    present = sorted((row for row, count in rows.items() if count > 0), key=repr)
    live = {row[0] for row in present}
    free = [key for key in range(1, 8) if key not in live] if keyed else [1, 2]
    if free and (not present or rng.random() < 0.5):
        return [(_random_row(rng, rng.choice(free)), 1)]
    if not present:
        return []
    victim = rng.choice(present)
    if transactions is Transactions.SINGLE or rng.random() < 0.5:
        return [(victim, -1)]
    changed: list[Any] = list(victim)
    changed[rng.randrange(1, 4)] = _random_value(rng)
    return [(victim, -1), (tuple(changed), 1)]
