"""A place that only moves a window of another one: asked by dates, and right as of every ts.

Random views of two and three places in which a relation of dates is joined with another one by
comparisons, and by nothing else; random histories in which its row is replaced, and others in which
rows just come and go; random cuts with holes; both carriers.
"""

from __future__ import annotations

import datetime
import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.maintain.test_batch_sweep import check, swept
from tests.maintain.worlds import Entry, World
from viewkeeper.delta.algebra import Algebra
from viewkeeper.delta.kernel import Kernel
from viewkeeper.delta.reference_carrier import Reference, Row
from viewkeeper.maintain.view_change import lookup_for, relevant_changes
from viewkeeper.sources.memory import MemorySource
from viewkeeper.updates.cut import Cut
from viewkeeper.view.definition import Equality, Field, Output, Place, Relation, ViewDefinition
from viewkeeper.view.expression import Column, Compare, Expression
from viewkeeper.view.moving_window import moving_window_of
from viewkeeper.view.sweep_plan import sweep_plan_of

SEEDS = st.integers(min_value=0, max_value=2**32)
DATE = pa.date32()
ORDERS = (Field("id", pa.int64()), Field("day", DATE))
WINDOW = (Field("low", DATE), Field("high", DATE))
NAMES = (Field("id", pa.int64()), Field("name", pa.string()))
LOW, HIGH, DAY = Column(1, "low", DATE), Column(1, "high", DATE), Column(0, "day", DATE)


def window_view(rng: random.Random) -> ViewDefinition:
    """A view of orders whose days lie in a window, with or without the names of the orders."""
    conditions: list[Expression] = [
        Compare(rng.choice([">=", ">", "="]), DAY, LOW),
        Compare(rng.choice(["<=", "<"]), DAY, HIGH),
        Compare(rng.choice([">=", ">"]), HIGH, DAY),
        Compare("<", LOW, HIGH),
    ]
    chosen = rng.sample(conditions, rng.randint(1, 3))
    places = [
        Place(0, "o", Relation("shop", "orders"), ORDERS),
        Place(1, "w", Relation("time", "window"), WINDOW),
        Place(2, "n", Relation("shop", "names"), NAMES),
    ]
    outputs = [Output("id", Column(0, "id", pa.int64())), Output("day", DAY)]
    equalities: tuple[Equality, ...] = ()
    if rng.random() < 0.6:
        key = (Column(0, "id", pa.int64()), Column(2, "id", pa.int64()))
        equalities = (Equality(*key, null_safe=False),)
        outputs.append(Output("name", Column(2, "name", pa.string())))
    else:
        places = places[:2]
    if rng.random() < 0.15:
        outputs.append(Output("low", LOW))
    return ViewDefinition(
        "v", tuple(places), equalities, tuple(chosen), tuple(outputs), query="", text=""
    )


def random_date(rng: random.Random) -> datetime.date | None:
    return None if rng.random() < 0.1 else datetime.date(2026, 3, rng.randint(1, 9))


def window_world(rng: random.Random) -> World:
    """A view, and a history in which the window moves now and then."""
    sources = {
        "shop": MemorySource("shop", {"orders": ORDERS, "names": NAMES}),
        "time": MemorySource("time", {"window": WINDOW}),
    }
    entries = []
    for ts in range(1, rng.randint(5, 16)):
        name = rng.choice(["shop", "time"])
        delta = _move(rng, sources[name]) if name == "time" else _change(rng, sources[name])
        entries.append(Entry(ts, {name: sources[name].commit(delta)}))
    before = rng.randint(0, len(entries) - 1)
    until = rng.randint(before + 1, len(entries))
    return World(window_view(rng), sources, tuple(entries), before, until)


def _move(rng: random.Random, source: MemorySource) -> dict[str, list[tuple[Row, int]]]:
    """The window's row is replaced; now and then one just comes, or goes."""
    present = sorted(source.rows_under("window", Cut(1 << 30)).elements(), key=repr)
    new = (random_date(rng), random_date(rng))
    if not present or rng.random() < 0.15:
        return {"window": [(new, 1)]}
    old = rng.choice(present)
    return {"window": [(old, -1)] if rng.random() < 0.1 else [(old, -1), (new, 1)]}


def _change(rng: random.Random, source: MemorySource) -> dict[str, list[tuple[Row, int]]]:
    table = rng.choice(["orders", "orders", "names"])
    present = sorted(source.rows_under(table, Cut(1 << 30)).elements(), key=repr)
    last = random_date(rng) if table == "orders" else rng.choice("xyz")
    if present and rng.random() < 0.35:
        return {table: [(rng.choice(present), -1)]}
    return {table: [((rng.randint(0, 3), last), 1)]}


@pytest.mark.parametrize("algebra", [Reference(), Kernel()], ids=["reference", "arrow"])
@given(seed=SEEDS)
def test_every_state_equals_recomputation(
    algebra: Algebra[Any], tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    rng = random.Random(seed)
    world = window_world(rng)
    pending = world.pending(str(tmp_path_factory.mktemp("queue")))
    check(world, swept(algebra, world, rng, pending))


def test_a_row_that_is_replaced_asks_for_days() -> None:
    """One that just comes may touch everything, and so may one whose columns are shown."""
    rng = random.Random(0)
    views = [window_view(rng) for _ in range(60)]
    windows = [moving_window_of(view, 1) for view in views]
    narrow = [v for v, w in zip(views, windows, strict=True) if w is not None and w.column == DAY]
    shown = [view for view in views if any(o.expression == LOW for o in view.outputs)]
    assert narrow
    assert shown
    assert all(moving_window_of(view, 1) is None for view in shown)
    dates = [datetime.date(2026, 3, day) for day in (1, 2, 3, 4)]
    for view in narrow:
        plan = sweep_plan_of(view)
        (step,) = [step for step in plan.steps if step.window is not None]
        assert (step.via, step.target) == (1, 0)
        for counts, is_narrow in (([-1, 1], True), ([1, 1], False)):
            changes = pa.table(
                {
                    "low": pa.array(dates[:2], DATE),
                    "high": pa.array(dates[2:], DATE),
                    "_ts": [5, 5],
                    "_count": counts,
                }
            )
            partial = relevant_changes(Kernel(), plan, 1, changes)
            lookup = lookup_for(Kernel(), plan, step, {1: partial})
            assert (lookup.on == ("day",)) is is_narrow
            if lookup.keys is not None:
                assert {*lookup.keys["day"].to_pylist()} <= {*dates}
