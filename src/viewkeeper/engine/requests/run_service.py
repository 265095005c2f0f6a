"""What a run does for its users beside maintaining: it answers requests, and tries again what they
may have mended.

Everything here is called by the loop, in the thread that maintains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from viewkeeper.engine.evolution.mended_views import MendedViews
from viewkeeper.engine.requests.run_parts import RunParts
from viewkeeper.engine.requests.run_requests import RunRequests
from viewkeeper.engine.requests.view_drop import drop_stored, plan_drop
from viewkeeper.engine.requests.view_refresh import ViewRefresh
from viewkeeper.engine.views.mended_refusals import MendedRefusals
from viewkeeper.errors import ProjectError, UnexpectedViewError, blame_view


class RunService:
    """Serves the users of one run."""

    def __init__(self, parts: RunParts, note_waiting: Callable[[], None]) -> None:
        """`note_waiting` notes for others why views wait now."""
        self.requests = RunRequests()
        self._note_waiting = note_waiting
        self._parts = parts
        self._refresh = ViewRefresh(parts)
        self._mended = MendedViews(parts.workspace, parts.lookout, parts.troubles)
        self._refusals = MendedRefusals(parts.workspace, parts.choices)

    def refresh_views(self, names: Sequence[str]) -> dict[str, str]:
        """Have views loaded again; per view that shows its last state until then, the table that is
        replaced."""
        with self._report_unexpected(names):
            tables = self._refresh.request_refresh(names)
        # Whoever waits for the loads must not take an older failure for theirs.
        self._note_waiting()
        return tables

    def drop_views(self, names: Sequence[str], with_files: bool, force: bool) -> None:
        """Drop views: their files, and what is stored of them."""
        with self._report_unexpected(names):
            self._drop_views(names, with_files, force)

    def _drop_views(self, names: Sequence[str], with_files: bool, force: bool) -> None:
        parts, store = self._parts, self._parts.workspace.store
        catalogue = parts.workspace.catalogue
        found = plan_drop(parts.workspace.settings, store.head, names, store.now())
        found.check_drop(with_files, force)
        if loading := [name for name in names if parts.loader.is_loading(name)]:
            raise ProjectError(
                f'view "{loading[0]}": it is being loaded',
                hint="ask again when it is loaded, or end the run first",
            )
        for each in (each for each in catalogue if each not in names):
            if read := {*names} & {*catalogue.parents_of(each)}:
                raise ProjectError(
                    f'view "{min(read)}": view "{each}" reads it',
                    hint="end the run, which still has that view, and drop it then",
                )
        found.remove_files()
        for name in names:
            catalogue.replace_written(name, None)
            parts.choices.forget_view(name)
            parts.adapting.pending.forget_view(name)
            parts.troubles.forget_failure(name)
        drop_stored(store, names)

    @contextmanager
    def _report_unexpected(self, names: Sequence[str]) -> Iterator[None]:
        """What nobody foresaw is said not only to who asked: its traceback is kept, too."""
        try:
            with blame_view(", ".join(names)):
                yield
        except UnexpectedViewError as error:
            self._parts.troubles.report_trouble(error)
            raise

    def retry_troubles(self, maintain: Callable[[], object]) -> None:
        """Try again what somebody may have mended, in its time; `maintain` maintains all views."""
        self._refusals.retry_refused()
        self._mended.begin_retries()
        ready = self._mended.take_ready()
        if ready:
            with self._parts.troubles.trying_again(ready):
                maintain()
            self._mended.end_retries(ready)
