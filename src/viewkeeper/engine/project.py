"""A project: the folder that a user has, and everything that can be done with it from Python.

    project = viewkeeper.open("shop")
    report = project.refresh()
    project.view("order_lines").df().show()

Reading needs no lock and sees what is committed. Maintaining takes the warehouse's lock for as long
as it lasts. Spark is started when something needs it, unless a session is given.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from viewkeeper.engine.connections.open_sources import Connections
from viewkeeper.engine.evolution.preview import Preview, preview_proposal
from viewkeeper.engine.evolution.proposals import Proposals, Proposed
from viewkeeper.engine.kept_session import KeptSession, RelayedObserver
from viewkeeper.engine.load.folder_difference import differ_on
from viewkeeper.engine.loop import SummingObserver, refresh_views, run_until
from viewkeeper.engine.maintainer import Maintainer
from viewkeeper.engine.operations.verification import Verification, verify_views
from viewkeeper.engine.report import Observer, Report, SilentObserver
from viewkeeper.engine.settings.project_file import Settings, read_settings
from viewkeeper.engine.spark.spark_session import SparkHandle
from viewkeeper.engine.upkeep import WarehouseReader, compact_views, publish_views
from viewkeeper.engine.view import View
from viewkeeper.engine.views.view_catalogue import ViewCatalogue, read_views
from viewkeeper.engine.views.workspace import Workspace
from viewkeeper.engine.warehouse_lease import (
    open_store,
    renewing_lease,
    renewing_remote,
    wait_for_store,
)
from viewkeeper.errors import UnsupportedError
from viewkeeper.storage.stored_files import storage_of
from viewkeeper.view.definition import Graph, Relation
from viewkeeper.warehouse.metadata.definition_version import DefinitionTable
from viewkeeper.warehouse.metadata.head import Head, read_head
from viewkeeper.warehouse.metadata.warehouse_identity import make_identity
from viewkeeper.warehouse.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from viewkeeper.engine.compile.query_compiler import QueryCompiler
    from viewkeeper.engine.compile.query_table import QueryTable


class Project:
    """A project folder, opened; use as a context manager or `close` it."""

    def __init__(
        self,
        settings: Settings,
        catalogue: ViewCatalogue,
        spark: SparkSession | None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.now = now
        """The time in seconds since 1970, as it is shown to views and noted with commits."""
        self.settings = settings
        self.catalogue = catalogue
        self.spark = SparkHandle(settings.spark, spark)
        self._compiler: QueryCompiler | None = None
        self._session: KeptSession | None = None
        catalogue.use_compiler(self._compile_report)
        catalogue.use_refresh(settings.refresh.word_of)

    def refresh(
        self,
        observer: Observer | None = None,
        full_refresh: Sequence[str] = (),
        reanchor: Sequence[str] = (),
    ) -> Report:
        """Maintain everything that the sources have committed up to now, then return."""
        summing, started = SummingObserver(observer or SilentObserver()), time.perf_counter()
        session, kept = self._take_session(summing, full_refresh, reanchor), None
        try:
            if session is None:
                session = self._open_session(summing)
                with renewing_remote(session.maintainer.store):
                    session.maintainer.start_run(full_refresh, reanchor)
            with renewing_remote(session.maintainer.store):
                report = refresh_views(session.maintainer, summing.report, started)
            kept = session.rest()
        finally:
            if session is not None and kept is None:
                session.close()
        self._session = kept
        return report

    def _take_session(
        self, observer: Observer, full_refresh: Sequence[str], reanchor: Sequence[str]
    ) -> KeptSession | None:
        """The session that the last refresh has left, with the lock held; None without one that
        can be used, or where views are named that need a start from nothing."""
        session, self._session = self._session, None
        if session is None:
            return None
        taken = None
        try:
            if not full_refresh and not reanchor:
                taken = session.resume(self.settings, self.catalogue, observer)
        finally:
            if taken is None:
                session.close()
        return taken

    def _open_session(self, observer: Observer) -> KeptSession:
        """A session that begins from nothing, with the lock held."""
        relay = RelayedObserver(observer)
        with ExitStack() as stack:
            store = stack.enter_context(self._open_store("refresh"))
            connections = stack.enter_context(closing(self.open_connections()))
            workspace = self._make_workspace(store, connections, relay)
            session = KeptSession(workspace, Maintainer(workspace), relay)
            stack.pop_all()
        return session

    def run(
        self,
        observer: Observer | None = None,
        stop: threading.Event | None = None,
        full_refresh: Sequence[str] = (),
        reanchor: Sequence[str] = (),
        sync_tables: bool = False,
        standby: bool = False,
    ) -> Report:
        """Keep the views fresh until `stop` is set; the commit under way is finished first.

        Our own readers see every commit at once. Other readers of the views' Delta Lake tables see
        small ones about a second later, or at once too with `sync_tables`. As a `standby` it waits
        while another process maintains the warehouse, and takes over from one that is silent.
        """
        self._close_session()
        self.spark.begin_start()
        summing, stop = SummingObserver(observer or SilentObserver()), stop or threading.Event()
        store = self._wait_for_store(stop) if standby else self._open_store("run")
        if store is None:
            return summing.report
        with self._maintain_store(store, summing) as maintainer:
            return run_until(maintainer, summing.report, stop, full_refresh, reanchor, sync_tables)

    def _wait_for_store(self, stop: threading.Event) -> Store | None:
        """The warehouse, once nobody else maintains it; the views are as they are then."""
        store = wait_for_store(self.settings.warehouse, "viewkeeper run", self.now, stop)
        if store is not None:
            try:
                self.catalogue = _read_catalogue(self.settings, store.head)
                self.catalogue.use_compiler(self._compile_report)
                self.catalogue.use_refresh(self.settings.refresh.word_of)
            except BaseException:
                store.abandon_store()
                raise
        return store

    @contextmanager
    def open_maintainer(self, command: str, observer: Observer) -> Iterator[Maintainer]:
        """The maintainer of this project's warehouse, with the lock held."""
        with self._maintain_store(self._open_store(command), observer) as maintainer:
            yield maintainer

    @contextmanager
    def _maintain_store(self, store: Store, observer: Observer) -> Iterator[Maintainer]:
        with (
            store,
            renewing_lease(store),
            closing(self.open_connections()) as connections,
        ):
            maintainer = Maintainer(self._make_workspace(store, connections, observer))
            with closing(maintainer.lookout):
                yield maintainer

    def _open_store(self, command: str) -> Store:
        return open_store(self.settings.warehouse, f"viewkeeper {command}", self.now)

    def _make_workspace(
        self, store: Store, connections: Connections, observer: Observer
    ) -> Workspace:
        return Workspace(self.settings, store, self.catalogue, connections, self.spark, observer)

    def _close_session(self) -> None:
        """Let go of what was kept for the next refresh."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def compact(self, told: Callable[[str], None] = lambda _: None) -> None:
        """Fold what is older than the retention, merge small files, remove what is unused."""
        store = open_store(self.settings.warehouse, "viewkeeper compact", time.time)
        with store, renewing_lease(store):
            compact_views(store, self.settings, self.spark, told)

    def publish(
        self, names: Sequence[str] = (), told: Callable[[str], None] = lambda _: None
    ) -> None:
        """Write plain tables, rows only, of these views or of all."""
        for name in names:
            self.view(name)
        reader = WarehouseReader(self.settings.warehouse.absolute(), self.newest_head())
        publish_views(reader, self.spark, names or tuple(reader.head.shown_views), told)

    def view(self, name: str) -> View:
        """A view of this project."""
        self.catalogue.check_name(name)
        return View(name, self.settings.warehouse, self.spark)

    def newest_head(self) -> Head:
        """The newest committed state of the warehouse."""
        return read_head(self.settings.warehouse)

    def verify(
        self,
        names: Sequence[str] = (),
        every_state: bool = False,
        since: int | None = None,
        told: Callable[[str], None] = lambda _: None,
    ) -> list[Verification]:
        """Compare views with recomputation from their sources, while writers go on."""
        for name in names:
            self.view(name)
        with closing(self.open_connections()) as connections:
            views = self.newest_head().shown_views
            chosen = names or tuple(name for name in views if not views[name].stopped)
            for name in (name for name in views if name not in chosen and not names):
                told(f"{name}: not verified, because it has stopped")
            return verify_views(
                self.settings,
                self.catalogue,
                self.spark,
                connections,
                chosen,
                every_state,
                since,
                told,
            )

    def proposals(self) -> Proposals:
        """What views would become, where that waits for somebody's word."""
        return Proposals(self.settings.warehouse)

    def preview(self, proposed: Proposed) -> Preview | None:
        """What a proposal would do to the view's rows; None if that cannot be computed yet."""
        with closing(self.open_connections()) as connections:
            return preview_proposal(self.settings, self.spark, connections, proposed)

    def _compile_report(self, name: str, text: str, tables: Sequence[DefinitionTable]) -> Graph:
        """What a report means, by Spark, or by what Spark has said of the same query before."""
        from viewkeeper.engine.compile.compiled_graphs import (
            CompiledGraphs,
            cache_folder,
            query_digest,
        )
        from viewkeeper.engine.compile.query_table import QueryTable

        named = [
            QueryTable(Relation(each.source, each.table), each.fields, each.unique_keys)
            for each in tables
        ]
        mode = self.settings.refresh.word_of(name)
        if self.spark.is_given:
            return self._ask_spark(mode, text, named)
        kept = CompiledGraphs(cache_folder())
        digest = query_digest(text, named, mode, self.settings.spark.config)
        graph = kept.find_graph(digest)
        if graph is None:
            graph = self._ask_spark(mode, text, named)
            kept.keep_graph(digest, graph)
        return graph

    def _ask_spark(self, mode: str, text: str, tables: Sequence[QueryTable]) -> Graph:
        from viewkeeper.engine.compile.query_compiler import QueryCompiler
        from viewkeeper.engine.compile.recomputed_query import describe_recomputed

        if mode == "full":
            return describe_recomputed(self.spark.get_session(), text, tables, "refresh: full")
        if self._compiler is None:
            self._compiler = QueryCompiler(self.spark.get_session())
        try:
            return self._compiler.compile_text(text, tables)
        except UnsupportedError as error:
            if mode != "auto":
                raise
            reason = f"refresh: auto, and {error.message}"
            return describe_recomputed(self.spark.get_session(), text, tables, reason)

    def open_connections(self) -> Connections:
        differ = differ_on(
            self.spark.get_session,
            lambda: self.spark.staging_folder,
            self.settings.spark.job_minutes,
        )
        return Connections(self.settings.sources, self.reader_name(), self.now, differ)

    def reader_name(self) -> str:
        """How this warehouse is called in its sources' lists of followers; made once."""
        storage = storage_of(self.settings.warehouse)
        storage.make_folder(self.settings.warehouse)
        storage.open_to(self.settings.warehouse, group=self.settings.access == "group")
        return make_identity(self.settings.warehouse)

    def close(self) -> None:
        self._close_session()
        self.spark.stop_session()

    def __enter__(self) -> Project:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_project(
    path: str | Path = ".",
    spark: SparkSession | None = None,
    now: Callable[[], float] = time.time,
) -> Project:
    """Open the project in a folder; reads the project file, the views and what is stored of them,
    touches no source. `now` is what the clock shows, in seconds since 1970."""
    settings = read_settings(Path(path))
    head = read_head(settings.warehouse)
    return Project(settings, _read_catalogue(settings, head), spark, now)


def _read_catalogue(settings: Settings, head: Head) -> ViewCatalogue:
    return read_views(settings.folder, frozenset(settings.sources), head)
