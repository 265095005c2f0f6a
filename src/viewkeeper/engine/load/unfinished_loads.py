"""The loads that an earlier run, or an earlier try, has left: which may go on, and which may not.

What such a load has is kept in the warehouse (`viewkeeper.warehouse.metadata.unfinished_load`).
Until its view is loaded again, the logs of its sources are held back at its positions, but for no
more changes than a view may let wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from viewkeeper.engine.settings.project_file import Settings
from viewkeeper.storage import stored_files
from viewkeeper.view.definition import ViewDefinition
from viewkeeper.warehouse.metadata.unfinished_load import (
    UnfinishedLoad,
    list_unfinished,
    remove_load,
)
from viewkeeper.warehouse.store import Store


class UnfinishedLoads:
    """The loads of one warehouse that may go on; used by the thread that holds the lock."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self._loads: dict[str, UnfinishedLoad] = {}
        self.read_again()

    def read_again(self) -> None:
        """Find what is there now: some loads have been ended early."""
        self._loads = {load.view: load for load in list_unfinished(self._store.root)}

    def list_loads(self) -> list[UnfinishedLoad]:
        """The loads that may go on."""
        return [*self._loads.values()]

    def can_keep(self, view: ViewDefinition) -> bool:
        """Whether the parts of a load are kept if it dies: those of a new view over tables alone.

        The views that another one reads have moved on by then, and so has the order of a group.
        """
        is_new = view.name not in self._store.head.maintained_views
        is_ordered = self._settings.registry is not None
        return is_new and not (view.parents or is_ordered)

    def take_load(self, view: ViewDefinition, definition: str) -> UnfinishedLoad | None:
        """The load of the same definition that may go on, if there is one."""
        found = self._loads.pop(view.name, None)
        if found is None:
            return None
        same = found.definition == definition and self.can_keep(view)
        known = found.ts < self._store.ledger.next_ts
        if same and known and found.positions.keys() == {*view.sources}:
            return found
        self.remove_parts(found.view, found.table)
        return None

    def give_up(self, is_lost: Callable[[UnfinishedLoad], bool]) -> list[str]:
        """Give up loads that might have gone on; the views that begin again."""
        lost = [load for load in self._loads.values() if is_lost(load)]
        for load in lost:
            del self._loads[load.view]
            self.remove_parts(load.view, load.table)
        return [load.view for load in lost]

    def give_up_stale(self, source: str) -> None:
        """Give up loads that would hold back more of a source's log than a view may."""
        ledger = self._store.ledger

        def is_stale(load: UnfinishedLoad) -> bool:
            waiting = ledger.entries_between(load.ts, ledger.next_ts)
            changes = sum(entry.changes for entry in waiting if entry.source == source)
            return source in load.positions and changes > self._settings.batch.wait_rows

        self.give_up(is_stale)

    def keep_for_later(self, view: str) -> None:
        """A load has failed that may go on: its source is away."""
        found: Mapping[str, UnfinishedLoad] = {
            load.view: load for load in list_unfinished(self._store.root)
        }
        if view in found:
            self._loads[view] = found[view]

    def remove_parts(self, view: str, table: str) -> None:
        """A load was committed or given up: remove what it has, but for a table that is stored.

        In object storage files of the table are left to the next start: a process that has slept
        through a takeover could remove those of a load with which another one went on.
        """
        self._store.confirm_lock()
        remove_load(self._store.root, table)
        if self._store.group.journal.is_lasting:
            return
        stored = self._store.head.views.get(view)
        folder = self._store.table_folder(table)
        if (stored is None or stored.table != table) and folder.is_dir():
            stored_files.remove_tree(folder)
