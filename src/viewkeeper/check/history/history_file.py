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

from viewkeeper.check.history.history_values import WORDS, Kind, kind_for, kind_of
from viewkeeper.check.history.json_place import Place, layout, read_json
from viewkeeper.check.history.recorded_history import Bag, Committed, History, Row, State
from viewkeeper.errors import DefinitionError
from viewkeeper.view.definition import Field, Relation, ViewDefinition
from viewkeeper.view.expression import type_of
from viewkeeper.view.sql.bind import bind
from viewkeeper.view.sql.view_statement import parse_view

Tables = Mapping[Relation, tuple[Field, ...]]
SIGNS = {"insert": 1, "delete": -1}


def read_history(text: str, path: str | None = None) -> History:
    """A history from JSON; a HistoryError says what is wrong, and where."""
    file = read_json(text, path).known(("view", "tables", "transactions", "states"))
    given = {_relation(name, at): at for name, at in file["tables"].named().items()}
    parts = {r: at.known(("columns",), ("rows",)) for r, at in given.items()}
    tables = {relation: _columns(part["columns"]) for relation, part in parts.items()}
    view = _view(file["view"], tables)
    shown = _output_kinds(file["view"], view)
    states = tuple(_state(at, shown) for at in file["states"].listed())
    if not states:
        raise file["states"].error("no state", "the first state is what the view showed at first")
    return History(
        view,
        tables,
        {r: _bag(part["rows"], _kinds(tables[r])) for r, part in parts.items() if "rows" in part},
        tuple(_transaction(at, tables) for at in file["transactions"].listed()),
        states,
    )


# -- reading ---------------------------------------------------------------------------------------


def _relation(name: str, at: Place) -> Relation:
    source, dot, table = name.partition(".")
    if not (source and dot and table):
        raise at.error(f'"{name}" is no table of a source', "tables are called source.table")
    return Relation(source, table)


def _columns(at: Place) -> tuple[Field, ...]:
    fields = []
    for name, word in at.named().items():
        kind = kind_of(word.text())
        if kind is None:
            raise word.error(f'"{word.text()}" is no type', f"types: {', '.join(WORDS)}")
        fields.append(Field(name, kind.type))
    if not fields:
        raise at.error("no columns", 'write them as {"name": "type"}')
    return tuple(fields)


def _view(at: Place, tables: Tables) -> ViewDefinition:
    lines = at.listed() if isinstance(at.value, list) else [at]

    def schema(relation: Relation) -> tuple[Field, ...]:
        if relation not in tables:
            raise at.error(f"reads {relation}, which is not there", f'add "{relation}" to "tables"')
        return tables[relation]

    try:
        view = bind(parse_view("\n".join(line.text() for line in lines)), schema)
    except DefinitionError as error:
        raise at.error(error.message, error.hint) from error
    if view.needs_spark:
        hint = "a checker evaluates columns, literals, comparisons, AND, OR, NOT, IS NULL, +, -, *"
        raise at.error("has an expression that only Spark can evaluate", hint)
    return view


def _output_kinds(at: Place, view: ViewDefinition) -> list[Kind]:
    kinds = []
    for output in view.outputs:
        kind = kind_for(type_of(output.expression))
        if kind is None:
            message = f'column "{output.name}" has a type that a history file cannot name'
            raise at.error(message, f"types: {', '.join(WORDS)}")
        kinds.append(kind)
    return kinds


def _kinds(fields: Sequence[Field]) -> list[Kind]:
    found = [kind_for(field.type) for field in fields]
    kinds = [kind for kind in found if kind is not None]
    assert len(kinds) == len(fields), f"a history file cannot name the types of {fields}"
    return kinds


def _bag(at: Place, kinds: list[Kind]) -> Bag:
    total: Counter[Row] = Counter()
    for item in at.listed():
        if isinstance(item.value, dict):
            found = item.known(("row",), ("count",))
            total[_row(found["row"], kinds)] += _count(found)
        else:
            total[_row(item, kinds)] += 1
    return dict(total)


def _count(found: Mapping[str, Place]) -> int:
    return found["count"].number(1) if "count" in found else 1


def _row(at: Place, kinds: list[Kind]) -> Row:
    values = at.listed()
    if len(values) != len(kinds):
        words = ", ".join(kind.word for kind in kinds)
        raise at.error(f"{len(values)} values for {len(kinds)} columns", f"columns: {words}")
    return tuple(_value(value, kind) for value, kind in zip(values, kinds, strict=True))


def _value(at: Place, kind: Kind) -> object:
    if at.value is None:
        return None
    try:
        return kind.read(at.value)
    except (ValueError, OverflowError):
        raise at.error(f"{at.value!r} is no {kind.word}", f"write {kind.looks}") from None


def _transaction(at: Place, tables: Tables) -> Committed:
    found = at.known(("name", "parts"))
    parts = {
        source: {
            relation: _changes(changes, relation, tables)
            for table, changes in part.named().items()
            for relation in [Relation(source, table)]
        }
        for source, part in found["parts"].named().items()
    }
    if not parts:
        raise found["parts"].error("no part", "name the source that committed it, even if empty")
    return Committed(found["name"].text(), parts)


def _changes(at: Place, relation: Relation, tables: Tables) -> tuple[tuple[Row, int], ...]:
    if relation not in tables:
        raise at.error(f'there is no table "{relation}"', f"tables: {', '.join(map(str, tables))}")
    kinds = _kinds(tables[relation])
    changes = []
    for item in at.listed():
        found = item.known((), (*SIGNS, "count"))
        signs = [sign for sign in SIGNS if sign in found]
        if len(signs) != 1:
            raise item.error("a change inserts or deletes", 'write {"insert": [...]}')
        row = _row(found[signs[0]], kinds)
        changes.append((row, SIGNS[signs[0]] * _count(found)))
    return tuple(changes)


def _state(at: Place, kinds: list[Kind]) -> State:
    found = at.known(("rows",), ("claim", "quiet", "label"))
    claim = None
    if "claim" in found:
        claim = {source: n.number(0) for source, n in found["claim"].named().items()}
    return State(
        _bag(found["rows"], kinds),
        claim,
        found["quiet"].truth() if "quiet" in found else False,
        found["label"].text() if "label" in found else "",
    )


# -- writing ---------------------------------------------------------------------------------------


def write_history(history: History) -> str:
    """A history as JSON; its view must have its SQL text."""
    view = history.view
    assert view.text, f'view "{view.name}" has no SQL text: a history file needs it'
    again = bind(parse_view(view.text), history.tables.__getitem__)
    assert again.outputs == view.outputs, f'view "{view.name}": its text defines other columns'
    lines = view.text.strip().split("\n")
    shown = _output_kinds(Place(view.text, "view"), view)
    file = {
        "view": lines if len(lines) > 1 else lines[0],
        "tables": {str(relation): _table(history, relation) for relation in history.tables},
        "transactions": [
            {"name": transaction.name, "parts": _parts(history, transaction)}
            for transaction in history.transactions
        ],
        "states": [_shown(state, shown) for state in history.states],
    }
    return layout(file) + "\n"


def _table(history: History, relation: Relation) -> dict[str, Any]:
    fields = history.tables[relation]
    kinds = _kinds(fields)
    columns = {field.name: kind.word for field, kind in zip(fields, kinds, strict=True)}
    rows = history.initial.get(relation)
    return (
        {"columns": columns} if rows is None else {"columns": columns, "rows": _rows(rows, kinds)}
    )


def _rows(bag: Bag, kinds: list[Kind]) -> list[object]:
    return [
        _plain(row, kinds) if count == 1 else {"row": _plain(row, kinds), "count": count}
        for row, count in bag.items()
    ]


def _plain(row: Row, kinds: list[Kind]) -> list[object]:
    pairs = zip(row, kinds, strict=True)
    return [None if value is None else kind.write(value) for value, kind in pairs]


def _parts(history: History, transaction: Committed) -> dict[str, dict[str, list[object]]]:
    return {
        source: {
            relation.table: [_change(c, _kinds(history.tables[relation])) for c in changes]
            for relation, changes in part.items()
        }
        for source, part in transaction.parts.items()
    }


def _change(change: tuple[Row, int], kinds: list[Kind]) -> dict[str, object]:
    row, count = change
    written: dict[str, object] = {"insert" if count > 0 else "delete": _plain(row, kinds)}
    return written if abs(count) == 1 else {**written, "count": abs(count)}


def _shown(state: State, kinds: list[Kind]) -> dict[str, object]:
    written: dict[str, object] = {"rows": _rows(state.rows, kinds)}
    if state.claim is not None:
        written["claim"] = dict(state.claim)
    if state.quiet:
        written["quiet"] = True
    return {**written, "label": state.label} if state.label else written
