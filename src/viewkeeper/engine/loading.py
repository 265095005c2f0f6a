"""An initial load under way, in a thread of its own, while the other views are maintained.

The thread computes and writes; it touches neither the warehouse's records nor the sources' logs.
The maintainer commits what it brings, and holds the sources' logs at the load's positions
meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from viewkeeper.engine.load import Loaded


@dataclass(slots=True)
class Loading:
    """The load of one view as of `ts`, where its sources stand at `positions`."""

    name: str
    table: str
    ts: int
    positions: Mapping[str, int]
    job: Callable[[], Loaded]
    started: float = field(default_factory=time.perf_counter)
    _loaded: Loaded | None = None
    _error: BaseException | None = None
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run, name=f"load {self.name}", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    def wait(self) -> None:
        self._thread.join()

    def result(self) -> Loaded:
        """What was loaded; the load's own error if there was one."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._loaded is not None
        return self._loaded

    def _run(self) -> None:
        try:
            self._loaded = self.job()
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            self._error = error
