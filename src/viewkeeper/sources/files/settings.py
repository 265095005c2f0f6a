"""What a project says about the tables of a folder: columns, keys, and how CSV is written.

Checked when the source is opened, so that a wrong word is found before anything is read.

A CSV or JSON file has no types, so the project file declares them, by Spark's words. Everything is
read as text first and converted then, so a type never depends on what happens to be in a file. A
text that does not say exactly one value of its type is a MisfitError: blanks around a number, a
hexadecimal number, more digits than the column has, a floating-point number too large to be one.

    bigint, int, smallint, tinyint    an integer, kept as BIGINT
    double, float                     a number, NaN, inf or -inf
    decimal(p,s)                      a number with no more digits than that, zeros aside
    string                            any text
    boolean                           true or false, in any case, 1 or 0
    date                              YYYY-MM-DD
    timestamp                         YYYY-MM-DD[ HH:MM[:SS[.ffffff]]][zone]; UTC without a zone
    timestamp_ntz                     the same, without a zone
    binary                            base64
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from viewkeeper.delta.arrow_compute import pc
from viewkeeper.delta.exact_cast import decimals_of
from viewkeeper.errors import ProjectError, SchemaError, suggest_nearest
from viewkeeper.sources.bucket_state import open_state_files
from viewkeeper.sources.files.parquet import cast_exactly
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.sources.state_files import StateFiles
from viewkeeper.sources.tables.column_type import DIGITS_MAX, MisfitError, convert_or_blame

_WORDS: dict[str, pa.DataType] = {
    **dict.fromkeys(("bigint", "long", "int", "integer", "smallint", "tinyint"), pa.int64()),
    **dict.fromkeys(("double", "double precision"), pa.float64()),
    **dict.fromkeys(("float", "real"), pa.float32()),
    **dict.fromkeys(("string", "text", "varchar"), pa.string()),
    **dict.fromkeys(("boolean", "bool"), pa.bool_()),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "binary": pa.binary(),
}
WORDS = (
    "bigint, double, float, decimal(p,s), string, boolean, date, timestamp, timestamp_ntz, binary"
)
_DECIMAL = re.compile(r"(?:decimal|dec|numeric)\(\s*(\d{1,9})\s*(?:,\s*(\d{1,9})\s*)?\)")
_INTEGER = r"^[+-]?\d+$"
_FLOAT = r"(?i)^[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|nan|inf(inity)?)$"
_INFINITE = r"(?i)^[+-]?inf(inity)?$"
_ZONED = r"(Z|[+-]\d\d(:?\d\d)?)$"
_CLOCK = r"\d:\d\d"


def type_of_word(word: str) -> pa.DataType | None:
    """The Arrow type of a type's word; None if it is no word that we know.

    >>> type_of_word("decimal(10,2)"), type_of_word("INT"), type_of_word("map")
    (Decimal128Type(decimal128(10, 2)), DataType(int64), None)
    """
    text = " ".join(word.lower().split())
    if found := _DECIMAL.fullmatch(text):
        digits, places = int(found[1]), int(found[2] or 0)
        return pa.decimal128(digits, places) if 0 < digits <= DIGITS_MAX >= places else None
    return _WORDS.get(text)


def type_word_of(kind: Any) -> str:
    """The word of a type, such that `type_of_word` gives the type again."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return next(word for word, known in _WORDS.items() if known == kind)


def values_from_text(texts: Any, kind: pa.DataType) -> Any:
    """An array of texts as values of a type; a MisfitError for the first that is none."""

    def convert(part: Any) -> Any:
        return cast_exactly(_convert_texts(part, kind), kind)

    def blame(index: int) -> MisfitError:
        return MisfitError(index, texts[index].as_py(), f"a value of type {type_word_of(kind)}")

    return convert_or_blame(texts, convert, blame)


def _convert_texts(texts: Any, kind: pa.DataType) -> Any:
    for holds, convert in _CONVERTERS:
        if holds(kind):
            return convert(texts, kind)
    return texts.cast(kind)


def _convert_integers(texts: Any, kind: pa.DataType) -> Any:
    _require_all(pc.match_substring_regex(texts, _INTEGER))
    return pc.replace_substring_regex(texts, r"^\+", "").cast(kind)


def _convert_floats(texts: Any, kind: pa.DataType) -> Any:
    _require_all(pc.match_substring_regex(texts, _FLOAT))
    values = texts.cast(kind)
    _require_all(pc.or_(pc.invert(pc.is_inf(values)), pc.match_substring_regex(texts, _INFINITE)))
    return values


def _convert_timestamps(texts: Any, kind: Any) -> Any:
    if kind.tz is None:
        return texts.cast(kind)
    # A day alone ends like a zone, so a zone is looked for behind a clock time only.
    timed = pc.match_substring_regex(texts, _CLOCK)
    zoned = pc.and_(timed, pc.match_substring_regex(texts, _ZONED))
    missing = pc.if_else(zoned, "", pc.if_else(timed, "Z", " 00:00Z"))
    return pc.binary_join_element_wise(texts, missing, "").cast(kind)


def _convert_bytes(texts: Any, kind: pa.DataType) -> Any:
    try:
        return pa.array(
            [
                None if text is None else base64.b64decode(text, validate=True)
                for text in texts.to_pylist()
            ],
            kind,
        )
    except binascii.Error as error:
        raise ValueError("not base64") from error


def _require_all(conditions: Any) -> None:
    if not pc.all(conditions, min_count=0).as_py():
        raise ValueError("a text does not have the form of its type")


_CONVERTERS: tuple[tuple[Any, Callable[[Any, Any], Any]], ...] = (
    (pa.types.is_integer, _convert_integers),
    (pa.types.is_floating, _convert_floats),
    (pa.types.is_decimal, decimals_of),
    (pa.types.is_timestamp, _convert_timestamps),
    (pa.types.is_binary, _convert_bytes),
)


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
    files: StateFiles
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
        open_state_files(settings),
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
