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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median

from pyspark.sql import SparkSession

import viewkeeper
from tests.conftest import end_java
from tests.live.judge import feed, stamps
from tests.sql.report_project import reason_of
from tests.sql.spark_judge import SparkJudge, compare_rows, compare_types, sum_changes
from tests.tpch.databases import TpchDatabases
from tests.tpch.generator import generate_tables
from tests.tpch.queries import QUERIES, text_of_query
from tests.tpch.refreshes import RefreshWriter
from tests.tpch.tables import BY_RELATION, SOURCES
from viewkeeper.engine.operations.project_status import gather_status
from viewkeeper.engine.project import Project
from viewkeeper.engine.report import Report
from viewkeeper.engine.settings.project_file import SparkSettings
from viewkeeper.engine.spark.spark_session import start_session
from viewkeeper.errors import DefinitionError
from viewkeeper.warehouse.rows import view_state

PAGE = Path(__file__).parent.parent.parent / "docs" / "tpch.md"
BEGIN, END = "<!-- begin: made by `make tpch` -->", "<!-- end -->"
BETWEEN = 3
"""How many states between the first and the last are compared."""


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
        return (str(self.number), self.verdict, *shown, f"{whole / self.batch_seconds:.1f}")


HEAD = (
    *("query", "verdict", "states compared", "rows", "rows stored besides", "lookups per batch"),
    *("rows asked per batch", "load, s", "batch, s", "text on Spark, s"),
    *("databases read and text on Spark, s", "times faster"),
)


@dataclass(frozen=True, slots=True)
class RefreshSize:
    """How many batches there are; in each, how many orders come and go, so many together."""

    batches: int
    orders: int
    together: int


@dataclass(frozen=True, slots=True)
class MeasuredBatch:
    """What a batch took, and what it asked the sources."""

    seconds: float
    lookups: int
    asked: int


class TpchRun:
    """The databases, the judge and what happens to them, for all queries."""

    def __init__(self, databases: TpchDatabases, spark: SparkSession, scale: float) -> None:
        self._databases = databases
        self._spark = spark
        self._scale = scale
        self._rng = random.Random(1)
        self._writer = RefreshWriter(databases.history, self._rng)
        self._judge = SparkJudge(spark, {}, {})

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
                started = time.perf_counter()
                _check_report(project.refresh())
                load_seconds = time.perf_counter() - started
                measured = [self._run_batch(project, name, size) for _ in range(size.batches)]
                result = self._judge_view(project, name, text)
            finally:
                _detach_project(project)
        if result.verdict != "exact":
            return replace(result, number=number)
        read_seconds, recompute_seconds = self._recompute_text(text)
        return replace(
            result,
            number=number,
            load_seconds=load_seconds,
            batch_seconds=median(each.seconds for each in measured),
            lookups=round(mean(each.lookups for each in measured)),
            asked=round(mean(each.asked for each in measured)),
            read_seconds=read_seconds,
            recompute_seconds=recompute_seconds,
        )

    def _recompute_text(self, text: str) -> tuple[float, float]:
        """How long it takes to read the databases, and then to run the text on Spark: the better
        of two, so that nobody waits for Spark to become warm."""
        found = []
        for _ in range(2):
            started = time.perf_counter()
            query = text
            for relation, table in BY_RELATION.items():
                if not re.search(rf"\b{re.escape(relation)}\b", text):
                    continue
                columns = [name for name in table.names if re.search(rf"\b{name}\b", text)]
                frame = self._spark.createDataFrame(self._databases.read_table(relation, columns))
                frame.createOrReplaceTempView(table.name)
                query = re.sub(rf"\b{re.escape(relation)}\b", table.name, query)
            read = time.perf_counter() - started
            self._spark.sql(query).toArrow()
            found.append((read, time.perf_counter() - started - read))
        return min(found, key=sum)

    def _write_project(self, folder: Path, name: str, text: str) -> None:
        lines = self._databases.source_lines()
        (folder / "viewkeeper.yml").write_text(f"warehouse: ./warehouse\nsources:\n{lines}")
        (folder / "views").mkdir()
        ledgers = {f"ledger_{source}": f"SELECT l.n FROM {source}.ledger l" for source in SOURCES}
        for view, query in {name: text, **ledgers}.items():
            sql = f"CREATE MATERIALIZED VIEW {view} AS\n{query};\n"
            (folder / "views" / f"{view}.sql").write_text(sql)

    def _run_batch(self, project: Project, name: str, size: RefreshSize) -> MeasuredBatch:
        for changes in self._writer.next_batch(size.orders, size.together):
            self._databases.commit_changes(changes)
        started = time.perf_counter()
        report = project.refresh()
        seconds = time.perf_counter() - started
        _check_report(report)
        views = gather_status(project.settings, time.time()).views
        (asked,) = [view.asked_rows for view in views if view.name == name]
        return MeasuredBatch(seconds, report.lookups.total(), asked or 0)

    def _judge_view(self, project: Project, name: str, text: str) -> QueryResult:
        """Compare some states with Spark on the text over the tables as of then."""
        head, numbers = project.view(name).head, _numbers_of(project)
        self._judge.show_relations(self._databases.history.as_tables(numbers, head.created_ts), {})
        found = feed(project, name)
        between = sorted(ts for ts in {*numbers.values()} if head.created_ts < ts < head.ts)
        some = self._rng.sample(between, min(BETWEEN, len(between)))
        moments = sorted({head.created_ts, *some, head.ts})
        states = sum_changes(found, moments)
        for ts in moments:
            wanted, types = self._judge.states_of(text, [ts])
            wrong = compare_types(project.view(name).arrow().schema, types)
            wrong = wrong or compare_rows(states[ts], wanted[ts])
            if wrong:
                return QueryResult(0, f"WRONG as of ts {ts} of {moments}: {wrong}")
        rows = len(states[moments[-1]])
        return QueryResult(0, "exact", len(moments), rows, _rows_besides(project, name))


def _numbers_of(project: Project) -> dict[int, int]:
    """The ts of every transaction, by number."""
    return {n: ts for source in SOURCES for n, ts in stamps(project, f"ledger_{source}").items()}


def _rows_besides(project: Project, name: str) -> int:
    """How many rows the folds inside a view have stored."""
    views = project.newest_head().views
    root = project.settings.warehouse
    inner = [views[each] for each in views if each.startswith(f"{name}#")]
    return sum(view_state.read_stored(root, view).num_rows for view in inner)


def _check_report(report: Report) -> None:
    if report.waiting:
        raise AssertionError("; ".join(f"{name}: {why}" for name, why in report.waiting.items()))


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


def write_page(lines: Sequence[str], facts: str) -> None:
    """Put the table between the markers of the page."""
    page = PAGE.read_text()
    pattern = re.compile(re.escape(BEGIN) + ".*" + re.escape(END), re.DOTALL)
    assert pattern.search(page), f"{PAGE} has lost its markers"
    text = "\n".join([BEGIN, "", facts, "", *lines, "", END])
    PAGE.write_text(pattern.sub(lambda _: text, page))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make tpch")
    parser.add_argument("--scale", type=float, default=0.01)
    parser.add_argument("--queries", default=",".join(map(str, QUERIES)))
    parser.add_argument("--batches", type=int, default=3)
    parser.add_argument("--orders", type=int, default=5, help="that come, and that go, in a batch")
    parser.add_argument("--together", type=int, default=1, help="so many in one transaction")
    parser.add_argument("--no-page", action="store_true", help="leave docs/tpch.md as it is")
    options = parser.parse_args(arguments)
    chosen = [int(number) for number in options.queries.split(",")]
    size = RefreshSize(options.batches, options.orders, options.together)
    with tempfile.TemporaryDirectory(prefix="viewkeeper-tpch-") as folder:
        databases = TpchDatabases(Path(folder), generate_tables(options.scale))
        spark = start_session(SparkSettings(master="local[2]"), Path(folder, "spark"))
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
        facts = (
            f"Scale factor {options.scale:g}, {size.batches} batches for each query; in each "
            f"{size.orders} orders come and {size.orders} go, {size.together} in a transaction."
        )
        write_page(lines, facts)
    return 0 if all(result.is_fine for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
