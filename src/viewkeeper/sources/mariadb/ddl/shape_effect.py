"""What a statement of the binlog makes of the shapes of followed tables, and what it changed.

Tables and columns are carried along by their identity: a rename is one, however many tables change
names in a statement, and what is added or comes in the place of something is another thing.
Changes name tables and columns by identity; `now` is the name of a column that was added.

Two rules decide what somebody who means a table by its name expects:

1. When a followed table loses its name to another one that is followed too, in one statement, they
   swap: two renames. When the other one is not followed, it takes the table's place, as tools that
   copy a table to alter it do it: the table is another one now.
2. What is not known to be harmless to a followed table makes it another one: it is loaded again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from viewkeeper.sources.mariadb.ddl.alter_table import StatementSetting, apply_alter
from viewkeeper.sources.mariadb.ddl.column_definition import Characters
from viewkeeper.sources.mariadb.ddl.statement import (
    Action,
    LoggedAlter,
    LoggedCreate,
    LoggedDrop,
    LoggedDropDatabase,
    LoggedRename,
    LoggedStatement,
    LoggedTableName,
    LoggedTruncate,
    Token,
    UnlistedRows,
    action_of,
    parse_table_name,
)
from viewkeeper.sources.mariadb.logged_shapes import LoggedChange, LoggedShape, LoggedShapes
from viewkeeper.sources.tables.shape_changes import ShapeChange
from viewkeeper.updates.schema_change import ChangeKind


@dataclass(slots=True)
class ShapeEffect:
    """The shapes after a statement, the changes that it made, and the tables that it emptied.

    `unlisted` are tables that rows of were changed without being listed. `keys` are the tables
    whose key may be another one now.
    """

    shapes: LoggedShapes
    changes: list[LoggedChange] = field(default_factory=list)
    emptied: list[str] = field(default_factory=list)
    unlisted: list[LoggedShape] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)

    def add_change(self, table: str, kind: ChangeKind, now: str = "") -> None:
        """A table as a whole has changed."""
        self.changes.append(LoggedChange(table, ShapeChange(kind, now=now)))


def effect_of(
    statement: LoggedStatement, shapes: LoggedShapes, position: int, characters: Characters
) -> ShapeEffect | None:
    """What a statement that ends at a position does to followed tables; None if nothing."""
    if not _names_any(statement.text, shapes):
        return None
    setting = StatementSetting(position, statement.strict, characters)
    try:
        effect = _effect_of_action(action_of(statement.text, statement.database), shapes, setting)
    except (LookupError, ValueError):
        # No tokens, a clause without a name, a type with a length that is none: what a server has
        # run can be read by whoever knows its newest clauses.
        return _effect_of_unreadable(statement.text, shapes)
    changed = effect.changes or effect.emptied or effect.unlisted or effect.keys
    return effect if changed or effect.shapes != shapes else None


def _effect_of_action(
    action: Action | None, shapes: LoggedShapes, setting: StatementSetting
) -> ShapeEffect:
    if action is None:
        return ShapeEffect(shapes)
    earlier = [shape for shape in shapes if shape.since >= setting.position]
    known = shapes.without_tables(shape.id for shape in earlier)
    found = _Reshaping(known, setting)
    found.take_action(action)
    effect = found.effect
    for shape in earlier:
        effect.changes += _before_it_was_known(shape, action, shapes)
        effect.shapes = effect.shapes.with_table(shape)
    return effect


def _names_any(statement: str, shapes: LoggedShapes) -> bool:
    """A quick look: whether the text has the name of a followed table or of its database."""
    lowered = statement.lower().replace("``", "`")
    names = {n.lower() for one in shapes.tables.values() for n in (one.database, one.name)}
    return any(name in lowered for name in names)


def _effect_of_unreadable(statement: str, shapes: LoggedShapes) -> ShapeEffect | None:
    """Every table that such a statement has the name of may be another one now."""
    effect = ShapeEffect(shapes)
    for shape in list(shapes):
        if re.search(rf"(?<!\w){re.escape(shape.name)}(?!\w)", statement, re.IGNORECASE):
            replace_table(effect, shape)
    return effect if effect.changes else None


def _before_it_was_known(
    shape: LoggedShape, action: Action, shapes: LoggedShapes
) -> list[LoggedChange]:
    """What was done to a name before the table that has it was followed: what lies before that
    may be of another table."""
    touched = {shapes.fold_name(name.database, name.table) for name in _names_of(action)}
    dropped = isinstance(action, LoggedDropDatabase) and shapes.fold_name(
        action.database, ""
    ) == shapes.fold_name(shape.database, "")
    if dropped or shapes.fold_name(shape.database, shape.name) in touched:
        return [LoggedChange(shape.id, ShapeChange("recreate_table"))]
    return []


def _names_of(action: Action) -> tuple[LoggedTableName, ...]:
    match action:
        case LoggedTruncate(table) | LoggedCreate(table):
            return (table,)
        case LoggedAlter():
            return (action.table, *action.mentioned)
        case LoggedDrop(tables) | UnlistedRows(tables):
            return tables
        case LoggedRename(steps):
            return tuple(name for step in steps for name in step)
        case LoggedDropDatabase():
            return ()


def replace_table(effect: ShapeEffect, shape: LoggedShape) -> None:
    """The table is another one now."""
    effect.add_change(shape.id, "recreate_table")
    effect.shapes = effect.shapes.without_tables([shape.id])


class _Reshaping:
    """One statement, taken apart."""

    def __init__(self, shapes: LoggedShapes, setting: StatementSetting) -> None:
        self.effect = ShapeEffect(shapes)
        self._setting = setting

    def _find_shape(self, name: LoggedTableName) -> LoggedShape | None:
        return self.effect.shapes.find_shape(name.database, name.table)

    def take_action(self, action: Action) -> None:
        match action:
            case LoggedTruncate(table):
                shape = self._find_shape(table)
                self.effect.emptied += [shape.id] if shape else []
            case UnlistedRows(tables):
                self.effect.unlisted += [shape for shape in map(self._find_shape, tables) if shape]
            case LoggedDrop(tables):
                for shape in [shape for shape in map(self._find_shape, tables) if shape]:
                    self._drop_shape(shape)
            case LoggedDropDatabase(database):
                fold = self.effect.shapes.fold_name
                for shape in list(self.effect.shapes):
                    if fold(shape.database, "") == fold(database, ""):
                        self._drop_shape(shape)
            case LoggedCreate(table):
                shape = self._find_shape(table)
                if shape:
                    replace_table(self.effect, shape)
                self._take_over_name(table)
            case LoggedRename(steps):
                self._rename_tables(steps)
            case LoggedAlter():
                self._alter_shape(action)

    def _drop_shape(self, shape: LoggedShape) -> None:
        self.effect.add_change(shape.id, "drop_table")
        self.effect.shapes = self.effect.shapes.with_table(replace(shape, gone=True))

    def _take_over_name(self, name: LoggedTableName) -> None:
        """A name that belonged to a table that is gone is that of another one."""
        for shape in list(self.effect.shapes.find_lost(name.database, name.table)):
            replace_table(self.effect, shape)

    def _rename_tables(self, steps: tuple[tuple[LoggedTableName, LoggedTableName], ...]) -> None:
        shapes = self.effect.shapes
        before = {shapes.fold_name(one.database, one.name): one for one in shapes}
        # Who has a name: a followed table, or None for any other one.
        owners: dict[tuple[str, str], LoggedShape | None] = dict(before)
        names: dict[str, LoggedTableName] = {}
        for old, new in steps:
            owner = owners.pop(shapes.fold_name(old.database, old.table), None)
            owners[shapes.fold_name(new.database, new.table)] = owner
            if owner is not None:
                names[owner.id] = new
            else:
                self._take_over_name(new)
        for id, name in names.items():
            shape = shapes.tables[id]
            own = shapes.fold_name(shape.database, shape.name)
            if shapes.fold_name(name.database, name.table) == own:
                continue
            if own in owners and owners[own] is None:
                replace_table(self.effect, shape)
            else:
                self._rename_shape(shape, name)

    def _rename_shape(self, shape: LoggedShape, name: LoggedTableName) -> None:
        now = replace(shape, database=name.database, name=name.table)
        self.effect.add_change(shape.id, "rename_table", now.full_name)
        self.effect.shapes = self.effect.shapes.with_table(now)
        self._take_over_name(name)

    def _alter_shape(self, action: LoggedAlter) -> None:
        shape = self._find_shape(action.table)
        if shape is None:
            self._move_rows(action)
            return
        found = apply_alter(shape, action, self._setting)
        self.effect.changes += [LoggedChange(shape.id, change) for change in found.changes]
        if found.another:
            self.effect.shapes = self.effect.shapes.without_tables([shape.id])
            return
        self.effect.shapes = self.effect.shapes.with_table(found.shape)
        self.effect.keys.append(shape.id)
        if found.renamed is not None:
            self._rename_shape(found.shape, found.renamed)

    def _move_rows(self, action: LoggedAlter) -> None:
        """Rows of a followed table may have come from, or gone to, a partition of another one."""
        words = [[token.keyword for token in clause[:2]] for clause in action.clauses]
        if not any(set(two) & {"EXCHANGE", "CONVERT"} for two in words):
            for clause in action.clauses:
                self._take_renamed_name(action, clause)
            return
        for shape in [shape for shape in map(self._find_shape, action.mentioned) if shape]:
            replace_table(self.effect, shape)

    def _take_renamed_name(self, action: LoggedAlter, clause: Sequence[Token]) -> None:
        """Another table may be renamed to what a table that is gone was called."""
        if [token.keyword for token in clause[:1]] == ["RENAME"] and len(clause) > 1:
            skip = 2 if clause[1].keyword in ("TO", "AS") else 1
            self._take_over_name(parse_table_name(clause[skip:], action.table.database))
