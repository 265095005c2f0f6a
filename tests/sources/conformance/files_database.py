"""Folders of files of the suite: every table is two files, written whole and renamed into place.

A commit rewrites the files whose rows it changed. One that is abandoned leaves a file that was
never renamed.
"""

from __future__ import annotations

import base64
import datetime
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.sources.conformance.changes import ARROW, Change, Delete, Insert, Row, Update, Word
from tests.sources.conformance.database import Database

_DECLARED: Mapping[Word, str] = {
    "int": "bigint",
    "text": "string",
    "decimal": "decimal(15,2)",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "double": "double",
    "bytes": "binary",
    "bool": "boolean",
}


class Files(Database):
    kind = "files"
    merges_commits = True
    has_indexes = False
    limited = "viewkeeper.sources.files.source"

    def __init__(self, folder: Path, format: str) -> None:
        super().__init__(folder)
        self.format = format
        self._rows: dict[str, list[Row]] = {}
        self._keys: dict[str, list[str]] = {}

    def options(self) -> dict[str, object]:
        tables: dict[str, dict[str, object]] = {}
        for name, columns in self.columns.items():
            declared = {column: _DECLARED[word] for column, word in columns.items()}
            tables[name] = {} if self.format == "parquet" else {"columns": declared}
            if self._keys[name]:
                tables[name]["key"] = self._keys[name]
        return {"path": "exports", "format": self.format, "tables": tables, "settle_seconds": 0}

    def absent(self) -> dict[str, object]:
        return {**self.options(), "path": "nowhere"}

    def _create(
        self,
        name: str,
        columns: Mapping[str, Word],
        key: Sequence[str],
        indexes: Sequence[Sequence[str]],
    ) -> None:
        self._rows[name] = []
        self._keys[name] = list(key)
        (self.folder / "exports" / name).mkdir(parents=True)
        self._export(name, self._rows[name])

    def _write(self, changes: Sequence[Change]) -> None:
        for change in changes:
            rows = self._rows[change.table]
            match change:
                case Insert(row=row):
                    rows.append(row)
                case Delete(row=row):
                    rows.remove(row)
                case Update(old=old, new=new):
                    rows[rows.index(old)] = new
        for table in {change.table for change in changes}:
            self._export(table, self._rows[table])

    def abandon(self, *changes: Change) -> None:
        for change in changes:
            if isinstance(change, Insert):
                path = self.folder / "exports" / change.table / f"_half.{self.format}"
                self._writer(path, self.columns[change.table], [change.row])

    def _export(self, table: str, rows: Sequence[Row]) -> None:
        for part in (0, 1):
            chosen = [row for row in rows if zlib.crc32(repr(row[0]).encode()) % 2 == part]
            path = self.folder / "exports" / table / f"part{part}.{self.format}"
            temporary = path.with_name(f"_{path.name}")
            self._writer(temporary, self.columns[table], chosen)
            if path.exists() and path.read_bytes() == temporary.read_bytes():
                temporary.unlink()
            else:
                temporary.rename(path)

    @property
    def _writer(self) -> Callable[[Path, Mapping[str, Word], Sequence[Row]], None]:
        return {"csv": write_csv, "json": write_json, "parquet": write_parquet}[self.format]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat(" ") if isinstance(value, datetime.datetime) else str(value)


def write_csv(path: Path, columns: Mapping[str, Word], rows: Sequence[Row]) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(",".join(columns) + "\n")
        for row in rows:
            texts = ("" if v is None else '"' + _text(v).replace('"', '""') + '"' for v in row)
            file.write(",".join(texts) + "\n")


def write_json(path: Path, columns: Mapping[str, Word], rows: Sequence[Row]) -> None:
    with open(path, "w", encoding="utf-8") as file:
        for row in rows:
            given = {name: _json(v) for name, v in zip(columns, row, strict=True) if v is not None}
            file.write(json.dumps(given) + "\n")


def _json(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str) else _text(value)


def write_parquet(path: Path, columns: Mapping[str, Word], rows: Sequence[Row]) -> None:
    arrays = [
        pa.array([row[place] for row in rows], ARROW[word])
        for place, word in enumerate(columns.values())
    ]
    pq.write_table(pa.table(dict(zip(columns, arrays, strict=True))), path)
