"""Initial loads, each in a thread of its own, while the other views are maintained.

The thread computes and writes; it touches neither the warehouse's records nor the sources' logs.
The maintainer commits what it brings, and holds the sources' logs at the load's positions
meanwhile. Several views are loaded side by side, up to `LOADS_MAX`: each has its own thread, its
own snapshots and its own session of Spark, so that one that fails, or takes long, is nobody else's
trouble.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version

from viewkeeper.engine.connections.open_sources import prepare_openers
from viewkeeper.engine.load.load_job import (
    LoadedTable,
    LoadedTables,
    LoadLimits,
    LoadOrigin,
    LoadTarget,
    StoredParents,
    StoredRows,
    load_view,
)
from viewkeeper.engine.load.unfinished_loads import UnfinishedLoads
from viewkeeper.engine.spark.job_control import cancel_job, job_progress
from viewkeeper.engine.views.algorithm_choice import AlgorithmChoice
from viewkeeper.engine.views.bound_view import Binding
from viewkeeper.engine.views.workspace import Workspace
from viewkeeper.errors import ViewkeeperError
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.view.definition import ViewDefinition
from viewkeeper.view.graph import tables_of_view
from viewkeeper.warehouse.metadata.definition_version import DefinitionVersion
from viewkeeper.warehouse.metadata.head import ViewHead
from viewkeeper.warehouse.metadata.record import Advance, Create, Drop, Redefine, ViewChange
from viewkeeper.warehouse.metadata.unfinished_load import (
    UnfinishedLoad,
    begin_keeping,
    count_parts,
    load_folder,
)

PROGRESS_SECONDS = 5.0
RECOMPUTED = "computed again:"
"""How the cause begins for which a view is computed again as it is."""

LOADED_FOR_CHANGED = 10
"""A row of a load counts a tenth of a change: it is read and joined, but nobody is asked for it."""

LOADS_MAX = 4
"""So many views are loaded at a time. A load on Spark keeps all its slots busy where there is much
to read; side by side, what one does in the driver costs the others nothing."""

CANCEL_SECONDS = 0.5
"""A load that is given up is cancelled so often: it may just be about to begin its next job."""


@dataclass(slots=True)
class ViewLoad:
    """The load of one view as of `ts`, where its sources stand at `positions`.

    `commit` makes of what was loaded the changes that are to be committed; `on_end` is called in
    the load's thread, last.
    """

    name: str
    ts: int
    positions: Mapping[str, int]
    job: Callable[[], LoadedTables]
    commit: Callable[[LoadedTables], list[ViewChange]]
    on_end: Callable[[], None]
    table: str = ""
    """The table whose parts are kept if the load dies; none if they are not."""
    is_resumed: bool = False
    started: float = field(default_factory=time.perf_counter)
    _loaded: LoadedTables | None = None
    _error: BaseException | None = None
    _has_ended: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        threading.Thread(target=self._run_job, name=f"load {self.name}", daemon=True).start()

    def wait_until_ended(self, seconds: float | None = None) -> bool:
        """Wait for the end, or for some time; whether it has ended."""
        return self._has_ended.wait(seconds)

    def find_error(self) -> ViewkeeperError | None:
        """The error of a load that has ended, if it is one of ours."""
        return self._error if isinstance(self._error, ViewkeeperError) else None

    def take_changes(self) -> list[ViewChange]:
        """What is to be committed; the load's own error if there was one."""
        self._has_ended.wait()
        if self._error is not None:
            raise self._error
        assert self._loaded is not None
        return self.commit(self._loaded)

    def _run_job(self) -> None:
        try:
            self._loaded = self.job()
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            self._error = error
        finally:
            self._has_ended.set()
            self.on_end()


@dataclass(frozen=True, slots=True)
class LoadDefinition:
    """What is to be loaded: the user's SQL, what it is bound to, and what is stored of it."""

    text: str
    binding: Binding
    choice: AlgorithmChoice
    causes: tuple[str, ...] = ()
    extent: str = "equal"

    @property
    def view(self) -> ViewDefinition:
        return self.choice.view

    @property
    def digest(self) -> str:
        """A digest of all that decides what the parts of its load hold."""
        view = self.view
        read = [(str(r), [str(f) for f in view.fields_of(r)]) for r in view.relations]
        facts = (self.text, view.query, read, str(view.schema), self.choice.hidden_columns)
        return hashlib.sha256(repr((version("viewkeeper"), facts)).encode()).hexdigest()

    @property
    def is_recomputed(self) -> bool:
        """Whether a view is only computed again, as it is defined already."""
        return all(cause.startswith(RECOMPUTED) for cause in self.causes) and bool(self.causes)

    def load_version(self, ts: int, at: float, parents: Mapping[str, str]) -> DefinitionVersion:
        """The version of its definition; `parents` are the tables of the views that it reads."""
        return self.binding.make_version(ts, at, self.causes, self.extent, parents)


class Loader:
    """The loads that are under way."""

    def __init__(self, workspace: Workspace) -> None:
        self._settings = workspace.settings
        self._store = workspace.store
        self._connections = workspace.connections
        self._spark = workspace.spark
        self._loads: dict[str, ViewLoad] = {}
        self.unfinished = UnfinishedLoads(workspace.store, workspace.settings)
        self._some_ended = threading.Event()
        self._told = 0.0
        self._is_held_back = False

    def hold_back(self, is_held_back: bool) -> None:
        """Begin no more loads for now, or begin them again."""
        self._is_held_back = is_held_back

    @property
    def lasting_names(self) -> frozenset[str]:
        """The views whose loads would begin from nothing if they were ended now."""
        return frozenset(name for name, load in self._loads.items() if not load.table)

    @property
    def is_busy(self) -> bool:
        """Whether some load is under way, or has ended and was not taken."""
        return bool(self._loads)

    @property
    def has_room(self) -> bool:
        """Whether one more view may be loaded now."""
        return len(self._loads) < LOADS_MAX and not self._is_held_back

    @property
    def has_ended(self) -> bool:
        """Whether some load has ended and was not taken."""
        return any(load.wait_until_ended(0) for load in self._loads.values())

    @property
    def names(self) -> frozenset[str]:
        """The views that are being loaded."""
        return frozenset(self._loads)

    def list_points(self) -> list[ViewLoad | UnfinishedLoad]:
        """The loads that are under way, and those that may go on."""
        return [*self._loads.values(), *self.unfinished.list_loads()]

    def wait_for_end(self, seconds: float) -> bool:
        """Wait until some load has ended, or for some time; whether one has."""
        self._some_ended.wait(seconds)
        return self.has_ended

    def begin_load(self, definition: LoadDefinition, ts: int, positions: Mapping[str, int]) -> None:
        """Begin to load a view as of a ts, into tables of its own."""
        view = definition.view
        kept = self.unfinished.take_load(view, definition.digest)
        if kept is not None:
            ts, positions = kept.ts, kept.positions
        tables = {
            name: self._store.new_table(name) if kept is None or name != view.name else kept.table
            for name in tables_of_view(view)
        }
        folders = {name: self._store.table_folder(table) for name, table in tables.items()}
        target = self._load_target(definition, ts, folders, {})
        if self.unfinished.can_keep(view):
            load = kept or UnfinishedLoad(
                view.name, tables[view.name], definition.digest, ts, positions
            )
            keep = partial(begin_keeping, self._store.root, load)
            target = replace(target, keep_parts=keep, is_resumed=kept is not None)
        old = {name: head.table for name, head in self._stored_tables(view.name).items()}
        parents = self._parent_tables(view)

        def commit(loaded: LoadedTables) -> list[ViewChange]:
            version = definition.load_version(ts, self._store.now(), parents)
            made = [
                self._create_table(definition, version, name, tables[name], loaded[name], positions)
                for name in tables
            ]
            return [*made, *(Drop(name, old[name]) for name in old.keys() - tables.keys())]

        self._begin(definition, ts, positions, target, commit, tables[view.name])

    def parts_of(self, name: str) -> int:
        """How many parts of a load are done."""
        load = self._loads.get(name)
        return count_parts(load_folder(self._store.root, load.table)) if load else 0

    def end_parts(self, load: ViewLoad, keep: bool = False) -> None:
        """A load was committed, or has failed; what it has may be kept for another try."""
        if load.table and keep:
            self.unfinished.keep_for_later(load.name)
        elif load.table:
            self.unfinished.remove_parts(load.name, load.table)

    def begin_difference(
        self, definition: LoadDefinition, ts: int, positions: Mapping[str, int]
    ) -> None:
        """Begin to compute by what a stored view differs from another definition as of a ts."""
        name, heads = definition.view.name, self._stored_tables(definition.view.name)
        if {*heads} != {*tables_of_view(definition.view)}:
            # It keeps other folds than before: what is stored of them is of no use.
            self.begin_load(definition, ts, positions)
            return
        staging = self._spark.staging_folder
        stored = {n: StoredRows(self._store.root, head, staging) for n, head in heads.items()}
        folders = {n: rows.folder for n, rows in stored.items()}
        target = self._load_target(definition, ts, folders, stored)
        parents = self._parent_tables(definition.view)

        def commit(loaded: LoadedTables) -> list[ViewChange]:
            if definition.is_recomputed:
                return [Advance(name, ts, positions, loaded[name].files, exact=False)]
            return [
                Redefine(
                    each,
                    definition.text if each == name else "",
                    definition.load_version(ts, self._store.now(), parents),
                    loaded[each].schema,
                    ts,
                    positions,
                    loaded[each].files,
                    hidden=loaded[each].hidden,
                )
                for each in heads
            ]

        self._begin(definition, ts, positions, target, commit)

    def _begin(
        self,
        definition: LoadDefinition,
        ts: int,
        positions: Mapping[str, int],
        target: LoadTarget,
        commit: Callable[[LoadedTables], list[ViewChange]],
        table: str = "",
    ) -> None:
        view, heads = definition.view, self._store.head.views
        parents = {name: heads[name] for name in view.parents}

        def job() -> LoadedTables:
            with prepare_openers(self._connections, positions, [view]) as openers:
                stored = StoredParents(self._spark, self._store.root, parents, ts)
                origin = LoadOrigin(openers, positions, stored)
                return load_view(self._spark, view, origin, target, self._limits())

        assert view.name not in self._loads, "a view is loaded once at a time"
        self._loads[view.name] = ViewLoad(
            view.name,
            ts,
            positions,
            job,
            commit,
            self._some_ended.set,
            table if target.keep_parts is not None else "",
            target.is_resumed,
        )

    def _limits(self) -> LoadLimits:
        inline_rows = self._settings.batch.inline_rows * LOADED_FOR_CHANGED
        return LoadLimits(inline_rows, self._settings.spark.job_minutes)

    def _load_target(
        self,
        definition: LoadDefinition,
        ts: int,
        folders: Mapping[str, StoragePath],
        stored: Mapping[str, StoredRows],
    ) -> LoadTarget:
        hidden = definition.choice.hidden_columns
        return LoadTarget(ts, self._store.head.record + 1, folders, stored, hidden)

    def _stored_tables(self, name: str) -> dict[str, ViewHead]:
        """What is stored of a view: its own table, and those of its folds."""
        return {head.view: head for head in self._store.head.tables_of(name)}

    def _parent_tables(self, view: ViewDefinition) -> dict[str, str]:
        """The tables of the views that a view is loaded from."""
        return {name: self._store.head.views[name].table for name in view.parents}

    def _create_table(
        self,
        definition: LoadDefinition,
        version: DefinitionVersion,
        name: str,
        table: str,
        loaded: LoadedTable,
        positions: Mapping[str, int],
    ) -> Create:
        old = self._store.head.views.get(name)
        versions = (*(old.versions if old else ()), version)
        is_view = name == definition.view.name
        return Create(
            name,
            table,
            definition.text if is_view else "",
            loaded.schema,
            version.ts,
            positions,
            loaded.files,
            distinct=True,
            replaces=old.table if old else None,
            hidden=loaded.hidden,
            versions=versions if is_view else (),
        )

    def is_loading(self, name: str) -> bool:
        """Whether a view is being loaded just now."""
        return name in self._loads

    def take_ended(self) -> list[ViewLoad]:
        """The loads that have ended; others may begin."""
        self._some_ended.clear()
        ended = [load for load in self._loads.values() if load.wait_until_ended(0)]
        for load in ended:
            del self._loads[load.name]
        return ended

    def held_positions(self, source: str) -> list[int]:
        """The positions at which a source's log must be kept for the loads."""
        self.unfinished.give_up_stale(source)
        found = [load.positions for load in self.list_points()]
        return [positions[source] for positions in found if source in positions]

    def read_progress(self) -> dict[str, str]:
        """How far the views that are loaded are, as far as Spark tells; every few seconds."""
        now = time.monotonic()
        if not self._loads or now - self._told < PROGRESS_SECONDS or not self._spark.is_started:
            return {}
        self._told = now
        session = self._spark.get_session()
        found = {name: job_progress(session, f"load of {name}") for name in self._loads}
        return {name: f"scanning and joining, {far}" for name, far in found.items() if far}

    def abandon_loads(self) -> None:
        """End all loads early. Nothing of them is committed; the next run resumes or repeats
        them."""
        loads, self._loads = [*self._loads.values()], {}
        while not all(load.wait_until_ended(0) for load in loads):
            if self._spark.is_started:
                for load in loads:
                    cancel_job(self._spark.get_session(), f"load of {load.name}")
            loads[-1].wait_until_ended(CANCEL_SECONDS)
            loads = [load for load in loads if not load.wait_until_ended(0)]
        self.unfinished.read_again()
