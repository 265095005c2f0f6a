"""A project whose views read the time, with a clock that the test moves.

Steps are transactions of one SQLite database and moves of the clock. Each is looked at at once, so
that every transaction and every tick has a ts of its own, and batches of steps are maintained
together, each in a new life of the project. The ledger tells later which ts was what: the judge
runs the user's text over the rows and at the time as of every one of them.
"""

from __future__ import annotations

import datetime
import random
import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from tests.live.judge import feed
from tests.sql.moved_clock import MovedClock, read_moments
from tests.sql.report_project import TroubleObserver, _maintain_all
from tests.sql.spark_judge import SparkJudge, compare_rows
from viewkeeper.engine.project import Project, open_project

Row = tuple[Any, ...]
Step = datetime.timedelta | str
"""A move of the clock, or a statement that is a transaction."""

START = datetime.datetime(2026, 3, 28, 22, 10, tzinfo=datetime.UTC)
ORDERS: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "customer": pa.int64(),
    "placed": pa.date32(),
    "at": pa.timestamp("us"),
    "price": pa.decimal128(10, 2),
}
CUSTOMERS: dict[str, pa.DataType] = {"customer": pa.int64(), "name": pa.string()}
TABLES = {"shop.orders": pa.schema(ORDERS), "shop.customers": pa.schema(CUSTOMERS)}
STATEMENTS = """
    CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER, placed DATE, at DATETIME,
        price DECIMAL(10,2));
    CREATE TABLE customers (customer INTEGER PRIMARY KEY, name TEXT);
    CREATE INDEX orders_placed ON orders (placed);
    CREATE INDEX orders_customer ON orders (customer);
    INSERT INTO customers VALUES (1, 'ann'), (2, 'bob');
"""


class ClockProject:
    """The project, its database and its clock."""

    def __init__(
        self, folder: Path, views: Mapping[str, str], spark: SparkSession, settings: str = ""
    ) -> None:
        self.folder, self.views, self.spark = folder, dict(views), spark
        self.clock = MovedClock(START)
        self.observer = TroubleObserver()
        (folder / "views").mkdir()
        (folder / "viewkeeper.yml").write_text(
            "warehouse: ./warehouse\nhistory: 10000d\nretention: 10000d\n"
            f"sources:\n  shop: {{kind: sqlite, path: shop.db}}\n{settings}"
        )
        for name, text in views.items():
            self.write_view(name, text)
        self.database = sqlite3.connect(folder / "shop.db", isolation_level=None)
        self.database.executescript(STATEMENTS)
        self._states = [self._read_tables()]
        """What is in the tables, after every transaction."""

    def write_view(self, name: str, text: str) -> None:
        path = self.folder / "views" / f"{name}.sql"
        path.write_text(f"CREATE MATERIALIZED VIEW {name} AS\n{text};\n")

    def open_project(self) -> Project:
        return open_project(self.folder, self.spark, self.clock)

    def commit(self, statement: str) -> None:
        self.database.execute(statement)
        self._states.append(self._read_tables())

    def load_views(self) -> None:
        """Load all views; what is in the tables now is their first state."""
        self._states = [self._read_tables()]
        with self.open_project() as project:
            report = project.refresh(self.observer)
            assert not report.waiting, report.waiting
        self.check_troubles()

    def maintain_batch(self, steps: Sequence[Step]) -> None:
        """Take steps, each with a ts of its own, and maintain them together."""
        with (
            self.open_project() as project,
            project.open_maintainer("test", self.observer) as keeper,
        ):
            keeper.start_run()
            for step in steps:
                if isinstance(step, str):
                    self.commit(step)
                else:
                    self.clock.moment += step
                keeper.see_commits()
            waiting = _maintain_all(keeper)
            keeper.tell_progress()
        assert not waiting, waiting
        self.check_troubles()

    def check_troubles(self) -> None:
        assert not self.observer.troubles, [str(each) for each in self.observer.troubles]

    def _read_tables(self) -> dict[str, list[Row]]:
        found = {}
        for relation in TABLES:
            name = relation.partition(".")[2]
            found[relation] = self.database.execute(f"SELECT * FROM {name}").fetchall()
        return found

    # -- judging -------------------------------------------------------------------------------

    def judge_states(self, first: int = 0) -> int:
        """Compare every view with its text at every ts after `first`; how many states there are."""
        moments, tables = self._read_ledger()
        judge = SparkJudge(self.spark, {})
        texts = " ".join(self.views.values())
        parents = [name for name in self.views if re.search(rf"(FROM|JOIN) {name}\b", texts)]
        judge.show_relations(tables, {name: self.views[name] for name in parents})
        judge.show_clock(moments)
        compared = 0
        with self.open_project() as project:
            for name, text in self.views.items():
                since = max(project.view(name).head.created_ts, first)
                chosen = [ts for ts in moments if ts >= since]
                wanted, _ = judge.states_of(text, chosen)
                changes = feed(project, name)
                for ts in chosen:
                    rows: list[Row] = []
                    total = sum((changes[t] for t in changes if t <= ts), _Counted())
                    for row, count in total.items():
                        assert count >= 0, f"{name} at ts {ts}: {row} {count} times"
                        rows += [row] * count
                    wrong = compare_rows(rows, wanted[ts])
                    assert wrong is None, f"{name} at ts {ts}, {moments[ts]}: {wrong}"
                    compared += 1
        return compared

    def _read_ledger(self) -> tuple[dict[int, datetime.datetime], dict[str, pa.Table]]:
        """The time at every ts, and the histories of the tables."""
        with self.open_project() as project:
            heads = project.newest_head().views
        loaded = min(heads[name].created_ts for name in self.views)
        moments, ticks = read_moments(self.folder / "warehouse", self.clock, loaded)
        shown = {loaded: 0}
        for ts in moments.keys() - {loaded}:
            shown[ts] = sum(loaded < other <= ts for other in moments.keys() - ticks)
        assert max(shown.values()) == len(self._states) - 1, "every transaction has one ts"
        histories = {name: self._history(name, schema, shown) for name, schema in TABLES.items()}
        return moments, histories

    def _history(self, name: str, schema: pa.Schema, shown: Mapping[int, int]) -> pa.Table:
        """Every row of a table, once for each ts."""
        rows = [
            (*row, ts, ts + 1) for ts, number in shown.items() for row in self._states[number][name]
        ]
        columns = list(zip(*rows, strict=True)) or [()] * (len(schema) + 2)
        arrays = [
            pa.array(_parsed(values, field.type), field.type)
            for values, field in zip(columns, schema, strict=False)
        ]
        spans = [pa.array(values, pa.int64()) for values in columns[len(schema) :]]
        return pa.table([*arrays, *spans], names=[*schema.names, "_from", "_until"])


def _parsed(values: Sequence[Any], kind: pa.DataType) -> list[Any]:
    """Values of SQLite as Python has them."""
    import decimal

    reads: dict[pa.DataType, Callable[[Any], Any]] = {
        pa.date32(): datetime.date.fromisoformat,
        pa.timestamp("us"): datetime.datetime.fromisoformat,
        pa.decimal128(10, 2): lambda value: decimal.Decimal(str(value)),
    }
    read = reads.get(kind, lambda value: value)
    return [None if value is None else read(value) for value in values]


class _Counted(dict[Row, int]):
    """Signed rows that can be added to."""

    def __add__(self, other: Mapping[Row, int]) -> _Counted:
        total = _Counted(self)
        for row, count in other.items():
            total[row] = total.get(row, 0) + count
        return total


def random_row(rng: random.Random, moment: datetime.datetime) -> str:
    """The values of an order about a moment, as SQL."""
    at = moment + datetime.timedelta(hours=rng.randint(-24 * 9, 40))
    placed = f"'{at:%Y-%m-%d}'" if rng.random() < 0.95 else "NULL"
    customer = rng.choice(["NULL", 1, 2, 2, 3])
    return f"{customer}, {placed}, '{at:%Y-%m-%d %H:%M:%S}', {rng.randint(1, 999) / 100}"


def random_steps(rng: random.Random, moment: datetime.datetime, count: int) -> list[Step]:
    """Moves of the clock and transactions about a moment."""
    steps: list[Step] = []
    for _ in range(count):
        number = rng.randint(0, 25)
        statements = [
            f"INSERT OR REPLACE INTO orders VALUES ({number}, {random_row(rng, moment)})",
            f"INSERT OR REPLACE INTO orders VALUES ({number}, {random_row(rng, moment)})",
            f"UPDATE orders SET placed = '{moment:%Y-%m-%d}' WHERE id IN ({number}, {number + 1})",
            f"DELETE FROM orders WHERE id = {number}",
            f"INSERT OR REPLACE INTO customers VALUES ({number % 3 + 1}, 'n{number}')",
        ]
        if rng.random() < 0.4:
            step = datetime.timedelta(hours=rng.choice([5, 24, 50]))
            moment += step
            steps.append(step)
        else:
            steps.append(rng.choice(statements))
    return steps
