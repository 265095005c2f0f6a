"""A side against scalars, compared with evaluating everything again at every ts."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewkeeper.delta.algebra import COUNT, TS
from viewkeeper.errors import ExpressionError
from viewkeeper.stages import scalar_side
from viewkeeper.stages.scalar_side import ScalarChanges, SideChanges, compare_side
from viewkeeper.view.definition import (
    Core,
    Equality,
    Field,
    Output,
    Place,
    Relation,
    ViewDefinition,
)
from viewkeeper.view.expression import Arithmetic, Call, Column, Compare, Expression, Literal

LONG = pa.int64()
KEY, VALUE = Column(0, "k", LONG), Column(0, "x", LONG)
LIMIT, TOTAL = Column(1, "v", LONG), Column(2, "v", LONG)
ROWS = Sequence[tuple[int, int | None, int, int]]
"""Rows of a side: key, value, ts, count."""


def make_core(outputs: Sequence[Expression], *conditions: Expression, equal: bool = False) -> Core:
    """A core over a side (k, x) and two scalars."""
    places = (
        Place(0, "side", Relation("", "#0"), (Field("k", LONG), Field("x", LONG))),
        Place(1, "limit", Relation("", "#1"), (Field("v", LONG),)),
        Place(2, "total", Relation("", "#2"), (Field("v", LONG),)),
    )
    shown = tuple(Output(f"c{at}", each) for at, each in enumerate(outputs))
    equalities = (Equality(VALUE, LIMIT, null_safe=False),) if equal else ()
    view = ViewDefinition("#3", places, equalities, conditions, shown, "", "")
    return Core(3, view, scalars=(1, 2))


ABOVE = make_core([KEY], Compare(">", VALUE, LIMIT))
BETWEEN = make_core([KEY, VALUE], Compare(">", VALUE, LIMIT), Compare("<", VALUE, TOTAL))
EQUAL = make_core([KEY, VALUE], Compare(">", KEY, Literal(0, LONG)), equal=True)
SUM = make_core([KEY, Arithmetic("+", VALUE, TOTAL, LONG)], Compare(">", VALUE, LIMIT))
SHARE = make_core([KEY, Call("remainder", (VALUE, TOTAL), LONG)])


def side_table(rows: ROWS) -> pa.Table:
    columns = [*zip(*rows, strict=True)] or [(), (), (), ()]
    return pa.table([pa.array(c, LONG) for c in columns], names=["k", "x", TS, COUNT])


def scalar_changes(place: Place, course: dict[int, int | None]) -> ScalarChanges:
    """A scalar with values from ts on; the one at 0 is there before the batch."""
    values = [None if course[0] is None else course[0]]
    before = pa.table({"v": pa.array(values, LONG), COUNT: pa.array([1], LONG)})
    signed: list[tuple[int | None, int, int]] = []
    for ts in sorted(course)[1:]:
        if course[ts] != values[-1]:
            signed += [(values[-1], ts, -1), (course[ts], ts, 1)]
            values.append(course[ts])
    columns = [*zip(*signed, strict=True)] or [(), (), ()]
    changes = pa.table([pa.array(c, LONG) for c in columns], names=["v", TS, COUNT])
    return ScalarChanges(place, before, changes)


def compare(core: Core, rows: ROWS, courses: Sequence[dict[int, int | None]]) -> SideChanges:
    """What a batch changes; rows with ts 0 were there before it."""
    scalars = [
        scalar_changes(place, course)
        for place, course in zip(core.view.places[1:], courses, strict=True)
    ]
    before = side_table([row for row in rows if row[2] == 0]).drop_columns([TS])
    changes = side_table([row for row in rows if row[2] > 0])
    return compare_side(core, lambda: before, changes, scalars)


def shown_at(
    core: Core, rows: ROWS, courses: Sequence[dict[int, int | None]], ts: int
) -> Counter[tuple[int | None, ...]]:
    """What the core shows as of a ts, row by row."""
    limit, total = (course[max(t for t in course if t <= ts)] for course in courses)
    found: Counter[tuple[int | None, ...]] = Counter()
    for key, value, since, count in rows:
        if since <= ts and value is not None and limit is not None:
            for row in shown_row(core, key, value, (limit, total)):
                found[row] += count
    return Counter({row: n for row, n in found.items() if n})


def shown_row(
    core: Core, key: int, value: int, values: tuple[int, int | None]
) -> list[tuple[int | None, ...]]:
    """What the core shows of a row; every core here needs a value and a limit."""
    limit, total = values
    if core is ABOVE and value > limit:
        return [(key,)]
    if core is SUM and value > limit:
        return [(key, None if total is None else value + total)]
    if core is BETWEEN and total is not None and limit < value < total:
        return [(key, value)]
    return [(key, value)] if core is EQUAL and key > 0 and value == limit else []


def summed_at(made: pa.Table, ts: int) -> Counter[tuple[int | None, ...]]:
    found: Counter[tuple[int | None, ...]] = Counter()
    for *row, since, count in zip(*(c.to_pylist() for c in made.columns), strict=True):
        if since <= ts:
            found[tuple(row)] += count
    return Counter({row: n for row, n in found.items() if n})


def random_rows(rng: random.Random, last: int) -> ROWS:
    """Rows that come and go, some of them more than once."""
    rows: list[tuple[int, int | None, int, int]] = []
    for _ in range(rng.randint(0, 12)):
        key, value = rng.randint(-1, 3), rng.choice([None, *range(6)])
        born = rng.choice([0, 0, rng.randint(1, last)])
        rows.append((key, value, born, 1))
        if rng.random() < 0.5 and born < last:
            rows.append((key, value, rng.randint(born + 1, last), -1))
    return rows


def random_course(rng: random.Random, last: int) -> dict[int, int | None]:
    stamps = [0, *(ts for ts in range(1, last + 1) if rng.random() < 0.3)]
    return {ts: rng.choice([None, *range(6)]) for ts in stamps}


@given(st.integers(0, 2**32), st.sampled_from([ABOVE, BETWEEN, EQUAL, SUM]))
def test_the_difference_is_right_at_every_ts(seed: int, core: Core) -> None:
    check_side(seed, core)


def check_side(seed: int, core: Core) -> None:
    """Compare a random side with random scalars at every ts."""
    rng, last = random.Random(seed), 6
    rows = random_rows(rng, last)
    courses = [random_course(rng, last), random_course(rng, last)]
    made = compare(core, rows, courses)
    assert not made.merged
    before = shown_at(core, rows, courses, 0)
    for ts in range(last + 1):
        found = summed_at(made.rows, ts)
        found.update(before)
        assert Counter({r: n for r, n in found.items() if n}) == shown_at(core, rows, courses, ts)


@given(st.integers(0, 2**32))
def test_a_batch_with_too_many_rows_is_one_step(seed: int) -> None:
    rng, last = random.Random(seed), 6
    rows = random_rows(rng, last)
    courses = [random_course(rng, last), random_course(rng, last)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scalar_side, "SHOWN_ROWS_MAX", -1)
        made = compare(SUM, rows, courses)
    changed = any(len(set(course.values())) > 1 for course in courses)
    assert made.merged or not changed
    found = summed_at(made.rows, last)
    found.update(shown_at(SUM, rows, courses, 0))
    wanted = shown_at(SUM, rows, courses, last)
    assert Counter({row: n for row, n in found.items() if n}) == wanted
    if made.merged:
        assert len(set(made.rows[TS].to_pylist())) <= 1


def test_a_row_that_is_gone_does_not_fail() -> None:
    rows = [(1, 5, 0, 1), (1, 5, 3, -1)]
    made = compare(SHARE, rows, [{0: 1}, {0: 2, 3: 0}])
    assert made.rows.to_pylist() == [{"c0": 1, "c1": 1, TS: 3, COUNT: -1}]


def test_a_row_that_is_there_fails() -> None:
    with pytest.raises(ExpressionError, match="division by zero"):
        compare(SHARE, [(1, 5, 0, 1)], [{0: 1}, {0: 2, 3: 0}])


def test_nothing_is_read_while_no_scalar_changes() -> None:
    def read_side() -> pa.Table:
        raise AssertionError("the side was read")

    scalars = [scalar_changes(place, {0: 1}) for place in ABOVE.view.places[1:]]
    made = compare_side(ABOVE, read_side, side_table([(7, 2, 4, 1), (8, 1, 4, 1)]), scalars)
    assert made.rows.to_pylist() == [{"c0": 7, TS: 4, COUNT: 1}]
