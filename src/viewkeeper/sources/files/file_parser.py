"""A CSV, JSON or Parquet file as typed batches, in bounded memory.

The columns of a file are known before its rows: a CSV file's header names them (those that are not
declared are text), a JSON file has the declared ones, a Parquet file says them itself. A JSON file
has one object per line; a field that is missing is NULL, one that is not declared is ignored.

A value that does not fit its column is a ConversionError naming file, row, column and value.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as arrow_csv

from viewkeeper.errors import ConversionError, SchemaError
from viewkeeper.sources.files.parquet import (
    ParquetInput,
    UnreadableFileError,
    columns_of_parquet,
    read_rows,
    read_stored_schema,
)
from viewkeeper.sources.files.settings import TableSettings, type_word_of, values_from_text
from viewkeeper.sources.tables.column_type import MisfitError, TableColumns, shorten_value
from viewkeeper.view.definition import Field

EXTENSIONS = {"csv": (".csv",), "json": (".json", ".jsonl", ".ndjson"), "parquet": (".parquet",)}
# Arrow reads some thirty blocks ahead; a row must fit into one.
BLOCK_BYTES = 1 << 20
_FAILURES = (pa.ArrowException, UnreadableFileError, UnicodeError)
# Rows of a JSON file that are converted at a time, and characters that they may have together; a
# line alone must not have more, however long the file is without an end of line.
_LINES = 20_000
LINE_CHARACTERS = 32 << 20


class FileParser:
    """Reads the files of one table."""

    def __init__(self, source: str, format: str, table: TableSettings) -> None:
        self._source = source
        self._format = format
        self._table = table

    def read_columns(self, path: Path, name: str) -> TableColumns:
        """The columns that a file has; a declared one that its header lacks is not among them."""
        if self._format == "parquet":
            with self._translate_errors(name):
                return columns_of_parquet(read_stored_schema(path))
        declared = self._table.columns
        names = list(declared) if self._format == "json" else self._read_header(path, name)
        if not names:
            raise SchemaError(
                self._source,
                f'table "{self._table.name}" has no declared columns',
                hint=f"declare them: tables: {{{self._table.name}: {{columns: {{name: string}}}}}}",
            )
        return TableColumns(tuple(Field(n, declared.get(n, pa.string())) for n in names), {})

    def read_batches(
        self, path: Path, name: str, columns: TableColumns
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a file, in pieces."""
        types = columns.types_by_name()
        with self._translate_errors(name):
            if self._format == "parquet":
                file = ParquetInput(path, name)
                yield from read_rows(self._source, self._table.name, file, types)
            elif self._format == "json":
                yield from self._read_json(path, name, types)
            else:
                yield from self._read_csv(path, name, types)

    def _read_header(self, path: Path, name: str) -> list[str]:
        if not self._table.dialect.header:
            return list(self._table.columns)
        with self._translate_errors(name):
            reader = self._open_csv(path, {})
            names: list[str] = reader.schema.names
            reader.close()
        twice = next((n for n in names if names.count(n) > 1), None)
        if twice is not None:
            raise SchemaError(
                self._source,
                f'table "{self._table.name}": the header of {name} names "{twice}" twice',
                hint="give every column its own name",
            )
        return names

    def _open_csv(self, path: Path, types: Mapping[str, pa.DataType]) -> Any:
        dialect = self._table.dialect
        return arrow_csv.open_csv(
            str(path),
            arrow_csv.ReadOptions(
                use_threads=False,
                block_size=BLOCK_BYTES,
                encoding=dialect.encoding,
                column_names=None if dialect.header else list(self._table.columns),
            ),
            arrow_csv.ParseOptions(
                delimiter=dialect.delimiter,
                quote_char=dialect.quote,
                escape_char=dialect.escape or False,
                newlines_in_values=True,
            ),
            arrow_csv.ConvertOptions(
                column_types={name: pa.string() for name in types},
                null_values=[dialect.null],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )

    def _read_csv(
        self, path: Path, name: str, types: Mapping[str, pa.DataType]
    ) -> Iterator[pa.RecordBatch]:
        self._check_quotes(path, name)
        with self._open_csv(path, types) as reader:
            first = 1
            for batch in reader:
                texts = {column: batch.column(column) for column in types}
                yield self._convert_texts(texts, types, name, range(first, first + batch.num_rows))
                first += batch.num_rows

    def _check_quotes(self, path: Path, name: str) -> None:
        """Arrow takes a text that is not closed at the end of a file for a whole one."""
        dialect = self._table.dialect
        if dialect.escape:
            return
        # Bytes that are no text are told of later, with their place.
        count = 0
        with open(path, encoding=dialect.encoding, errors="ignore", newline="") as file:
            while block := file.read(BLOCK_BYTES):
                count += block.count(dialect.quote)
        if count % 2:
            raise self._broken_file_error(
                name, "a quoted text is not closed; it seems to be cut off"
            )

    def _read_json(
        self, path: Path, name: str, types: Mapping[str, pa.DataType]
    ) -> Iterator[pa.RecordBatch]:
        rows: list[Any] = []
        lines: list[int] = []
        size = 0
        for number, line in self._read_lines(path, name):
            rows.append(self._decode_object(line, number, name))
            lines.append(number)
            size += len(line)
            if len(rows) == _LINES or size > LINE_CHARACTERS:
                yield self._convert_objects(rows, types, name, lines)
                rows, lines, size = [], [], 0
        if rows:
            yield self._convert_objects(rows, types, name, lines)

    def _read_lines(self, path: Path, name: str) -> Iterator[tuple[int, str]]:
        """The lines that are not blank, with their numbers."""
        with open(path, encoding="utf-8-sig") as file:
            for number in itertools.count(1):
                line = file.readline(LINE_CHARACTERS + 1)
                if not line:
                    return
                if len(line) > LINE_CHARACTERS:
                    detail = (
                        f"line {number} has more than {LINE_CHARACTERS >> 20} million characters"
                    )
                    raise self._broken_file_error(name, detail)
                if line.strip():
                    yield number, line

    def _decode_object(self, line: str, number: int, name: str) -> Mapping[str, object]:
        try:
            found = _DECODER.decode(line)
        except RecursionError as error:
            raise self._broken_file_error(name, f"line {number} is nested too deeply") from error
        except ValueError as error:
            raise self._broken_file_error(name, f"line {number} is not JSON: {error}") from error
        if not isinstance(found, dict):
            raise self._broken_file_error(name, f"line {number} is not an object")
        return found

    def _convert_objects(
        self,
        rows: Sequence[Mapping[str, object]],
        types: Mapping[str, pa.DataType],
        name: str,
        lines: Sequence[int],
    ) -> pa.RecordBatch:
        texts = {}
        for column, kind in types.items():
            try:
                texts[column] = _texts_of([row.get(column) for row in rows], kind)
            except MisfitError as error:
                raise self._misfit_error(name, column, error, lines) from error
        return self._convert_texts(texts, types, name, lines)

    def _convert_texts(
        self,
        texts: Mapping[str, Any],
        types: Mapping[str, pa.DataType],
        name: str,
        numbers: Sequence[int],
    ) -> pa.RecordBatch:
        arrays = []
        for column, kind in types.items():
            try:
                arrays.append(values_from_text(texts[column], kind))
            except MisfitError as error:
                raise self._misfit_error(name, column, error, numbers) from error
        return pa.record_batch(arrays, schema=pa.schema(list(types.items())))

    def _misfit_error(
        self, name: str, column: str, error: MisfitError, numbers: Sequence[int]
    ) -> ConversionError:
        unit = "line" if self._format == "json" else "row"
        return ConversionError(
            self._source,
            f'table "{self._table.name}": file {name}, {unit} {numbers[error.index]},'
            f' column "{column}": {error}',
            hint="mend the file, or declare another type for the column",
        )

    def _broken_file_error(self, name: str, detail: str) -> ConversionError:
        return ConversionError(
            self._source,
            f'table "{self._table.name}": the file {name} cannot be read',
            detail=detail,
            hint=f"mend the file, or check that it is {self._format} as declared",
        )

    @contextmanager
    def _translate_errors(self, name: str) -> Iterator[None]:
        """Inside, what Arrow says about a file is our error."""
        try:
            yield
        except _FAILURES as error:
            raise self._broken_file_error(name, str(error)) from error


class _Number(str):
    """A number of a JSON file, as it is written there."""

    __slots__ = ()


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of a JSON file; which of two equal keys is meant, nobody can know."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [key for key, _ in pairs]
        twice = next(key for key in names if names.count(key) > 1)
        raise ValueError(f"the key {shorten_value(twice)} occurs twice in one object")
    return found


_DECODER = json.JSONDecoder(
    object_pairs_hook=_build_object, parse_int=_Number, parse_float=_Number, parse_constant=_Number
)

_NUMERIC = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)


def _texts_of(values: Sequence[object], kind: pa.DataType) -> Any:
    """JSON values as texts: numbers and texts where the column's type allows them."""
    numeric = any(holds(kind) for holds in _NUMERIC)
    from_words = not pa.types.is_integer(kind)
    texts: list[str | None] = []
    for index, value in enumerate(values):
        if isinstance(value, bool) and pa.types.is_boolean(kind):
            texts.append("true" if value else "false")
        elif value is None:
            texts.append(None)
        elif isinstance(value, str) and (numeric if isinstance(value, _Number) else from_words):
            texts.append(value)
        else:
            raise MisfitError(index, value, f"a value of type {type_word_of(kind)}")
    try:
        return pa.array(texts, pa.string())
    except UnicodeEncodeError:
        index = next(i for i, text in enumerate(texts) if text and not _is_unicode(text))
        raise MisfitError(index, texts[index], "Unicode text") from None


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
