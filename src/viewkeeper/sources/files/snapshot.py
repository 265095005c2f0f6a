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
from viewkeeper.sources.files.kept import Kept, KeptTable
from viewkeeper.sources.files.read import (
    DataFile,
    changed,
    chosen,
    keys_of,
    read_rows,
    table_of,
)
from viewkeeper.updates.cut import Cut
from viewkeeper.updates.protocol import Answer, Lookup, Scan
from viewkeeper.view.definition import Relation


@dataclass(frozen=True, slots=True)
class FilesOpener:
    """Opens a snapshot of the kept states, here or in a task."""

    source: str
    home: str

    def __call__(self) -> FilesSnapshot:
        return FilesSnapshot(self.source, Kept(self.source, Path(self.home)))


class FilesSnapshot:
    """Reads the states that are kept; used by one task."""

    def __init__(self, source: str, kept: Kept) -> None:
        self._source = source
        self._kept = kept

    def ask(self, lookup: Lookup, after: int) -> Answer:
        name = lookup.relation.table
        table, keys = self._table(name, after), keys_of(lookup)
        columns = chosen(self._source, name, table.kept_columns(), lookup.columns)
        pieces: list[pa.RecordBatch] = []
        with reading(self._source, self._kept, after):
            for file in self._files(table):
                pieces += read_rows(self._source, name, file, columns, keys)
        return Answer(table_of(pieces, columns), Cut(after), after, table_of([], changed(columns)))

    def scan(self, relation: Relation, columns: Sequence[str], after: int) -> Scan:
        table = self._table(relation.table, after)
        wanted = chosen(self._source, relation.table, table.kept_columns(), columns)

        def rows() -> Iterator[pa.RecordBatch]:
            with reading(self._source, self._kept, after):
                for file in self._files(table):
                    yield from read_rows(self._source, relation.table, file, wanted)

        return Scan(Cut(after), rows(), iter(()))

    def _table(self, name: str, after: int) -> KeptTable:
        table = self._kept.state(after).tables.get(name)
        if table is None:
            raise self._kept.gap(after, f'table "{name}" was not followed then')
        return table

    def _files(self, table: KeptTable) -> Iterator[DataFile]:
        for name, file in table.files.items():
            yield DataFile(self._kept.copy_path(file.copy), name)

    def close(self) -> None:
        """Nothing is held open between answers."""


@contextmanager
def reading(source: str, kept: Kept, number: int) -> Iterator[None]:
    """A kept file that is gone or damaged is a gap; the files themselves have moved on."""
    try:
        yield
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        raise kept.gap(number, f"a kept file was removed or damaged: {error}") from error
    except OSError as error:
        raise SourceAwayError(source, "a kept file cannot be read", detail=str(error)) from error
