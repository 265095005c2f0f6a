"""Histories as JSON files that can be written by hand.

    {"view": "CREATE MATERIALIZED VIEW v AS SELECT a.id, b.name FROM x.a JOIN y.b ON a.id = b.id",
     "tables": {"x.a": {"columns": {"id": "int"}, "rows": [[1]]},
                "y.b": {"columns": {"id": "int", "name": "text"}}},
     "transactions": [{"name": "T1", "parts": {"y": {"b": [{"insert": [1, "one"]}]}}}],
     "states": [{"rows": []},
                {"rows": [[1, "one"]], "claim": {"x": 0, "y": 1}, "quiet": true, "label": "end"}]}

Long SQL may be a list of lines. A row is a list of values, or `{"row": [...], "count": 2}`; a
change is `{"insert": [...]}` or `{"delete": [...]}`, with a count if it is not 1. What is wrong is
refused with its place in the file.

JSON has integers, floating-point numbers, texts, booleans and null. What it has not is text: a
decimal as its digits ("12.50"), dates and timestamps in ISO 8601, bytes in hexadecimal. A value
that does not fit its column's type is refused; nothing is converted silently.

A place is written as a path from the top, `states[2].rows[0]`. A key that is not known, is missing
or occurs twice is an error: in a file that people write, each is a slip of the pen. The other way,
`layout_json` writes JSON that people can read: what fits on a line is on one line.
"""

from __future__ import annotations

import datetime
import decimal
import difflib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from viewkeeper.check.history.recorded_history import (
    Bag,
    CommittedTransaction,
    RecordedHistory,
    Row,
    ShownState,
)
from viewkeeper.errors import DefinitionError, HistoryError
from viewkeeper.view.definition import Field, Relation, ViewDefinition
from viewkeeper.view.expression import type_of
from viewkeeper.view.sql.bind import bind_view
from viewkeeper.view.sql.view_statement import parse_view

WIDTH = 100


@dataclass(frozen=True, slots=True)
class JsonPlace:
    """A value, its place in a file, and the file."""

    value: Any
    where: str = ""
    path: str | None = None

    def error_here(self, message: str, hint: str | None = None) -> HistoryError:
        return HistoryError(message, path=self.path, place=self.where or None, hint=hint)

    def read_keys(
        self, required: Iterable[str], optional: Iterable[str] = ()
    ) -> dict[str, JsonPlace]:
        """The values of an object that has these keys and no others."""
        found = self.read_object()
        names = [*required, *optional]
        for name, at in found.items():
            if name not in names:
                close = difflib.get_close_matches(name[:100], names, n=1, cutoff=0.5)
                meant = f'did you mean "{close[0]}"? ' if close else ""
                raise at.error_here(
                    f'"{name}" is not known here', f"{meant}known: {', '.join(names)}"
                )
        for name in required:
            if name not in found:
                raise self.error_here(f'"{name}" is missing', f'add "{name}" here')
        return found

    def read_object(self) -> dict[str, JsonPlace]:
        """The values of an object, by its keys."""
        if not isinstance(self.value, dict):
            raise self.error_here(f"expected an object, got {_shorten_json(self.value)}")
        start = f"{self.where}." if self.where else ""
        return {k: JsonPlace(v, f"{start}{k}", self.path) for k, v in self.value.items()}

    def read_list(self) -> list[JsonPlace]:
        """The values of a list."""
        if not isinstance(self.value, list):
            raise self.error_here(f"expected a list, got {_shorten_json(self.value)}")
        return [JsonPlace(v, f"{self.where}[{i}]", self.path) for i, v in enumerate(self.value)]

    def read_string(self) -> str:
        if not isinstance(self.value, str):
            raise self.error_here(f"expected a text, got {_shorten_json(self.value)}")
        return self.value

    def read_boolean(self) -> bool:
        if not isinstance(self.value, bool):
            raise self.error_here(f"expected true or false, got {_shorten_json(self.value)}")
        return self.value

    def read_number(self, least: int) -> int:
        value = self.value
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise self.error_here(
                f"expected a whole number from {least}, got {_shorten_json(value)}"
            )
        return value


def read_json(text: str, path: str | None) -> JsonPlace:
    """The whole of a JSON text."""
    top = JsonPlace(None, "", path)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise top.error_here(f'"{twice}" occurs twice in one object', "keep one of them")
        return found

    def refused(word: str) -> Any:
        raise top.error_here(
            f"{word} is no JSON", 'write "Infinity" as a text; NaN cannot be compared'
        )

    try:
        value = json.loads(text, object_pairs_hook=unique, parse_constant=refused)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise JsonPlace(None, where, path).error_here(f"not valid JSON: {error.msg}") from None
    except RecursionError:
        raise top.error_here("nested too deeply") from None
    except ValueError as error:
        # Python reads no integers of thousands of digits.
        raise top.error_here(f"not valid JSON: {error}") from None
    return JsonPlace(value, "", path)


def layout_json(value: object, indent: int = 0, room: int = WIDTH) -> str:
    """A value as JSON.

    >>> print(layout_json({"a": [1, 2], "b": "x" * 90}).replace("x", ""))
    {
      "a": [1, 2],
      "b": ""
    }
    """
    line = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if len(line) <= room - indent or not isinstance(value, dict | list) or not value:
        return line
    deeper = "\n" + " " * (indent + 2)
    if isinstance(value, dict):
        keys = [json.dumps(key, ensure_ascii=False) + ": " for key in value]
        lines = [
            key + layout_json(inner, indent + 2, room - len(key))
            for key, inner in zip(keys, value.values(), strict=True)
        ]
        begin, end = "{", "}"
    else:
        lines = [layout_json(inner, indent + 2, room) for inner in value]
        begin, end = "[", "]"
    return begin + deeper + f",{deeper}".join(lines) + "\n" + " " * indent + end


def _shorten_json(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."


@dataclass(frozen=True, slots=True)
class HistoryValueType:
    """A type: its word, what a value looks like, and how it is read from JSON and written."""

    word: str
    type: pa.DataType
    looks: str
    read: Callable[[object], object]
    write: Callable[[object], object] = lambda value: value


def value_type_of_word(word: str) -> HistoryValueType | None:
    """The type that a word names; None if it names none.

    >>> value_type_of_word("bigint").word, value_type_of_word("decimal(9,2)").type.scale
    ('int', 2)
    >>> value_type_of_word("money") is None
    True
    """
    plain = word.strip().lower()
    if found := re.fullmatch(r"decimal\((\d{1,9}),\s*(\d{1,9})\)", plain):
        precision, scale = int(found[1]), int(found[2])
        possible = 1 <= precision <= 38 and scale <= precision
        return _decimal_type(precision, scale) if possible else None
    plain = ALIASES.get(plain, plain)
    return next((kind for kind in KINDS if kind.word == plain), None)


def value_type_of(type_: pa.DataType | None) -> HistoryValueType | None:
    """The type of a column; None if a history file has no word for it."""
    if isinstance(type_, pa.Decimal128Type):
        return _decimal_type(type_.precision, type_.scale)
    return next((kind for kind in KINDS if kind.type == type_), None)


def _read_boolean(value: object) -> object:
    return _require_fit(value, isinstance(value, bool))


def _integer_reader(bits: int) -> Callable[[object], object]:
    def read(value: object) -> object:
        fits = isinstance(value, int) and -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)
        return _require_fit(value, fits and not isinstance(value, bool))

    return read


def _read_float(value: object) -> object:
    if value in ("Infinity", "-Infinity"):
        return float(str(value))
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    number = float(_require_fit(value, fits))  # type: ignore[arg-type]  # it is a number now
    # Adding zero turns -0.0 into 0.0, which SQL calls equal.
    return _require_fit(number + 0.0, math.isfinite(number))


def _read_text(value: object) -> object:
    return _require_fit(value, isinstance(value, str))


def _read_bytes(value: object) -> object:
    return bytes.fromhex(str(_read_text(value)))


def _read_date(value: object) -> object:
    return datetime.date.fromisoformat(str(_read_text(value)))


def _read_timestamp(value: object) -> object:
    found = datetime.datetime.fromisoformat(str(_read_text(value)))
    return _require_fit(found, found.tzinfo is None)


def _read_instant(value: object) -> object:
    found = datetime.datetime.fromisoformat(str(_read_text(value)))
    return _require_fit(found, found.tzinfo is not None) and found.astimezone(datetime.UTC)


def _require_fit(value: object, fits: bool) -> object:
    if not fits:
        raise ValueError(value)
    return value


def _write_iso(value: object) -> object:
    assert isinstance(value, datetime.date)
    return value.isoformat()


def _write_hex(value: object) -> object:
    assert isinstance(value, bytes)
    return value.hex()


def _write_float(value: object) -> object:
    infinite = isinstance(value, float) and math.isinf(value)
    return ("Infinity" if value == math.inf else "-Infinity") if infinite else value


def _decimal_type(precision: int, scale: int) -> HistoryValueType:
    def read(value: object) -> object:
        text = str(
            _require_fit(value, isinstance(value, str | int) and not isinstance(value, bool))
        )
        if not re.fullmatch(r"-?\d+(\.\d+)?", text):
            raise ValueError(text)
        whole, _, fraction = text.lstrip("-").partition(".")
        fits = len(whole.lstrip("0")) <= precision - scale and len(fraction) <= scale
        return _require_fit(decimal.Decimal(text), fits)

    word = f"decimal({precision},{scale})"
    looks = (
        f'digits in a text, like "1.50", at most {precision} of them and {scale} after the point'
    )
    return HistoryValueType(
        word, pa.decimal128(precision, scale), looks, read, lambda v: format(v, "f")
    )


KINDS = (
    HistoryValueType("boolean", pa.bool_(), "true or false", _read_boolean),
    HistoryValueType("int", pa.int64(), "an integer of 64 bits", _integer_reader(64)),
    HistoryValueType("int32", pa.int32(), "an integer of 32 bits", _integer_reader(32)),
    HistoryValueType("int16", pa.int16(), "an integer of 16 bits", _integer_reader(16)),
    HistoryValueType("int8", pa.int8(), "an integer of 8 bits", _integer_reader(8)),
    HistoryValueType(
        "float", pa.float64(), 'a number, "Infinity" or "-Infinity"', _read_float, _write_float
    ),
    HistoryValueType("text", pa.string(), "a text", _read_text),
    HistoryValueType("date", pa.date32(), 'a date like "2024-02-29"', _read_date, _write_iso),
    HistoryValueType(
        "timestamp", pa.timestamp("us"), 'like "2024-02-29 12:00:00"', _read_timestamp, _write_iso
    ),
    HistoryValueType(
        "timestamptz",
        pa.timestamp("us", "UTC"),
        'like "2024-02-29 12:00:00+00:00"',
        _read_instant,
        _write_iso,
    ),
    HistoryValueType("binary", pa.binary(), "bytes in hexadecimal", _read_bytes, _write_hex),
)
WORDS = (*(kind.word for kind in KINDS), "decimal(p,s)")
ALIASES = {
    "bool": "boolean",
    "bigint": "int",
    "int64": "int",
    "integer": "int",
    "double": "float",
    "float64": "float",
    "string": "text",
}


Tables = Mapping[Relation, tuple[Field, ...]]
SIGNS = {"insert": 1, "delete": -1}


def read_history(text: str, path: str | None = None) -> RecordedHistory:
    """A history from JSON; a HistoryError says what is wrong, and where."""
    file = read_json(text, path).read_keys(("view", "tables", "transactions", "states"))
    given = {_read_relation(name, at): at for name, at in file["tables"].read_object().items()}
    parts = {r: at.read_keys(("columns",), ("rows",)) for r, at in given.items()}
    tables = {relation: _read_columns(part["columns"]) for relation, part in parts.items()}
    view = _read_view(file["view"], tables)
    shown = _output_kinds(file["view"], view)
    states = tuple(_read_state(at, shown) for at in file["states"].read_list())
    if not states:
        raise file["states"].error_here(
            "no state", "the first state is what the view showed at first"
        )
    return RecordedHistory(
        view,
        tables,
        {
            r: _read_bag(part["rows"], _kinds_of(tables[r]))
            for r, part in parts.items()
            if "rows" in part
        },
        tuple(_read_transaction(at, tables) for at in file["transactions"].read_list()),
        states,
    )


def _read_relation(name: str, at: JsonPlace) -> Relation:
    source, dot, table = name.partition(".")
    if not (source and dot and table):
        raise at.error_here(f'"{name}" is no table of a source', "tables are called source.table")
    return Relation(source, table)


def _read_columns(at: JsonPlace) -> tuple[Field, ...]:
    fields = []
    for name, word in at.read_object().items():
        kind = value_type_of_word(word.read_string())
        if kind is None:
            raise word.error_here(
                f'"{word.read_string()}" is no type', f"types: {', '.join(WORDS)}"
            )
        fields.append(Field(name, kind.type))
    if not fields:
        raise at.error_here("no columns", 'write them as {"name": "type"}')
    return tuple(fields)


def _read_view(at: JsonPlace, tables: Tables) -> ViewDefinition:
    lines = at.read_list() if isinstance(at.value, list) else [at]

    def schema(relation: Relation) -> tuple[Field, ...]:
        if relation not in tables:
            raise at.error_here(
                f"reads {relation}, which is not there", f'add "{relation}" to "tables"'
            )
        return tables[relation]

    try:
        view = bind_view(parse_view("\n".join(line.read_string() for line in lines)), schema)
    except DefinitionError as error:
        raise at.error_here(error.message, error.hint) from error
    if view.needs_spark:
        hint = "a checker evaluates columns, literals, operators, and the functions of the kernel"
        raise at.error_here("has an expression that only Spark can evaluate", hint)
    return view


def _output_kinds(at: JsonPlace, view: ViewDefinition) -> list[HistoryValueType]:
    kinds = []
    for output in view.outputs:
        kind = value_type_of(type_of(output.expression))
        if kind is None:
            message = f'column "{output.name}" has a type that a history file cannot name'
            raise at.error_here(message, f"types: {', '.join(WORDS)}")
        kinds.append(kind)
    return kinds


def _kinds_of(fields: Sequence[Field]) -> list[HistoryValueType]:
    found = [value_type_of(field.type) for field in fields]
    kinds = [kind for kind in found if kind is not None]
    assert len(kinds) == len(fields), f"a history file cannot name the types of {fields}"
    return kinds


def _read_bag(at: JsonPlace, kinds: list[HistoryValueType]) -> Bag:
    total: Counter[Row] = Counter()
    for item in at.read_list():
        if isinstance(item.value, dict):
            found = item.read_keys(("row",), ("count",))
            total[_read_row(found["row"], kinds)] += _read_count(found)
        else:
            total[_read_row(item, kinds)] += 1
    return dict(total)


def _read_count(found: Mapping[str, JsonPlace]) -> int:
    return found["count"].read_number(1) if "count" in found else 1


def _read_row(at: JsonPlace, kinds: list[HistoryValueType]) -> Row:
    values = at.read_list()
    if len(values) != len(kinds):
        words = ", ".join(kind.word for kind in kinds)
        raise at.error_here(f"{len(values)} values for {len(kinds)} columns", f"columns: {words}")
    return tuple(_read_value(value, kind) for value, kind in zip(values, kinds, strict=True))


def _read_value(at: JsonPlace, kind: HistoryValueType) -> object:
    if at.value is None:
        return None
    try:
        return kind.read(at.value)
    except (ValueError, OverflowError):
        raise at.error_here(f"{at.value!r} is no {kind.word}", f"write {kind.looks}") from None


def _read_transaction(at: JsonPlace, tables: Tables) -> CommittedTransaction:
    found = at.read_keys(("name", "parts"))
    parts = {
        source: {
            relation: _read_changes(changes, relation, tables)
            for table, changes in part.read_object().items()
            for relation in [Relation(source, table)]
        }
        for source, part in found["parts"].read_object().items()
    }
    if not parts:
        raise found["parts"].error_here(
            "no part", "name the source that committed it, even if empty"
        )
    return CommittedTransaction(found["name"].read_string(), parts)


def _read_changes(at: JsonPlace, relation: Relation, tables: Tables) -> tuple[tuple[Row, int], ...]:
    if relation not in tables:
        raise at.error_here(
            f'there is no table "{relation}"', f"tables: {', '.join(map(str, tables))}"
        )
    kinds = _kinds_of(tables[relation])
    changes = []
    for item in at.read_list():
        found = item.read_keys((), (*SIGNS, "count"))
        signs = [sign for sign in SIGNS if sign in found]
        if len(signs) != 1:
            raise item.error_here("a change inserts or deletes", 'write {"insert": [...]}')
        row = _read_row(found[signs[0]], kinds)
        changes.append((row, SIGNS[signs[0]] * _read_count(found)))
    return tuple(changes)


def _read_state(at: JsonPlace, kinds: list[HistoryValueType]) -> ShownState:
    found = at.read_keys(("rows",), ("claim", "quiet", "label"))
    claim = None
    if "claim" in found:
        claim = {source: n.read_number(0) for source, n in found["claim"].read_object().items()}
    return ShownState(
        _read_bag(found["rows"], kinds),
        claim,
        found["quiet"].read_boolean() if "quiet" in found else False,
        found["label"].read_string() if "label" in found else "",
    )


def write_history(history: RecordedHistory) -> str:
    """A history as JSON; its view must have its SQL text."""
    view = history.view
    assert view.text, f'view "{view.name}" has no SQL text: a history file needs it'
    again = bind_view(parse_view(view.text), history.tables.__getitem__)
    assert again.outputs == view.outputs, f'view "{view.name}": its text defines other columns'
    lines = view.text.strip().split("\n")
    shown = _output_kinds(JsonPlace(view.text, "view"), view)
    file = {
        "view": lines if len(lines) > 1 else lines[0],
        "tables": {str(relation): _write_table(history, relation) for relation in history.tables},
        "transactions": [
            {"name": transaction.name, "parts": _write_parts(history, transaction)}
            for transaction in history.transactions
        ],
        "states": [_write_state(state, shown) for state in history.states],
    }
    return layout_json(file) + "\n"


def _write_table(history: RecordedHistory, relation: Relation) -> dict[str, Any]:
    fields = history.tables[relation]
    kinds = _kinds_of(fields)
    columns = {field.name: kind.word for field, kind in zip(fields, kinds, strict=True)}
    rows = history.initial.get(relation)
    return (
        {"columns": columns}
        if rows is None
        else {"columns": columns, "rows": _write_rows(rows, kinds)}
    )


def _write_rows(bag: Bag, kinds: list[HistoryValueType]) -> list[object]:
    return [
        _write_row(row, kinds) if count == 1 else {"row": _write_row(row, kinds), "count": count}
        for row, count in bag.items()
    ]


def _write_row(row: Row, kinds: list[HistoryValueType]) -> list[object]:
    pairs = zip(row, kinds, strict=True)
    return [None if value is None else kind.write(value) for value, kind in pairs]


def _write_parts(
    history: RecordedHistory, transaction: CommittedTransaction
) -> dict[str, dict[str, list[object]]]:
    return {
        source: {
            relation.table: [_write_change(c, _kinds_of(history.tables[relation])) for c in changes]
            for relation, changes in part.items()
        }
        for source, part in transaction.parts.items()
    }


def _write_change(change: tuple[Row, int], kinds: list[HistoryValueType]) -> dict[str, object]:
    row, count = change
    written: dict[str, object] = {"insert" if count > 0 else "delete": _write_row(row, kinds)}
    return written if abs(count) == 1 else {**written, "count": abs(count)}


def _write_state(state: ShownState, kinds: list[HistoryValueType]) -> dict[str, object]:
    written: dict[str, object] = {"rows": _write_rows(state.rows, kinds)}
    if state.claim is not None:
        written["claim"] = dict(state.claim)
    if state.quiet:
        written["quiet"] = True
    return {**written, "label": state.label} if state.label else written
