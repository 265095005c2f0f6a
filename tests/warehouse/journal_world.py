"""What the tests of the journal ask of a warehouse: its segments, its files, its tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
from deltalake import DeltaTable

from tests.warehouse.model import Row, World, folder_of
from viewkeeper.warehouse.scrub import scrub_warehouse

SYNCS: Sequence[str] = ("fsync", "fdatasync", "link", "replace", "unlink", "pwrite")
"""The system calls by which a commit, a flush and a start change what is on the disk."""


def segments(world: World) -> list[Path]:
    return sorted((world.store.local_root / "journal").glob("*.vkj"))


def data_files(world: World) -> list[Path]:
    return sorted(folder_of(world.store).glob("*.parquet"))


def is_whole(root: Path) -> bool:
    """Whether no file is damaged; a warehouse of these tests has no name of its own."""
    damaged = scrub_warehouse(root, (), lambda _: None).damaged
    return all("identity" in str(error) for error in damaged)


def lake_rows(world: World) -> Counter[Row]:
    """What another reader of the Delta Lake table sees."""
    found: Counter[Row] = Counter()
    folder = folder_of(world.store)
    names = [name.split("/")[-1] for name in DeltaTable(str(folder)).file_uris()]
    for name in names:
        for row in pq.read_table(folder / name).to_pylist():
            found[row["k"], row["s"]] += row["_count"]
    return +found
