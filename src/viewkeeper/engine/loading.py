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

from viewkeeper.engine.connections import Connections
from viewkeeper.engine.jobs import cancel, progress
from viewkeeper.engine.load import Loaded, load
from viewkeeper.engine.openers import prepared
from viewkeeper.engine.session import SparkHandle
from viewkeeper.engine.settings import Settings
from viewkeeper.view.definition import ViewDefinition
from viewkeeper.warehouse.record import Create
from viewkeeper.warehouse.store import Store


@dataclass(slots=True)
class Loading:
    """The load of one view as of `ts`, where its sources stand at `positions`."""

    name: str
    table: str
    ts: int
    positions: Mapping[str, int]
    job: Callable[[], Loaded]
    hidden: tuple[str, ...] = ()
    started: float = field(default_factory=time.perf_counter)
    _loaded: Loaded | None = None
    _error: BaseException | None = None
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run, name=f"load {self.name}", daemon=True)
        self._thread.start()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the end, or for some time; whether it has ended."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def created(self, definition: str) -> Create:
        """What is to be committed; the load's own error if there was one."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._loaded is not None
        schema, files = self._loaded.schema, self._loaded.files
        return Create(
            self.name,
            self.table,
            definition,
            schema,
            self.ts,
            self.positions,
            files,
            distinct=True,
            hidden=self.hidden,
        )

    def _run(self) -> None:
        try:
            self._loaded = self.job()
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            self._error = error


class Loader:
    """The load that is under way, if any."""

    def __init__(
        self, settings: Settings, store: Store, connections: Connections, spark: SparkHandle
    ) -> None:
        self._settings = settings
        self._store = store
        self._connections = connections
        self._spark = spark
        self.current: Loading | None = None

    @property
    def ended(self) -> bool:
        return self.current is not None and self.current.wait(0)

    def begin(
        self, view: ViewDefinition, hidden: tuple[str, ...], ts: int, positions: Mapping[str, int]
    ) -> None:
        """Begin to load a view as of a ts; the user does not see the `hidden` columns."""
        assert self.current is None
        table = self._store.new_table(view.name)
        folder, number = self._store.table_folder(table), self._store.head.record + 1

        def job() -> Loaded:
            with prepared(self._connections, positions, [view]) as openers:
                return load(
                    self._spark.get(),
                    view,
                    openers,
                    positions,
                    ts,
                    folder,
                    number,
                    self._settings.spark.job_minutes,
                )

        self.current = Loading(view.name, table, ts, positions, job, hidden)

    def take(self) -> Loading:
        """The load that has ended; another one may begin."""
        assert self.current is not None
        ended, self.current = self.current, None
        return ended

    def held(self, source: str) -> list[int]:
        """The position at which a source's log must be kept for the load."""
        positions = self.current.positions if self.current else {}
        return [positions[source]] if source in positions else []

    def progress(self) -> str | None:
        """How far the load is, as far as Spark tells."""
        if self.current is None or not self._spark.started:
            return None
        return progress(self._spark.get(), f"load of {self.current.name}")

    def abandon(self) -> None:
        """End a load early. Nothing of it is committed; the next run begins it again."""
        if self.current is not None:
            cancel(self._spark.get(), f"load of {self.current.name}")
            self.take().wait()
