"""Answers with more rows than one wants to hold: pages in a file.

One changed row may meet millions of rows of another relation. Whoever asks says how many rows of an
answer he holds at once; an answer with more of them is written to a file while it is read from the
source, and given back page by page, as often as one wants. So a snapshot is asked the next question
while the pages of an earlier answer are worked on, and a source that must be read quickly is.

The file loses its name as soon as it is written: nothing is left of it when the process ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

import pyarrow as pa

from viewkeeper.storage import disk
from viewkeeper.storage.temporary_file import make_temporary_file


@dataclass(frozen=True, slots=True)
class Paging:
    """How many rows of an answer are held at once, and the folder for the files of others; without
    one they go where the system has its temporary files."""

    rows: int
    folder: str | None = None


DEFAULT_PAGING = Paging(100_000)


@dataclass(frozen=True, slots=True, eq=False)
class AnswerPages:
    """The rows of an answer in a file; can be read several times, also one inside the other."""

    reader: pa.ipc.RecordBatchFileReader
    rows: int
    convert: Callable[[pa.Table], pa.Table] | None = None

    def __iter__(self) -> Iterator[pa.Table]:
        """The rows in pieces, each as it was written."""
        for number in range(self.reader.num_record_batches):
            page = pa.Table.from_batches([self.reader.get_batch(number)])
            yield page if self.convert is None else self.convert(page)

    def with_conversion(self, convert: Callable[[pa.Table], pa.Table]) -> AnswerPages:
        """The same pages, each as `convert` makes it."""
        assert self.convert is None, "an answer is converted once"
        return replace(self, convert=convert)


PagedRows = tuple[pa.Table, AnswerPages | None]
"""Rows in memory, or none of them there and all in pages."""


def gather_pages(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, paging: Paging | None
) -> PagedRows:
    """The rows of an answer as they come, in memory, or all of them in pages if they are more.

    >>> few, many = pa.record_batch({"a": [1, 2]}), pa.record_batch({"a": [3, 4]})
    >>> rows, pages = gather_pages([few, many], few.schema, Paging(3))
    >>> rows.num_rows, [page["a"].to_pylist() for page in pages]
    (0, [[1, 2], [3, 4]])
    """
    held: list[pa.RecordBatch] = []
    rows, coming = 0, iter(batches)
    for batch in coming:
        held.append(batch)
        rows += batch.num_rows
        # Rows without columns take no room, and no slice of them says how many they are.
        if paging is not None and rows > paging.rows and batch.num_columns:
            return schema.empty_table(), _write_pages(chain(held, coming), batch.schema, paging)
    return pa.Table.from_batches(held, held[0].schema if held else schema), None


def _write_pages(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, paging: Paging
) -> AnswerPages:
    path, rows = make_temporary_file(paging.folder, ".arrow"), 0
    try:
        with disk.translate_os_errors("spill into", path):
            sink = pa.OSFile(str(path), "wb")
        with sink, pa.ipc.new_file(sink, schema) as writer:
            for batch in batches:
                with disk.translate_os_errors("spill into", path):
                    writer.write_batch(batch)
                rows += batch.num_rows
        with disk.translate_os_errors("spill into", path):
            file = pa.OSFile(str(path), "rb")
    finally:
        path.unlink()
    return AnswerPages(pa.ipc.open_file(file), rows)
