"""A ts at which a view's query has no value is merged with those that follow, and no others are."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.live.judge import feed
from tests.sql.clock_project import ClockProject
from tests.sql.report_project import _maintain_all
from viewkeeper.engine.batch.missing_value import NO_VALUE
from viewkeeper.engine.operations.project_status import gather_status
from viewkeeper.engine.operations.view_explanation import explain_view
from viewkeeper.engine.report import SilentObserver
from viewkeeper.stages import scalar_side

VIEWS = {
    "numbers": "SELECT c.customer, CAST(c.name AS INT) AS number FROM shop.customers c",
    "totals": "SELECT o.customer, 12 / sum(o.price) AS share FROM shop.orders o "
    "GROUP BY o.customer",
    "child": "SELECT count(*) AS n, sum(s.number) AS total FROM numbers s",
    "plain": "SELECT c.customer, c.name FROM shop.customers c",
}
BAD, MENDED = (
    "UPDATE customers SET name = 'x' WHERE customer = 1",
    "UPDATE customers SET name = '7'",
)


def make_project(folder: Path, spark: SparkSession) -> ClockProject:
    project = ClockProject(folder, VIEWS, spark)
    project.commit("UPDATE customers SET name = customer * 10")
    project.commit("INSERT INTO orders VALUES (1, 1, NULL, NULL, 3), (2, 2, NULL, NULL, 4)")
    project.load_views()
    return project


def states_of(project: ClockProject, name: str) -> dict[int, Counter[tuple[object, ...]]]:
    """The state of a view at each ts at which it changed."""
    with project.open_project() as opened:
        changes = feed(opened, name)
    total: Counter[tuple[object, ...]] = Counter()
    found = {}
    for ts in sorted(changes):
        total.update(changes[ts])
        found[ts] = +total
    return found


def test_only_the_states_without_a_value_are_merged(memory: Path, spark: SparkSession) -> None:
    project = make_project(memory, spark)
    project.maintain_batch(
        [
            "INSERT INTO customers VALUES (3, '30')",
            BAD,
            "INSERT INTO orders VALUES (3, 1, NULL, NULL, -3)",
            f"{MENDED} WHERE customer = 1",
            "INSERT INTO customers VALUES (4, '40')",
            "UPDATE orders SET price = 6 WHERE id = 3",
            "DELETE FROM orders WHERE id = 2",
        ]
    )
    numbers = states_of(project, "numbers")
    first = min(numbers)
    assert numbers == {
        first: Counter([(1, 10), (2, 20)]),
        first + 1: Counter([(1, 10), (2, 20), (3, 30)]),
        first + 4: Counter([(1, 7), (2, 20), (3, 30)]),
        first + 5: Counter([(1, 7), (2, 20), (3, 30), (4, 40)]),
    }
    # A view that had to wait for it takes what it has missed as one state.
    child = {ts: [*rows] for ts, rows in states_of(project, "child").items()}
    assert child == {first: [(2, 30)], first + 7: [(4, 97)]}
    totals = states_of(project, "totals")
    assert [*totals] == [first, first + 6, first + 7]
    assert {customer for customer, _ in totals[first + 7]} == {1}
    assert len(states_of(project, "plain")) == 5
    with project.open_project() as opened:
        heads = opened.newest_head().views
        assert {name: heads[name].exact_ts for name in ("numbers", "totals", "plain")} == {
            "numbers": first + 4,
            "totals": first + 6,
            "plain": 0,
        }
        assert {heads[name].ts for name in VIEWS} == {first + 7}
        assert all(each.ok for each in opened.verify())


NAMED = (
    "SELECT c.customer, (SELECT o.price FROM shop.orders o WHERE o.customer = 9) AS p "
    "FROM shop.customers c"
)


def test_a_scalar_that_gets_two_rows_has_no_value_at_those_ts_only(
    memory: Path, spark: SparkSession
) -> None:
    """Twice in one batch, and once over several: what is between has its own states."""
    project = ClockProject(memory, {"named": NAMED, "plain": VIEWS["plain"]}, spark)
    project.commit("INSERT INTO orders VALUES (1, 9, NULL, NULL, 3)")
    project.load_views()
    project.maintain_batch(
        [
            "UPDATE orders SET price = 5 WHERE id = 1",
            "INSERT INTO orders VALUES (2, 9, NULL, NULL, 4)",
            "INSERT INTO customers VALUES (3, 'cid')",
            "DELETE FROM orders WHERE id = 1",
            "UPDATE orders SET price = 6 WHERE id = 2",
            "INSERT INTO orders VALUES (1, 9, NULL, NULL, 1)",
            "DELETE FROM orders",
        ]
    )
    named = states_of(project, "named")
    first = min(named)
    prices = {ts: {price for _, price in rows} for ts, rows in named.items()}
    assert prices == {
        first: {Decimal(3)},
        first + 1: {Decimal(5)},
        first + 4: {Decimal(4)},
        first + 5: {Decimal(6)},
        first + 7: {None},
    }
    assert len(named[first + 4]) == 3
    with project.open_project() as opened:
        head = opened.newest_head().views["named"]
        assert (head.ts, head.exact_ts, head.stopped) == (first + 7, first + 7, None)
        assert all(each.ok for each in opened.verify())


def test_a_scalar_with_two_rows_waits_for_one(memory: Path, spark: SparkSession) -> None:
    """Where no later ts has a value the view waits, says why, and goes on when there is one."""
    project = ClockProject(memory, {"named": NAMED}, spark)
    project.commit("INSERT INTO orders VALUES (1, 9, NULL, NULL, 3)")
    project.load_views()
    project.commit("INSERT INTO orders VALUES (2, 9, NULL, NULL, 4)")
    with project.open_project() as opened:
        waiting = opened.refresh(SilentObserver(), strict=False).waiting
        assert waiting.keys() == {"named"}
        assert NO_VALUE in waiting["named"]
        assert "a scalar subquery gave more than one row" in waiting["named"]
    assert len(states_of(project, "named")) == 1
    project.maintain_batch(["DELETE FROM orders WHERE id = 1"])
    prices = [{price for _, price in rows} for rows in states_of(project, "named").values()]
    assert prices == [{Decimal(3)}, {Decimal(4)}]
    with project.open_project() as opened:
        assert opened.newest_head().views["named"].stopped is None
        assert all(each.ok for each in opened.verify(every_state=True))


def test_a_batch_that_would_explode_is_one_state(
    memory: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shares of a total above the limit: announced, and exact from the end of the batch on."""
    share = "o.price / (SELECT sum(p.price) FROM shop.orders p)"
    views = {
        "shares": f"SELECT o.id, {share} AS share FROM shop.orders o",
        "large": "SELECT count(*) AS n FROM shares s WHERE s.share > 0.3",
        "plain": VIEWS["plain"],
    }
    project = ClockProject(memory, views, spark)
    project.commit("INSERT INTO orders VALUES (1, 1, NULL, NULL, 1), (2, 1, NULL, NULL, 3)")
    project.load_views()
    changes = [f"INSERT INTO orders VALUES ({n}, 1, NULL, NULL, 4)" for n in (3, 4, 5)]
    project.maintain_batch(changes)
    loaded = min(states_of(project, "shares"))
    assert [*states_of(project, "shares")] == [loaded + n for n in range(4)]
    with project.open_project() as opened, closing(opened.open_connections()) as connections:
        bound = opened.catalogue.bind_view("shares", connections)
        explained = explain_view(bound, connections, opened.settings.algorithm)
        said = [line for stage in explained.stages for line in stage.does]
        assert any("more than 2,000,000 rows so is one state" in line for line in said), said
    monkeypatch.setattr(scalar_side, "SHOWN_ROWS_MAX", 10)
    name = "UPDATE customers SET name = 'zoe' WHERE customer = 1"
    project.maintain_batch(["DELETE FROM orders WHERE id = 5", name, changes[2]])
    last = loaded + 6
    project.maintain_batch(["UPDATE orders SET price = 6 WHERE id = 1"])
    with project.open_project() as opened:
        heads = opened.newest_head().views
        assert {name: heads[name].exact_ts for name in views} == {
            "shares": last,
            "large": last,
            "plain": 0,
        }
        assert all(each.ok for each in opened.verify(every_state=True))
    states = states_of(project, "shares")
    assert not {loaded + 4, loaded + 5} & states.keys(), "what is between has no state of its own"
    whole = Decimal(21)
    prices = {1: 6, 2: 3, 3: 4, 4: 4, 5: 4}
    assert {number: round(Decimal(str(share)), 6) for number, share in states[last + 1]} == {
        number: round(price / whole, 6) for number, price in prices.items()
    }


def test_a_view_without_a_value_waits_and_goes_on(memory: Path, spark: SparkSession) -> None:
    project = make_project(memory, spark)

    def maintain(*statements: str) -> dict[str, str]:
        with (
            project.open_project() as opened,
            opened.open_maintainer("test", project.observer) as keeper,
        ):
            keeper.start_run()
            for statement in statements:
                project.commit(statement)
                keeper.see_commits()
            waiting = dict(_maintain_all(keeper))
            assert not keeper.has_views_behind(), "nothing is tried again before something comes"
        return waiting

    waiting = maintain("INSERT INTO customers VALUES (3, '30')", BAD)
    assert waiting["numbers"].startswith(NO_VALUE)
    assert waiting.keys() == {"numbers", "child"}
    assert [*states_of(project, "numbers").values()][-1] == Counter([(1, 10), (2, 20), (3, 30)])
    with project.open_project() as opened:
        status = {view.name: view for view in gather_status(opened.settings, 0.0).views}
        assert NO_VALUE in (status["numbers"].problem or "")
        assert status["plain"].problem is None
    # A run that begins anew finds no value either, whatever else comes.
    assert maintain("INSERT INTO customers VALUES (4, '40')").keys() == {"numbers", "child"}
    assert maintain(f"{MENDED} WHERE customer = 1") == {}
    numbers = [*states_of(project, "numbers").values()]
    assert numbers[-1] == Counter([(1, 7), (2, 20), (3, 30), (4, 40)])
    assert len(numbers) == 3
    with project.open_project() as opened:
        assert opened.newest_head().views["numbers"].stopped is None
        assert all(each.ok for each in opened.verify())
