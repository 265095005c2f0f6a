"""A snapshot of a folder of files: rows from the kept copies, never from the files themselves.

Every accepted state that somebody may still ask about is kept, so a snapshot asked about position
`after` reads state `after`: its cut is that position, its tail is empty. It needs nothing but the
source's place in the warehouse.

A table is told by its name, from the state that first had it until one in which its files are gone.
A column is told by its name too, as long as its type keeps its values: the header of a file says no
more, so a column that is called otherwise is one dropped and another one added.

A state is a whole new copy, compared with the one before on the columns that both have. So a column
that was added has values that no change lists, unless it is NULL throughout; every other column's
changes go on exactly. States that are kept can be asked for what they had, whatever came after.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from viewkeeper.errors import GapError, SourceAwayError
from viewkeeper.sources.files.accepted_states import AcceptedState, KeptTable, StateFolder
from viewkeeper.sources.files.parquet import (
    ParquetInput,
    UnreadableFileError,
    gather_answer,
    keys_of,
    read_rows,
)
from viewkeeper.sources.handles import Book, HandleTarget
from viewkeeper.sources.state_files import StateFiles
from viewkeeper.sources.tables.shape import (
    REFUSED_TYPE,
    ShapeColumn,
    TableFate,
    TableShape,
)
from viewkeeper.sources.tables.shape_changes import schema_changes
from viewkeeper.sources.tables.shape_history import HandleQuestion, place_of, start_of
from viewkeeper.updates.cut import Cut
from viewkeeper.updates.schema_change import SchemaChange, name_of_handle
from viewkeeper.updates.source_protocol import Answer, KeyRange, Lookup, Scan
from viewkeeper.view.definition import Relation


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


class FilesSnapshot:
    """Reads the states that are kept; used by one task."""

    def __init__(self, source: str, files: StateFiles, book: Book) -> None:
        self._source = source
        self._kept = StateFolder(source, files)
        self._book = book

    def answer_lookup(self, lookup: Lookup, after: int) -> Answer:
        handle, keys = lookup.relation.table, keys_of(lookup)
        table, columns = self._resolve_columns(handle, lookup.columns, after)
        self._resolve_columns(handle, lookup.on, after)
        found = (
            batch
            for file in self._copies_of(table)
            for batch in read_rows(self._source, name_of_handle(handle), file, columns, keys)
        )
        with translate_kept_errors(self._source, self._kept, after):
            return gather_answer(found, columns, after, lookup.paging)

    def find_key_range(self, relation: Relation, columns: Sequence[str]) -> KeyRange | None:
        """Files are read from their beginning."""
        return None

    def scan_relation(
        self,
        relation: Relation,
        columns: Sequence[str],
        after: int,
        part: KeyRange | None = None,
    ) -> Scan:
        table, wanted = self._resolve_columns(relation.table, columns, after)

        def rows() -> Iterator[pa.RecordBatch]:
            with translate_kept_errors(self._source, self._kept, after):
                for file in self._copies_of(table):
                    yield from read_rows(self._source, name_of_handle(relation.table), file, wanted)

        return Scan(Cut(after), rows(), iter(()))

    def _resolve_columns(
        self, handle: str, columns: Sequence[str], after: int
    ) -> tuple[KeptTable, dict[str, pa.DataType]]:
        state = self._kept.read_state(after)
        newest, named = self._kept.read_newest() or state, self._book.get(handle)
        found = resolve_state_columns(self._source, handle, named, columns, [state], newest)
        return state.tables[found.table], found.types

    def _copies_of(self, table: KeptTable) -> Iterator[ParquetInput]:
        for name, file in table.files.items():
            yield ParquetInput(self._kept.rows.copy_path(file.copy), name)

    def close(self) -> None:
        """Nothing is held open between answers."""


@contextmanager
def translate_kept_errors(source: str, kept: StateFolder, number: int) -> Iterator[None]:
    """A kept file that is gone or damaged is a gap; the files themselves have moved on.

    One that is damaged is set aside, so that whoever begins anew makes it anew.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise kept.gap_error(number, f"a kept file was removed: {error}") from error
    except UnreadableFileError as error:
        if error.is_damaged:
            kept.rows.set_aside(error.path)
            raise kept.gap_error(number, f"a kept file was damaged: {error}") from error
        raise SourceAwayError(source, "a kept file cannot be read", detail=str(error)) from error
