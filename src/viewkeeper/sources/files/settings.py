"""What a project says about the tables of a folder: columns, keys, and how CSV is written.

Checked when the source is opened, so that a wrong word is found before anything is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from viewkeeper.errors import ProjectError, SchemaError, suggest_nearest
from viewkeeper.sources.files.text_types import WORDS, type_of_word
from viewkeeper.sources.settings import SourceSettings

SETTLE_SECONDS = 1.0
_DIALECT = {"header": bool, "delimiter": str, "quote": str, "escape": str, "null": str}
_DIALECT |= {"encoding": str}
_KNOWN = ("columns", "key", *_DIALECT)


@dataclass(frozen=True, slots=True)
class Dialect:
    """How CSV files are written; an unquoted `null` text is NULL, a quoted one is text."""

    header: bool = True
    delimiter: str = ","
    quote: str = '"'
    escape: str = ""
    null: str = ""
    encoding: str = "utf-8"


@dataclass(frozen=True, slots=True)
class TableSettings:
    """What is declared about one table."""

    name: str
    columns: Mapping[str, pa.DataType]
    key: tuple[str, ...]
    dialect: Dialect

    def fingerprint_text(self) -> str:
        """What the files are read by, as a text that changes with it."""
        return f"{[(n, str(kind)) for n, kind in self.columns.items()]} {self.key} {self.dialect}"


@dataclass(frozen=True, slots=True)
class FolderSettings:
    """A folder of tables, all in one format."""

    source: str
    folder: Path
    home: Path
    format: str
    settle_seconds: float
    tables: Mapping[str, TableSettings]
    allow_outside: bool = False

    def settings_of(self, name: str) -> TableSettings:
        """What is declared about a table, which may be nothing."""
        if name != Path(name).name or name.startswith(("_", ".")):
            raise SchemaError(
                self.source,
                f'"{name}" cannot be the name of a folder or file that holds data',
                hint="tables are named like folders below the source's, without _ or . in front",
            )
        return self.tables.get(name) or TableSettings(name, {}, (), Dialect())


def read_folder_settings(settings: SourceSettings) -> FolderSettings:
    declared = settings.options.get("tables") or {}
    assert isinstance(declared, Mapping)
    tables = {
        str(name): _read_table(settings, str(name), given) for name, given in declared.items()
    }
    return FolderSettings(
        settings.name,
        settings.read_path(),
        Path(settings.home),
        settings.read_text("format"),
        settings.read_number("settle_seconds", SETTLE_SECONDS),
        tables,
        settings.is_switched_on("allow_outside"),
    )


def _read_table(settings: SourceSettings, name: str, given: object) -> TableSettings:
    where = f'source "{settings.name}": table "{name}"'
    if not isinstance(given, Mapping):
        raise ProjectError(
            f"{where} must be a mapping", hint="for example price: {columns: {sku: string}}"
        )
    for option in given:
        if option not in _KNOWN:
            hint = f"options of a table: {', '.join(_KNOWN)}{suggest_nearest(str(option), _KNOWN)}"
            raise ProjectError(f'{where}: unknown option "{option}"', hint=hint)
    columns = _read_columns(where, given.get("columns") or {})
    key = _read_key(where, given.get("key") or (), columns)
    dialect = _read_dialect(where, {k: v for k, v in given.items() if k in _DIALECT})
    if settings.read_text("format") == "parquet" and (columns or dialect != Dialect()):
        raise ProjectError(
            f"{where}: a Parquet file says itself what its columns are",
            hint="declare nothing but the key",
        )
    if not dialect.header and not columns:
        raise ProjectError(f"{where} has no header, so its columns must be declared, in order")
    return TableSettings(name, columns, key, dialect)


def _read_columns(where: str, given: object) -> dict[str, pa.DataType]:
    if not isinstance(given, Mapping):
        raise ProjectError(f"{where}: columns must be a mapping", hint="columns: {sku: string}")
    found = {}
    for name, word in given.items():
        kind = type_of_word(str(word))
        if kind is None:
            raise ProjectError(
                f'{where}, column "{name}": unknown type {str(word)[:60]}', hint=f"types: {WORDS}"
            )
        found[_read_name(where, name)] = kind
    return found


def _read_name(where: str, given: object) -> str:
    """The name of a column; a number is one too, as some headers have years."""
    if not isinstance(given, str | int) or isinstance(given, bool) or given == "":
        raise ProjectError(f"{where}: {given!r} is no name of a column", hint="write it in quotes")
    return str(given)


def _read_key(where: str, given: object, columns: Mapping[str, Any]) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ProjectError(f"{where}: key must be a list", hint="key: [sku]")
    names = tuple(_read_name(where, name) for name in given)
    for name in names:
        if pa.types.is_floating(columns.get(name, pa.string())):
            raise ProjectError(f'{where}: a key of floating-point numbers ("{name}") tells nothing')
    return names


def _read_dialect(where: str, given: Mapping[str, object]) -> Dialect:
    for name, value in given.items():
        wanted = _DIALECT[name]
        if not isinstance(value, wanted):
            word = "true or false" if wanted is bool else "a text"
            raise ProjectError(f'{where}: option "{name}" must be {word}')
        if name in ("delimiter", "quote") or (name == "escape" and value):
            _check_character(where, name, str(value))
        if name == "encoding":
            _check_encoding(where, str(value))
    if given.get("delimiter", ",") in (given.get("quote", '"'), given.get("escape")):
        raise ProjectError(f"{where}: the delimiter is the quote or escape character too")
    return Dialect(**dict(given))  # type: ignore[arg-type]  # each value was checked above


def _check_character(where: str, name: str, value: str) -> None:
    if len(value) != 1 or not value.isascii() or value in "\r\n\0":
        raise ProjectError(
            f'{where}: option "{name}" must be one character', hint="of ASCII, and no end of line"
        )


def _check_encoding(where: str, name: str) -> None:
    try:
        '"'.encode(name)
    except (LookupError, ValueError):
        raise ProjectError(
            f"{where}: there is no encoding of text called {name!r}",
            hint="for example utf-8, latin-1 or windows-1252",
        ) from None
