"""Initial loads, each in a thread of its own, while the other views are maintained.

The thread computes and writes; it touches neither the warehouse's records nor the sources' logs.
The maintainer commits what it brings, and holds the sources' logs at the load's positions
meanwhile. One view is loaded at a time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from viewkeeper.engine.batch.snapshot_openers import prepare_openers
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
from viewkeeper.engine.spark.job_control import cancel_job, job_progress
from viewkeeper.engine.views.algorithm_choice import AlgorithmChoice
from viewkeeper.engine.views.bound_view import Binding
from viewkeeper.engine.views.workspace import Workspace
from viewkeeper.view.definition import ViewDefinition
from viewkeeper.view.graph import tables_of_view
from viewkeeper.warehouse.metadata.definition_version import DefinitionVersion
from viewkeeper.warehouse.metadata.head import ViewHead
from viewkeeper.warehouse.metadata.record import Advance, Create, Drop, Redefine, ViewChange

PROGRESS_SECONDS = 5.0
RECOMPUTED = "computed again:"
"""How the cause begins for which a view is computed again as it is."""

LOADED_FOR_CHANGED = 10
"""A row of a load counts a tenth of a change: it is read and joined, but nobody is asked for it."""

CANCEL_SECONDS = 0.5
"""A load that is given up is cancelled so often: it may just be about to begin its next job."""


@dataclass(slots=True)
class ViewLoad:
    """The load of one view as of `ts`, where its sources stand at `positions`.

    `commit` makes of what was loaded the changes that are to be committed.
    """

    name: str
    ts: int
    positions: Mapping[str, int]
    job: Callable[[], LoadedTables]
    commit: Callable[[LoadedTables], list[ViewChange]]
    started: float = field(default_factory=time.perf_counter)
    _loaded: LoadedTables | None = None
    _error: BaseException | None = None
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run_job, name=f"load {self.name}", daemon=True)
        self._thread.start()

    def wait_until_ended(self, seconds: float | None = None) -> bool:
        """Wait for the end, or for some time; whether it has ended."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def take_changes(self) -> list[ViewChange]:
        """What is to be committed; the load's own error if there was one."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._loaded is not None
        return self.commit(self._loaded)

    def _run_job(self) -> None:
        try:
            self._loaded = self.job()
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            self._error = error


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
    def is_recomputed(self) -> bool:
        """Whether a view is only computed again, as it is defined already."""
        return all(cause.startswith(RECOMPUTED) for cause in self.causes) and bool(self.causes)

    def load_version(self, ts: int, at: float, parents: Mapping[str, str]) -> DefinitionVersion:
        """The version of its definition; `parents` are the tables of the views that it reads."""
        return self.binding.make_version(ts, at, self.causes, self.extent, parents)


class Loader:
    """The load that is under way, if any."""

    def __init__(self, workspace: Workspace) -> None:
        self._settings = workspace.settings
        self._store = workspace.store
        self._connections = workspace.connections
        self._spark = workspace.spark
        self.current: ViewLoad | None = None
        self._told = 0.0

    @property
    def has_ended(self) -> bool:
        return self.current is not None and self.current.wait_until_ended(0)

    def begin_load(self, definition: LoadDefinition, ts: int, positions: Mapping[str, int]) -> None:
        """Begin to load a view as of a ts, into tables of its own."""
        view = definition.view
        tables = {name: self._store.new_table(name) for name in tables_of_view(view)}
        folders = {name: self._store.table_folder(table) for name, table in tables.items()}
        target = self._load_target(definition, ts, folders, {})
        old = {name: head.table for name, head in self._stored_tables(view.name).items()}
        parents = self._parent_tables(view)

        def commit(loaded: LoadedTables) -> list[ViewChange]:
            version = definition.load_version(ts, self._store.now(), parents)
            made = [
                self._create_table(definition, version, name, tables[name], loaded[name], positions)
                for name in tables
            ]
            return [*made, *(Drop(name, old[name]) for name in old.keys() - tables.keys())]

        self._begin(definition, ts, positions, target, commit)

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
    ) -> None:
        view, heads = definition.view, self._store.head.views
        parents = {name: heads[name] for name in view.parents}

        def job() -> LoadedTables:
            with prepare_openers(self._connections, positions, [view]) as openers:
                stored = StoredParents(self._spark, self._store.root, parents, ts)
                origin = LoadOrigin(openers, positions, stored)
                return load_view(self._spark, view, origin, target, self._limits())

        self._set_current(ViewLoad(view.name, ts, positions, job, commit))

    def _limits(self) -> LoadLimits:
        inline_rows = self._settings.batch.inline_rows * LOADED_FOR_CHANGED
        return LoadLimits(inline_rows, self._settings.spark.job_minutes)

    def _load_target(
        self,
        definition: LoadDefinition,
        ts: int,
        folders: Mapping[str, Path],
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

    def _set_current(self, loading: ViewLoad) -> None:
        assert self.current is None
        self.current = loading

    def is_loading(self, name: str) -> bool:
        """Whether a view is being loaded just now."""
        return self.current is not None and self.current.name == name

    def take_ended(self) -> ViewLoad:
        """The load that has ended; another one may begin."""
        assert self.current is not None
        ended, self.current = self.current, None
        return ended

    def held_positions(self, source: str) -> list[int]:
        """The position at which a source's log must be kept for the load."""
        positions = self.current.positions if self.current else {}
        return [positions[source]] if source in positions else []

    def read_progress(self) -> tuple[str, str] | None:
        """The view that is loaded and how far it is, as far as Spark tells; every few seconds."""
        now = time.monotonic()
        if (
            self.current is None
            or now - self._told < PROGRESS_SECONDS
            or not self._spark.is_started
        ):
            return None
        self._told = now
        found = job_progress(self._spark.get_session(), f"load of {self.current.name}")
        return None if found is None else (self.current.name, f"scanning and joining, {found}")

    def abandon_load(self) -> None:
        """End a load early. Nothing of it is committed; the next run begins it again."""
        if self.current is not None:
            ended = self.take_ended()
            while not ended.wait_until_ended(CANCEL_SECONDS):
                if self._spark.is_started:
                    cancel_job(self._spark.get_session(), f"load of {ended.name}")
