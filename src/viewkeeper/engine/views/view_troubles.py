"""What an error means: a view waits, is tried again or stops, and the others go on.

An error that names a source is the trouble of the views that read it, one in the maintenance of a
view is that view's. Nothing else ends with it. What nobody foresaw is treated in the same way, but
is loud: its traceback is kept in the warehouse folder, one file for each source and view.

Errors of the warehouse are everybody's: they are raised.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from viewkeeper.engine.views.trouble_retries import TroubleRetries, can_be_mended
from viewkeeper.engine.views.workspace import Workspace
from viewkeeper.errors import (
    BarrierError,
    GapError,
    SourceAwayError,
    SourceError,
    UnexpectedSourceError,
    UnexpectedViewError,
    ViewkeeperError,
    WarehouseError,
    blame_view,
    reload_hint,
)
from viewkeeper.storage import disk
from viewkeeper.warehouse.metadata.record import Stop

RECENT_MAX = 100


class Troubles:
    """The troubles of the views of one warehouse."""

    def __init__(self, workspace: Workspace, explained_soon: Callable[[str], bool]) -> None:
        """`explained_soon` says whether the next looks will tell what a question of a view met."""
        self._store = workspace.store
        self._catalogue = workspace.catalogue
        self._connections = workspace.connections
        self._observer = workspace.observer
        self._explained_soon = explained_soon
        self._connections.report_to(self.report_trouble)
        self.failed: dict[str, ViewkeeperError] = {}
        """Views that could not be loaded."""
        self.recent: deque[ViewkeeperError] = deque(maxlen=RECENT_MAX)
        """The troubles that were reported last."""
        self._met_barrier = False
        self.retries = TroubleRetries(time.monotonic)
        """When views are tried again, in a run."""
        self.retried: frozenset[str] = frozenset()
        """Views that have stopped and are being tried again just now."""

    def note_barrier(self) -> None:
        """A view waits for a transaction that a snapshot saw and no look has reported."""
        self._met_barrier = True

    def take_barrier(self) -> bool:
        """Whether some view has begun to wait so since this was last asked."""
        met, self._met_barrier = self._met_barrier, False
        return met

    @contextmanager
    def trying_again(self, names: Iterable[str]) -> Iterator[None]:
        """Inside, views that have stopped are maintained all the same."""
        self.retried = frozenset(names)
        try:
            yield
        finally:
            self.retried = frozenset()

    def note_stop(self, name: str, error: ViewkeeperError) -> None:
        """A view has stopped for an error; it is tried again if somebody may mend that."""
        is_again = self.retries.is_known(name)
        if can_be_mended(error):
            self.retries.note_failure(name)
        self._report_once(error, is_again)

    def _report_once(self, error: ViewkeeperError, is_again: bool) -> None:
        """Pass an error to the observer, unless an earlier attempt has met the same one."""
        if not (is_again and str(error) in map(str, self.recent)):
            self.report_trouble(error)

    def report_trouble(self, error: ViewkeeperError) -> None:
        """Pass an error to the observer, and keep its traceback if it has one."""
        if isinstance(error, UnexpectedSourceError | UnexpectedViewError):
            file = self._store.local_root / error.trace_file
            disk.make_folder(file.parent)
            disk.replace_file(file, error.traceback.encode(errors="replace"))
        self.recent.append(error)
        self._observer.on_trouble(error)

    def stop_source(self, source: str, error: SourceError) -> None:
        """The views of a source that has lost what they still need stop; the others go on."""
        using = [name for name in self._catalogue if source in self._catalogue.sources_of(name)]
        mend = "mend the source: a run tries again by itself; if that does not help"
        mend = mend if can_be_mended(error) else "mend the source, then"
        reason = f"{error}\n  hint: {mend} {reload_hint(using)}"
        if isinstance(error, GapError):
            anchored = " ".join(f"--reanchor {name}" for name in using)
            reason += f", or `viewkeeper run {anchored}` commits the difference as one state"
        if isinstance(error, UnexpectedSourceError):
            reason = str(error)
        views = self._store.head.maintained_views
        stops = [Stop(n, reason) for n in using if n in views and not views[n].stopped]
        if stops:
            self._store.commit(stops)
        is_again = any(self.retries.is_known(name) for name in using)
        for name in using if can_be_mended(error) else ():
            self.retries.note_failure(name)
        self._report_once(error, is_again)

    def fail_view(self, name: str, error: ViewkeeperError, plan: int | None = None) -> None:
        """What an error of a view means: it is tried again, or it stops, which ends its plan."""
        awaits = isinstance(error, BarrierError) and self._explained_soon(name)
        waits = awaits or isinstance(error, SourceAwayError)
        is_stored = name in self._store.head.maintained_views
        stops = [Stop(name, str(error))] if is_stored and not waits else []
        if stops or plan is not None:
            self._store.commit(stops, plan)
        if awaits:
            # What it met will be reported by the next look, or by one that follows.
            self._met_barrier = True
            return
        if waits:
            self._connections.note_error(error)
            self.report_trouble(error)
        elif stops:
            self.note_stop(name, error)
        else:
            is_again = self.retries.is_known(name)
            self.failed[name] = error
            self.retries.note_failure(name)
            self._report_once(error, is_again)

    def forget_failure(self, name: str) -> None:
        """A view is tried again, whatever went wrong with its load."""
        self.failed.pop(name, None)

    @contextmanager
    def contain_view_errors(self, name: str, plan: int | None = None) -> Iterator[None]:
        """Inside, every exception is the trouble of this view alone."""
        try:
            with blame_view(name):
                yield
        except WarehouseError:
            raise
        except ViewkeeperError as error:
            self.fail_view(name, error, plan)
