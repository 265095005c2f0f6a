"""State by key: the rows of a stored node, found by their key columns without reading its table.

The table is the truth, the index is a copy that can be lost. Its base is one file of all rows,
sorted by a hash of their key and mapped into memory; what was applied since is a small overlay in
memory, in sorted runs of growing size. When the overlay has a tenth of the base's rows, both become
a new base. A lookup takes the rows of all runs with the key's hash, compares the keys themselves,
and sums counts.

One manifest names the base: of which table it is, of which version of the definition, as of which
ts, and the checksum of the whole file. It is replaced at once, after the file is whole. So a
process that is killed leaves the old index or the new one, and a power cut one that is seen to be
wrong: `open_index` gives nothing for an index that is missing, torn, of another table or too old,
and its owner makes a new one (`rebuild_index`). What the table has beyond the index's ts is applied
again.

A wrong index would write wrong retractions, so it keeps the number of its rows and the sum of their
hashes (`IndexDigest`), which upkeep compares with those of the table and of the rows that it has.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa

from viewkeeper.delta.algebra import COUNT
from viewkeeper.delta.arrow_compute import pc
from viewkeeper.delta.kernel import Kernel
from viewkeeper.errors import StateError, WarehouseError, reload_hint
from viewkeeper.stages.exact_numbers import Places, numbers_of
from viewkeeper.stages.group_step import number_rows
from viewkeeper.stages.row_hash import Hashes, hash_rows
from viewkeeper.storage import disk, sealed_json, typed_json
from viewkeeper.storage.named_digest import DigestSink

MANIFEST = "index.json"
KIND = "key index"
HASH = "_hash"
OVERLAY_SHARE = 10
OVERLAY_MIN = 4096
"""An overlay of so many rows is never too large."""

_WAY_OUT = "nothing to do: the index is made again from the table"


@dataclass(frozen=True, slots=True)
class IndexOwner:
    """Whose rows an index holds, and how it finds them: all must be the same for it to be used."""

    table: str
    version: int
    schema: pa.Schema
    keys: tuple[str, ...]

    @property
    def fingerprint(self) -> str:
        """What a manifest says about its owner besides the names."""
        text = f"{self.schema.to_string()}\n{self.keys}"
        return hashlib.sha256(text.encode(), usedforsecurity=False).hexdigest()


@dataclass(frozen=True, slots=True)
class IndexDigest:
    """How many rows there are, and the sum of their hashes modulo 2^64."""

    rows: int = 0
    hashes: int = 0

    def add_rows(self, rows: pa.Table, hashes: Hashes) -> IndexDigest:
        """The digest with signed rows added."""
        counts = numbers_of(rows[COUNT])
        total = int((hashes * counts.view(np.uint64)).sum(dtype=np.uint64))
        return IndexDigest(self.rows + int(counts.sum()), (self.hashes + total) % (1 << 64))


@dataclass(frozen=True, slots=True)
class IndexManifest:
    """What is written about a base file."""

    table: str
    version: int
    fingerprint: str
    ts: int
    file: str
    check: str
    digest: IndexDigest


@dataclass(frozen=True, slots=True)
class SortedRun:
    """Signed rows in the order of their keys' hashes."""

    hashes: Hashes
    rows: pa.Table

    def find_places(self, wanted: Hashes) -> Places:
        """The rows with one of the wanted hashes, of which none is there twice."""
        begin = np.searchsorted(self.hashes, wanted)
        lengths = np.searchsorted(self.hashes, wanted, side="right") - begin
        # Rows of one hash are neighbours: from where they begin, one after the other.
        offsets = begin - (np.cumsum(lengths) - lengths)
        return np.repeat(offsets, lengths) + np.arange(lengths.sum())


class KeyIndex:
    """The rows of one stored node by key, as of a ts; made by `open_index` or `rebuild_index`."""

    def __init__(
        self, folder: Path, owner: IndexOwner, base: SortedRun, found: IndexManifest
    ) -> None:
        self._folder = folder
        self._owner = owner
        self._base = base
        self._overlay: list[SortedRun] = []
        self._manifest = found
        self._ts = found.ts
        self._digest = found.digest

    @property
    def ts(self) -> int:
        """The ts as of which the rows are found."""
        return self._ts

    def is_of_owner(self, owner: IndexOwner) -> bool:
        """Whether it holds the rows of this owner, with the columns that they have now."""
        return self._owner == owner

    @property
    def digest(self) -> IndexDigest:
        """To be compared with `digest_rows` of the table."""
        return self._digest

    def is_sum_of(self, table: IndexDigest) -> bool:
        """Whether what was applied, and the rows that are found, are those of the table."""
        runs = (self._base, *self._overlay)
        found = digest_rows((run.rows for run in runs), self._owner.schema)
        return found == self._digest == table

    @property
    def overlay_rows(self) -> int:
        return sum(run.rows.num_rows for run in self._overlay)

    def find_rows(self, keys: pa.Table) -> pa.Table:
        """The rows that have one of these keys, each with its count; NULL is a key like others."""
        names = list(self._owner.keys)
        keys = keys.select(names)
        wanted = np.unique(_hash_keys(keys, names))
        runs = (self._base, *self._overlay)
        places = [run.find_places(wanted) for run in runs]
        found = [run.rows.take(at) for run, at in zip(runs, places, strict=True) if len(at)]
        if not found:
            return _empty_rows(self._owner)
        rows = _rows_with_keys(pa.concat_tables(found), keys, names)
        if len(found) == 1 and len(places[0]):
            return rows
        rows = _net_rows(rows)
        _refuse_negative(rows)
        return rows

    def largest_value(self, column: str) -> int:
        """The largest value that a column of whole numbers has, or has had since the file was
        written; 0 if there are no rows."""
        found = [pc.max(run.rows[column]).as_py() for run in (self._base, *self._overlay)]
        return max((value for value in found if value is not None), default=0)

    def apply_rows(self, rows: pa.Table, ts: int) -> None:
        """Add signed rows that are written to the table up to a ts."""
        assert ts >= self._ts, f"the index is as of ts {self._ts}, beyond {ts}"
        if rows.num_rows:
            rows = rows.select([*self._owner.schema.names, COUNT])
            whole = hash_rows(rows.columns[:-1], rows.num_rows)
            self._digest = self._digest.add_rows(rows, whole)
            self._overlay.append(_sorted_run(rows, self._owner))
            self._merge_runs()
        self._ts = ts
        if self.overlay_rows > max(OVERLAY_MIN, self._base.rows.num_rows // OVERLAY_SHARE):
            self.fold_overlay()

    def _merge_runs(self) -> None:
        """Keep each run at most half as large as the one before it."""
        runs = self._overlay
        while len(runs) > 1 and 2 * runs[-1].rows.num_rows > runs[-2].rows.num_rows:
            both = _net_rows(pa.concat_tables([runs[-2].rows, runs[-1].rows]))
            runs[-2:] = [_sorted_run(both, self._owner)] if both.num_rows else []

    def rebuild_from(self, rows: pa.Table) -> KeyIndex:
        """The same index made again, of what the table has as of its ts."""
        return rebuild_index(self._folder, self._owner, [rows], self._ts)

    def fold_overlay(self) -> None:
        """Make a new base of everything, and write it."""
        rows = _net_rows(pa.concat_tables([self._base.rows, *(run.rows for run in self._overlay)]))
        made = rebuild_index(self._folder, self._owner, [rows], self._ts)
        if made.digest != self._digest:
            raise StateError(
                "the index of a view is not the sum of what was applied to it", hint=reload_hint()
            )
        self._base, self._overlay, self._manifest = made._base, [], made._manifest


def open_index(folder: Path, owner: IndexOwner, oldest: int, newest: int) -> KeyIndex | None:
    """The index in a folder, if it is one of this owner as of a ts between two; else None."""
    try:
        body = sealed_json.unseal_file(folder / MANIFEST, KIND, _WAY_OUT)
        found = typed_json.read_typed(IndexManifest, body)
        if not _is_of_owner(found, owner) or not oldest <= found.ts <= newest:
            return None
        return KeyIndex(folder, owner, _read_base(folder, found, owner), found)
    except (OSError, ValueError, WarehouseError, pa.ArrowException):
        # Whatever is wrong with it, the table has all that it would say.
        return None


def _is_of_owner(found: IndexManifest, owner: IndexOwner) -> bool:
    return (found.table, found.version, found.fingerprint) == (
        owner.table,
        owner.version,
        owner.fingerprint,
    )


def _read_base(folder: Path, found: IndexManifest, owner: IndexOwner) -> SortedRun:
    """The base file, if it is whole; a ValueError if it is not."""
    path = folder / Path(found.file).name
    with open(path, "rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != found.check:
            raise ValueError("the file is not the one that was written")
    table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    rows = table.select([*owner.schema.names, COUNT])
    return SortedRun(np.asarray(table[HASH]), rows)


def rebuild_index(folder: Path, owner: IndexOwner, rows: Iterable[pa.Table], ts: int) -> KeyIndex:
    """Make the index of signed rows whose sum is the node as of a ts, and write it."""
    names = [*owner.schema.names, COUNT]
    parts = [_empty_rows(owner), *(part.select(names) for part in rows)]
    net = _net_rows(pa.concat_tables(parts))
    _refuse_negative(net)
    base = _sorted_run(net, owner)
    digest = IndexDigest().add_rows(net, hash_rows(net.columns[:-1], net.num_rows))
    found = IndexManifest(owner.table, owner.version, owner.fingerprint, ts, "", "", digest)
    found = _write_base(folder, base, found)
    return KeyIndex(folder, owner, _read_base(folder, found, owner), found)


def digest_rows(tables: Iterable[pa.Table], schema: pa.Schema) -> IndexDigest:
    """The digest of signed rows of a table, netted or not."""
    digest = IndexDigest()
    for table in tables:
        columns = [table[name] for name in schema.names]
        digest = digest.add_rows(table, hash_rows(columns, table.num_rows))
    return digest


def _write_base(folder: Path, base: SortedRun, found: IndexManifest) -> IndexManifest:
    """Write the file, then the manifest that names it, then remove all other files."""
    disk.make_folder(folder)
    disk.remove_temporaries(folder)
    temporary = folder / f"{disk.TEMPORARY}rows"
    table = base.rows.add_column(0, HASH, pa.array(base.hashes)).combine_chunks()
    with disk.translate_os_errors("write", temporary), disk.open_new(temporary) as file:
        sink = DigestSink(file)
        with pa.ipc.new_file(cast("Any", sink), table.schema) as writer:
            writer.write_table(table, max_chunksize=max(1, table.num_rows))
    check = sink.hex_digest()
    found = replace(found, file=f"rows-{check[:24]}.arrow", check=check)
    with disk.translate_os_errors("rename", temporary):
        os.replace(temporary, folder / found.file)
    body = {
        "table": found.table,
        "version": found.version,
        "fingerprint": found.fingerprint,
        "ts": found.ts,
        "file": found.file,
        "check": found.check,
        "digest": {"rows": found.digest.rows, "hashes": found.digest.hashes},
    }
    sealed_json.write_sealed(folder / MANIFEST, KIND, body, durable=False, whole=False)
    for path in folder.glob("rows-*.arrow"):
        if path.name != found.file:
            with suppress(FileNotFoundError):
                path.unlink()
    return found


def _empty_rows(owner: IndexOwner) -> pa.Table:
    return owner.schema.append(pa.field(COUNT, pa.int64())).empty_table()


def _hash_keys(rows: pa.Table, names: Sequence[str]) -> Hashes:
    return hash_rows([rows[name] for name in names], rows.num_rows)


def _sorted_run(rows: pa.Table, owner: IndexOwner) -> SortedRun:
    hashes = _hash_keys(rows, owner.keys)
    order = np.argsort(hashes, kind="stable")
    return SortedRun(hashes[order], rows.take(order).combine_chunks())


def _rows_with_keys(rows: pa.Table, keys: pa.Table, names: list[str]) -> pa.Table:
    """The rows that really have one of the keys, and not only its hash."""
    both = pa.concat_tables([keys, rows.select(names)])
    numbers = number_rows(both.columns, both.num_rows)
    is_wanted = np.isin(numbers[keys.num_rows :], numbers[: keys.num_rows])
    return rows if is_wanted.all() else rows.filter(pa.array(is_wanted))


def _net_rows(rows: pa.Table) -> pa.Table:
    """Counts summed per row. Only rows that share their hash with another one are compared."""
    hashes = hash_rows(rows.columns[:-1], rows.num_rows)
    _, where, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    is_shared = counts[where] > 1
    if not is_shared.any():
        return rows
    mask = pa.array(is_shared)
    summed = Kernel().consolidate(rows.filter(mask))
    return pa.concat_tables([rows.filter(pc.invert(mask)), summed])


def _refuse_negative(rows: pa.Table) -> None:
    if rows.num_rows and numbers_of(rows[COUNT]).min() < 0:
        raise StateError("a row of a view is there less than no times", hint=reload_hint())
