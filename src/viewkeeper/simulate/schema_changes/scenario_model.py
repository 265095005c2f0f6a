"""What is there while a random scenario is made: tables as they are now, what places mean now.

The model goes along with the transactions that are made, so that each of them can be done: only
rows that are there are deleted, only names that are free are taken. Values and names are few, so
that joins hit and names that were given up are taken again.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from itertools import count

import pyarrow as pa

from viewkeeper.evolution.dyno.rewriter import SubstituteTable
from viewkeeper.evolution.dyno.table_identity import DynoShape, Key
from viewkeeper.simulate.schema_changes.reshaped_scenario import PlaceMeaning, Sketch
from viewkeeper.simulate.schema_changes.reshaped_tables import (
    Operation,
    ReshapedTable,
    Row,
    WriteOperation,
    apply_operation,
)

VALUES = 3


@dataclass(slots=True)
class ScenarioModel:
    """What is there while a scenario is made: tables as they are now, what places mean now."""

    rng: random.Random
    tables: dict[str, dict[int, ReshapedTable]]
    sketch: Sketch
    meanings: list[PlaceMeaning]
    stand_ins: tuple[SubstituteTable, ...]
    dispensable: frozenset[str]
    gone: set[str] = field(default_factory=set)
    altered: set[Key] = field(default_factory=set)
    """Tables that are not what the stand-ins were named for any more."""
    ids: count[int] = field(default_factory=lambda: count(1000))

    def free_table_name(self, source: str, base: str) -> str:
        """A name that is free at a source, new or given up before."""
        taken = {table.shape.name for table in self.tables[source].values()}
        return self.rng.choice([n for n in _candidate_names(base) if n not in taken])

    def free_column_name(self, shape: DynoShape, base: str) -> str:
        taken = {column.name for column in shape.columns}
        return self.rng.choice([n for n in _candidate_names(base) if n not in taken])

    def places_of(self, key: Key) -> list[int]:
        """The places that mean a table now."""
        return [place for place, m in enumerate(self.meanings) if m.table == key]

    def weighted_tables(self, source: str) -> list[int]:
        """The tables of a source; what the view reads comes three times."""
        ids = sorted(self.tables[source])
        read = [id for id in ids if self.places_of((source, id))]
        return [*ids, *read, *read]

    def commit_operations(self, source: str, operations: list[Operation]) -> None:
        tables = self.tables[source]
        for operation in operations:
            tables = dict(apply_operation(tables, operation))
        self.tables[source] = tables


def _candidate_names(base: str) -> list[str]:
    return [base, *(f"{base}{number}" for number in range(2, 6))]


def random_rows(rng: random.Random, width: int) -> dict[Row, int]:
    rows: Counter[Row] = Counter()
    for _ in range(rng.randint(2, 5)):
        rows[tuple(_random_value(rng) for _ in range(width))] += 1
    return dict(rows)


def _random_value(rng: random.Random) -> int | None:
    if rng.random() < 0.05:
        return None
    return 0 if rng.random() < 0.6 else rng.randrange(VALUES)


def random_writes(model: ScenarioModel, source: str, size: int) -> list[Operation]:
    """Inserts and deletes in some tables of a source."""
    rng = model.rng
    made: list[Operation] = []
    ids = model.weighted_tables(source)
    for id in dict.fromkeys(rng.choices(ids, k=size) if ids else ()):
        table = model.tables[source][id]
        present = sorted(table.rows, key=repr)
        changes: list[tuple[Row, int]] = []
        if present and rng.random() < 0.5:
            changes.append((rng.choice(present), -1))
        if not changes or rng.random() < 0.5:
            changes.append((tuple(_random_typed(rng, c.type) for c in table.shape.columns), 1))
        net = Counter[Row]()
        for row, n in changes:
            net[row] += n
        left = tuple((row, n) for row, n in net.items() if n)
        if left:
            made.append(WriteOperation(id, left))
    return made


def _random_typed(rng: random.Random, kind: pa.DataType) -> object:
    value = _random_value(rng)
    return str(value) if value is not None and kind == pa.string() else value
