"""Recomputes for tests: nodes with chosen calls over a column of each type, and random rows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tests.stages.histories import POOLS
from viewkeeper.delta.algebra import COUNT, TS
from viewkeeper.stages.window_calls import window_result_type
from viewkeeper.view.definition import (
    Field,
    KeyRecompute,
    Output,
    Relation,
    SortKey,
    WindowCall,
    WindowFrame,
)
from viewkeeper.view.expression import Column

WHOLE = WindowFrame("range")
RUNNING = WindowFrame("range", None, "0")
FRAMES = (
    WHOLE,
    RUNNING,
    WindowFrame("range", "0", None),
    WindowFrame("rows", None, "0"),
    WindowFrame("rows", "-1", "1"),
    WindowFrame("rows", "-2", "-1"),
    WindowFrame("rows", "1", "3"),
    WindowFrame("rows", "0", None),
)
ORDERS = (
    SortKey("o"),
    SortKey("o", descending=True, nulls_last=True),
    SortKey("o", nulls_last=True),
    SortKey("o", descending=True),
)
KEY, NUMBER, FLAG = Field("k", pa.int32()), Field("o", pa.int32()), Field("f", pa.bool_())


def make_window_call(
    name: str, function: str, *arguments: Field, frame: WindowFrame = WHOLE, **others: Any
) -> WindowCall:
    kind = window_result_type(function, [field.type for field in arguments])
    assert kind is not None, f"{function} of {arguments} is not known"
    return WindowCall(name, function, arguments, kind, frame, **others)


def make_recompute(
    calls: Sequence[WindowCall],
    read: Sequence[Field],
    order: Sequence[SortKey] = (),
    keys: Sequence[str] = (KEY.name,),
    is_grouped: bool = False,
) -> KeyRecompute:
    """A recompute that shows its keys, or all that it reads, and its calls."""
    shown = [field for field in read if not is_grouped or field.name in keys]
    columns = [*shown, *(Field(call.name, call.type) for call in calls)]
    return KeyRecompute(
        0,
        Relation("", "#9"),
        tuple(sorted(read, key=lambda field: field.name)),
        tuple(keys),
        tuple(order),
        (),
        tuple(calls),
        tuple(Output(f.name, Column(0, f.name, f.type)) for f in columns),
        is_grouped,
    )


def random_rows(fields: Sequence[Field], size: int, rnd: random.Random) -> pa.Table:
    """Rows of edge values; keys and orders meet often, and some are NULL."""
    columns = {}
    for field in fields:
        pool = POOLS[field.type] if field not in (KEY, NUMBER) else [0, 1, 2, 3]
        values = [None if rnd.random() < 0.2 else rnd.choice(pool) for _ in range(size)]
        columns[field.name] = pa.array(values, field.type)
    return pa.table(columns)


def count_rows(rows: pa.Table, counts: Sequence[int], ts: Sequence[int] | None = None) -> pa.Table:
    """Rows with their counts, and with their ts if they are changes."""
    if ts is not None:
        rows = rows.append_column(TS, pa.array(list(ts), pa.int64()))
    return rows.append_column(COUNT, pa.array(list(counts), pa.int64()))
