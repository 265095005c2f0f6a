"""The shapes that a table of files had, state by state: what changed, and what can be asked.

A table is told by its name, from the state that first had it until one in which its files are gone.
A column is told by its name too, as long as its type keeps its values: the header of a file says no
more, so a column that is called otherwise is one dropped and another one added.

A state is a whole new copy, compared with the one before on the columns that both have. So a column
that was added has values that no change lists, unless it is NULL throughout; every other column's
changes go on exactly. States that are kept can be asked for what they had, whatever came after.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from viewkeeper.errors import GapError
from viewkeeper.sources.files.accepted_states import AcceptedState, KeptTable
from viewkeeper.sources.handles import HandleTarget
from viewkeeper.sources.tables.shape import REFUSED_TYPE, ShapeColumn, TableFate, TableShape
from viewkeeper.sources.tables.shape_changes import schema_changes
from viewkeeper.sources.tables.shape_history import HandleQuestion, place_of, start_of
from viewkeeper.updates.schema_change import SchemaChange, name_of_handle


def shape_of_table(name: str, table: KeptTable, with_refused: bool = True) -> TableShape:
    """The shape that a table has in a state."""
    types = table.kept_columns().types_by_name()
    columns = [
        ShapeColumn(c, f"{c}@{table.since.get(c, 0)}", c, types[c], word, c in table.filled)
        for c, word in table.columns.items()
    ]
    if with_refused:
        columns += (ShapeColumn(c, "", c, None, REFUSED_TYPE) for c in table.refused)
    fate: TableFate = "dropped" if table.gone else ""
    return TableShape(f"{name}@{table.made}", name, tuple(columns), tuple(table.key), fate)


def table_name_of(handle: str, named: HandleTarget | None) -> str:
    """The folder or file that a handle stands for; its name, without the number of the handle."""
    return name_of_handle(handle) if named is None else place_of(named.identity)


def is_followed_table(named: HandleTarget, table: KeptTable | None) -> bool:
    """Whether a table is the one that a handle stands for."""
    return table is not None and not table.gone and start_of(named.identity) == table.made


def state_changes(
    handle: str, named: HandleTarget, before: KeptTable | None, now: KeptTable | None
) -> tuple[SchemaChange, ...]:
    """What the next state of a table means to a handle."""
    if before is None or now is None:
        return ()
    name = table_name_of(handle, named)
    # A column that could not be kept before is a new one.
    was = shape_of_table(name, before, with_refused=False)
    return schema_changes(handle, named, was, shape_of_table(name, now))


@dataclass(frozen=True, slots=True)
class StateColumns:
    """A table of the states, and the types in which its columns come."""

    table: str
    types: dict[str, pa.DataType]


def resolve_state_columns(
    source: str,
    handle: str,
    named: HandleTarget | None,
    columns: Sequence[str],
    states: Sequence[AcceptedState],
    newest: AcceptedState,
) -> StateColumns:
    """Columns of a handle over some states that follow each other.

    A BrokenQueryError if one ends there, or begins in another way than NULL in all rows.
    """
    name = table_name_of(handle, named)
    last = states[-1].tables.get(name)
    if last is None or (named is None and last.gone):
        raise GapError(
            source, f'table "{name}" was not followed, or not there, in state {states[-1].number}'
        )
    if named is None or not set(columns) <= set(named.columns):
        return StateColumns(name, last.kept_columns().require_types(source, name, columns))
    steps = [(s.number, shape_of_table(name, s.tables[name])) for s in states if name in s.tables]
    known = [shape for _, shape in steps]
    if name in newest.tables:
        known.append(shape_of_table(name, newest.tables[name]))
    question = HandleQuestion(source, handle, named, columns)
    return StateColumns(name, question.types_over(steps, states[0].number, known))
