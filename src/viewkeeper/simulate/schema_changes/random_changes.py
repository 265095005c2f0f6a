"""Random schema changes, each with what it means for the view.

Every kind is a function from the model and a table to operations and effects; those that cannot be
done to that table now return None and another one is drawn. What the view means by a place is
changed here and nowhere else, in the words of identities: a rename has no effect at all, a table
that was dropped and recreated is meant by its name, a dropped one is meant by its stand-in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from viewkeeper.evolution.dyno.table_identity import Key, Shape, Thing
from viewkeeper.simulate.schema_changes.reshaped_scenario import (
    Effect,
    Gone,
    Meaning,
    Means,
    Transaction,
)
from viewkeeper.simulate.schema_changes.reshaped_tables import (
    AddColumn,
    Create,
    Drop,
    DropColumn,
    Operation,
    Rename,
    RenameColumn,
    Rewrite,
    Table,
    Widen,
)
from viewkeeper.simulate.schema_changes.scenario_model import Model, random_rows, rows

Change = tuple[list[Operation], list[Effect]]
Make = Callable[[Model, Key], Change | None]


def reshaping(model: Model, source: str, kept_only: bool) -> Transaction | None:
    """A transaction with a schema change at a source, sometimes with rows after it."""
    kinds = KEPT if kept_only else {**KEPT, **LOST}
    for _ in range(6 if model.tables[source] else 0):
        kind = model.rng.choice(sorted(kinds))
        table = model.rng.choice(model.often(source))
        key = (source, table)
        if kind in LOST and key in {each.table for each in model.stand_ins}:
            continue
        made = kinds[kind](model, key)
        if made is not None:
            return _done(model, source, kind, made)
    return None


def _done(model: Model, source: str, kind: str, made: Change) -> Transaction:
    operations, effects = made
    model.commit(source, operations)
    for effect in effects:
        if isinstance(effect, Means):
            model.meanings[effect.place] = effect.meaning
        else:
            model.gone.add(effect.output)
    if model.rng.random() < 0.25:
        written = rows(model, source, 1)
        model.commit(source, written)
        operations = [*operations, *written]
    return Transaction(source, tuple(operations), tuple(effects), kind in KEPT, kind)


def _shape(model: Model, key: Key) -> Shape:
    return model.tables[key[0]][key[1]].shape


# -- values kept -----------------------------------------------------------------------------------


def rename_table(model: Model, key: Key) -> Change | None:
    base = _shape(model, key).name.rstrip("0123456789")
    return [Rename(key[1], model.name(key[0], model.rng.choice([base, "r", "q"])))], []


def swap_tables(model: Model, key: Key) -> Change | None:
    others = [id for id in model.tables[key[0]] if id != key[1]]
    if not others:
        return None
    other = _shape(model, (key[0], model.rng.choice(sorted(others))))
    mine = _shape(model, key)
    return [Rename(mine.id, other.name), Rename(other.id, mine.name)], []


def rename_column(model: Model, key: Key) -> Change | None:
    shape = _shape(model, key)
    column = model.rng.choice(shape.columns)
    base = model.rng.choice([*"abvw", "n"])
    return [RenameColumn(key[1], column.id, model.column_name(shape, base))], []


def swap_columns(model: Model, key: Key) -> Change | None:
    shape = _shape(model, key)
    if len(shape.columns) < 2:
        return None
    one, other = model.rng.sample(shape.columns, 2)
    return [
        RenameColumn(key[1], one.id, other.name),
        RenameColumn(key[1], other.id, one.name),
    ], []


def add_column(model: Model, key: Key) -> Change | None:
    shape = _shape(model, key)
    column = Thing(next(model.ids), model.column_name(shape, model.rng.choice("nw")), pa.int64())
    return [AddColumn(key[1], column, model.rng.choice([None, 1]))], []


def widen(model: Model, key: Key) -> Change | None:
    column = _letter(model, key, "w")
    if column is None or column.type != pa.int64():
        return None
    return [Widen(key[1], column.id, pa.decimal128(20, 0))], []


# -- values changed or gone ------------------------------------------------------------------------


def _letter(model: Model, key: Key, letter: str) -> Thing | None:
    """The column of a table that the view means by a letter."""
    places = model.places(key)
    id = model.meanings[places[0]].columns.get(letter) if places else None
    return None if id is None else _shape(model, key).column(id)


def drop_column(model: Model, key: Key) -> Change | None:
    """Of w only, where every output of it is dispensable; or of a column that nobody reads."""
    shape, places = _shape(model, key), model.places(key)
    if len(shape.columns) < 2:
        return None
    if not places:
        return [DropColumn(key[1], model.rng.choice(shape.columns).id)], []
    column = _letter(model, key, "w")
    shown = [o for o in model.sketch.outputs if o.place in places and o.letter == "w"]
    left = [o.name for o in shown if o.name not in model.gone]
    if column is None or not set(left) <= model.dispensable:
        return None
    return [DropColumn(key[1], column.id)], [Gone(name) for name in left]


def rewrite(model: Model, key: Key) -> Change | None:
    return _another(model, key, model.rng.choice("abvw"), None)


def change_type(model: Model, key: Key) -> Change | None:
    return _another(model, key, "w", pa.string())


def _another(model: Model, key: Key, letter: str, kind: pa.DataType | None) -> Change | None:
    """Every value of a column becomes another one."""
    column = _letter(model, key, letter)
    if column is None or column.type != pa.int64():
        return None
    now = replace(column, id=next(model.ids), type=kind or column.type)
    shift = model.rng.choice([1, 2])
    numbers = [None, *range(3)]
    values = [(n, n if n is None else str(n) if kind else (n + shift) % 3) for n in numbers]
    model.altered.add(key)
    effects: list[Effect] = [
        Means(p, Meaning(key, {**model.meanings[p].columns, letter: now.id}))
        for p in model.places(key)
    ]
    return [Rewrite(key[1], column.id, now, tuple(values))], effects


def drop_table(model: Model, key: Key) -> Change | None:
    """Of a table that a stand-in can replace, or that nobody reads."""
    places = model.places(key)
    if not places:
        return [Drop(key[1])], []
    stand_in = next((each for each in model.stand_ins if each.original == key), None)
    if stand_in is None or key in model.altered:
        return None
    effects: list[Effect] = []
    for place in places:
        columns = model.meanings[place].columns
        theirs = {letter: stand_in.columns[id] for letter, id in columns.items()}
        effects.append(Means(place, Meaning(stand_in.table, theirs)))
    return [Drop(key[1])], effects


def recreate_table(model: Model, key: Key) -> Change | None:
    """Dropped, and another one of the same name is there, with the same columns and other rows."""
    shape = _shape(model, key)
    if any(column.type != pa.int64() for column in shape.columns):
        return None
    columns = tuple(replace(column, id=next(model.ids)) for column in shape.columns)
    same = {old.id: new.id for old, new in zip(shape.columns, columns, strict=True)}
    now = Shape(next(model.ids), shape.name, columns)
    table = Table(now, random_rows(model.rng, len(columns)))
    effects: list[Effect] = []
    for place in model.places(key):
        theirs = model.meanings[place].columns
        mapped = {letter: same[id] for letter, id in theirs.items() if id in same}
        effects.append(Means(place, Meaning((key[0], now.id), mapped)))
    model.altered.add((key[0], now.id))
    return [Drop(key[1]), Create(table)], effects


KEPT: dict[str, Make] = {
    "rename_table": rename_table,
    "swap_tables": swap_tables,
    "rename_column": rename_column,
    "swap_columns": swap_columns,
    "add_column": add_column,
    "widen_type": widen,
}

LOST: dict[str, Make] = {
    "drop_column": drop_column,
    "rewrite": rewrite,
    "change_type": change_type,
    "drop_table": drop_table,
    "recreate_table": recreate_table,
}
