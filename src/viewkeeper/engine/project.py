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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from viewkeeper.engine.compile.report_compiler import ReportCompiler
from viewkeeper.engine.connections.open_sources import Connections
from viewkeeper.engine.event_hooks import EventHooks, using_hooks
from viewkeeper.engine.event_log import use_observer
from viewkeeper.engine.evolution.preview import Preview, preview_proposal
from viewkeeper.engine.evolution.proposals import Proposals, Proposed
from viewkeeper.engine.kept_session import KeptSession, RelayedObserver
from viewkeeper.engine.load.folder_difference import differ_on
from viewkeeper.engine.loop import SummingObserver, refresh_views, run_sessions
from viewkeeper.engine.maintainer import Maintainer
from viewkeeper.engine.operations.verification import Verification, verify_views
from viewkeeper.engine.query.bounded_query import BoundedQueries
from viewkeeper.engine.query.query_socket import (
    Answer,
    Handler,
    Request,
    read_request,
    serving_queries,
)
from viewkeeper.engine.reload.project_reload import ProjectFiles, ProjectReload
from viewkeeper.engine.reload.reload_desk import ReloadDesk
from viewkeeper.engine.report import Observer, ObserverGroup, Report
from viewkeeper.engine.requests.present_service import PresentService
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
from viewkeeper.errors import NotLoadedError, ViewkeeperError
from viewkeeper.storage.local_lock import LockHolder
from viewkeeper.storage.stored_files import storage_of
from viewkeeper.warehouse.metadata.head import Head, read_head
from viewkeeper.warehouse.metadata.warehouse_identity import make_identity
from viewkeeper.warehouse.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Project:
    """A project folder, opened; use as a context manager or `close` it.

    Reading needs no lock. Maintaining takes the warehouse's for as long as it lasts.

    >>> import sqlite3, tempfile, viewkeeper
    >>> folder = Path((place := tempfile.TemporaryDirectory()).name)
    >>> (folder / "views").mkdir()
    >>> database = sqlite3.connect(folder / "shop.db", isolation_level=None)
    >>> _ = database.execute("CREATE TABLE city (name TEXT)")
    >>> _ = database.execute("INSERT INTO city VALUES ('Berlin'), ('Ulm')")
    >>> settings = "warehouse: w\\nsources: {shop: {kind: sqlite, path: shop.db}}"
    >>> _ = (folder / "viewkeeper.yml").write_text(settings)
    >>> view = "CREATE MATERIALIZED VIEW cities AS SELECT c.name FROM shop.city c"
    >>> _ = (folder / "views" / "cities.sql").write_text(view)
    >>> project = viewkeeper.open(folder)
    >>> project.refresh().loaded, project.views
    ({'cities': 2}, {'cities': <View cities: 2 rows, ts 1>})
    >>> _ = database.execute("DELETE FROM city WHERE name = 'Ulm'")
    >>> project.refresh().changes, project.view("cities").arrow().to_pylist()
    (1, [{'name': 'Berlin'}])
    >>> project.close(), database.close(), place.cleanup()
    (None, None, None)
    """

    def __init__(
        self,
        settings: Settings,
        catalogue: ViewCatalogue,
        spark: SparkSession | None,
        now: Callable[[], float] = time.time,
        adjust: Callable[[Settings], Settings] = lambda settings: settings,
    ) -> None:
        """`adjust` makes of what the project file says the settings of this process, for when the
        file is read again."""
        self._adjust = adjust
        self.now = now
        """The time in seconds since 1970, as it is shown to views and noted with commits."""
        self.settings = settings
        self.catalogue = catalogue
        self.spark = SparkHandle(settings.spark, spark)
        self._session: KeptSession | None = None
        self.use_files(ProjectFiles(settings, catalogue))

    @property
    def files(self) -> ProjectFiles:
        """What the project file and the files of views say, as far as this process has read it."""
        return ProjectFiles(self.settings, self.catalogue)

    def use_files(self, files: ProjectFiles) -> None:
        """Go by these files from now on."""
        self.settings, self.catalogue = files.settings, files.catalogue
        compiler = ReportCompiler(self.settings, self.spark)
        self.catalogue.use_compiler(compiler.compile_report, compiler.check_query)
        self.catalogue.use_refresh(self.settings.refresh.word_of)

    def refresh(
        self,
        observer: Observer | None = None,
        full_refresh: Sequence[str] = (),
        reanchor: Sequence[str] = (),
        strict: bool = True,
    ) -> Report:
        """Maintain everything that the sources have committed up to now, then return.

        A view that was never loaded and could not be is an error once all others are maintained:
        its own if it is the only one and its SQL is refused, else a `NotLoadedError`. If `strict`
        is False that is left to `Report.waiting`, as is always a view that has a state and waits.
        """
        kept = None
        with use_observer(observer) as alone, using_hooks(self.settings, alone) as watching:
            summing, started = SummingObserver(), time.perf_counter()
            hearing = ObserverGroup(summing, watching)
            session = self._take_session(hearing, full_refresh, reanchor)
            try:
                if session is None:
                    session = self._open_session(hearing)
                    with renewing_remote(session.maintainer.store):
                        session.maintainer.start_run(full_refresh, reanchor)
                with renewing_remote(session.maintainer.store):
                    report = refresh_views(session.maintainer, summing.report, started)
                refused = session.maintainer.choices.refused_views()
                kept = session.rest()
            finally:
                if session is not None and kept is None:
                    session.close()
        self._session = kept
        if strict and report.waiting:
            raise_never_loaded(report.waiting, self.newest_head(), refused)
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
            store = stack.enter_context(
                open_store(self.settings.warehouse, "viewkeeper refresh", self.now)
            )
            before = store.lock.predecessor
            connections = stack.enter_context(closing(self.open_connections(before)))
            workspace = Workspace(
                self.settings, store, self.catalogue, connections, self.spark, relay
            )
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

        What changes meanwhile in `viewkeeper.yml` and `views/` is taken up, each view by itself.
        Our own readers see every commit at once. Other readers of the views' Delta Lake tables see
        small ones about a second later, or at once too with `sync_tables`. As a `standby` it waits
        while another process maintains the warehouse, and takes over from one that is silent.
        """
        self._close_session()
        self.spark.begin_start()
        stop = stop or threading.Event()
        store = (
            self._wait_for_store(stop)
            if standby
            else open_store(self.settings.warehouse, "viewkeeper run", self.now)
        )
        if store is None:
            return Report()
        hooks = EventHooks(self.settings)
        with use_observer(observer) as alone, hooks.calling_hooks(), store, renewing_lease(store):
            hearing = ObserverGroup(summing := SummingObserver(), alone, hooks)
            queries = BoundedQueries(self.settings.warehouse, self.spark)
            with (
                closing(PresentService()) as present,
                closing(ProjectReload(self, self._adjust, hearing)) as reload,
                serving_queries(store.local_root, queries, request_handlers(present, reload.desk)),
            ):
                session = partial(opening_session, self, store, (hearing, hooks), present)
                ways = (full_refresh, reanchor, sync_tables)
                return run_sessions(session, summing.report, stop, reload, *ways)

    def _wait_for_store(self, stop: threading.Event) -> Store | None:
        """The warehouse, once nobody else maintains it; the views are as they are then."""
        store = wait_for_store(self.settings.warehouse, "viewkeeper run", self.now, stop)
        if store is not None:
            try:
                catalogue = read_views(self.settings, store.head)
                self.use_files(ProjectFiles(self.settings, catalogue))
            except BaseException:
                store.abandon_store()
                raise
        return store

    @contextmanager
    def open_maintainer(self, command: str, observer: Observer) -> Iterator[Maintainer]:
        """The maintainer of this project's warehouse, with the lock held."""
        store = open_store(self.settings.warehouse, f"viewkeeper {command}", self.now)
        with (
            store,
            renewing_lease(store),
            self.maintain_store(store, observer) as maintainer,
        ):
            yield maintainer

    @contextmanager
    def maintain_store(self, store: Store, observer: Observer) -> Iterator[Maintainer]:
        """A maintainer of an open warehouse, by the files that the project has now."""
        with closing(self.open_connections(store.lock.predecessor)) as connections:
            maintainer = Maintainer(
                Workspace(self.settings, store, self.catalogue, connections, self.spark, observer)
            )
            with closing(maintainer.lookout):
                yield maintainer

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
        self.catalogue.written.check_name(name)
        return View(name, self.settings.warehouse, self.spark)

    @property
    def views(self) -> dict[str, View]:
        """All views of this project by name, those first that others read."""
        return {name: self.view(name) for name in self.catalogue.written.readable_names}

    def __repr__(self) -> str:
        views = ", ".join(self.catalogue)
        return f"<Project {self.settings.folder}: {views}>"

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
            if name not in self.catalogue:
                raise self.catalogue.written.refused[name].error
        with closing(self.open_connections()) as connections:
            head = self.newest_head()
            views, again = head.shown_views, head.refreshes
            able = [name for name in views if name in self.catalogue or name in names]
            ready = [name for name in able if not views[name].stopped and name not in again]
            chosen = names or tuple(ready)
            for name in (name for name in views if name not in chosen and not names):
                why = "has stopped" if name in able else "is refused"
                why = "is being loaded again" if name in again else why
                told(f"{name}: not verified, because it {why}")
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

    def open_connections(self, predecessor: LockHolder | None = None) -> Connections:
        """Connections to the sources; `predecessor` has lost the warehouse to this process."""
        spark, minutes = self.spark, self.settings.spark.job_minutes
        differ = differ_on(spark.get_session, lambda: spark.staging_folder, minutes)
        reader = self.reader_name()
        return Connections(self.settings.sources, reader, self.now, differ, predecessor)

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


def raise_never_loaded(
    waiting: Mapping[str, str], head: Head, refused: Mapping[str, ViewkeeperError]
) -> None:
    """An error if views that wait have no state yet; some of them are `refused`."""
    never = {name: why for name, why in waiting.items() if name not in head.views}
    if len(never) == 1 and never.keys() <= refused.keys():
        raise refused[next(iter(never))]
    if never:
        raise NotLoadedError(never)


@dataclass(frozen=True, slots=True)
class RefreshRequest:
    """Somebody wants views to be loaded again."""

    views: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DropRequest:
    """Somebody wants views to be dropped."""

    views: tuple[str, ...]
    with_files: bool
    force: bool


def request_handlers(present: PresentService, reloads: ReloadDesk) -> dict[str, Handler]:
    """What a running maintainer does when it is asked at its socket, by the kind of request."""

    def refresh(asked: Request) -> Answer:
        names = read_request(RefreshRequest, asked).views
        return {"tables": present.ask_service(lambda service: service.refresh_views(names))}

    def drop(asked: Request) -> Answer:
        found = read_request(DropRequest, asked)
        present.ask_service(
            lambda service: service.drop_views(found.views, found.with_files, found.force)
        )
        return {"dropped": list(found.views)}

    def take_files(_: Request) -> Answer:
        return reloads.ask_reload()

    return {"refresh": refresh, "drop": drop, "reload": take_files}


@contextmanager
def opening_session(
    project: Project,
    store: Store,
    watchers: tuple[Observer, EventHooks],
    present: PresentService,
) -> Iterator[Maintainer]:
    """A maintainer by the files that a project has now, which is asked from now on. The hooks,
    which the observer passes events on to, are those of these files."""
    observer, hooks = watchers
    hooks.use_settings(project.settings)
    with project.maintain_store(store, observer) as maintainer:
        present.use_service(maintainer.service)
        yield maintainer


def open_project(
    path: str | Path = ".",
    spark: SparkSession | None = None,
    now: Callable[[], float] = time.time,
) -> Project:
    """Open the project in a folder; reads the project file, the views and what is stored of them,
    touches no source. `now` is what the clock shows, in seconds since 1970. A session that is given
    is asked by one tiny job, once, whether its workers can run our tasks.

    >>> import tempfile, viewkeeper
    >>> folder = tempfile.TemporaryDirectory()
    >>> settings = "warehouse: w\\nsources: {shop: {kind: sqlite, path: shop.db}}"
    >>> _ = Path(folder.name, "viewkeeper.yml").write_text(settings)
    >>> Path(folder.name, "views").mkdir()
    >>> view = "CREATE MATERIALIZED VIEW ids AS SELECT o.id FROM shop.orders o"
    >>> _ = Path(folder.name, "views", "ids.sql").write_text(view)
    >>> with viewkeeper.open(folder.name) as project:
    ...     project.views
    {'ids': <View ids: not loaded yet>}
    >>> folder.cleanup()
    """
    settings = read_settings(Path(path))
    head = read_head(settings.warehouse)
    project = Project(settings, read_views(settings, head), spark, now)
    if spark is not None:
        project.spark.get_session()
    return project
