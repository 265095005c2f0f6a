"""Damaged entries of a Delta Lake log, as a source: read, or that source's error.

The library that replays the log is written in Rust and panics at what it does not expect, so what
needs it runs in a process of its own. The table is opened in every way that the engine has.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from tests.fuzz.isolation import fuzz_isolated
from tests.fuzz.mutation import choose_steps, fuzz
from viewkeeper.errors import ViewkeeperError
from viewkeeper.sources.delta_lake import DeltaLakeSource, open_source
from viewkeeper.sources.delta_lake.log import TableFolder, entry_path_of, read_commit
from viewkeeper.sources.delta_lake.version_shapes import shape_from_metadata
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.updates.source_protocol import Lookup
from viewkeeper.view.definition import Relation

TABLES = {"t": ["id", "part", "price"]}
WORDS = [b'"path":', b"null", b'{"add":{}}\n', b'{"metaData":{}}\n', b"[1]\n", b"{}\n", b"[" * 4000]
WORDS += [b'"remove"', b'"cdc"', b'"partitionValues":{"part":"x"}', b"-1", b"decimal(99,2)"]


def some(*ids: int) -> pa.Table:
    price = pa.array(ids, pa.int64()).cast(pa.decimal128(24, 2))
    return pa.table({"id": ids, "part": [n % 2 for n in ids], "price": price})


def make_table(path: Path) -> list[bytes]:
    """A table of some versions; the entries of its log."""
    write_deltalake(path, some(1, 2), partition_by=["part"])
    write_deltalake(path, some(3, 4), mode="append")
    DeltaTable(path).delete("id = 1")
    extra = some(5).append_column("note", pa.array(["x"]))
    write_deltalake(path, extra, mode="append", schema_mode="merge")
    return [entry.read_bytes() for entry in sorted((path / "_delta_log").glob("*.json"))]


def source_of(folder: Path) -> DeltaLakeSource:
    settings = SourceSettings(
        "lake", "delta_lake", {"path": "t"}, str(folder), str(folder / "home")
    )
    return open_source(settings, "test")


def attack(folder: Path) -> None:
    entries = make_table(folder / "t")
    log = folder / "t" / "_delta_log"
    for path in log.glob("*.json"):
        path.unlink()
    (log / f"{0:020d}.json").write_bytes(entries[0])
    source_of(folder).follow_tables(TABLES)
    followed = shutil.copytree(folder / "home", folder / "followed")

    def read(data: bytes) -> None:
        shutil.rmtree(folder / "home", ignore_errors=True)
        shutil.copytree(followed, folder / "home")
        (log / f"{1:020d}.json").write_bytes(data)
        source = source_of(folder)
        for action in choose_steps(data, ACTIONS, 2):
            with suppress(ViewkeeperError):
                action(source)

    fuzz(read, entries, inputs=2000, words=WORDS)


def _look(source: DeltaLakeSource) -> None:
    source.look_for_transactions(0)


def _changes(source: DeltaLakeSource) -> None:
    for _, batch in source.read_changes(TABLES, 0, 1):
        batch.validate(full=True)


def _rows(source: DeltaLakeSource) -> None:
    with source.prepare_snapshots(1, TABLES) as opener:
        keys: Any = pa.table({"id": [1, 4]})
        opener().answer_lookup(
            Lookup(0, Relation("lake", "t"), ("id", "part"), ("id",), (False,), keys), 1
        )


def _follow(source: DeltaLakeSource) -> None:
    source_of(source.folder.parent).follow_tables(TABLES)


def _diagnose(source: DeltaLakeSource) -> None:
    source.diagnose_source(TABLES)
    source.read_health([0])


ACTIONS = (_look, _changes, _rows, _follow, _diagnose)


def test_damaged_entry(scratch: Path) -> None:
    """Our own reading of an entry, which decides what a version changed."""
    entries = make_table(scratch / "t")
    folder, path = TableFolder("lake", scratch / "t"), entry_path_of(scratch / "t", 1)

    def read(data: bytes) -> None:
        path.write_bytes(data)
        commit = read_commit("lake", scratch / "t", 1)
        if commit.metadata is not None:
            shape_from_metadata(1, commit.metadata).parse_columns()
        for file in (*commit.added, *commit.removed, *commit.feed):
            folder.locate_logged_file(file.path)

    fuzz(read, entries, words=WORDS)


def test_damaged_log(scratch: Path, tmp_path: Path) -> None:
    fuzz_isolated("tests.fuzz.test_delta_lake_log", scratch, tmp_path)
