"""The law of a recompute: what it emits adds up to what its rows are, at every ts.

    evaluate(before) + delta up to t = evaluate(before + changes up to t)

bit for bit, over random rows of edge values, also when memory allows a few rows at a time only.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from tests.stages.recompute_nodes import (
    FLAG,
    KEY,
    NUMBER,
    ORDERS,
    WHOLE,
    count_rows,
    make_recompute,
    make_window_call,
    random_rows,
)
from viewkeeper.delta.algebra import COUNT, TS
from viewkeeper.delta.kernel import Kernel
from viewkeeper.errors import StateError, UnsupportedError
from viewkeeper.stages import key_recompute
from viewkeeper.stages.key_recompute import advance_recompute, evaluate_rows
from viewkeeper.view.definition import Field, KeyRecompute, SortKey, WindowFrame

X, S = Field("x", pa.float64()), Field("s", pa.string())
READ = (KEY, NUMBER, X, S, FLAG)
Bag = Counter[str]


def windows(rnd: random.Random, keys: tuple[str, ...]) -> KeyRecompute:
    near = WindowFrame("rows", "-1", "1")
    calls = [
        make_window_call("a", "row_number"),
        make_window_call("b", "dense_rank"),
        make_window_call("c", "lag", S, S, settings=("1",)),
        make_window_call("d", "sum", X, frame=near),
        make_window_call("e", "max", X, frame=WindowFrame("range", "-1", "0")),
        make_window_call("g", "last_value", S, frame=near, ignores_nulls=True),
        make_window_call("h", "avg", NUMBER, frame=near, where=FLAG.name),
    ]
    return make_recompute(calls, READ, [rnd.choice(ORDERS)], keys)


def groups(_rnd: random.Random, keys: tuple[str, ...]) -> KeyRecompute:
    by = (SortKey("s"),)
    calls = [
        make_window_call("a", "percentile", X, settings=("0.3",), order=(SortKey("x"),)),
        make_window_call("b", "mode", S, order=(SortKey("s", True, True),)),
        make_window_call("c", "listagg", S, settings=("|",), order=by),
        make_window_call("d", "count", S, is_distinct=True, where=FLAG.name),
        make_window_call("e", "sum", X),
    ]
    return make_recompute(calls, READ, (), keys, is_grouped=True)


def bag_of(table: pa.Table) -> Bag:
    found: Bag = Counter()
    for row in table.to_pylist():
        times = row.pop(COUNT)
        found[repr(row)] += times
    return found


def state_of(node: KeyRecompute, rows: pa.Table, counts: list[int]) -> Bag:
    alive = [i for i, count in enumerate(counts) if count]
    kept = rows.take(alive)
    return bag_of(evaluate_rows(node, count_rows(kept, [counts[i] for i in alive]), 1))


def touched(node: KeyRecompute, rows: pa.Table, changed: list[int]) -> list[bool]:
    """Which rows have a key that is touched: a recompute is given whole keys and no others."""
    keys = [
        tuple("NaN" if row[name] != row[name] else row[name] for name in node.keys)
        for row in rows.to_pylist()
    ]
    wanted = {keys[i] for i in changed}
    return [key in wanted for key in keys]


@pytest.mark.parametrize("make", [windows, groups])
@pytest.mark.parametrize("cells", [1 << 20, 7])
@pytest.mark.parametrize("seed", range(12))
def test_deltas_add_up_to_the_rows(
    make: Any, cells: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_recompute, "CELLS_MAX", cells)
    check_recompute(make, seed)


def check_recompute(make: Any, seed: int) -> None:
    """Follow random rows of a random recompute, and compare at every ts."""
    rnd = random.Random(seed)
    node = make(rnd, rnd.choice([(KEY.name,), (KEY.name, FLAG.name), (), (S.name,), (X.name,)]))
    rows = random_rows(READ, 30, rnd)
    before = [rnd.choice([0, 0, 1, 1, 2]) for _ in range(30)]
    now, changes = list(before), []
    for ts in range(5, 13):
        for _ in range(rnd.randint(1, 3)):
            row = rnd.randrange(30)
            by = rnd.choice([1, -1]) if now[row] else 1
            now[row] += by
            changes.append((row, by, ts))
    own = touched(node, rows, [row for row, _, _ in changes])
    asked = [i for i in range(30) if own[i] and before[i]]
    delta = count_rows(
        rows.take([row for row, _, _ in changes]),
        [by for _, by, _ in changes],
        [ts for _, _, ts in changes],
    )
    found = advance_recompute(
        node, delta, count_rows(rows.take(asked), [before[i] for i in asked])
    ).to_pylist()
    counts, bag = list(before), state_of(node, rows, before)
    for ts in range(5, 13):
        for row, by, at in changes:
            counts[row] += by if at == ts else 0
        for made in [each for each in found if each[TS] == ts]:
            shown = {name: value for name, value in made.items() if name not in (TS, COUNT)}
            bag[repr(shown)] += made[COUNT]
        bag = Counter({row: count for row, count in bag.items() if count})
        assert bag == state_of(node, rows, counts), f"ts {ts}"


def test_only_what_differs_between_versions_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_recompute, "CELLS_MAX", 100)
    together: list[int] = []

    class CountingKernel(Kernel):
        def consolidate(self, delta: pa.Table) -> pa.Table:
            together.append(delta.num_rows)
            return super().consolidate(delta)

    monkeypatch.setattr(key_recompute, "Kernel", CountingKernel)
    node = make_recompute([make_window_call("a", "row_number")], (KEY, NUMBER), [SortKey("o")])
    keys, stamps = 20, 10
    k = pa.array([key for key in range(keys) for _ in range(stamps)], pa.int32())
    old = pa.table({"k": k, "o": pa.array([*range(stamps)] * keys, pa.int32())})
    new = pa.table({"k": k, "o": pa.array([*range(stamps, 2 * stamps)] * keys, pa.int32())})
    delta = count_rows(new, [1] * new.num_rows, [*range(1, stamps + 1)] * keys)
    made = advance_recompute(node, delta, count_rows(old, [1] * old.num_rows))
    # Each partition has 10 to 20 rows in each of 11 versions; one row comes in each.
    assert made.num_rows == keys * stamps
    assert together == [made.num_rows]


def test_a_row_that_was_never_there_cannot_go() -> None:
    node = make_recompute([make_window_call("a", "row_number")], (KEY, NUMBER), [SortKey("o")])
    rows = pa.table({"k": pa.array([1], pa.int32()), "o": pa.array([1], pa.int32())})
    with pytest.raises(StateError, match="less than never"):
        advance_recompute(node, count_rows(rows, [-1], [3]), count_rows(rows.slice(0, 0), []))


def test_rows_without_a_key_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_recompute, "ROWS_MAX", 3)
    node = make_recompute([make_window_call("a", "row_number")], (NUMBER,), [SortKey("o")], ())
    rows = pa.table({"o": pa.array([1], pa.int32())})
    assert evaluate_rows(node, count_rows(rows, [3]), 1).num_rows == 3
    with pytest.raises(UnsupportedError, match="more than 3 rows"):
        evaluate_rows(node, count_rows(rows, [4]), 1)


def test_all_rows_together_are_one_group_even_without_rows() -> None:
    calls = [make_window_call("n", "count", frame=WHOLE)]
    node = make_recompute(calls, (NUMBER,), (), (), is_grouped=True)
    nothing = count_rows(pa.table({"o": pa.array([], pa.int32())}), [])
    assert evaluate_rows(node, nothing, 1).to_pylist() == [{"n": 0, COUNT: 1}]
