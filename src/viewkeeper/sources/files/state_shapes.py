"""The shapes that a table of files had, state by state: what changed, and what can be asked.

A table is told by its name, from the state that first had it until one in which its files are gone.
A column is told by its name too, as long as its type keeps its values: the header of a file says no
more, so a column that is called otherwise is one dropped and another one added.

A state is a whole new copy, compared with the one before on the columns that both have. So a column
that was added has values that no change lists, unless it is NULL throughout; every other column's
changes go on exactly. States that are kept can be asked for what they had, whatever came after.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from viewkeeper.errors import BrokenQueryError, GapError
from viewkeeper.sources.files.accepted_states import AcceptedState, KeptTable
from viewkeeper.sources.files.parquet import require_types
from viewkeeper.sources.handles import HandleTarget
from viewkeeper.updates.schema_change import ChangeKind, SchemaChange, name_of_handle


def table_identity_of(name: str, table: KeptTable) -> str:
    return f"{name}@{table.made}"


def column_identities_of(table: KeptTable) -> dict[str, str]:
    """The columns of a table, each with what tells it from any other that was called so."""
    return {name: f"{name}@{table.since.get(name, 0)}" for name in table.columns}


def table_name_of(handle: str, named: HandleTarget | None) -> str:
    """The folder or file that a handle stands for; its name, without the number of the handle."""
    return name_of_handle(handle) if named is None else named.identity.rpartition("@")[0]


def is_followed_table(named: HandleTarget, table: KeptTable | None) -> bool:
    """Whether a table is the one that a handle stands for."""
    if table is None or table.gone:
        return False
    return named.identity.rpartition("@")[2] == str(table.made)


def schema_changes(
    handle: str, named: HandleTarget, before: KeptTable | None, now: KeptTable | None
) -> Iterator[SchemaChange]:
    """What the next state of a table means to a handle."""
    if before is None or now is None or not is_followed_table(named, before):
        return
    if not is_followed_table(named, now):
        yield SchemaChange("drop_table" if now.gone else "recreate_table", handle)
        return
    was, now_is = column_identities_of(before), column_identities_of(now)
    for name, identity in named.columns.items():
        if was.get(name) != identity:
            continue
        if name not in now.columns and name not in now.refused:
            yield SchemaChange("drop_column", handle, name)
        elif now_is.get(name) != identity:
            word = now.columns.get(name, "one that cannot be kept")
            yield SchemaChange("change_type", handle, name, word)
        elif now.columns[name] != before.columns[name]:
            yield SchemaChange("widen_type", handle, name, now.columns[name])
    for name in now.columns:
        if name not in before.columns:
            kind: ChangeKind = "add_filled_column" if name in now.filled else "add_column"
            yield SchemaChange(kind, handle, name)
    if tuple(before.key) != tuple(now.key):
        yield SchemaChange("change_key", handle, now=", ".join(now.key))


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
        return StateColumns(name, require_types(source, name, last.kept_columns(), columns))
    for state in states:
        table = state.tables.get(name)
        if table is None:
            continue
        if not is_followed_table(named, table):
            raise BrokenQueryError(source, name, "its files are gone, or were for a time")
        for column in columns:
            identity, crosses = named.columns[column], state is not states[0]
            if what := _reason_broken(column, identity, state.number, table, crosses):
                raise BrokenQueryError(source, name, what)
    kept = [newest.tables.get(name), last]
    return StateColumns(
        name, {column: _latest_type_of(source, name, named, column, kept) for column in columns}
    )


def _latest_type_of(
    source: str, table: str, named: HandleTarget, column: str, kept: Sequence[KeptTable | None]
) -> pa.DataType:
    """The type of a column in the first of these that has it."""
    for each in kept:
        if each is None or not is_followed_table(named, each):
            continue
        if column_identities_of(each).get(column) == named.columns[column]:
            return each.kept_columns().types_by_name()[column]
    raise BrokenQueryError(source, table, f"column {column} is gone")


def _reason_broken(
    column: str, identity: str, number: int, table: KeptTable, crosses: bool
) -> str | None:
    """Why a column cannot be had of a state, or of the changes that lead to it, if that is so."""
    found = column_identities_of(table).get(column)
    if found == identity:
        return (
            f"column {column} was added with values" if column in table.filled and crosses else None
        )
    if found is not None or column in table.refused:
        return f"column {column} has another type there"
    # Before it was added it is NULL.
    return f"column {column} is gone" if int(identity.rpartition("@")[2]) <= number else None
