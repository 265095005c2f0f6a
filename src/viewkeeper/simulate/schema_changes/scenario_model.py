"""What is there while a random scenario is made: tables as they are now, what places mean now.

The model goes along with the transactions that are made, so that each of them can be done: only
rows that are there are deleted, only names that are free are taken. Values and names are few, so
that joins hit and names that were given up are taken again.

Every kind of random schema change is a function from the model and a table to operations and
effects; those that cannot be done to that table now return None and another one is drawn. What the
view means by a place is changed here and nowhere else, in the words of identities: a rename has no
effect at all, a table that was dropped and recreated is meant by its name, a dropped one is meant
by its stand-in.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count

import pyarrow as pa

from viewkeeper.evolution.dyno.rewriter import SubstituteTable
from viewkeeper.evolution.dyno.table_identity import DynoColumn, DynoShape, Key
from viewkeeper.simulate.schema_changes.reshaped_scenario import (
    Effect,
    GoneEffect,
    MeaningEffect,
    PlaceMeaning,
    ReshapedTransaction,
    Sketch,
)
from viewkeeper.simulate.schema_changes.reshaped_tables import (
    AddColumn,
    CreateOperation,
    DropColumn,
    DropOperation,
    Operation,
    RenameColumn,
    RenameOperation,
    ReshapedTable,
    RewriteOperation,
    Row,
    WidenOperation,
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


Change = tuple[list[Operation], list[Effect]]
Make = Callable[[ScenarioModel, Key], Change | None]


def random_schema_change(
    model: ScenarioModel, source: str, kept_only: bool
) -> ReshapedTransaction | None:
    """A transaction with a schema change at a source, sometimes with rows after it."""
    kinds = KEPT if kept_only else {**KEPT, **LOST}
    for _ in range(6 if model.tables[source] else 0):
        kind = model.rng.choice(sorted(kinds))
        table = model.rng.choice(model.weighted_tables(source))
        key = (source, table)
        if kind in LOST and key in {each.table for each in model.stand_ins}:
            continue
        made = kinds[kind](model, key)
        if made is not None:
            return _finish_change(model, source, kind, made)
    return None


def _finish_change(
    model: ScenarioModel, source: str, kind: str, made: Change
) -> ReshapedTransaction:
    operations, effects = made
    model.commit_operations(source, operations)
    for effect in effects:
        if isinstance(effect, MeaningEffect):
            model.meanings[effect.place] = effect.meaning
        else:
            model.gone.add(effect.output)
    if model.rng.random() < 0.25:
        written = random_writes(model, source, 1)
        model.commit_operations(source, written)
        operations = [*operations, *written]
    return ReshapedTransaction(source, tuple(operations), tuple(effects), kind in KEPT, kind)


def _shape_of(model: ScenarioModel, key: Key) -> DynoShape:
    return model.tables[key[0]][key[1]].shape


def rename_table(model: ScenarioModel, key: Key) -> Change | None:
    base = _shape_of(model, key).name.rstrip("0123456789")
    return [
        RenameOperation(key[1], model.free_table_name(key[0], model.rng.choice([base, "r", "q"])))
    ], []


def swap_tables(model: ScenarioModel, key: Key) -> Change | None:
    others = [id for id in model.tables[key[0]] if id != key[1]]
    if not others:
        return None
    other = _shape_of(model, (key[0], model.rng.choice(sorted(others))))
    mine = _shape_of(model, key)
    return [RenameOperation(mine.id, other.name), RenameOperation(other.id, mine.name)], []


def rename_column(model: ScenarioModel, key: Key) -> Change | None:
    shape = _shape_of(model, key)
    column = model.rng.choice(shape.columns)
    base = model.rng.choice([*"abvw", "n"])
    return [RenameColumn(key[1], column.id, model.free_column_name(shape, base))], []


def swap_columns(model: ScenarioModel, key: Key) -> Change | None:
    shape = _shape_of(model, key)
    if len(shape.columns) < 2:
        return None
    one, other = model.rng.sample(shape.columns, 2)
    return [RenameColumn(key[1], one.id, other.name), RenameColumn(key[1], other.id, one.name)], []


def add_column(model: ScenarioModel, key: Key) -> Change | None:
    shape = _shape_of(model, key)
    column = DynoColumn(
        next(model.ids), model.free_column_name(shape, model.rng.choice("nw")), pa.int64()
    )
    return [AddColumn(key[1], column, model.rng.choice([None, 1]))], []


def widen_column(model: ScenarioModel, key: Key) -> Change | None:
    column = _column_meant(model, key, "w")
    if column is None or column.type != pa.int64():
        return None
    return [WidenOperation(key[1], column.id, pa.decimal128(20, 0))], []


def _column_meant(model: ScenarioModel, key: Key, letter: str) -> DynoColumn | None:
    """The column of a table that the view means by a letter."""
    places = model.places_of(key)
    id = model.meanings[places[0]].columns.get(letter) if places else None
    return None if id is None else _shape_of(model, key).column_by_id(id)


def drop_column(model: ScenarioModel, key: Key) -> Change | None:
    """Of w only, where every output of it is dispensable; or of a column that nobody reads."""
    shape, places = _shape_of(model, key), model.places_of(key)
    if len(shape.columns) < 2:
        return None
    if not places:
        return [DropColumn(key[1], model.rng.choice(shape.columns).id)], []
    column = _column_meant(model, key, "w")
    shown = [o for o in model.sketch.outputs if o.place in places and o.letter == "w"]
    left = [o.name for o in shown if o.name not in model.gone]
    if column is None or not set(left) <= model.dispensable:
        return None
    return [DropColumn(key[1], column.id)], [GoneEffect(name) for name in left]


def rewrite_column(model: ScenarioModel, key: Key) -> Change | None:
    return _replace_values(model, key, model.rng.choice("abvw"), None)


def change_type(model: ScenarioModel, key: Key) -> Change | None:
    return _replace_values(model, key, "w", pa.string())


def _replace_values(
    model: ScenarioModel, key: Key, letter: str, kind: pa.DataType | None
) -> Change | None:
    """Every value of a column becomes another one."""
    column = _column_meant(model, key, letter)
    if column is None or column.type != pa.int64():
        return None
    now = replace(column, id=next(model.ids), type=kind or column.type)
    shift = model.rng.choice([1, 2])
    numbers = [None, *range(3)]
    values = [(n, n if n is None else str(n) if kind else (n + shift) % 3) for n in numbers]
    model.altered.add(key)
    effects: list[Effect] = [
        MeaningEffect(p, PlaceMeaning(key, {**model.meanings[p].columns, letter: now.id}))
        for p in model.places_of(key)
    ]
    return [RewriteOperation(key[1], column.id, now, tuple(values))], effects


def drop_table(model: ScenarioModel, key: Key) -> Change | None:
    """Of a table that a stand-in can replace, or that nobody reads."""
    places = model.places_of(key)
    if not places:
        return [DropOperation(key[1])], []
    stand_in = next((each for each in model.stand_ins if each.original == key), None)
    if stand_in is None or key in model.altered:
        return None
    effects: list[Effect] = []
    for place in places:
        columns = model.meanings[place].columns
        theirs = {letter: stand_in.columns[id] for letter, id in columns.items()}
        effects.append(MeaningEffect(place, PlaceMeaning(stand_in.table, theirs)))
    return [DropOperation(key[1])], effects


def recreate_table(model: ScenarioModel, key: Key) -> Change | None:
    """Dropped, and another one of the same name is there, with the same columns and other rows."""
    shape = _shape_of(model, key)
    if any(column.type != pa.int64() for column in shape.columns):
        return None
    columns = tuple(replace(column, id=next(model.ids)) for column in shape.columns)
    same = {old.id: new.id for old, new in zip(shape.columns, columns, strict=True)}
    now = DynoShape(next(model.ids), shape.name, columns)
    table = ReshapedTable(now, random_rows(model.rng, len(columns)))
    effects: list[Effect] = []
    for place in model.places_of(key):
        theirs = model.meanings[place].columns
        mapped = {letter: same[id] for letter, id in theirs.items() if id in same}
        effects.append(MeaningEffect(place, PlaceMeaning((key[0], now.id), mapped)))
    model.altered.add((key[0], now.id))
    return [DropOperation(key[1]), CreateOperation(table)], effects


KEPT: dict[str, Make] = {
    "rename_table": rename_table,
    "swap_tables": swap_tables,
    "rename_column": rename_column,
    "swap_columns": swap_columns,
    "add_column": add_column,
    "widen_type": widen_column,
}

LOST: dict[str, Make] = {
    "drop_column": drop_column,
    "rewrite": rewrite_column,
    "change_type": change_type,
    "drop_table": drop_table,
    "recreate_table": recreate_table,
}
