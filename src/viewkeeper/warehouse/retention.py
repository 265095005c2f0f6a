"""Removal of what may go: replaced files after a retention; old plans and records are folded.

A reader starts from a head and then opens files without a lock, so what a record took out of use
stays for the retention (one hour unless told otherwise) after that record. Then its files are
deleted, and only then is the record folded: a record that still exists protects its files. So
nothing here needs to be atomic; whatever is stopped half way is done again next time.

The ledger keeps what the longest window of any view can ask for, and what an unfinished load has to
catch up with.
"""

from __future__ import annotations

from contextlib import suppress

from viewkeeper.errors import WarehouseError
from viewkeeper.storage import stored_files
from viewkeeper.warehouse.lake import delta_log
from viewkeeper.warehouse.metadata import plan_files
from viewkeeper.warehouse.metadata.plan_files import Ledger
from viewkeeper.warehouse.metadata.record import Record
from viewkeeper.warehouse.metadata.unfinished_load import list_unfinished
from viewkeeper.warehouse.recovery import removed_files, retired_tables
from viewkeeper.warehouse.stable_paths import link_tables
from viewkeeper.warehouse.store import Store

RETENTION_S = 3600.0
FOLD_AT_LEAST = 200


def clean_warehouse(
    store: Store, retention_s: float = RETENTION_S, fold_at_least: int = FOLD_AT_LEAST
) -> None:
    """Delete what no reader can still use and fold what is old, once there is enough of it."""
    with store.group.at_rest():
        _clean_folders(store, retention_s, fold_at_least)


def _clean_folders(store: Store, retention_s: float, fold_at_least: int) -> None:
    store.confirm_lock()
    before = store.now() - retention_s
    _, records = plan_files.load_record_files(store.root)
    old = [r for r in records if r.committed_at < before and r.n <= store.head.record]
    _delete_replaced(store, old)
    for view in store.head.views.values():
        if view.location.checkpoint is not None:
            folder = store.table_folder(view.table)
            delta_log.forget_entries(folder, view.location.checkpoint, before, store.confirm_lock)
    through = plan_files.last_whole_number(store.root / "records", old[-1].n if old else 0)
    whole = [record for record in old if record.n <= through]
    if len(whole) >= fold_at_least:
        _fold_records(store, whole)
    _fold_plans(store, fold_at_least)


def _delete_replaced(store: Store, old: list[Record]) -> None:
    for view, path in removed_files(old):
        if view in store.head.views:
            stored_files.remove_file(store.folder_of(view) / path)
    for table in retired_tables(old):
        with suppress(WarehouseError):
            stored_files.remove_tree(store.table_folder(table))
    link_tables(store.root / "views", store.head, store.confirm_lock)


def _fold_records(store: Store, old: list[Record]) -> None:
    folder = store.root / "records"
    horizons = {view.view: view.horizon for view in store.head.views.values()}
    lines = plan_files.folded_rows(folder).to_pylist()
    lines += plan_files.commit_rows(old).to_pylist()
    kept = [
        line
        for line in lines
        if line["view"] in horizons and (line["ts"] or 0) >= horizons[line["view"]]
    ]
    plan_files.fold_files(folder, plan_files.commit_table(kept), old[-1].n, store.confirm_lock)


def _fold_plans(store: Store, fold_at_least: int) -> None:
    entries, _, plans = plan_files.load_plan_files(store.root)
    through = plan_files.last_whole_number(store.root / "plans", store.head.plan)
    old = [plan for plan in plans if plan.n <= through]
    if len(old) < fold_at_least:
        return
    ledger = Ledger(entries)
    for plan in old:
        ledger.add_entries(plan.entries)
    horizon = min((view.horizon for view in store.head.views.values()), default=0)
    # A load that goes on later catches up from its ts.
    horizon = min([horizon, *(load.ts for load in list_unfinished(store.root))])
    rows = plan_files.entry_rows(ledger.entries_since(horizon))
    plan_files.fold_files(store.root / "plans", rows, old[-1].n, store.confirm_lock)
