"""`views/NAME` leads to the table that a view has now, whatever happened before."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import deltalake
import pytest

from tests.readers.bank import Bank
from viewkeeper.storage.disk import no_guard
from viewkeeper.warehouse.metadata.head import read_head
from viewkeeper.warehouse.retention import RETENTION_S, clean_warehouse
from viewkeeper.warehouse.stable_paths import link_tables
from viewkeeper.warehouse.store import Store


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    """A bank whose views are loaded."""
    bank = Bank(tmp_path)
    bank.refresh()
    return bank


def links_of(bank: Bank) -> dict[str, str]:
    folder = bank.warehouse / "views"
    return {path.name: os.readlink(path) for path in folder.iterdir() if path.is_symlink()}


def tables_of(bank: Bank) -> dict[str, str]:
    return {name: view.table for name, view in read_head(bank.warehouse).shown_views.items()}


def test_a_link_leads_to_the_table_before_and_after_a_reload(bank: Bank) -> None:
    first = links_of(bank)
    assert first == tables_of(bank)
    path = bank.warehouse / "views" / "evens"
    opened = deltalake.DeltaTable(path.resolve())
    bank.transfer(0, 2, 5)
    bank.refresh("evens")
    second = links_of(bank)
    assert second == tables_of(bank)
    assert second["evens"] != first["evens"]
    assert second["odds"] == first["odds"]
    # Who has resolved the link before still reads what it found.
    assert {row["amount"] for row in opened.to_pyarrow_table().to_pylist()} == {0}
    assert -5 in deltalake.DeltaTable(path).to_pyarrow_table()["amount"].to_pylist()


def test_a_view_that_is_gone_has_a_link_for_as_long_as_its_folder(bank: Bank) -> None:
    links = links_of(bank)
    (bank.folder / "views" / "odds.sql").unlink()
    bank.refresh()
    assert set(tables_of(bank)) == {"evens"}
    assert links_of(bank) == links
    with Store.open(bank.warehouse, "test", lambda: time.time() + 2 * RETENTION_S) as store:
        clean_warehouse(store)
    assert set(links_of(bank)) == {"evens"}


@pytest.mark.parametrize("trouble", ["missing", "elsewhere", "dangling", "folder", "other"])
def test_every_start_mends_the_links(bank: Bank, trouble: str) -> None:
    path = bank.warehouse / "views" / "evens"
    match trouble:
        case "folder":
            # As a copy that follows links leaves it.
            whole = path.resolve()
            path.unlink()
            shutil.copytree(whole, path)
        case "other":
            (bank.warehouse / "views" / "nobody").symlink_to("odds")
        case _:
            path.unlink()
            if trouble != "missing":
                path.symlink_to("odds" if trouble == "elsewhere" else "nothing-7")
    bank.refresh()
    assert links_of(bank) == tables_of(bank)


def test_a_half_made_link_goes(bank: Bank) -> None:
    """As a process leaves it that was killed between making the link and giving it its name."""
    (bank.warehouse / "views" / ".new-evens-0").symlink_to("evens-1")
    link_tables(bank.warehouse / "views", read_head(bank.warehouse), no_guard)
    assert links_of(bank) == tables_of(bank)
