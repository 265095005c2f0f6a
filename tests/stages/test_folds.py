"""A fold is, at every ts, the fold of its input at that ts; and what it writes cancels to the bit.

Random histories of every call and type, with NULLs, NaN, infinities, signed zeros and numbers at
the ends of their types, are folded in batches. After every ts the rows written so far are compared
with the reference over the input's state, and partials of split parts with those of the whole.
"""

from __future__ import annotations

import random
from collections import Counter
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.stages.histories import (
    POOLS,
    Entry,
    bag_of,
    bits_of,
    input_fields,
    make_call,
    make_fold,
    random_history,
    state_at,
    table_of,
)
from tests.stages.reference_fold import OverflowedError, fold_rows
from viewkeeper.delta.algebra import COUNT, TS
from viewkeeper.delta.arrow_compute import pc
from viewkeeper.errors import ExpressionError, StateError
from viewkeeper.stages.fold import (
    advance_fold,
    combine_partials,
    load_groups,
    pre_aggregate,
    stored_schema_of,
)
from viewkeeper.stages.fold_calls import RULES, fold_result_type
from viewkeeper.stages.fold_layout import accumulator_fields
from viewkeeper.view.definition import Field, Fold

LAST = 9
BATCHES = [(0, 3), (3, 4), (4, LAST)]


class FoldedHistory:
    """A fold that follows a history of its input, batch by batch, and checks itself."""

    def __init__(self, fold: Fold, entries: list[Entry], rnd: random.Random) -> None:
        self._fold, self._entries, self._rnd = fold, entries, rnd
        self._fields = input_fields(fold)
        schema, self._hidden = stored_schema_of(fold)
        self._schema = schema.append(pa.field(TS, pa.int64())).append(pa.field(COUNT, pa.int64()))
        self._rows = self._schema.empty_table()
        self.questions = 0

    def run_batches(self) -> None:
        """Load at the first ts, then advance; compare after every ts."""
        self._load_fold(BATCHES[0][0])
        for begin, end in BATCHES:
            self._advance_to(begin, end)
            for ts in range(begin, end + 1):
                self._compare_state(ts)

    def _load_fold(self, ts: int) -> None:
        state = [(row, 0, count) for row, count in state_at(self._entries, ts).items()]
        loaded = load_groups(self._fold, self._partials_of(state))
        stamps = pa.array([ts] * loaded.num_rows, pa.int64())
        self._rows = loaded.append_column(TS, stamps).select(self._schema.names)

    def _partials_of(self, entries: list[Entry]) -> pa.Table:
        parts: list[list[Entry]] = [[], [], []]
        for entry in entries:
            parts[self._rnd.randrange(3)].append(entry)
        made = [pre_aggregate(self._fold, table_of(self._fields, part)) for part in parts]
        combined = combine_partials(self._fold, made)
        whole = pre_aggregate(self._fold, table_of(self._fields, entries))
        assert plain(combined) == plain(whole)
        return combined

    def _advance_to(self, begin: int, end: int) -> None:
        changes = [entry for entry in self._entries if begin < entry[1] <= end]
        before = self._stored_rows(begin)
        asked: list[pa.Table] = []

        def ask_input(keys: pa.Table) -> pa.Table:
            asked.append(keys)
            state = state_at(self._entries, begin).items()
            return table_of(self._fields, [(r, 0, n) for r, n in state]).drop_columns([TS])

        def ask_changes(keys: pa.Table) -> pa.Table:
            return table_of(self._fields, changes)

        partials = self._partials_of(changes)
        found = advance_fold(self._fold, partials, before, ask_input, ask_changes)
        assert len(asked) <= 1
        self.questions += len(asked)
        assert found.schema.equals(self._schema)
        self._rows = pa.concat_tables([self._rows, found])

    def _stored_rows(self, ts: int) -> pa.Table:
        """The rows as of a ts, as a table that netted them would give them."""
        old = self._rows.filter(pc.less_equal(self._rows[TS], ts))
        bag = bag_of(old, [n for n in self._schema.names if n not in (TS, COUNT)])
        kept, seen = [], set()
        for number, row in enumerate(old.drop_columns([TS, COUNT]).to_pylist()):
            key = tuple(map(bits_of, row.values()))
            if bag[key] and key not in seen:
                kept.append(number)
                seen.add(key)
        return old.take(pa.array(kept, pa.int64())).drop_columns([TS, COUNT])

    def _compare_state(self, ts: int) -> None:
        old = self._rows.filter(pc.less_equal(self._rows[TS], ts))
        names = [n for n in self._schema.names if n not in (TS, COUNT)]
        whole = {row: count for row, count in bag_of(old, names).items() if count}
        assert set(whole.values()) <= {1}, "every row is there once or not at all, to the bit"
        shown = [field.name for field in self._fold.fields]
        ours = +bag_of(old, shown)
        fields = [field.name for field in self._fields]
        state = [
            (dict(zip(fields, row, strict=True)), count)
            for row, count in state_at(self._entries, ts).items()
        ]
        theirs = Counter(tuple(map(bits_of, row)) for row in fold_rows(self._fold, state))
        assert ours == theirs, f"at ts {ts}"


def plain(table: pa.Table) -> set[tuple[Any, ...]]:
    return {tuple(map(bits_of, row.values())) for row in table.to_pylist()}


def check_fold(fold: Fold, seed: int, mild: bool = False) -> int:
    """Follow one random history; a history that overflows must do so in both."""
    rnd = random.Random(seed)
    entries = random_history(rnd, input_fields(fold), range(LAST + 1), mild)
    history = FoldedHistory(fold, entries, rnd)
    try:
        history.run_batches()
    except (ExpressionError, OverflowedError):
        assert overflows(fold, entries)
    return history.questions


def overflows(fold: Fold, entries: list[Entry]) -> bool:
    names = [field.name for field in input_fields(fold)]
    try:
        for ts in range(LAST + 1):
            rows = state_at(entries, ts).items()
            fold_rows(fold, [(dict(zip(names, row, strict=True)), n) for row, n in rows])
    except OverflowedError:
        return True
    return False


GROUP, FLOAT_GROUP = Field("g", pa.int32()), Field("h", pa.float64())
ONE = [(f, kind) for f in RULES for kind in POOLS if fold_result_type(f, [kind]) is not None]
TWO = [f for f in RULES if fold_result_type(f, [pa.float64(), pa.float64()]) is not None]
SEEDS = range(6)


@pytest.mark.parametrize(("function", "kind"), ONE, ids=lambda each: str(each))
def test_every_call_of_one_column_is_exact_at_every_ts(function: str, kind: pa.DataType) -> None:
    calls = [make_call("v", function, Field("x", kind))]
    for seed in SEEDS:
        check_fold(make_fold([GROUP], calls), seed, mild=bool(seed % 2))


@pytest.mark.parametrize("function", TWO)
def test_every_call_of_two_columns_is_exact_at_every_ts(function: str) -> None:
    calls = [make_call("v", function, Field("x", pa.float64()), Field("y", pa.float64()))]
    for seed in range(15):
        check_fold(make_fold([GROUP], calls), seed, mild=seed % 3 > 0)


KINDS = (pa.string(), pa.float32(), pa.bool_(), pa.decimal128(5, 2), pa.date32())


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_rows_are_picked_by_every_type(kind: pa.DataType) -> None:
    x, y = Field("x", kind), Field("y", pa.int8())
    calls = [make_call("most", "max_by", y, x), make_call("least", "min_by", x, y)]
    for seed in SEEDS:
        check_fold(make_fold([GROUP], calls), seed)


def many_calls(where: str | None) -> list[Any]:
    x, y, s = Field("x", pa.float64()), Field("y", pa.decimal128(5, 2)), Field("s", pa.string())
    return [
        make_call("rows", "count", where=where),
        make_call("pairs", "count", x, y, where=where),
        make_call("a", "sum", y, where=where),
        make_call("b", "avg", y),
        make_call("c", "stddev", x, where=where),
        make_call("d", "sum", x, where=where),
        make_call("e", "max", s, where=where),
        make_call("f", "min", s),
        make_call("g1", "min_by", s, x, where=where),
    ]


@pytest.mark.parametrize("where", [None, "w"])
@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("groups", [[], [FLOAT_GROUP], [GROUP, FLOAT_GROUP]], ids=len)
def test_many_calls_share_what_they_keep(
    where: str | None, hidden: bool, groups: list[Field]
) -> None:
    fold = make_fold(groups, many_calls(where), hidden)
    asked = sum(check_fold(fold, seed, mild=True) for seed in range(10))
    assert asked, "no history has lost an extreme"


@pytest.mark.parametrize("groups", [[GROUP], [FLOAT_GROUP, GROUP]], ids=len)
def test_a_fold_without_calls_is_distinct(groups: list[Field]) -> None:
    for seed in SEEDS:
        check_fold(make_fold(groups, []), seed)


def test_calls_share_accumulators() -> None:
    x = Field("x", pa.int64())
    calls = [make_call(f, f, x) for f in ("sum", "avg", "count")]
    names = [field.name for field in accumulator_fields(make_fold([GROUP], calls))]
    assert names == ["__count", "__count_1", "__sum_2"]


def refuse(keys: pa.Table) -> pa.Table:
    raise AssertionError("nobody needs to be asked")


def advance(fold: Fold, before: pa.Table, *entries: Entry) -> pa.Table:
    rows = table_of(input_fields(fold), list(entries))
    return advance_fold(fold, pre_aggregate(fold, rows), before, refuse, refuse)


def loaded(fold: Fold, *entries: Entry) -> pa.Table:
    rows = table_of(input_fields(fold), list(entries))
    return load_groups(fold, pre_aggregate(fold, rows))


def test_overflow_counts_only_where_it_is_shown() -> None:
    fold = make_fold([GROUP], [make_call("v", "sum", Field("x", pa.int64()))])
    top, before = 2**63 - 1, loaded(fold)
    found = advance(fold, before, ((1, top), 1, 2), ((1, -top), 1, 1))
    assert found["v"].to_pylist() == [top]
    with pytest.raises(ExpressionError, match=r"sum\(x\) overflowed") as error:
        advance(fold, before, ((1, top), 1, 2), ((1, -top), 2, 1))
    assert "at ts 1" in str(error.value)


def test_an_average_fits_though_its_sum_does_not() -> None:
    """Spark finds it with one task and fails with two: it looks at sums on their way."""
    fold = make_fold([GROUP], [make_call("v", "avg", Field("x", pa.decimal128(38, 0)))])
    value = Decimal(9) * 10**33
    assert loaded(fold, ((1, value), 1, 20_000))["v"].to_pylist() == [value]


def test_the_lowest_bigint_is_a_sum() -> None:
    fold = make_fold([GROUP], [make_call("v", "sum", Field("x", pa.int64()))])
    assert loaded(fold, ((1, -(2**63)), 1, 1))["v"].to_pylist() == [-(2**63)]


def test_ties_keep_a_group_from_being_asked() -> None:
    fold = make_fold([GROUP], [make_call("v", "min", Field("x", pa.int64()))])
    before = loaded(fold, ((1, 5), 0, 2), ((1, 7), 0, 1))
    found = advance(fold, before, ((1, 5), 1, -1), ((1, 5), 2, -1), ((1, 3), 2, 1))
    assert found["v"].to_pylist() == [5, 5, 5, 3]


def test_nothing_is_written_where_nothing_changes() -> None:
    fold = make_fold([GROUP], [make_call("v", "max", Field("x", pa.int64()))])
    before = loaded(fold, ((1, 5), 0, 1), ((1, 4), 0, 1))
    assert advance(fold, before, ((1, 5), 1, 1), ((1, 5), 1, -1)).num_rows == 0
    assert advance(fold, before).num_rows == 0


def test_a_global_fold_has_a_row_without_input() -> None:
    fold = make_fold([], [make_call("n", "count"), make_call("v", "max", Field("x", pa.int64()))])
    before = loaded(fold)
    assert before.select(["n", "v", COUNT]).to_pylist() == [{"n": 0, "v": None, COUNT: 1}]
    found = advance(fold, before, ((8,), 1, 1), ((8,), 3, -1))
    assert found.select(["n", "v", TS, COUNT]).to_pylist() == [
        {"n": 0, "v": None, TS: 1, COUNT: -1},
        {"n": 1, "v": 8, TS: 3, COUNT: -1},
        {"n": 1, "v": 8, TS: 1, COUNT: 1},
        {"n": 0, "v": None, TS: 3, COUNT: 1},
    ]


@pytest.mark.parametrize(
    "entries",
    [
        [((1, 5), 1, -2)],
        [((1, 4), 1, -1)],
        [((2, 5), 1, -1)],
        [((1, None), 1, -1)],
    ],
)
def test_a_contradiction_stops_the_view(entries: list[Entry]) -> None:
    fold = make_fold([GROUP], [make_call("v", "sum", Field("x", pa.int64()))])
    with pytest.raises(StateError) as error:
        advance(fold, loaded(fold, ((1, 5), 0, 1)), *entries)
    assert "ts 1" in str(error.value)
    assert "5" not in error.value.message, "no row's values in an error"


def test_an_extreme_that_was_never_there_stops_the_view() -> None:
    fold = make_fold([GROUP], [make_call("v", "min", Field("x", pa.int64()))])
    before = loaded(fold, ((1, 5), 0, 3))
    changes = table_of(input_fields(fold), [((1, 3), 1, -1)])
    rows = table_of(input_fields(fold), [((1, 5), 0, 3)])
    with pytest.raises(StateError, match="__min_1_ties is negative"):
        advance_fold(
            fold, pre_aggregate(fold, changes), before, lambda keys: rows, lambda keys: changes
        )


def test_a_global_fold_without_its_row_is_refused() -> None:
    fold = make_fold([], [make_call("n", "count")])
    with pytest.raises(StateError, match="0 rows, not one"):
        advance(fold, loaded(fold).slice(0, 0), ((), 1, 1))


def test_a_group_that_is_stored_twice_is_refused() -> None:
    fold = make_fold([GROUP], [])
    before = loaded(fold, ((1,), 0, 1))
    with pytest.raises(StateError, match="twice"):
        advance(fold, pa.concat_tables([before, before]), ((1,), 1, 1))
