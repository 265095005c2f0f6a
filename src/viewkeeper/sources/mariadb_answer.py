"""Rows that MariaDB answers, as Arrow record batches, with errors that say where a bad value is.

Results are read unbuffered, so that a table of any size passes through in bounded memory. The rows
are taken apart here and not by the driver: it would make a tuple of every row only for us to take
the columns out again, and that is most of the time of a large answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from viewkeeper.errors import ConversionError
from viewkeeper.sources.mariadb_log import length_coded
from viewkeeper.sources.mariadb_open import Connection, Server
from viewkeeper.sources.mariadb_types import Array, Kind, MisfitError, from_answer

ROWS_PER_BATCH = 50_000
# As much text as one Arrow array should have; it cannot have more than 2 GB.
_BYTES_PER_BATCH = 64 << 20
_NULL = 251


class Answers:
    """The rows of one query, in batches; to be read to its end before the next query."""

    def __init__(
        self,
        server: Server,
        connection: Connection,
        query: str,
        table: str,
        columns: Sequence[tuple[str, Kind]],
    ) -> None:
        self._server = server
        self._connection: Any = connection
        self._table = table
        self._kinds = columns
        self._kept: list[pa.RecordBatch] = []
        self._done = False
        self.schema = pa.schema([(name, kind.arrow) for name, kind in columns])
        with server.errors():
            connection.query(query, unbuffered=True)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while True:
            if self._kept:
                yield self._kept.pop(0)
            elif self._done:
                return
            else:
                batch = self._next()
                if batch is not None:
                    yield batch

    def drain(self) -> None:
        """Read what is left now, so that the connection is free; it is still given later."""
        while not self._done:
            batch = self._next()
            if batch is not None:
                self._kept.append(batch)

    def read(self) -> pa.Table:
        return pa.Table.from_batches(self, self.schema)

    def _next(self) -> pa.RecordBatch | None:
        with self._server.errors():
            columns, rows = self._columns()
        if not rows:
            return None
        arrays = [
            self._array(name, kind, values)
            for (name, kind), values in zip(self._kinds, columns, strict=False)
        ]
        if not arrays:
            counted = pa.RecordBatch.from_arrays([pa.nulls(rows)], names=["_"])
            return counted.select([])
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _columns(self) -> tuple[list[list[bytes | None]], int]:
        """The next rows, by column; the text protocol has the length before each value."""
        columns: list[list[bytes | None]] = [[] for _ in self._kinds or (None,)]
        appends = [column.append for column in columns]
        read, rows, size = self._connection._read_packet, 0, 0
        while rows < ROWS_PER_BATCH and size < _BYTES_PER_BATCH:
            data: bytes = read()._data
            first = data[0]
            if first == 254 and len(data) < 9:
                self._finish()
                break
            at = 0
            for append in appends:
                length = data[at]
                if length < _NULL:
                    at += 1
                elif length == _NULL:
                    append(None)
                    at += 1
                    continue
                else:
                    length, at = length_coded(data, at)
                append(data[at : at + length])
                at += length
            rows += 1
            size += len(data)
        return columns, rows

    def _finish(self) -> None:
        """The result is at its end; the driver would otherwise look for the end itself."""
        self._done = True
        result = self._connection._result
        result.unbuffered_active = False
        result.connection = None

    def _array(self, name: str, kind: Kind, values: Sequence[bytes | None]) -> Array:
        try:
            return from_answer(values, kind)
        except MisfitError as error:
            raise ConversionError(
                self._server.source,
                f'table "{self._table}", column "{name}": {error} is not a value that can be kept',
                hint="correct the value, or leave the column out of the view",
            ) from None
