"""Histories as JSON files that can be written by hand.

    {"view": "CREATE MATERIALIZED VIEW v AS SELECT a.id, b.name FROM x.a JOIN y.b ON a.id = b.id",
     "tables": {"x.a": {"columns": {"id": "int"}, "rows": [[1]]},
                "y.b": {"columns": {"id": "int", "name": "text"}}},
     "transactions": [{"name": "T1", "parts": {"y": {"b": [{"insert": [1, "one"]}]}}}],
     "states": [{"rows": []},
                {"rows": [[1, "one"]], "claim": {"x": 0, "y": 1}, "quiet": true, "label": "end"}]}

Long SQL may be a list of lines. A row is a list of values, or `{"row": [...], "count": 2}`; a
change is `{"insert": [...]}` or `{"delete": [...]}`, with a count if it is not 1. What is wrong is
refused with its place in the file (`viewkeeper.check.history.json_place`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from viewkeeper.check.history.history_values import (
    WORDS,
    HistoryValueType,
    value_type_of,
    value_type_of_word,
)
from viewkeeper.check.history.json_place import JsonPlace, layout_json, read_json
from viewkeeper.check.history.recorded_history import (
    Bag,
    CommittedTransaction,
    RecordedHistory,
    Row,
    ShownState,
)
from viewkeeper.errors import DefinitionError
from viewkeeper.view.definition import Field, Relation, ViewDefinition
from viewkeeper.view.expression import type_of
from viewkeeper.view.sql.bind import bind_view
from viewkeeper.view.sql.view_statement import parse_view

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


# -- reading ---------------------------------------------------------------------------------------


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


# -- writing ---------------------------------------------------------------------------------------


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
