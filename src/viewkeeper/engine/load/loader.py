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

from viewkeeper.engine.batch.snapshot_openers import prepare_openers
from viewkeeper.engine.load.load_job import LoadedFiles, StoredRows, load_difference, load_view
from viewkeeper.engine.spark.job_control import cancel_job, job_progress
from viewkeeper.engine.views.algorithm_choice import AlgorithmChoice
from viewkeeper.engine.views.bound_view import Binding
from viewkeeper.engine.views.workspace import Workspace
from viewkeeper.view.definition import ViewDefinition
from viewkeeper.warehouse.metadata.definition_version import DefinitionVersion
from viewkeeper.warehouse.metadata.record import Create, Redefine, ViewChange

PROGRESS_SECONDS = 5.0


@dataclass(slots=True)
class ViewLoad:
    """The load of one view as of `ts`, where its sources stand at `positions`.

    `commit` makes of what was loaded the change that is to be committed.
    """

    name: str
    ts: int
    positions: Mapping[str, int]
    job: Callable[[], LoadedFiles]
    commit: Callable[[LoadedFiles], ViewChange]
    started: float = field(default_factory=time.perf_counter)
    _loaded: LoadedFiles | None = None
    _error: BaseException | None = None
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run_job, name=f"load {self.name}", daemon=True)
        self._thread.start()

    def wait_until_ended(self, seconds: float | None = None) -> bool:
        """Wait for the end, or for some time; whether it has ended."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def take_change(self) -> ViewChange:
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

    def load_version(self, ts: int, at: float) -> DefinitionVersion:
        return self.binding.make_version(ts, at, self.causes, self.extent)


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
        """Begin to load a view as of a ts, into a table of its own."""
        name = definition.view.name
        table = self._store.new_table(name)
        folder, number = self._store.table_folder(table), self._store.head.record + 1
        old = self._store.head.views.get(name)

        def job() -> LoadedFiles:
            with prepare_openers(self._connections, positions, [definition.view]) as openers:
                minutes = self._settings.spark.job_minutes
                spark, view = self._spark.get_session(), definition.view
                return load_view(spark, view, openers, positions, ts, folder, number, minutes)

        def commit(loaded: LoadedFiles) -> Create:
            return Create(
                name,
                table,
                definition.text,
                loaded.schema,
                ts,
                positions,
                loaded.files,
                distinct=True,
                replaces=old.table if old else None,
                hidden=definition.choice.hidden_columns,
                versions=(
                    *(old.versions if old else ()),
                    definition.load_version(ts, self._store.now()),
                ),
            )

        self._set_current(ViewLoad(name, ts, positions, job, commit))

    def begin_difference(
        self, definition: LoadDefinition, ts: int, positions: Mapping[str, int]
    ) -> None:
        """Begin to compute by what a stored view differs from another definition as of a ts."""
        name = definition.view.name
        head, number = self._store.head.views[name], self._store.head.record + 1

        def job() -> LoadedFiles:
            with prepare_openers(self._connections, positions, [definition.view]) as openers:
                stored = StoredRows(self._store.root, head, self._spark.staging_folder)
                minutes = self._settings.spark.job_minutes
                spark, view = self._spark.get_session(), definition.view
                return load_difference(spark, view, openers, positions, ts, stored, number, minutes)

        def commit(loaded: LoadedFiles) -> Redefine:
            version = definition.load_version(ts, self._store.now())
            return Redefine(
                name,
                definition.text,
                version,
                loaded.schema,
                ts,
                positions,
                loaded.files,
                hidden=definition.choice.hidden_columns,
            )

        self._set_current(ViewLoad(name, ts, positions, job, commit))

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
            cancel_job(self._spark.get_session(), f"load of {self.current.name}")
            self.take_ended().wait_until_ended()
