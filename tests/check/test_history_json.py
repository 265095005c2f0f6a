"""History files: what is written is read back, and what is wrong is refused with its place."""

from __future__ import annotations

import copy
import datetime
import decimal
import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.check.histories import random_history
from viewkeeper.check.checker import check_history
from viewkeeper.check.history.history_file import (
    KINDS,
    read_history,
    value_type_of_word,
    write_history,
)
from viewkeeper.check.history.recorded_history import (
    CommittedTransaction,
    RecordedHistory,
    ShownState,
)
from viewkeeper.errors import HistoryError
from viewkeeper.view.definition import Field, Relation
from viewkeeper.view.sql.bind import bind_view
from viewkeeper.view.sql.view_statement import parse_view

EXAMPLES = Path(__file__).parents[2] / "examples" / "histories"
SEEDS = st.integers(min_value=0, max_value=2**32)
R = Relation("x", "main.r")


def everything() -> RecordedHistory:
    """A history with every type, counts, NULLs, a claim and an empty part."""
    types = [*((f"c{i}", kind.type) for i, kind in enumerate(KINDS)), ("d", pa.decimal128(5, 2))]
    fields = tuple(Field(name, type_) for name, type_ in types)
    moment = datetime.datetime(2024, 2, 29, 12, 30, 0, 5)
    row = (
        True,
        2**63 - 1,
        -5,
        7,
        -128,
        float("inf"),
        "it's \n \u2713",
        datetime.date(2024, 2, 29),
        moment,
        moment.replace(tzinfo=datetime.UTC),
        b"\x00\xff",
        decimal.Decimal("-1.50"),
    )
    nothing = (None,) * len(fields)
    view = bind_view(
        parse_view("CREATE MATERIALIZED VIEW v AS\nSELECT * FROM x.main.r AS r"), lambda _: fields
    )
    return RecordedHistory(
        view,
        {R: fields},
        {R: {row: 2}},
        (
            CommittedTransaction("T1", {"x": {R: ((row, -2), (nothing, 1))}, "y": {}}),
            CommittedTransaction("T2", {"x": {}}),
        ),
        (
            ShownState({row: 2}, {"x": 0}, label="begin"),
            ShownState({nothing: 1}, {"x": 1, "y": 1}, quiet=True),
        ),
    )


def test_every_type_and_field_is_read_back_as_written() -> None:
    text = write_history(everything())
    assert read_history(text) == everything()
    assert write_history(read_history(text)) == text
    assert max(map(len, text.splitlines())) <= 100


@given(seed=SEEDS)
def test_random_histories_are_read_back_as_written(seed: int) -> None:
    made = random_history(random.Random(seed))
    sources = ", ".join(f"{relation} AS p{i}" for i, relation in enumerate(made.tables))
    sql = f"CREATE MATERIALIZED VIEW v AS SELECT p0.a AS a, p0.b AS b FROM {sources}"
    view = bind_view(parse_view(sql), made.tables.__getitem__)
    states = tuple(
        replace(state, rows={row[:2]: n for row, n in state.rows.items()}) for state in made.states
    )
    given_history = replace(made, view=view, states=states)
    again = read_history(write_history(given_history))
    assert again == given_history
    assert check_history(again).answers == check_history(given_history).answers


def test_a_view_without_its_text_cannot_be_written() -> None:
    history = everything()
    with pytest.raises(AssertionError, match="has no SQL text"):
        write_history(replace(history, view=replace(history.view, text="")))
    fewer = replace(history.view, outputs=history.view.outputs[:3])
    with pytest.raises(AssertionError, match="its text defines other columns"):
        write_history(replace(history, view=fewer))


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.json")), ids=lambda path: path.stem)
def test_the_examples_are_histories(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert read_history(write_history(read_history(text))) == read_history(text)


# -- refusals --------------------------------------------------------------------------------------

GOOD: dict[str, Any] = json.loads((EXAMPLES / "global_halves.json").read_text(encoding="utf-8"))
Change = Callable[[dict[str, Any]], object]


def put(value: object, *path: str | int) -> Change:
    """Replace or add something in the file."""

    def change(file: Any) -> None:
        for key in path[:-1]:
            file = file[key]
        file[path[-1]] = value

    return change


def drop(*path: str | int) -> Change:
    def change(file: Any) -> None:
        for key in path[:-1]:
            file = file[key]
        del file[path[-1]]

    return change


WRONG: dict[str, tuple[Change, str, str]] = {
    "a key missing": (drop("states"), '"states" is missing', 'add "states"'),
    "a key not known": (
        put(1, "states", 1, "claims"),
        'states[1].claims: "claims" is not known here',
        'did you mean "claim"?',
    ),
    "no object": (put(3, "tables"), "tables: expected an object, got 3", ""),
    "no list": (put({}, "states"), "states: expected a list, got {}", ""),
    "no text": (put(3, "states", 0, "label"), "states[0].label: expected a text, got 3", ""),
    "no truth": (put("yes", "states", 0, "quiet"), "states[0].quiet: expected true or false", ""),
    "no number": (
        put({"x": -1}, "states", 0, "claim"),
        "states[0].claim.x: expected a whole number from 0, got -1",
        "",
    ),
    "no states": (put([], "states"), "states: no state", "the first state"),
    "no type": (
        put("money", "tables", "x.r1", "columns", "a"),
        'tables.x.r1.columns.a: "money" is no type',
        "types: boolean, int",
    ),
    "no columns": (put({}, "tables", "x.r1", "columns"), "tables.x.r1.columns: no columns", ""),
    "no source": (
        put({"columns": {"a": "int"}}, "tables", "r9"),
        '"r9" is no table of a source',
        "source.table",
    ),
    "too few values": (
        put([[1]], "states", 1, "rows"),
        "states[1].rows[0]: 1 values for 3 columns",
        "columns: int, int, int",
    ),
    "another type": (
        put([["1", 3, 5]], "states", 1, "rows"),
        "states[1].rows[0][0]: '1' is no int",
        "write an integer of 64 bits",
    ),
    "a truth for a number": (
        put([[True, 3, 5]], "states", 1, "rows"),
        "states[1].rows[0][0]: True is no int",
        "",
    ),
    "too large": (put([[2**63, 3, 5]], "states", 1, "rows"), "is no int", "64 bits"),
    "no count": (
        put([{"row": [1, 3, 5], "count": 0}], "states", 1, "rows"),
        "states[1].rows[0].count: expected a whole number from 1, got 0",
        "",
    ),
    "no such table": (
        put([], "transactions", 0, "parts", "x", "r7"),
        'transactions[0].parts.x.r7: there is no table "x.r7"',
        "tables: x.r1, y.r2",
    ),
    "no change": (
        put([{"insert": [1, 1], "delete": [1, 1]}], "transactions", 0, "parts", "x", "r1"),
        "transactions[0].parts.x.r1[0]: a change inserts or deletes",
        '{"insert": [...]}',
    ),
    "no part": (put({}, "transactions", 0, "parts"), "transactions[0].parts: no part", ""),
    "no view": (put("CREATE VIEW v", "view"), "view: 1:8: expected MATERIALIZED", "SELECT"),
    "no such column": (
        put("CREATE MATERIALIZED VIEW v AS SELECT r1.q FROM x.r1", "view"),
        "view: 1:38:",
        "",
    ),
    "a table not there": (
        put("CREATE MATERIALIZED VIEW v AS SELECT r9.a FROM x.r9", "view"),
        "view: reads x.r9, which is not there",
        'add "x.r9" to "tables"',
    ),
    "Spark needed": (
        put("CREATE MATERIALIZED VIEW v AS SELECT sqrt(r1.a) AS a FROM x.r1", "view"),
        "view: has an expression that only Spark can evaluate",
        "columns, literals",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_refused_with_its_place(name: str) -> None:
    change, message, hint = WRONG[name]
    file = copy.deepcopy(GOOD)
    change(file)
    with pytest.raises(HistoryError) as caught:
        read_history(json.dumps(file), "h.json")
    assert caught.value.message.startswith("h.json: ")
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "h.json: line 1, column 2: not valid JSON"),
        ('{"view": 1, "view": 2}', '"view" occurs twice in one object'),
        ('{"view": NaN}', "NaN is no JSON"),
    ],
)
def test_what_is_no_json_is_refused(text: str, message: str) -> None:
    with pytest.raises(HistoryError) as caught:
        read_history(text, "h.json")
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("decimal(4,2)", "123.4"),
        ("decimal(4,2)", "1.234"),
        ("decimal(4,2)", "1e1"),
        ("decimal(4,2)", 1.5),
        ("decimal(4,2)", True),
        ("float", "NaN"),
        ("float", "x"),
        ("float", True),
        ("boolean", 1),
        ("int8", 128),
        ("date", "2024-02-30"),
        ("timestamp", "2024-02-29 12:00:00+01:00"),
        ("timestamptz", "2024-02-29 12:00:00"),
        ("binary", "0"),
        ("text", 1),
    ],
)
def test_values_that_do_not_fit_are_refused(word: str, value: object) -> None:
    kind = value_type_of_word(word)
    assert kind is not None
    with pytest.raises(ValueError, match=r".*"):
        kind.read(value)


@pytest.mark.parametrize("word", ["decimal(39,0)", "decimal(0,0)", "decimal(2,3)", "money", ""])
def test_words_that_are_no_types(word: str) -> None:
    assert value_type_of_word(word) is None
