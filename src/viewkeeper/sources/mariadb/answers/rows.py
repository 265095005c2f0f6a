"""Rows that MariaDB answers, as Arrow record batches, with errors that say where a bad value is.

Results are read unbuffered, so that a table of any size passes through in bounded memory. The rows
are taken apart here and not by the driver: it would make a tuple of every row only for us to take
the columns out again, and that is most of the time of a large answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pymysql
from pymysql.constants import CR

from viewkeeper.errors import ConversionError
from viewkeeper.sources.mariadb.byte_codes import LARGEST_BYTES, MalformedBytesError, read_length
from viewkeeper.sources.mariadb.server_connection import Connection, MariadbServer, refuse_nonsense
from viewkeeper.sources.mariadb.types import Array, MariadbKind, array_from_answer
from viewkeeper.sources.tables.column_type import MisfitError

ROWS_PER_BATCH = 50_000
# As much text as one Arrow array should have; it cannot have more than 2 GB.
_BYTES_PER_BATCH = 64 << 20
_CHUNK_BYTES = 1 << 18
_NULL, _EOF, _ERROR = 251, 254, 255
_HEADER, _EOF_BYTES, _LARGEST = 4, 9, 0xFFFFFF


class AnswerReader:
    """The rows of one query, in batches; to be read to its end before the next query."""

    def __init__(
        self,
        server: MariadbServer,
        connection: Connection,
        query: str,
        table: str,
        columns: Sequence[tuple[str, MariadbKind]],
    ) -> None:
        self._server = server
        driver: Any = connection
        self._connection = driver
        self._table = table
        self._kinds = columns
        self._kept: list[pa.RecordBatch] = []
        self._done = False
        self._buffer = b""
        self._at = 0
        self.schema = pa.schema([(name, kind.arrow) for name, kind in columns])
        with server.translate_errors(), self._finish_on_error():
            self._connection.query(query, unbuffered=True)
            # Without columns, one is asked for, to have something to count.
            fields = self._connection._result.field_count
            if fields != max(1, len(columns)):
                raise MalformedBytesError("an answer has other columns than were asked for")

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while True:
            if self._kept:
                yield self._kept.pop(0)
            elif self._done:
                return
            else:
                batch = self._next_batch()
                if batch is not None:
                    yield batch

    def drain_rows(self) -> None:
        """Read what is left now, so that the connection is free; it is still given later."""
        while not self._done:
            batch = self._next_batch()
            if batch is not None:
                self._kept.append(batch)

    def read_all(self) -> pa.Table:
        return pa.Table.from_batches(self, self.schema)

    def _next_batch(self) -> pa.RecordBatch | None:
        with self._server.translate_errors(), self._finish_on_error():
            columns, rows = self._read_columns()
        if not rows:
            return None
        arrays = [
            self._array_of(name, kind, values)
            for (name, kind), values in zip(self._kinds, columns, strict=False)
        ]
        if not arrays:
            counted = pa.RecordBatch.from_arrays([pa.nulls(rows)], names=["_"])
            return counted.select([])
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    @contextmanager
    def _finish_on_error(self) -> Iterator[None]:
        """An error inside ends the answer; the driver must not look for its end."""
        try:
            with refuse_nonsense(self._connection):
                yield
        except BaseException:
            self.finish_answer()
            raise

    def _read_columns(self) -> tuple[list[list[bytes | None]], int]:
        """The next rows, by column; the text protocol has the length before each value."""
        columns: list[list[bytes | None]] = [[] for _ in self._kinds]
        appends = [column.append for column in columns]
        rows = size = 0
        while rows < ROWS_PER_BATCH and size < _BYTES_PER_BATCH:
            buffer, at, end = self._next_packet()
            if end == at:
                raise MalformedBytesError("a row has no bytes")
            if end - at < _EOF_BYTES and buffer[at] == _EOF:
                self.finish_answer()
                break
            size += end - at
            rows += 1
            for append in appends:
                length = buffer[at]
                if length < _NULL:
                    at += 1
                elif length == _NULL:
                    append(None)
                    at += 1
                    continue
                else:
                    length, at = read_length(buffer, at)
                append(buffer[at : at + length])
                at += length
            if at != end and appends:
                raise MalformedBytesError("a row has another length than its values")
        return columns, rows

    def _next_packet(self) -> tuple[bytes, int, int]:
        """The bytes that have the next packet of the result, and where it begins and ends."""
        start = self._at
        buffer = self._buffer
        while True:
            known = len(buffer) - start
            if known >= _HEADER:
                length = buffer[start] | buffer[start + 1] << 8 | buffer[start + 2] << 16
                if length == _LARGEST:
                    return self._join_large_packet(start)
                if known >= _HEADER + length:
                    break
            buffer = self._read_more(start)
            start = 0
        at = start + _HEADER
        self._at = at + length
        if length and buffer[at] == _ERROR:
            self.finish_answer()
            pymysql.err.raise_mysql_exception(buffer[at : at + length])
        return buffer, at, at + length

    def _read_more(self, start: int) -> bytes:
        """Read on; what lies before `start` is not needed any more."""
        chunk: bytes = self._connection._rfile.read1(_CHUNK_BYTES)
        if not chunk:
            raise pymysql.err.OperationalError(CR.CR_SERVER_LOST, "the connection was lost")
        self._buffer, self._at = self._buffer[start:] + chunk, 0
        return self._buffer

    def _join_large_packet(self, start: int) -> tuple[bytes, int, int]:
        """A row of more than 16 MB comes in several packets."""
        parts, length = [], _LARGEST
        while length == _LARGEST:
            while len(self._buffer) - start < _HEADER + _LARGEST and not self._has_packet(start):
                self._read_more(start)
                start = 0
            length = int.from_bytes(self._buffer[start : start + 3], "little")
            parts.append(self._buffer[start + _HEADER : start + _HEADER + length])
            start += _HEADER + length
            if len(parts) * _LARGEST > LARGEST_BYTES + _LARGEST:
                raise MalformedBytesError("a row has more than 1 GB")
        self._at = start
        joined = b"".join(parts)
        return joined, 0, len(joined)

    def _has_packet(self, start: int) -> bool:
        """Whether the packet at an offset is there as a whole."""
        length = int.from_bytes(self._buffer[start : start + 3], "little")
        known = len(self._buffer) - start
        return known >= _HEADER and known >= _HEADER + length

    def finish_answer(self) -> None:
        """The result is at its end, or nobody wants the rest; the driver would otherwise look for
        the end itself."""
        self._done = True
        result = self._connection._result
        if result is not None:
            result.unbuffered_active = False
            result.connection = None

    def _array_of(self, name: str, kind: MariadbKind, values: Sequence[bytes | None]) -> Array:
        try:
            return array_from_answer(values, kind)
        except MisfitError as error:
            raise ConversionError(
                self._server.source,
                f'table "{self._table}", column "{name}": {error} is not a value that can be kept',
                hint="correct the value, or leave the column out of the view",
            ) from None
