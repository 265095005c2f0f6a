"""Kept changes: what `history:` remembers so that past states can be verified.

The changes of every relation that the views read are kept as Parquet files for a while, by ts. An
index says, per relation, from which ts to which ts everything is there, with which columns. Writing
is idempotent by ts: a batch that is replayed after a crash finds its rows already kept. Nothing
here is synced: a power cut can only shorten the window, and the index says so.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from viewkeeper.updates.protocol import TS
from viewkeeper.updates.queue import BatchChanges, Changes
from viewkeeper.view.definition import Relation

_INDEX = "index.json"


@dataclass(frozen=True, slots=True)
class Kept:
    """Of a relation: all changes with `since` < ts <= `through`, with these columns."""

    since: int
    through: int
    columns: tuple[str, ...]


class History:
    """The history folder of a warehouse, as its writer uses it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._index = read_index(folder)

    def keep(self, changes: BatchChanges, after: int, until: int) -> None:
        """Keep the changes with `after` < ts <= `until`, unless they already are."""
        before = dict(self._index)
        for relation, rows in changes.relations.items():
            self._keep(relation, rows, after, until)
        if self._index != before:
            self._write_index()

    def forget(self, horizon: int) -> None:
        """Drop what lies at or before a ts."""
        for relation, kept in self._index.items():
            if kept.since < horizon:
                through = max(kept.through, horizon)
                self._index[relation] = Kept(horizon, through, kept.columns)
                for file in _files(self._folder, relation):
                    if _span(file)[1] <= horizon:
                        file.unlink(missing_ok=True)
        self._write_index()

    def clear(self) -> None:
        """Forget everything; what is not kept without a gap is not kept at all."""
        if self._index:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._index = {}

    def _keep(self, relation: Relation, changes: Changes, after: int, until: int) -> None:
        names = [n for n in changes.table.column_names if not n.startswith("_")]
        kept = self._index.get(relation)
        if kept is not None and until <= kept.through:
            return
        if kept is None or kept.through < after or set(kept.columns) != set(names):
            shutil.rmtree(_home(self._folder, relation), ignore_errors=True)
            kept = Kept(after, after, tuple(names))
        if changes.rows:
            self._write(relation, changes, kept.through, until)
        self._index[relation] = Kept(kept.since, until, kept.columns)

    def _write(self, relation: Relation, changes: Changes, after: int, until: int) -> None:
        home = _home(self._folder, relation)
        home.mkdir(parents=True, exist_ok=True)
        file = home / f"h{until:020d}-{after:020d}.parquet"
        with pq.ParquetWriter(file, changes.table.schema) as writer:
            for piece in changes.pieces():
                stamps = piece[TS].to_numpy()
                writer.write_table(piece.filter(pa.array((stamps > after) & (stamps <= until))))

    def _write_index(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        body = [[r.source, r.table, asdict(kept)] for r, kept in self._index.items()]
        temporary = self._folder / f"{_INDEX}.new"
        temporary.write_text(json.dumps(body))
        temporary.replace(self._folder / _INDEX)


def read_index(folder: Path) -> dict[Relation, Kept]:
    """What is kept, per relation; nothing if the index is not readable."""
    try:
        body = json.loads((folder / _INDEX).read_text())
        return {
            Relation(source, table): Kept(kept["since"], kept["through"], tuple(kept["columns"]))
            for source, table, kept in body
        }
    except (OSError, ValueError, KeyError, TypeError):
        # Nothing is kept that is not known to be complete.
        return {}


def reach(folder: Path, columns: Mapping[Relation, Sequence[str]], through: int) -> int | None:
    """The oldest ts from which on all changes of these columns are kept up to `through`."""
    index = read_index(folder)
    oldest = 0
    for relation, wanted in columns.items():
        kept = index.get(relation)
        if kept is None or kept.through < through or not set(wanted) <= set(kept.columns):
            return None
        oldest = max(oldest, kept.since)
    return oldest


def history_files(folder: Path, relation: Relation, after: int) -> list[Path]:
    """The files that can hold changes of a relation after a ts."""
    kept = read_index(folder).get(relation)
    through = kept.through if kept else -1
    spans = [(file, _span(file)) for file in _files(folder, relation)]
    return [file for file, (_, until) in spans if after < until <= through]


def _home(folder: Path, relation: Relation) -> Path:
    return folder / f"{relation.source}.{relation.table}"


def _files(folder: Path, relation: Relation) -> list[Path]:
    return sorted(_home(folder, relation).glob("h*.parquet"))


def _span(file: Path) -> tuple[int, int]:
    until, after = file.stem[1:].split("-")
    return int(after), int(until)
