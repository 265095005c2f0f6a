"""The rows of a view's body that later commits may have changed, and where they are.

The *body* of a state is the files whose counts are all above zero and which are large, or folded;
the *tail* is the rest, and small. The state is the sum of both. Most rows of the body are in no
later commit: they are shown as they are stored, and whoever wants one column, or only the number of
rows, reads no more than that. Those that may be in the tail are the *touched rows*: they are left
out of the body by their positions, and summed with the tail.

Any row of the body may count as touched; it is then summed, and shown all the same. So they are
found by the one column that tells the rows of the tail apart best, are narrowed by the others, and
need not be exact. What is touched does not depend on the ts that is asked for: a row that a commit
took out later is summed with what lies at or before the ts, and stays.

To find them, a large body has to be read once. So they are *kept*, in a file beside the table's
data files, which says of which body they are, under which columns, and for which files of the tail
they were looked for.
What it lacks is looked for again; a file of another body, or a damaged one, is not used. It can be
lost at any time, and readers that may not write go without it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from viewkeeper.delta.arrow_compute import pc
from viewkeeper.errors import ViewkeeperError
from viewkeeper.storage import stored_files
from viewkeeper.storage.named_digest import has_own_bytes, write_parquet
from viewkeeper.storage.storage_path import StoragePath, name_of
from viewkeeper.updates.source_protocol import COUNT
from viewkeeper.warehouse.lake.data_files import list_digest
from viewkeeper.warehouse.lake.listed_files import ActiveFile
from viewkeeper.warehouse.metadata.head import ViewHead
from viewkeeper.warehouse.rows.file_search import Search, search_file
from viewkeeper.warehouse.rows.row_masks import match_values

FOLDER = "_touched"
LARGE_ROWS = 100_000
"""A file of so many rows is read as it is, if it only adds rows; a smaller one is summed."""

TOUCHED_MAX = 1_000_000
"""So many rows at most are held in memory; where more may be touched, all rows are summed."""

KEPT_FROM_ROWS = 500_000
"""Touched rows of smaller bodies are not kept: they are found in less time than a file costs."""

_TELLING: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_integer,
    pa.types.is_date,
    pa.types.is_timestamp,
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_decimal,
)
"""Types whose equal values are the same bits, so that a set of them tells rows apart."""

ReadSigned = Callable[[Sequence[ActiveFile]], pa.Table]
"""The signed rows of some files of a tail, as far as they are asked for."""


@dataclass(frozen=True, slots=True)
class TouchedRows:
    """Rows of a body, each with `_count`, the number of its file there, and its position in it."""

    rows: pa.Table
    files: Any
    positions: Any

    def positions_in(self, file: int) -> Any:
        """The positions of the rows that are of one file of the body."""
        return self.positions[self.files == file]

    def join_others(self, other: TouchedRows) -> TouchedRows:
        """These and others of the same body, each once."""
        rows = pa.concat_tables([self.rows, other.rows])
        files = np.concatenate([self.files, other.files])
        positions = np.concatenate([self.positions, other.positions])
        _, first = np.unique(np.stack([files, positions]), axis=1, return_index=True)
        return TouchedRows(rows.take(first), files[first], positions[first])


def split_layers(
    files: Sequence[ActiveFile], until: int, folded: int = -1
) -> tuple[list[ActiveFile], list[ActiveFile]]:
    """The files of a state as of a ts: its body, in the order of the names, and its tail.

    Of the body are large files, and all that reach no further than `folded`.
    """

    def is_body(file: ActiveFile) -> bool:
        lasting = file.ts_max <= folded or file.rows >= LARGE_ROWS
        return lasting and file.count_min > 0 and file.ts_max <= until

    body = sorted(filter(is_body, files), key=lambda file: file.path)
    return body, [file for file in files if not is_body(file)]


def telling_columns(rows: pa.Table) -> list[str]:
    """The columns that tell rows apart, the best first.

    Best is the cheapest type with at least half as many values as any has, then the earlier column:
    a number that stays tells versions of a row apart from others as well as a text that changes.
    """
    ranks = {
        field.name: rank
        for field in rows.schema
        for rank, is_type in enumerate(_TELLING)
        if is_type(field.type) and field.name != COUNT
    }
    values = {name: pc.count_distinct(rows[name], mode="all").as_py() for name in ranks}
    most = max(values.values(), default=0)
    return sorted(ranks, key=lambda name: (2 * values[name] < most, ranks[name], -values[name]))


def find_touched(
    folder: StoragePath,
    view: ViewHead,
    body: Sequence[ActiveFile],
    tail: Sequence[ActiveFile],
    read_signed: ReadSigned,
) -> TouchedRows | None:
    """The rows of a body that may be in a tail; None where too many may be, or no column tells.

    `folder` is the table's. What was looked for is kept, where that saves the next reader time.
    """
    schema = pa.schema([*view.schema.remove_metadata(), pa.field(COUNT, pa.int64())])
    nothing = TouchedRows(schema.empty_table(), np.zeros(0, np.int64), np.zeros(0, np.int64))
    kept = _read_kept(folder, body, schema)
    known, covered = kept or (nothing, frozenset[str]())
    missing = [file for file in tail if file.path not in covered]
    if not missing or not body:
        return known
    signed = read_signed(missing)
    found = _search_body(folder, view, body, signed.select(schema.names), nothing)
    if found is None:
        return None
    touched = known.join_others(found)
    whole = signed.num_rows == sum(file.rows for file in missing)
    if whole and sum(file.rows for file in body) >= KEPT_FROM_ROWS:
        names = {file.path for file in tail}
        _keep_touched(folder, body, touched, names)
    return touched


def _search_body(
    folder: StoragePath,
    view: ViewHead,
    body: Sequence[ActiveFile],
    signed: pa.Table,
    nothing: TouchedRows,
) -> TouchedRows | None:
    telling = telling_columns(signed)
    if not telling:
        return None
    values: Search = {name: pc.unique(signed[name]) for name in telling}
    best: Search = {telling[0]: values[telling[0]]}
    tables, files, positions, count = [nothing.rows], [nothing.files], [nothing.positions], 0
    for number, file in enumerate(body):
        for places, rows in search_file(folder, view.view, file, signed.schema, [best]):
            mask = match_values(rows, values)
            tables.append(rows.filter(pa.array(mask)))
            positions.append(places[mask])
            files.append(np.full(len(positions[-1]), number))
            count += len(positions[-1])
            if count > TOUCHED_MAX:
                return None
    return TouchedRows(pa.concat_tables(tables), np.concatenate(files), np.concatenate(positions))


def _keep_touched(
    table: StoragePath, body: Sequence[ActiveFile], touched: TouchedRows, tail: set[str]
) -> None:
    """Keep touched rows for the next reader, in the place of what was kept before."""
    if not stored_files.storage_of(table).can_write(table):
        return
    # Whoever reads must not fail because something that is of use later cannot be written.
    with suppress(OSError, ViewkeeperError):
        folder = table / FOLDER
        stored_files.make_folder(folder)
        before = [*folder.glob("*.parquet")]
        names = [f"c{i}" for i in range(touched.rows.num_columns)]
        arrays = [*touched.rows.columns, pa.array(touched.files), pa.array(touched.positions)]
        facts = {"tail": json.dumps(sorted(tail)), "columns": str(touched.rows.schema)}
        kept = pa.table(arrays, [*names, "file", "position"]).replace_schema_metadata(facts)
        first = folder / f"{list_digest(body)}-{uuid.uuid4().hex}.parquet"
        with write_parquet(first, kept.schema, durable=False) as file:
            file.write(kept)
        for old in before:
            stored_files.remove_file(old)


def _read_kept(
    table: StoragePath, body: Sequence[ActiveFile], schema: pa.Schema
) -> tuple[TouchedRows, frozenset[str]] | None:
    """Kept touched rows of a body, and the files of a tail that they cover; None without."""
    for path in sorted((table / FOLDER).glob(f"{list_digest(body)}-*.parquet"), key=name_of):
        # One that is gone, torn or of other columns is as good as none.
        with suppress(OSError, ValueError, KeyError, pa.ArrowException):
            data = path.read_bytes()
            if not has_own_bytes(path, data):
                continue
            kept = pq.read_table(pa.BufferReader(data))
            facts = kept.schema.metadata or {}
            if facts[b"columns"].decode() != str(schema):
                continue
            covered = json.loads(facts[b"tail"])
            rows = pa.table(kept.columns[:-2], schema=schema)
            files, positions = kept["file"].to_numpy(), kept["position"].to_numpy()
            return TouchedRows(rows, files, positions), frozenset(covered)
    return None
