"""TPC-H with refreshes: `python -m tests.tpch.run`, or `make tpch`.

Each query is a view of a project of its own, over the same three databases, which go on changing.
It is loaded, maintained through some batches, and compared with Spark on its text at the first ts,
the last one and some between. What is printed also goes to `docs/tpch.md`. A query that is wrong,
or that fails, is said in its row, and the run ends with 1.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

import viewkeeper
from tests.conftest import end_java
from tests.live.judge import feed, stamps
from tests.sql.report_project import reason_of
from tests.sql.spark_judge import CHEAP, SparkJudge, compare_rows, compare_types, sum_changes
from tests.tpch.databases import TpchDatabases
from tests.tpch.generator import generate_tables
from tests.tpch.queries import QUERIES, text_of_query
from tests.tpch.refreshes import RefreshWriter
from tests.tpch.tables import BY_RELATION, SOURCES
from viewkeeper.engine.loop import SummingObserver, refresh_views
from viewkeeper.engine.maintainer import Maintainer
from viewkeeper.engine.operations.project_status import gather_status
from viewkeeper.engine.project import Project
from viewkeeper.engine.report import Report
from viewkeeper.engine.settings.project_file import SparkSettings
from viewkeeper.engine.spark.spark_session import start_session
from viewkeeper.errors import DefinitionError
from viewkeeper.warehouse.rows import view_state

PAGE = Path(__file__).parent.parent.parent / "docs" / "tpch.md"
LEDGER = "ledger"
"""The view that tells the ts of every transaction."""
ALL_STATES, LAST_STATE = -1, -2
JUDGE = {**CHEAP, "spark.sql.autoBroadcastJoinThreshold": "100m"}
"""The judge compiles nothing: it runs each text once for many a state."""
PASSES_MAX = 100
TOGETHER = 8
"""How many states the judge computes in one query."""


@dataclass(frozen=True, slots=True)
class QueryResult:
    """What became of one query."""

    number: int
    verdict: str
    states: int = 0
    rows: int = 0
    stored: int = 0
    lookups: int = 0
    asked: int = 0
    load_seconds: float = 0.0
    batch_seconds: float = 0.0
    recompute_seconds: float = 0.0
    read_seconds: float = 0.0

    @property
    def is_fine(self) -> bool:
        """Whether it is exact, or refused with a reason."""
        return self.verdict == "exact" or self.verdict.startswith("refused")

    @property
    def cells(self) -> tuple[str, ...]:
        if not self.states:
            return (str(self.number), self.verdict, *[""] * (len(HEAD) - 2))
        figures = (self.states, self.rows, self.stored, self.lookups, self.asked)
        whole = self.read_seconds + self.recompute_seconds
        seconds = (self.load_seconds, self.batch_seconds, self.recompute_seconds, whole)
        shown = (*map(str, figures), *(f"{each:.2f}" for each in seconds))
        return (str(self.number), self.verdict, *shown, f"{self.times_faster:.1f}")

    @property
    def times_faster(self) -> float:
        """How often a batch fits into reading the databases and running the text."""
        return (self.read_seconds + self.recompute_seconds) / self.batch_seconds


HEAD = (
    *("query", "verdict", "states compared", "rows", "rows stored besides", "lookups per batch"),
    *("rows asked per batch", "load, s", "batch, s", "text on Spark, s"),
    *("databases read and text on Spark, s", "times faster"),
)


@dataclass(frozen=True, slots=True)
class RefreshSize:
    """How many batches there are; in each, how many orders come and go, so many together. So many
    states between the first and the last are compared, and so often the text is run again."""

    batches: int
    orders: int
    together: int
    between: int
    recomputations: int


@dataclass(frozen=True, slots=True)
class MeasuredBatch:
    """What a batch took, and what it asked the sources."""

    seconds: float
    lookups: int
    asked: int


@dataclass(frozen=True, slots=True)
class Recomputation:
    """What it took to read the databases and to run a text, and the rows that it gave."""

    read_seconds: float
    text_seconds: float
    rows: list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class ViewKeeping:
    """A project that is being maintained, as `viewkeeper run` does it, but when it is told to."""

    project: Project
    maintainer: Maintainer
    report: Report

    def load_views(self) -> float:
        """Load everything; the seconds that it took."""
        started = time.perf_counter()
        self.maintainer.start_run()
        refresh_views(self.maintainer, self.report)
        seconds = time.perf_counter() - started
        self._check_waiting()
        return seconds

    def maintain_batch(self, transactions: int) -> float:
        """Look and maintain until so many transactions have a ts; the seconds of that."""
        seconds = 0.0
        for _ in range(PASSES_MAX):
            started = time.perf_counter()
            self.maintainer.see_commits()
            self.maintainer.maintain_views()
            seconds += time.perf_counter() - started
            self._check_waiting()
            if len(stamps(self.project, LEDGER)) == transactions:
                return seconds
        raise AssertionError(f"{transactions} transactions were not all seen")

    def _check_waiting(self) -> None:
        if waiting := self.maintainer.waiting_views():
            raise AssertionError("; ".join(f"{name}: {why}" for name, why in waiting.items()))


@contextmanager
def open_keeper(project: Project) -> Iterator[ViewKeeping]:
    """The project with its sources open until the end."""
    observer = SummingObserver()
    with project.open_maintainer("run", observer) as maintainer:
        yield ViewKeeping(project, maintainer, observer.report)


class TpchRun:
    """The databases, the judge and what happens to them, for all queries."""

    def __init__(self, databases: TpchDatabases, spark: SparkSession, scale: float) -> None:
        self._databases = databases
        self._spark = spark
        self._scale = scale
        self._rng = random.Random(1)
        self._writer = RefreshWriter(databases.history, self._rng)
        self._judge = SparkJudge(spark, {}, JUDGE)

    def run_query(self, number: int, size: RefreshSize) -> QueryResult:
        """Load, maintain and judge one query; whatever goes wrong is in the result."""
        with tempfile.TemporaryDirectory(prefix="viewkeeper-tpch-") as folder:
            try:
                return self._measure_query(number, size, Path(folder))
            except DefinitionError as error:
                return QueryResult(number, f"refused: {reason_of(error)}")
            except Exception as error:  # noqa: BLE001 - it is the query's verdict
                text = " ".join(str(error).split())[:300]
                return QueryResult(number, f"ERROR: {type(error).__name__}: {text}")

    def _measure_query(self, number: int, size: RefreshSize, folder: Path) -> QueryResult:
        name, text = f"q{number}", text_of_query(number, self._scale)
        self._write_project(folder, name, text)
        with viewkeeper.open(folder, self._spark) as project:
            try:
                with open_keeper(project) as keeper:
                    load_seconds = keeper.load_views()
                    measured = [self._run_batch(keeper, name, size) for _ in range(size.batches)]
                result = self._judge_view(project, name, text, size.between)
                stored = _rows_besides(project, name)
                shown = _rows_of(project.view(name).arrow())
            finally:
                _detach_project(project)
        again = [self._recompute_text(text) for _ in range(size.recomputations)]
        wrong = next(filter(None, (compare_rows(shown, each.rows) for each in again)), None)
        if result.verdict != "exact" or wrong:
            verdict = f"WRONG at the end: {wrong}" if wrong else result.verdict
            return QueryResult(number, verdict)
        best = min(again, key=lambda each: each.read_seconds + each.text_seconds)
        return replace(
            result,
            number=number,
            rows=len(shown),
            stored=stored,
            load_seconds=load_seconds,
            batch_seconds=median(each.seconds for each in measured),
            lookups=round(mean(each.lookups for each in measured)),
            asked=round(mean(each.asked for each in measured)),
            read_seconds=best.read_seconds,
            recompute_seconds=best.text_seconds,
        )

    def _recompute_text(self, text: str) -> Recomputation:
        """Read the databases, and then run the text on Spark."""
        started = time.perf_counter()
        query = text
        for relation, columns in columns_read(text).items():
            table = BY_RELATION[relation]
            frame = self._spark.createDataFrame(self._databases.read_table(relation, columns))
            frame.createOrReplaceTempView(table.name)
            query = re.sub(rf"\b{re.escape(relation)}\b", table.name, query)
        read = time.perf_counter() - started
        found = self._spark.sql(query).toArrow()
        return Recomputation(read, time.perf_counter() - started - read, _rows_of(found))

    def _write_project(self, folder: Path, name: str, text: str) -> None:
        lines = self._databases.source_lines()
        (folder / "viewkeeper.yml").write_text(f"warehouse: ./warehouse\nsources:\n{lines}")
        (folder / "views").mkdir()
        ledger = " UNION ALL ".join(f"SELECT n FROM {source}.ledger" for source in SOURCES)
        for view, query in {name: text, LEDGER: ledger}.items():
            sql = f"CREATE MATERIALIZED VIEW {view} AS\n{query};\n"
            (folder / "views" / f"{view}.sql").write_text(sql)

    def _run_batch(self, keeper: ViewKeeping, name: str, size: RefreshSize) -> MeasuredBatch:
        for changes in self._writer.next_batch(size.orders, size.together):
            self._databases.commit_changes(changes)
        before = sum(keeper.report.lookups.values())
        seconds = keeper.maintain_batch(self._databases.history.transactions)
        lookups = sum(keeper.report.lookups.values()) - before
        keeper.maintainer.tell_progress()
        views = gather_status(keeper.project.settings, time.time()).views
        (asked,) = [view.asked_rows for view in views if view.name == name]
        return MeasuredBatch(seconds, lookups, asked or 0)

    def _judge_view(self, project: Project, name: str, text: str, most: int) -> QueryResult:
        """Compare states with Spark on the text over the tables as of then; the last one is also
        compared with what the databases have at the end."""
        if most == LAST_STATE:
            return QueryResult(0, "exact", 1)
        head, numbers = project.view(name).head, stamps(project, LEDGER)
        tables = self._databases.history.as_tables(numbers, head.created_ts, columns_read(text))
        self._judge.show_relations(tables, {})
        found = feed(project, name)
        between = sorted(ts for ts in {*numbers.values()} if head.created_ts < ts < head.ts)
        every = most == ALL_STATES or most >= len(between)
        some = between if every else self._rng.sample(between, most)
        moments = sorted({head.created_ts, *some, head.ts})
        states = sum_changes(found, moments)
        schema = project.view(name).arrow().schema
        for first in range(0, len(moments), TOGETHER):
            wanted, types = self._judge.states_of(text, moments[first : first + TOGETHER])
            for ts, state in wanted.items():
                wrong = compare_types(schema, types) or compare_rows(states[ts], state)
                if wrong:
                    return QueryResult(0, f"WRONG as of ts {ts} of {moments}: {wrong}")
        return QueryResult(0, "exact", len(moments))


def columns_read(text: str) -> dict[str, list[str]]:
    """The tables that a query names, each with the columns of it that the query names."""
    return {
        relation: [name for name in table.names if re.search(rf"\b{name}\b", text)]
        for relation, table in BY_RELATION.items()
        if re.search(rf"\b{re.escape(relation)}\b", text)
    }


def _rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return [*zip(*(column.to_pylist() for column in table.columns), strict=True)]


def _rows_besides(project: Project, name: str) -> int:
    """How many rows the folds inside a view have stored."""
    views = project.newest_head().views
    root = project.settings.warehouse
    inner = [views[each] for each in views if each.startswith(f"{name}#")]
    return sum(view_state.read_stored(root, view).num_rows for view in inner)


def _detach_project(project: Project) -> None:
    connections = project.open_connections()
    try:
        for source in SOURCES:
            connections.get_source(source).detach_source(force=True)
    finally:
        connections.close()


def table_lines(results: Iterable[QueryResult]) -> list[str]:
    """The results as a table in Markdown."""
    head = [f"| {' | '.join(HEAD)} |", f"|{' --- |' * len(HEAD)}"]
    return [*head, *(f"| {' | '.join(result.cells)} |" for result in results)]


def write_page(lines: Sequence[str], facts: str, scale: float) -> None:
    """Put the table between the markers that the page has for a scale factor, if it has them."""
    begin, end = (f"<!-- {word}: scale factor {scale:g} -->" for word in ("begin", "end"))
    page = PAGE.read_text()
    pattern = re.compile(re.escape(begin) + ".*" + re.escape(end), re.DOTALL)
    text = "\n".join([begin, "", facts, "", *lines, "", end])
    PAGE.write_text(pattern.sub(lambda _: text, page))


def facts_of(results: Sequence[QueryResult], size: RefreshSize, scale: float) -> str:
    """What was done, and how it compares with recomputation."""
    exact = [result for result in results if result.verdict == "exact"]
    facts = (
        f"Scale factor {scale:g}, {size.batches} batches for each query; in each "
        f"{size.orders} orders come and {size.orders} go, {size.together} in a transaction. "
        f"{len(exact)} of {len(results)} are exact."
    )
    if not exact:
        return facts
    worst = min(exact, key=lambda result: result.times_faster)
    middle = median(result.times_faster for result in exact)
    return (
        f"{facts} The median query is {middle:.1f} times faster than recomputation, "
        f"Q{worst.number} {worst.times_faster:.1f} times, and all others more."
    )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make tpch")
    parser.add_argument("--scale", type=float, default=0.01)
    parser.add_argument("--queries", default=",".join(map(str, QUERIES)))
    parser.add_argument("--batches", type=int, default=3)
    parser.add_argument("--orders", type=int, default=5, help="that come, and that go, in a batch")
    parser.add_argument("--together", type=int, default=1, help="so many in one transaction")
    parser.add_argument(
        "--between",
        type=int,
        default=ALL_STATES,
        help=f"compared states between first and last; {ALL_STATES} for all of them, "
        f"{LAST_STATE} for the last state alone",
    )
    parser.add_argument("--recomputations", type=int, default=2, help="of which the best counts")
    parser.add_argument("--no-page", action="store_true", help="leave docs/tpch.md as it is")
    options = parser.parse_args(arguments)
    chosen = [int(number) for number in options.queries.split(",")]
    size = RefreshSize(
        *(options.batches, options.orders, options.together),
        *(options.between, options.recomputations),
    )
    with tempfile.TemporaryDirectory(prefix="viewkeeper-tpch-") as folder:
        databases = TpchDatabases(Path(folder), generate_tables(options.scale))
        spark = start_session(SparkSettings(master="local[2]", memory="6g"), Path(folder, "spark"))
        spark.sparkContext.setLogLevel("OFF")
        try:
            run = TpchRun(databases, spark, options.scale)
            results = []
            for number in chosen:
                results.append(run.run_query(number, size))
                print(" | ".join(results[-1].cells), flush=True)
        finally:
            spark.stop()
            end_java()
            databases.close()
    lines = table_lines(results)
    print("\n".join(lines))
    if not options.no_page and len(chosen) == len(QUERIES):
        write_page(lines, facts_of(results, size, options.scale), options.scale)
    return 0 if all(result.is_fine for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
