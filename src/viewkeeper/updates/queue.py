"""The update queue: the changes of a batch, held in memory while small, in files when not.

Changes are kept per relation as Arrow: the relation's captured columns, `_count`, `_position` and
the `_ts` that the batch gave them. Above a limit in bytes the queue spills to Arrow files, which
are mapped into memory and never read whole: a part of a sweep takes its own range of rows, and
compensation takes what matches its keys, piece by piece. So memory is bounded by the part and not
by the batch, and one transaction of millions of rows is no special case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from viewkeeper.delta.algebra import COUNT, POSITION, TS
from viewkeeper.delta.arrow_compute import pc
from viewkeeper.updates.source_protocol import Lookup
from viewkeeper.view.definition import Field, Relation

PIECE_ROWS = 100_000


def change_schema(fields: Sequence[Field]) -> pa.Schema:
    """The schema of a relation's changes in the queue."""
    columns = [(field.name, field.type) for field in fields]
    return pa.schema([*columns, (COUNT, pa.int64()), (POSITION, pa.int64()), (TS, pa.int64())])


@dataclass(frozen=True, slots=True)
class Stamps:
    """The ts of a source's transactions: `ts[i]` up to the position `until[i]`, both increasing.

    >>> Stamps((10, 20), (5, 7)).ts_of(pa.array([3, 10, 11])).to_pylist()
    [5, 5, 7]
    """

    until: Sequence[int]
    ts: Sequence[int]

    def ts_of(self, positions: Any) -> Any:
        """The ts of changes at these positions."""
        found = np.searchsorted(np.asarray(self.until), positions.to_numpy(), side="left")
        return pa.array(np.asarray(self.ts, np.int64)[found])


@dataclass(frozen=True, slots=True)
class RelationChanges:
    """The changes of one relation in (ts) order: in memory, or in a file that holds them all."""

    rows: int
    table: pa.Table
    file: str | None = None

    def read_pieces(self) -> Iterator[pa.Table]:
        """All rows, in pieces of bounded size."""
        whole = self._whole_table()
        for start in range(0, self.rows, PIECE_ROWS):
            yield whole.slice(start, PIECE_ROWS)

    def rows_between(self, start: int, stop: int) -> pa.Table:
        """The rows from `start` up to `stop`."""
        return self._whole_table().slice(start, stop - start)

    def matching_changes(self, lookup: Lookup) -> pa.Table:
        """The rows whose first key column is among the lookup's keys: a superset of those asked."""
        columns = [*lookup.columns, COUNT, POSITION, TS]
        if lookup.keys is None:
            return self._whole_table().select(columns)
        first = lookup.on[0]
        keys = lookup.keys[first].combine_chunks()
        found = [
            piece.filter(pc.is_in(piece[first], value_set=keys)).select(columns)
            for piece in self.read_pieces()
        ]
        return pa.concat_tables(found) if found else self.table.slice(0, 0).select(columns)

    def _whole_table(self) -> pa.Table:
        if self.file is None:
            return self.table
        # Mapped, not read: the operating system brings in and drops pages as they are used.
        return pa.ipc.open_file(pa.memory_map(self.file)).read_all()


@dataclass(frozen=True, slots=True)
class BatchChanges:
    """The changes of all relations of a batch; what compensation calls pending."""

    relations: Mapping[Relation, RelationChanges]

    def matching_changes(self, lookup: Lookup) -> pa.Table:
        return self.relations[lookup.relation].matching_changes(lookup)


class UpdateQueue:
    """Collects the changes of one batch and seals them.

    `folder` is where spilled files go; `make_folder` is called before there is one. Whoever gave it
    removes it.
    """

    def __init__(
        self,
        schemas: Mapping[Relation, pa.Schema],
        folder: str,
        memory_bytes: int,
        make_folder: Callable[[], None] = lambda: None,
    ) -> None:
        self._schemas = dict(schemas)
        self._folder = folder
        self._make_folder = make_folder
        self._limit = memory_bytes
        self._held: dict[Relation, list[pa.RecordBatch]] = {r: [] for r in schemas}
        self._writers: dict[Relation, pa.ipc.RecordBatchFileWriter] = {}
        self._rows: dict[Relation, int] = dict.fromkeys(schemas, 0)
        self._bytes = 0

    def append_changes(self, relation: Relation, stamps: Stamps, changes: pa.RecordBatch) -> None:
        """Add changes of a source's stream; later ones have later positions."""
        stamped = changes.append_column(TS, stamps.ts_of(changes[POSITION]))
        batch = stamped.select(self._schemas[relation].names).cast(self._schemas[relation])
        self._held[relation].append(batch)
        self._rows[relation] += batch.num_rows
        self._bytes += batch.nbytes
        if self._bytes > self._limit:
            self._spill_to_files()

    @property
    def row_count(self) -> int:
        return sum(self._rows.values())

    def seal_changes(self) -> BatchChanges:
        """Everything appended; the queue takes no more."""
        if self._writers:
            self._spill_to_files()
            for writer in self._writers.values():
                writer.close()
        return BatchChanges(
            {relation: self._sealed_changes(relation) for relation in self._schemas}
        )

    def _sealed_changes(self, relation: Relation) -> RelationChanges:
        schema, rows = self._schemas[relation], self._rows[relation]
        if relation in self._writers:
            return RelationChanges(rows, schema.empty_table(), self._file_of(relation))
        table = pa.Table.from_batches(self._held[relation], schema)
        return RelationChanges(rows, table.combine_chunks())

    def _file_of(self, relation: Relation) -> str:
        number = list(self._schemas).index(relation)
        return f"{self._folder}/changes-{number}.arrow"

    def _spill_to_files(self) -> None:
        self._make_folder()
        for relation, batches in self._held.items():
            if batches and relation not in self._writers:
                schema = self._schemas[relation]
                self._writers[relation] = pa.ipc.new_file(self._file_of(relation), schema)
            for batch in batches:
                self._writers[relation].write_batch(batch)
            batches.clear()
        self._bytes = 0
