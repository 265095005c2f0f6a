"""Loading views again while the maintainer runs: what must be true before the request is kept.

A view is bound again as its file says now, to the tables as they are now; whatever is wrong with
that is an error for who asked, and the view goes on as before. Then the request is written into the
warehouse, by a record with a `Refresh`: from that moment the view keeps its last state, and the
next free load is its own.

A source that has lost changes is read again from where it is now, if no view but these needs what
was lost. A view whose stored files are damaged has no state to show: it is dropped first.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from viewkeeper.engine.requests.run_parts import RunParts
from viewkeeper.engine.views.view_catalogue import read_views
from viewkeeper.errors import ProjectError, reload_hint
from viewkeeper.warehouse.metadata.head import owner_of
from viewkeeper.warehouse.metadata.record import Drop, Refresh, ViewChange


class ViewRefresh:
    """Has views of a running maintainer loaded again; used by its thread."""

    def __init__(self, parts: RunParts) -> None:
        self._parts = parts
        self._workspace = parts.workspace

    def request_refresh(self, names: Sequence[str]) -> dict[str, str]:
        """Have views loaded again; per view that shows its last state until then, its table."""
        store, catalogue = self._workspace.store, self._workspace.catalogue
        for name in names:
            catalogue.written.check_name(name)
        lost = self._lost_sources(names)
        stored = [n for n in names if n in store.head.views and n not in store.head.refreshes]
        self._refuse_loading(stored)
        written = read_views(self._workspace.settings, store.head, may_be_empty=True)
        with ExitStack() as undo:
            for name in stored:
                written.written.check_written(name)
                undo.callback(catalogue.replace_written(name, written))
                undo.callback(self._parts.choices.forget_view(name))
                self._parts.choices.bind_again(name)
            self._keep_requests(names, stored)
            # Only now is what was bound what the warehouse knows, too.
            undo.pop_all()
        for name in names:
            self._parts.adapting.pending.forget_view(name)
            self._parts.troubles.forget_failure(name)
        for source in lost:
            self._parts.lookout.begin_again(source)
        head = store.head
        return {name: head.views[name].table for name in names if name in head.refreshes}

    def _keep_requests(self, names: Sequence[str], stored: Sequence[str]) -> None:
        """Write down that views are to be loaded again; those that are damaged are dropped."""
        store = self._workspace.store
        damaged = {owner_of(name) for name in store.damaged_views} & {*names}
        views = store.head.views.items()
        changes: list[ViewChange] = [
            *(Drop(name, view.table) for name, view in views if owner_of(name) in damaged),
            *(Refresh(name) for name in stored if name not in damaged),
        ]
        if changes:
            store.commit(changes)

    def _refuse_loading(self, names: Sequence[str]) -> None:
        for name in names:
            if self._parts.loader.is_loading(name):
                raise ProjectError(
                    f'view "{name}": it is being loaded just now, for another reason',
                    hint="ask again when it is loaded: `viewkeeper status` says when",
                )

    def _lost_sources(self, names: Sequence[str]) -> list[str]:
        """The sources of views that have lost changes, if nobody else needs what was lost."""
        catalogue, views = self._workspace.catalogue, self._workspace.store.head.maintained_views
        used = dict.fromkeys(source for name in names for source in catalogue.sources_of(name))
        lost = [source for source in used if source in self._parts.lookout.tables.broken]
        for source in lost:
            others = sorted(
                name
                for name, view in views.items()
                if not view.is_inner and source in view.positions and name not in names
            )
            if others:
                raise ProjectError(
                    f'source "{source}" cannot be followed from where it was left, and view '
                    f'"{others[0]}" needs that too',
                    detail=str(self._parts.lookout.tables.broken[source]),
                    hint=f"ask for all of them: {reload_hint([*names, *others])}",
                )
        return lost
