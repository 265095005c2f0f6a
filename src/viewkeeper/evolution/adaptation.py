"""View adaptation: what the stored rows of a view need when its definition becomes another one.

As little as is exact. Names cost nothing: a definition that only has other names for the same
columns leaves the rows as they are. A column of the view that goes is left out, and the counts of
rows that become the same by that add up, which is what projection does to bags. A column that comes
and is NULL in every row from before is NULL in the stored rows; one that got a wider type is read
as that. Everything else is repaired by the difference between what the new definition gives and
what is stored; a new table is only needed where an old one cannot hold both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from viewkeeper.evolution.expression_form import MeaningComparison, Named
from viewkeeper.sources.tables.wider_types import is_widening
from viewkeeper.view.definition import Field, Output, ViewDefinition
from viewkeeper.view.expression import Column, Literal, type_of


@dataclass(frozen=True, slots=True)
class Nothing:
    """The definitions differ by names only."""


@dataclass(frozen=True, slots=True)
class Restate:
    """The stored rows stay, under other columns: some left out, some NULL, some of wider types."""

    drop: tuple[str, ...] = ()
    add: tuple[Field, ...] = ()
    widen: tuple[Field, ...] = ()


@dataclass(frozen=True, slots=True)
class Difference:
    """Load by the new definition and append the difference to what is stored, restated so."""

    drop: tuple[str, ...] = ()
    add: tuple[Field, ...] = ()
    widen: tuple[Field, ...] = ()


@dataclass(frozen=True, slots=True)
class Reload:
    """The old table cannot hold the new rows: load into a new one."""


Adaptation = Nothing | Restate | Difference | Reload


def choose_adaptation(
    old: ViewDefinition,
    new: ViewDefinition,
    same: Mapping[Named, Named],
    rewritten: frozenset[Named],
    added: frozenset[Named] = frozenset(),
    dropped: frozenset[str] = frozenset(),
) -> Adaptation:
    """The least that turns rows of `old` into rows of `new`.

    Columns are named by the relation's handle and their name. `same` has, for columns of the old
    definition, those of the new one that are the same with their values kept; `rewritten` are old
    columns whose values changed all the same. `added` are new columns that are NULL in all rows
    from before. `dropped` are names that the stored table had columns under once: what gets such a
    name would show their values.
    """
    likeness = MeaningComparison(old, new, same, rewritten)
    before = {output.name.lower(): output for output in old.outputs}
    after = {output.name.lower(): output for output in new.outputs}
    came = [output for name, output in after.items() if name not in before]
    stayed = [(before[name], output) for name, output in after.items() if name in before]
    gone = tuple(output.name for name, output in before.items() if name not in after)
    back = {name.lower() for name in dropped} & {output.name.lower() for output in came}
    if back or not all(_can_hold(likeness, *pair) for pair in stayed):
        return Reload()
    fields = [_field_of(output) for output in came]
    exact = (
        likeness.has_same_conditions()
        and all(likeness.has_same_value(one.expression, other.expression) for one, other in stayed)
        and all(_is_null(output, new, added) for output in came)
    )
    add = tuple(field for field in fields if field is not None)
    if len(add) < len(fields):
        # A column whose type only Spark knows cannot be declared in the stored table.
        return Reload()
    widen = tuple(
        _wider_field(one, other)
        for one, other in stayed
        if _type_of_output(one) != _type_of_output(other)
    )
    if not exact:
        return Difference(gone, add, widen)
    return Restate(gone, add, widen) if gone or add or widen else Nothing()


def _can_hold(likeness: MeaningComparison, old: Output, new: Output) -> bool:
    """Whether the column that an output is stored in can hold its new values."""
    before, after = _type_of_output(old), _type_of_output(new)
    if before is None or after is None:
        # Spark will say; two that give the same value have the same type.
        return likeness.has_same_value(old.expression, new.expression)
    return before == after or is_widening(before, after)


def _type_of_output(output: Output) -> pa.DataType | None:
    return type_of(output.expression)


def _field_of(output: Output) -> Field | None:
    kind = _type_of_output(output)
    return None if kind is None else Field(output.name, kind)


def _wider_field(old: Output, new: Output) -> Field:
    kind = _type_of_output(new)
    assert kind is not None, "a type that is not known differs from none"
    return Field(old.name, kind)


def _is_null(output: Output, view: ViewDefinition, added: frozenset[Named]) -> bool:
    """Whether an output is NULL in every row from before."""
    match output.expression:
        case Literal(value=None):
            return True
        case Column() as column:
            return (view.places[column.place].relation, column.name) in added
    return False
