"""A snapshot of a folder of files: rows from the kept copies, never from the files themselves.

Every accepted state that somebody may still ask about is kept, so a snapshot asked about position
`after` reads state `after`: its cut is that position, its tail is empty. It needs nothing but the
source's folder inside the warehouse.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from viewkeeper.errors import SourceAwayError
from viewkeeper.sources.files.accepted_states import KeptTable, StateFolder
from viewkeeper.sources.files.parquet import (
    ParquetInput,
    UnreadableFileError,
    keys_of,
    read_rows,
    table_of_batches,
)
from viewkeeper.sources.files.state_shapes import resolve_state_columns
from viewkeeper.sources.handles import Book
from viewkeeper.sources.tables.row_layout import change_columns_of
from viewkeeper.updates.cut import Cut
from viewkeeper.updates.schema_change import name_of_handle
from viewkeeper.updates.source_protocol import Answer, Lookup, Scan
from viewkeeper.view.definition import Relation


@dataclass(frozen=True, slots=True)
class FilesOpener:
    """Opens a snapshot of the kept states, here or in a task."""

    source: str
    home: str
    book: Book

    def __call__(self) -> FilesSnapshot:
        return FilesSnapshot(self.source, StateFolder(self.source, Path(self.home)), self.book)


class FilesSnapshot:
    """Reads the states that are kept; used by one task."""

    def __init__(self, source: str, kept: StateFolder, book: Book) -> None:
        self._source = source
        self._kept = kept
        self._book = book

    def answer_lookup(self, lookup: Lookup, after: int) -> Answer:
        handle, keys = lookup.relation.table, keys_of(lookup)
        table, columns = self._resolve_columns(handle, lookup.columns, after)
        self._resolve_columns(handle, lookup.on, after)
        pieces: list[pa.RecordBatch] = []
        with translate_kept_errors(self._source, self._kept, after):
            for file in self._copies_of(table):
                pieces += read_rows(self._source, name_of_handle(handle), file, columns, keys)
        return Answer(
            table_of_batches(pieces, columns),
            Cut(after),
            after,
            table_of_batches([], change_columns_of(columns)),
        )

    def scan_relation(self, relation: Relation, columns: Sequence[str], after: int) -> Scan:
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
            yield ParquetInput(self._kept.copy_path(file.copy), name)

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
            kept.set_aside(error.path)
            raise kept.gap_error(number, f"a kept file was damaged: {error}") from error
        raise SourceAwayError(source, "a kept file cannot be read", detail=str(error)) from error
