"""From two shapes of a table to schema changes, and to questions that cannot be answered any more.

Inside a source a change names columns by identity (`ShapeChange`). Those who ask use handles, so
what is reported has the names of the handle (`SchemaChange`), and so has the sentence that a
question gets which a change made unanswerable (`BrokenQueryError`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from viewkeeper.errors import BrokenQueryError
from viewkeeper.sources.handles import HandleTarget
from viewkeeper.sources.tables.column_type import classify_type_change
from viewkeeper.sources.tables.shape import ShapeColumn, TableShape
from viewkeeper.updates.schema_change import ChangeKind, SchemaChange, name_of_handle

_ADDED: frozenset[ChangeKind] = frozenset(("add_column", "add_filled_column"))

_BROKEN: dict[ChangeKind, str] = {
    "add_filled_column": "column {column} was added with a value in all rows",
    "drop_column": "column {column} is gone",
    "change_type": "column {column} got the type {now}",
    "rewrite": "values of column {column} were rewritten",
    "drop_table": "it is gone",
    "recreate_table": "it is gone, and another table is called so",
}

NameTest = Callable[[str, str], bool]
"""Whether two names are the same to a database."""


@dataclass(frozen=True, slots=True)
class ShapeChange:
    """One change of a table, or of the column with an identity.

    `now` is the new name, type or key, as the database spells it; of a column that was added, its
    name.
    """

    kind: ChangeKind
    column: str = ""
    now: str = ""

    @property
    def keeps_values(self) -> bool:
        return self.kind not in _BROKEN

    def is_ending(self, columns: Collection[str]) -> bool:
        """Whether nothing from before it can be asked for, given the identities of the columns
        that are asked for.

        >>> ShapeChange("drop_column", "2").is_ending({"1"})
        False
        """
        return not self.keeps_values and (not self.column or self.column in columns)


def list_shape_changes(before: TableShape, now: TableShape) -> Iterator[ShapeChange]:
    """Everything that somebody who follows the table may have to know, in a fixed order."""
    if now.fate:
        if before.fate != now.fate:
            yield ShapeChange("drop_table" if now.fate == "dropped" else "recreate_table")
        return
    if before.fate:
        return
    if before.identity != now.identity:
        yield ShapeChange("recreate_table")
        return
    if before.name != now.name:
        yield ShapeChange("rename_table", now=now.name)
    for column in before.columns:
        if column.identity:
            yield from _column_changes(column, now)
    known = {column.place for column in before.columns} - now.lost
    for column in now.columns:
        if column.identity and column.place not in known:
            kind: ChangeKind = "add_filled_column" if column.filled else "add_column"
            yield ShapeChange(kind, column.identity, column.name)
    if before.key != now.key:
        names = {column.place: column.name for column in now.columns}
        yield ShapeChange("change_key", now=", ".join(names.get(place, place) for place in now.key))


def _column_changes(before: ShapeColumn, table: TableShape) -> Iterator[ShapeChange]:
    now = table.column_by_identity(before.identity)
    if now is None:
        other = table.column_at(before.place)
        if other is None or before.place in table.lost:
            yield ShapeChange("drop_column", before.identity)
        else:
            yield ShapeChange("change_type", before.identity, other.declared)
        return
    if before.name != now.name:
        yield ShapeChange("rename_column", before.identity, now.name)
    kind = classify_type_change(before.type, now.type, before.digits)
    if kind is not None:
        # A wider type keeps the values of a column only if nobody gave it other ones.
        is_kept = kind == "widen_type" and before.rewrites == now.rewrites
        yield ShapeChange(kind if is_kept else "change_type", before.identity, now.declared)
    elif before.rewrites != now.rewrites:
        yield ShapeChange("rewrite", before.identity)


def report_changes(
    handle: str,
    named: HandleTarget,
    changes: Iterable[ShapeChange],
    is_called: NameTest = operator.eq,
) -> Iterator[SchemaChange]:
    """Changes of a table in the names of a handle; those of columns that it does not stand for are
    left out, and so are renames to what it calls the table or column anyway.

    `is_called` is asked with the handle's name and the new one.

    >>> named = HandleTarget("17", {"price": "2"})
    >>> changes = [ShapeChange("rename_column", "2", "cost"), ShapeChange("drop_column", "3")]
    >>> [str(change) for change in report_changes("orders", named, changes)]
    ['orders: column price is called cost now']
    """
    names = {identity: name for name, identity in named.columns.items()}
    for change in changes:
        if change.kind in _ADDED:
            yield SchemaChange(change.kind, handle, change.now)
        elif change.kind == "rename_table":
            if not is_called(name_of_handle(handle), change.now):
                yield SchemaChange(change.kind, handle, now=change.now)
        elif not change.column:
            yield SchemaChange(change.kind, handle, now=change.now)
        elif change.column in names:
            name = names[change.column]
            if change.kind != "rename_column" or not is_called(name, change.now):
                yield SchemaChange(change.kind, handle, name, change.now)


def schema_changes(
    handle: str, named: HandleTarget, before: TableShape | None, now: TableShape | None
) -> tuple[SchemaChange, ...]:
    """What the next shape of a table means to a handle; nothing if it stood for another one."""
    if before is None or now is None or named.identity != before.identity:
        return ()
    return tuple(report_changes(handle, named, list_shape_changes(before, now)))


def broken_query_error(
    source: str, handle: str, columns: Mapping[str, str], change: ShapeChange
) -> BrokenQueryError:
    """The error of a question that cannot be answered because of a change.

    `columns` are the identities of the columns by the handle's names.
    """
    names = {identity: name for name, identity in columns.items()}
    what = _BROKEN[change.kind].format(column=names.get(change.column, ""), now=change.now)
    return BrokenQueryError(source, name_of_handle(handle), what)
