"""A project with views over the two sources of a case, maintained batch by batch.

Each batch is a process's life as far as Viewkeeper can tell: the project is opened, every
transaction is looked at as it is committed, so that it gets a ts of its own, all are maintained
together, and the project is closed again. A view that is refused is taken out of the folder, with
its reason, and so are those that read it; the others stay as they are.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from tests.live.judge import feed_of_head, stamps
from tests.sql.moved_clock import MovedClock, read_moments
from tests.sql.relation_history import SOURCES, RelationHistory, Row, Step
from viewkeeper.engine.compile.report_compiler import ReportCompiler
from viewkeeper.engine.maintainer import Maintainer
from viewkeeper.engine.project import Project, open_project
from viewkeeper.engine.report import BatchReport, SilentObserver
from viewkeeper.errors import DefinitionError, ViewkeeperError
from viewkeeper.view.definition import Graph
from viewkeeper.view.sql.view_statement import parse_view
from viewkeeper.warehouse.metadata.definition_version import DefinitionTable
from viewkeeper.warehouse.metadata.head import ViewHead, read_head

Compiler = Callable[[str, str, Sequence[DefinitionTable]], Graph]
PARENT_REFUSED = "a view that it reads is refused"
ROUNDS = 50
LEDGERS = {source: f"ledger_{source}" for source in SOURCES}


class TroubleObserver(SilentObserver):
    """Remembers what went wrong, and what batches did."""

    def __init__(self) -> None:
        self.troubles: list[ViewkeeperError] = []
        self.batches: list[BatchReport] = []

    def on_trouble(self, error: ViewkeeperError) -> None:
        self.troubles.append(error)

    def on_batch_commit(self, report: BatchReport) -> None:
        self.batches.append(report)


class ReportProject:
    """The project of one case."""

    def __init__(
        self,
        folder: Path,
        views: Mapping[str, str],
        spark: SparkSession | None,
        settings: str = "",
        clock: MovedClock | None = None,
        compiler: Compiler | None = None,
    ) -> None:
        """`compiler` says what reports mean; without one it is Spark."""
        self.folder = folder
        self.clock = clock
        self.views = dict(views)
        self.refused: dict[str, str] = {}
        """Views that were refused, with their reasons."""
        self.stopped: dict[str, str] = {}
        """Views that failed, with their errors."""
        self.observer = TroubleObserver()
        self._spark = spark
        self._compiler = compiler
        self._reader: Project | None = None
        self._compiled: dict[tuple[str, str], Graph] = {}
        self._heads: Mapping[str, ViewHead] = {}
        lines = "".join(f"  {name}: {{kind: sqlite, path: {name}.db}}\n" for name in SOURCES)
        (folder / "viewkeeper.yml").write_text(
            "warehouse: ./warehouse\nhistory: 10000d\nretention: 10000d\n"
            f"sources:\n{lines}{settings}"
        )
        (folder / "views").mkdir()
        ledgers = {LEDGERS[source]: f"SELECT l.n FROM {source}.ledger l" for source in SOURCES}
        for name, text in {**ledgers, **views}.items():
            path = folder / "views" / f"{name}.sql"
            path.write_text(f"CREATE MATERIALIZED VIEW {name} AS\n{text};\n")

    def open_project(self) -> Project:
        """The project, opened; every text is compiled once in all its lives."""
        project = open_project(self.folder, self._spark, self.clock or time.time)
        reports = ReportCompiler(project.settings, project.spark)
        compiler = self._compiler or reports.compile_report

        def compile_once(name: str, text: str, tables: Sequence[DefinitionTable]) -> Graph:
            key = (text, repr(tables))
            if key not in self._compiled:
                self._compiled[key] = compiler(name, text, tables)
            return self._compiled[key]

        project.catalogue.use_compiler(compile_once, reports.check_query)
        return project

    def load_views(self) -> None:
        """Load everything that is not refused."""
        while wrong := self._load_or_find_errors():
            for name in [name for name in wrong if name in self.views]:
                self._drop_view(name, reason_of(wrong[name]))
                if not isinstance(wrong[name], DefinitionError):
                    del self.refused[name]
                    self.stopped[name] = f"{type(wrong[name]).__name__}: {wrong[name]}"

    def _load_or_find_errors(self) -> dict[str, Exception]:
        """Load all views, or find those that cannot be read or bound."""
        try:
            with self.open_project() as project:
                if wrong := self._binding_errors(project):
                    return wrong
                waiting = project.refresh(self.observer, strict=False).waiting
                # Some could be bound only after a load, and are refused then.
                late = self._binding_errors(project) if waiting else {}
                if any(isinstance(error, DefinitionError) for error in late.values()):
                    return late
                self._note_stopped(waiting)
                return {}
        except Exception as error:
            wrong = self._parse_errors()
            if not wrong:
                # Views that read others may be bound only now.
                with self.open_project() as project:
                    wrong = self._binding_errors(project)
            if not wrong:
                raise error from None
            return wrong

    def _parse_errors(self) -> dict[str, Exception]:
        found: dict[str, Exception] = {}
        for name in self.views:
            try:
                parse_view((self.folder / "views" / f"{name}.sql").read_text(), f"{name}.sql")
            except DefinitionError as error:
                found[name] = error
        return found

    def _binding_errors(self, project: Project) -> dict[str, Exception]:
        """What goes wrong when each view, after those that it reads, is bound.

        One that reads a view whose columns only its load tells is bound after that load.
        """
        found: dict[str, Exception] = {}
        connections = project.open_connections()
        for name in self.views:
            try:
                if project.catalogue.can_bind(name):
                    project.catalogue.bind_view(name, connections)
            except Exception as error:  # noqa: BLE001 - it is what is asked for
                found[name] = error
        connections.close()
        return found

    def maintain_batch(
        self, history: RelationHistory, batch: Sequence[Step], looks: Sequence[bool]
    ) -> None:
        """Take steps, looking where `looks` says so, and maintain them together."""
        with (
            self.open_project() as project,
            project.open_maintainer("test", self.observer) as keeper,
        ):
            keeper.start_run()
            for step, look in zip(batch, looks, strict=True):
                if isinstance(step, timedelta):
                    assert self.clock is not None, "this project has no clock that can be moved"
                    self.clock.moment += step
                else:
                    history.apply_transaction(step)
                if look:
                    keeper.see_commits()
            self._note_stopped(_maintain_all(keeper))
            keeper.tell_progress()

    def _drop_view(self, name: str, reason: str) -> None:
        (self.folder / "views" / f"{name}.sql").unlink()
        self.refused[name] = reason
        del self.views[name]
        for child in [n for n, text in self.views.items() if re.search(rf"\b{name}\b", text)]:
            if child in self.views:
                self._drop_view(child, PARENT_REFUSED)

    def _note_stopped(self, waiting: Mapping[str, str]) -> None:
        views = read_head(self.folder / "warehouse").views
        for name in [*self.views, *LEDGERS.values()]:
            stop = views[name].stopped if name in views else "not loaded"
            if stop or name in waiting:
                self.stopped.setdefault(name, str(waiting.get(name) or stop))

    # -- what it shows -------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[Project]:
        """The project, opened once for everything that is read inside: its many views cost more to
        parse than to read."""
        if self._reader is not None:
            yield self._reader
            return
        with self.open_project() as self._reader:
            try:
                yield self._reader
            finally:
                self._reader = None
                self._heads = {}

    def stamps_of(self, history: RelationHistory) -> list[int]:
        """The ts of every transaction, by its number."""
        with self.reading() as project:
            found = [stamps(project, name) for name in LEDGERS.values()]
        by_number = found[0] | found[1]
        assert sorted(by_number) == [*range(len(history.touched))], "every transaction has one ts"
        return [by_number[number] for number in sorted(by_number)]

    def moments_of_clock(self) -> tuple[dict[int, datetime], frozenset[int]]:
        """What the clock showed at every ts since the load, and at which ts it ticked."""
        if self.clock is None:
            return {}, frozenset()
        warehouse = self.folder / "warehouse"
        heads = read_head(warehouse).views
        since = min(heads[name].created_ts for name in LEDGERS.values())
        return read_moments(warehouse, self.clock, since)

    def feed_of(self, name: str) -> tuple[int, dict[int, Counter[Row]]]:
        """Since which ts a view is there, and what each ts did to it."""
        with self.reading() as project:
            self._heads = self._heads or project.newest_head().views
            head = self._heads[name]
            return head.created_ts, feed_of_head(project.settings.warehouse, head)

    def table_at(self, name: str, ts: int | None) -> pa.Table:
        """The rows of a view as a reader gets them."""
        with self.reading() as project:
            return project.view(name).arrow(as_of=ts)


def _maintain_all(keeper: Maintainer) -> Mapping[str, str]:
    """Maintain what was seen, and what is met on the way; the views that could not, and why."""
    for _ in range(ROUNDS):
        keeper.see_commits()
        since = keeper.read_progress()
        if keeper.maintain_views(since) is None and keeper.read_progress() == since:
            break
    keeper.acknowledge_commits(now=True)
    return keeper.waiting_views()


def reason_of(error: Exception) -> str:
    """Why a view is refused, without the names of this case."""
    message = error.message if isinstance(error, ViewkeeperError) else str(error)
    text = message.rpartition(".sql:")[2] or message
    text = re.sub(r"^\d+(:\d+)?: ", "", text)
    text = re.sub(r'view "\w+": ', "", text)
    return re.sub(r"\b(t|wt|v|c)\d+\b(\.\w+)?", "...", text)
