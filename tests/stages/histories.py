"""Random histories of a fold's input: rows that come and go over transactions and batches.

Values are drawn from small pools of edge values of each type, so that groups meet, become empty and
come back, extremes are lost, and sums reach the ends of their types.
"""

from __future__ import annotations

import datetime
import math
import random
import struct
from collections import Counter
from decimal import Decimal
from typing import Any

import pyarrow as pa

from viewkeeper.delta.algebra import COUNT, TS
from viewkeeper.stages.fold_calls import fold_result_type
from viewkeeper.view.definition import Field, Fold, FoldCall, Output, Relation
from viewkeeper.view.expression import Column

ZONE = datetime.UTC
POOLS: dict[pa.DataType, list[Any]] = {
    pa.int8(): [-128, 127, 0, 5, 5],
    pa.int16(): [-(2**15), 2**15 - 1, 1],
    pa.int32(): [-(2**31), 2**31 - 1, 0, 7],
    pa.int64(): [-(2**62), 2**61, 0, 9007199254740993, -3],
    pa.decimal128(5, 2): [Decimal("1.01"), Decimal("-999.99"), Decimal("0.00"), Decimal("2.5")],
    pa.decimal128(28, 3): [Decimal(10**24) + Decimal("0.001"), Decimal("-7.125"), Decimal(3)],
    pa.decimal128(38, 0): [Decimal(9) * 10**33, Decimal(-(10**33)), Decimal(8)],
    pa.decimal128(38, 37): [Decimal("0.3"), Decimal("-0.0000000000000000000000000000000000007")],
    pa.float32(): [1.5, -0.0, 0.0, 0.10000000149011612, math.nan, math.inf, 3.4028234663852886e38],
    pa.float64(): [
        *(0.1, 1e16, -1e16, 1.0, 5e-324, 1e308, -1e308, -0.0, 0.0, 0.3),
        *(math.nan, math.inf, -math.inf),
    ],
    pa.bool_(): [True, False],
    pa.string(): ["", "a", "B", "é", "z", "\U0001f600"],
    pa.binary(): [b"", b"\x00", b"\xff", b"a"],
    pa.date32(): [datetime.date(1, 1, 1), datetime.date(2024, 2, 29), datetime.date(9999, 12, 31)],
    pa.timestamp("us"): [datetime.datetime(1969, 12, 31, 23), datetime.datetime(2024, 1, 1)],
    pa.timestamp("us", "UTC"): [
        datetime.datetime(1900, 1, 1, tzinfo=ZONE),
        datetime.datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=ZONE),
    ],
}


def make_call(name: str, function: str, *arguments: Field, where: str | None = None) -> FoldCall:
    kind = fold_result_type(function, [field.type for field in arguments])
    assert kind is not None, f"{function} of {arguments} cannot be folded"
    return FoldCall(name, function, arguments, kind, where)


def make_fold(groups: list[Field], calls: list[FoldCall], hidden: bool = False) -> Fold:
    """A fold that shows its calls, and its groups if they are not hidden."""
    shown: list[Field | FoldCall] = [*([] if hidden else groups), *calls]
    outputs = tuple(Output(each.name, Column(0, each.name, each.type)) for each in shown)
    return Fold(1, Relation("", "#0"), tuple(groups), tuple(calls), outputs, not groups)


def input_fields(fold: Fold) -> list[Field]:
    """The columns that a fold reads."""
    found = [*fold.groups, *(field for call in fold.calls for field in call.arguments)]
    found += [Field(call.where, pa.bool_()) for call in fold.calls if call.where]
    return list(dict.fromkeys(found))


Entry = tuple[tuple[Any, ...], int, int]
"""A row, its ts and its count."""


def random_history(
    rnd: random.Random, fields: list[Field], ts: range, mild: bool = False
) -> list[Entry]:
    """Signed rows of some transactions, netted per row and ts; no row is ever there less than no
    times."""
    held: Counter[tuple[Any, ...]] = Counter()
    entries: list[Entry] = []
    for at in ts:
        moves: Counter[tuple[Any, ...]] = Counter()
        for _ in range(rnd.randint(0, 5)):
            there = [row for row in held if held[row] + moves[row] > 0]
            if there and rnd.random() < 0.5:
                row = rnd.choice(there)
                moves[row] -= rnd.randint(1, held[row] + moves[row])
            else:
                moves[tuple(draw(rnd, field, mild) for field in fields)] += rnd.choice([1, 1, 2])
        for row, count in moves.items():
            if count:
                entries.append((row, at, count))
                held[row] += count
    return entries


def draw(rnd: random.Random, field: Field, mild: bool) -> Any:
    if rnd.random() < 0.15:
        return None
    pool = POOLS[field.type]
    if mild:
        pool = [v for v in pool if not isinstance(v, float) or abs(v) < 1e100]
    return rnd.choice(pool)


def table_of(fields: list[Field], entries: list[Entry]) -> pa.Table:
    columns = {
        field.name: pa.array([row[i] for row, _, _ in entries], field.type)
        for i, field in enumerate(fields)
    }
    columns[TS] = pa.array([ts for _, ts, _ in entries], pa.int64())
    columns[COUNT] = pa.array([count for _, _, count in entries], pa.int64())
    return pa.table(columns)


def state_at(entries: list[Entry], ts: int) -> Counter[tuple[Any, ...]]:
    held: Counter[tuple[Any, ...]] = Counter()
    for row, at, count in entries:
        if at <= ts:
            held[row] += count
    return +held


def bits_of(value: Any) -> Any:
    """A value by which NaN is itself, and zeros of different signs differ."""
    return struct.pack(">d", value) if isinstance(value, float) else value


def bag_of(table: pa.Table, names: list[str]) -> Counter[tuple[Any, ...]]:
    """The rows of a table with their counts."""
    bag: Counter[tuple[Any, ...]] = Counter()
    counts: list[Any] = table[COUNT].to_pylist()
    columns = [table[name].to_pylist() for name in names]
    for row, count in zip(zip(*columns, strict=True), counts, strict=True):
        bag[tuple(map(bits_of, row))] += count
    return bag
