"""What a statement of the binlog makes of the shapes of followed tables, and what is told of it.

Tables and columns are carried along by their identity: a rename is one, however many tables change
names in a statement, and what is added or comes in the place of something is another thing. What is
told names tables and columns by identity; `now` is what a column is called, for one that was added.

Two rules decide what somebody who means a table by its name expects:

1. When a followed table loses its name to another one that is followed too, in one statement, they
   swap: two renames. When the other one is not followed, it takes the table's place, as tools that
   copy a table to alter it do it: the table is another one now.
2. What is not known to be harmless to a followed table makes it another one: it is read anew.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from viewkeeper.sources.mariadb.binlog.event_bodies import Statement
from viewkeeper.sources.mariadb.ddl.alter_table import Setting, altered
from viewkeeper.sources.mariadb.ddl.column_definition import Characters
from viewkeeper.sources.mariadb.ddl.statement import (
    Action,
    Alter,
    Create,
    Drop,
    DropDatabase,
    Name,
    Rename,
    Truncate,
    Unlisted,
    action_of,
    name_in,
)
from viewkeeper.sources.mariadb.ddl.tokens import Token
from viewkeeper.sources.mariadb.logged_shapes import Shape, Shapes
from viewkeeper.updates.schema_change import SchemaChange


@dataclass(slots=True)
class Effect:
    """The shapes after a statement, what is told of them, and the tables that it emptied.

    `unlisted` are tables that rows of were changed without being listed. `keys` are the tables
    whose key may be another one now.
    """

    shapes: Shapes
    told: list[SchemaChange] = field(default_factory=list)
    emptied: list[str] = field(default_factory=list)
    unlisted: list[Shape] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)


def effect_of(
    statement: Statement, shapes: Shapes, position: int, characters: Characters
) -> Effect | None:
    """What a statement that ends at a position does to followed tables; None if nothing."""
    if not _names_any(statement.text, shapes):
        return None
    setting = Setting(position, statement.strict, characters)
    try:
        effect = _effect(action_of(statement.text, statement.database), shapes, setting)
    except (LookupError, ValueError):
        # No tokens, a clause without a name, a type with a length that is none: what a server has
        # run can be read by whoever knows its newest clauses.
        return _unreadable(statement.text, shapes)
    changed = effect.told or effect.emptied or effect.unlisted or effect.keys
    return effect if changed or effect.shapes != shapes else None


def _effect(action: Action | None, shapes: Shapes, setting: Setting) -> Effect:
    if action is None:
        return Effect(shapes)
    earlier = [shape for shape in shapes if shape.since >= setting.position]
    known = shapes.without(shape.id for shape in earlier)
    found = _Reshaping(known, setting)
    found.take(action)
    effect = found.effect
    for shape in earlier:
        effect.told += _before_it_was_known(shape, action, shapes)
        effect.shapes = effect.shapes.with_table(shape)
    return effect


def _names_any(statement: str, shapes: Shapes) -> bool:
    """A quick look: whether the text has the name of a followed table or of its database."""
    lowered = statement.lower().replace("``", "`")
    names = {n.lower() for one in shapes.tables.values() for n in (one.database, one.name)}
    return any(name in lowered for name in names)


def _unreadable(statement: str, shapes: Shapes) -> Effect | None:
    """Every table that such a statement has the name of may be another one now."""
    effect = Effect(shapes)
    for shape in list(shapes):
        if re.search(rf"(?<!\w){re.escape(shape.name)}(?!\w)", statement, re.IGNORECASE):
            replaced(effect, shape)
    return effect if effect.told else None


def _before_it_was_known(shape: Shape, action: Action, shapes: Shapes) -> list[SchemaChange]:
    """What was done to a name before the table that has it was followed: what lies before that
    may be of another table."""
    touched = {shapes.fold(name.database, name.table) for name in _names_of(action)}
    dropped = isinstance(action, DropDatabase) and shapes.fold(action.database, "") == shapes.fold(
        shape.database, ""
    )
    if dropped or shapes.fold(shape.database, shape.name) in touched:
        return [SchemaChange("recreate_table", shape.id)]
    return []


def _names_of(action: Action) -> tuple[Name, ...]:
    match action:
        case Truncate(table) | Create(table):
            return (table,)
        case Alter():
            return (action.table, *action.mentioned)
        case Drop(tables) | Unlisted(tables):
            return tables
        case Rename(steps):
            return tuple(name for step in steps for name in step)
        case DropDatabase():
            return ()


def replaced(effect: Effect, shape: Shape) -> None:
    """The table is another one now."""
    effect.told.append(SchemaChange("recreate_table", shape.id))
    effect.shapes = effect.shapes.without([shape.id])


class _Reshaping:
    """One statement, taken apart."""

    def __init__(self, shapes: Shapes, setting: Setting) -> None:
        self.effect = Effect(shapes)
        self._setting = setting

    def _find(self, name: Name) -> Shape | None:
        return self.effect.shapes.find(name.database, name.table)

    def take(self, action: Action) -> None:
        match action:
            case Truncate(table):
                shape = self._find(table)
                self.effect.emptied += [shape.id] if shape else []
            case Unlisted(tables):
                self.effect.unlisted += [shape for shape in map(self._find, tables) if shape]
            case Drop(tables):
                for shape in [shape for shape in map(self._find, tables) if shape]:
                    self._drop(shape)
            case DropDatabase(database):
                fold = self.effect.shapes.fold
                for shape in list(self.effect.shapes):
                    if fold(shape.database, "") == fold(database, ""):
                        self._drop(shape)
            case Create(table):
                shape = self._find(table)
                if shape:
                    replaced(self.effect, shape)
                self._taken(table)
            case Rename(steps):
                self._rename(steps)
            case Alter():
                self._alter(action)

    def _drop(self, shape: Shape) -> None:
        self.effect.told.append(SchemaChange("drop_table", shape.id))
        self.effect.shapes = self.effect.shapes.with_table(replace(shape, gone=True))

    def _taken(self, name: Name) -> None:
        """A name that belonged to a table that is gone is that of another one."""
        for shape in list(self.effect.shapes.lost(name.database, name.table)):
            replaced(self.effect, shape)

    def _rename(self, steps: tuple[tuple[Name, Name], ...]) -> None:
        shapes = self.effect.shapes
        before = {shapes.fold(one.database, one.name): one for one in shapes}
        # Who has a name: a followed table, or None for any other one.
        owners: dict[tuple[str, str], Shape | None] = dict(before)
        names: dict[str, Name] = {}
        for old, new in steps:
            owner = owners.pop(shapes.fold(old.database, old.table), None)
            owners[shapes.fold(new.database, new.table)] = owner
            if owner is not None:
                names[owner.id] = new
            else:
                self._taken(new)
        for id, name in names.items():
            shape = shapes.tables[id]
            own = shapes.fold(shape.database, shape.name)
            if shapes.fold(name.database, name.table) == own:
                continue
            if own in owners and owners[own] is None:
                replaced(self.effect, shape)
            else:
                self._call(shape, name)

    def _call(self, shape: Shape, name: Name) -> None:
        now = replace(shape, database=name.database, name=name.table)
        self.effect.told.append(SchemaChange("rename_table", shape.id, now=now.full_name))
        self.effect.shapes = self.effect.shapes.with_table(now)
        self._taken(name)

    def _alter(self, action: Alter) -> None:
        shape = self._find(action.table)
        if shape is None:
            self._moved(action)
            return
        found = altered(shape, action, self._setting)
        self.effect.told += found.told
        if found.another:
            self.effect.shapes = self.effect.shapes.without([shape.id])
            return
        self.effect.shapes = self.effect.shapes.with_table(found.shape)
        self.effect.keys.append(shape.id)
        if found.renamed is not None:
            self._call(found.shape, found.renamed)

    def _moved(self, action: Alter) -> None:
        """Rows of a followed table may have come from, or gone to, a partition of another one."""
        words = [[token.word for token in clause[:2]] for clause in action.clauses]
        if not any(set(two) & {"EXCHANGE", "CONVERT"} for two in words):
            for clause in action.clauses:
                self._takes_name(action, clause)
            return
        for shape in [shape for shape in map(self._find, action.mentioned) if shape]:
            replaced(self.effect, shape)

    def _takes_name(self, action: Alter, clause: Sequence[Token]) -> None:
        """Another table may be renamed to what a table that is gone was called."""
        if [token.word for token in clause[:1]] == ["RENAME"] and len(clause) > 1:
            skip = 2 if clause[1].word in ("TO", "AS") else 1
            self._taken(name_in(clause[skip:], action.table.database))
