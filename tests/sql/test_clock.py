"""Views that read the time: they move by themselves, and are right as of every tick."""

from __future__ import annotations

import datetime
import random
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.live.judge import feed
from tests.sql.clock_project import ClockProject, random_row, random_steps
from viewkeeper.engine.operations.view_explanation import explain_view
from viewkeeper.errors import DefinitionError
from viewkeeper.warehouse.activity import read_activity

DAY, HOUR = datetime.timedelta(days=1), datetime.timedelta(hours=1)
ORDERS, CUSTOMERS = "shop.orders o", "shop.customers c"
VIEWS = {
    "recent": f"SELECT o.id, o.placed FROM {ORDERS} WHERE o.placed >= current_date() - 7",
    "due": f"SELECT o.id FROM {ORDERS} WHERE o.placed = current_date",
    "age": f"SELECT o.id, datediff(current_date(), o.placed) AS age FROM {ORDERS}",
    "totals": f"SELECT c.name, count(*) AS n, sum(o.price) AS price FROM {ORDERS} JOIN {CUSTOMERS} "
    "ON c.customer = o.customer WHERE o.placed BETWEEN current_date() - 3 AND current_date() "
    "GROUP BY c.name",
    "latest": f"SELECT c.name, o.id FROM {CUSTOMERS} LEFT JOIN {ORDERS} "
    "ON o.customer = c.customer AND o.placed > current_date() - 2",
    "idle": f"SELECT c.name FROM {CUSTOMERS} WHERE NOT EXISTS (SELECT 1 FROM {ORDERS} "
    "WHERE o.customer = c.customer AND o.placed >= date_sub(current_date(), 3))",
    "silence": "SELECT o.customer, datediff(current_date(), max(o.placed)) AS days "
    f"FROM {ORDERS} GROUP BY o.customer",
    "lost": f"SELECT o.customer, max(o.placed) AS latest FROM {ORDERS} GROUP BY o.customer "
    "HAVING max(o.placed) < current_date() - 2",
    "past": f"SELECT count(*) AS n, current_date() AS day FROM {ORDERS} "
    "WHERE o.placed < current_date()",
    "parts": "SELECT o.customer, count_if(o.placed = current_date()) AS today, "
    f"count(*) FILTER (WHERE o.placed < current_date()) AS before FROM {ORDERS} "
    "GROUP BY o.customer",
    "month": f"SELECT o.id FROM {ORDERS} "
    "WHERE date_trunc('month', o.placed) = date_trunc('month', current_date())",
    "first": f"SELECT o.id FROM {ORDERS} "
    "WHERE day(current_date()) < 3 AND o.placed > curdate() - 2",
    "united": f"SELECT o.id, 'past' AS kind FROM {ORDERS} WHERE o.placed < current_date() "
    f"UNION ALL SELECT o.id, 'future' FROM {ORDERS} WHERE o.placed >= current_date()",
    "fresh": f"SELECT o.placed >= current_date() - 1 AS fresh, count(*) AS n FROM {ORDERS} "
    "GROUP BY o.placed >= current_date() - 1",
    "named": f"WITH t AS (SELECT current_date() AS day) SELECT o.id, t.day FROM {ORDERS} "
    "JOIN t ON o.placed >= t.day",
    "child": f"SELECT r.id, c.name FROM recent r JOIN {ORDERS} ON o.id = r.id "
    f"JOIN {CUSTOMERS} ON c.customer = o.customer",
}
HOURLY = {
    "hours": f"SELECT o.id FROM {ORDERS} "
    "WHERE o.at >= date_trunc('hour', now()) - INTERVAL 36 HOURS",
    "span": f"SELECT o.id FROM {ORDERS} WHERE o.at BETWEEN date_trunc('hour', now()) "
    "- INTERVAL 5 HOURS AND date_trunc('hour', now()) + INTERVAL '90' MINUTE",
    "dated": f"SELECT o.id FROM {ORDERS} WHERE to_date(o.at) >= current_date() - 1 "
    "AND o.at < date_trunc('hour', now())",
    "since": f"SELECT c.name, count(*) AS n FROM {ORDERS} JOIN {CUSTOMERS} "
    "ON c.customer = o.customer WHERE o.at >= current_date() - 2 GROUP BY c.name",
    "due_day": f"SELECT o.id FROM {ORDERS} WHERE CAST(o.at AS DATE) = current_date()",
    "day": f"SELECT o.id, date_trunc('day', now()) AS day FROM {ORDERS} "
    "WHERE to_date(o.at) >= current_date() - 1",
}


def test_views_are_right_at_every_tick(memory: Path, spark: SparkSession) -> None:
    """Rows leave and enter at midnight, beside changes, over missed ticks and restarts."""
    rng = random.Random(7)
    project = ClockProject(memory, VIEWS, spark)
    for number in range(15):
        values = random_row(rng, project.clock.moment)
        project.commit(f"INSERT INTO orders VALUES ({number}, {values})")
    project.load_views()
    for _ in range(2):
        project.maintain_batch(random_steps(rng, project.clock.moment, 5))
    assert project.judge_states() > 8 * len(VIEWS)
    with project.open_project() as opened:
        found = opened.verify(["totals", "child"], every_state=True)
        assert all(each.ok for each in found), [each.differences for each in found]


def test_hours_pass(memory: Path, spark: SparkSession) -> None:
    """Conditions on timestamps, a tick each hour, and a coarser time beside a finer one."""
    rng = random.Random(3)
    project = ClockProject(memory, HOURLY, spark)
    for number in range(12):
        values = random_row(rng, project.clock.moment)
        project.commit(f"INSERT INTO orders VALUES ({number}, {values})")
    project.load_views()
    row = random_row(rng, project.clock.moment)
    insert = f"INSERT INTO orders VALUES (20, {row})"
    project.maintain_batch([HOUR, insert, 4 * HOUR, "DELETE FROM orders WHERE id < 3", 2 * HOUR])
    assert project.judge_states() == len(HOURLY) * 10


MINUTELY = {
    "minutes": f"SELECT o.id FROM {ORDERS} "
    "WHERE o.at >= date_trunc('minute', now()) - INTERVAL 90 MINUTES",
    "waiting": f"SELECT c.name, count(*) AS n, max(o.id) AS newest FROM {ORDERS} JOIN {CUSTOMERS} "
    "ON c.customer = o.customer WHERE o.at < date_trunc('minute', current_timestamp()) "
    "GROUP BY c.name",
    "late": "SELECT m.id, o.price FROM minutes m "
    f"JOIN {ORDERS} ON o.id = m.id AND o.at < date_trunc('hour', now())",
}
MINUTE = datetime.timedelta(minutes=1)


def test_minutes_pass_for_some_hours(memory: Path, spark: SparkSession) -> None:
    """A tick each minute, in pieces and after hours in which nobody ran; beside them changes."""
    project = ClockProject(memory, MINUTELY, spark)
    start = project.clock.moment
    placed = {n: start + (n * 13 - 150) * MINUTE + n * MINUTE / 60 for n in range(36)}
    for number, at in placed.items():
        values = f"{number}, {number % 3 + 1}, NULL, '{at:%Y-%m-%d %H:%M:%S}', {number}"
        project.commit(f"INSERT INTO orders VALUES ({values})")
    project.load_views()
    project.maintain_batch([MINUTE, 3 * MINUTE, "DELETE FROM orders WHERE id IN (5, 12)", MINUTE])
    moved = start + 20 * MINUTE
    statement = f"UPDATE orders SET at = '{moved:%Y-%m-%d %H:%M:%S}' WHERE id IN (0, 30)"
    project.maintain_batch([47 * MINUTE, statement, 150 * MINUTE])
    project.maintain_batch([61 * MINUTE])
    states = {name: Counter[tuple[object, ...]]() for name in MINUTELY}
    with project.open_project() as opened:
        first, last = opened.view("late").head.created_ts, opened.view("late").head.ts
        changes = {name: feed(opened, name) for name in MINUTELY}
        assert all(each.ok for each in opened.verify())
    assert last - first == 5 + 47 + 150 + 61 + 2
    now = start
    for ts in range(first, last + 1):
        if ts == first + 5:
            placed = {n: at for n, at in placed.items() if n not in (5, 12)}
        elif ts == first + 5 + 1 + 47 + 1:
            placed |= {0: moved, 30: moved}
        else:
            now += MINUTE * (ts > first)
        for name, rows in states.items():
            rows.update(changes[name].get(ts, {}))
        recent = {n for n, at in placed.items() if at >= now - 90 * MINUTE}
        assert {n for (n,) in +states["minutes"]} == recent, f"ts {ts}, {now}"
        hour = now.replace(minute=0)
        late = {n for n in recent if placed[n] < hour}
        assert {n for n, _ in +states["late"]} == late, f"ts {ts}, {now}"
        waiting: dict[object, tuple[object, ...]] = {}
        for customer, name in ((1, "ann"), (2, "bob")):
            own = [n for n, at in placed.items() if n % 3 + 1 == customer and at < now]
            waiting |= {name: (len(own), max(own))} if own else {}
        found = {name: tuple(values) for name, *values in +states["waiting"]}
        assert found == waiting, f"ts {ts}, {now}"


@pytest.mark.parametrize(("unit", "texts"), [(HOUR, HOURLY), (MINUTE, MINUTELY)])
def test_past_hours_and_minutes_are_read(
    unit: datetime.timedelta, texts: dict[str, str], memory: Path, spark: SparkSession
) -> None:
    """`arrow(as_of=)` shows the state of every tick, and `verify` finds all of them right."""
    project = ClockProject(memory, texts, spark)
    rng = random.Random(11)
    for number in range(12):
        values = random_row(rng, project.clock.moment)
        project.commit(f"INSERT INTO orders VALUES ({number}, {values})")
    project.load_views()
    project.maintain_batch([unit, "DELETE FROM orders WHERE id < 3", 3 * unit, unit])
    compared = 0
    with project.open_project() as opened:
        for name in texts:
            view = opened.view(name)
            total: Counter[tuple[object, ...]] = Counter()
            changes = feed(opened, name)
            for ts in range(view.head.created_ts, view.head.ts + 1):
                total.update(changes.get(ts, {}))
                rows = Counter(tuple(r.values()) for r in view.arrow(as_of=ts).to_pylist())
                assert rows == +total, f"{name} at ts {ts}"
                compared += 1
        found = opened.verify(every_state=True)
        assert all(each.ok for each in found), [each.differences for each in found]
    assert compared == len(texts) * 7
    assert project.judge_states() == len(texts) * 7


def test_a_year_passes_in_one_batch(memory: Path, spark: SparkSession) -> None:
    """All ticks that were missed get a ts of their own, and the orders are asked for by day."""
    project = ClockProject(memory, {name: VIEWS[name] for name in ("recent", "lost")}, spark)
    start = project.clock.moment.date()
    placed = {number: start + datetime.timedelta(number * 7 % 400 - 20) for number in range(150)}
    for number, day in placed.items():
        project.commit(f"INSERT INTO orders VALUES ({number}, {number % 9}, '{day}', NULL, 1)")
    project.load_views()
    project.maintain_batch([365 * DAY, "DELETE FROM orders WHERE id < 20", DAY])
    ticks = 0
    with project.open_project() as opened:
        first = opened.view("recent").head.created_ts
        recent, lost = feed(opened, "recent"), feed(opened, "lost")
    rows: Counter[tuple[object, ...]] = Counter()
    latest: Counter[tuple[object, ...]] = Counter()
    for ts in range(first, first + 368):
        rows.update(recent.get(ts, {}))
        latest.update(lost.get(ts, {}))
        if ts == first + 366:
            placed = {number: day for number, day in placed.items() if number >= 20}
        else:
            ticks += ts > first
        today = start + ticks * DAY
        wanted = {(n, day) for n, day in placed.items() if day >= today - 7 * DAY}
        assert +rows == Counter(wanted), f"ts {ts}, {today}"
        last = {n % 9: max(d for m, d in placed.items() if m % 9 == n % 9) for n in placed}
        assert +latest == Counter((c, d) for c, d in last.items() if d < today - 2 * DAY)
    assert sum(batch.lookups.get("shop", 0) for batch in project.observer.batches) <= 4


ROLLING = {name: HOURLY[name] for name in ("hours", "dated", "since")}


def test_hours_ask_for_what_has_passed(memory: Path, spark: SparkSession) -> None:
    """Orders of a year, two a day; forty days of hours pass in one batch."""
    project = ClockProject(memory, ROLLING, spark)
    start = project.clock.moment.replace(minute=0)
    moments = {number: start + (number - 60) * 12 * HOUR + 3 * HOUR / 4 for number in range(730)}
    for number, at in moments.items():
        mark = "T" if number % 3 else " "
        text = f"{at:%Y-%m-%d}{mark}{at:%H:%M:%S}" + (".5" if number % 2 else "")
        project.database.execute(f"INSERT INTO orders VALUES ({number}, 1, NULL, '{text}', 1)")
    project.load_views()
    project.maintain_batch([40 * DAY])
    with project.open_project() as opened:
        root = opened.settings.warehouse
        first = opened.view("hours").head.created_ts
        shown = feed(opened, "hours")
    asked = read_activity(root)
    passed = sum(start - 36 * HOUR <= at <= start + 40 * DAY for at in moments.values())
    assert all(asked[name].asked_rows <= passed + 10 for name in ROLLING), asked
    assert all(batch.where == "inline" for batch in project.observer.batches)
    rows: Counter[tuple[object, ...]] = Counter()
    for tick in range(40 * 24 + 1):
        rows.update(shown.get(first + tick, {}))
        if tick % 7 == 0:
            since = start + tick * HOUR - 36 * HOUR
            assert +rows == Counter((n,) for n, at in moments.items() if at >= since), tick


def test_what_a_tick_costs_is_explained(memory: Path, spark: SparkSession) -> None:
    project = ClockProject(memory, {**VIEWS, **HOURLY}, spark)
    sentences = {
        "recent": "rows of shop.orders are asked for whose placed has passed",
        "due": "the rows that it is equal to are asked for by key",
        "age": "every row of it may change: the time is shown",
        "hours": "rows of shop.orders are asked for whose at has passed",
        "dated": "rows of shop.orders are asked for whose at has passed",
        "month": "shop.orders is read whole",
    }
    with project.open_project() as opened:
        connections = opened.open_connections()
        for name, sentence in sentences.items():
            view = opened.catalogue.bind_view(name, connections)
            found = explain_view(view, connections, opened.settings.algorithm)
            assert any(sentence in each for each in found.warnings), found.warnings
        connections.close()


def test_a_source_of_another_kind_cannot_be_the_clock(memory: Path, spark: SparkSession) -> None:
    settings = "  clock: {kind: sqlite, path: shop.db}\n"
    project = ClockProject(memory, {"recent": VIEWS["recent"]}, spark, settings)
    with (
        project.open_project() as opened,
        pytest.raises(DefinitionError, match='the source "clock"'),
    ):
        opened.refresh()
