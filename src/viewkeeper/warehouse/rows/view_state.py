"""Reading a view with Arrow alone: no Spark, no JVM, no lock.

A reader starts from a head and reads the table's version that the head names. The state as of T is
the sum of `_count` per row over `_ts` <= T; the changes since S are the rows with `_ts` > S. Files
whose statistics say that they hold nothing of interest are not opened. As-of never uses old Delta
Lake versions: those are about files, `_ts` is about the sources.

The newest state is the sum of everything, commits ahead of the mark included; what then has a count
below one waits for a commit that is still to come and is not shown. As-of and changes end at the
mark.

Columns that are hidden are there to tell stored rows apart. What is shown is the projection of what
is stored: a stored row with a count below one is left out first, then counts are summed without the
hidden columns. `read_stored` alone shows everything.

States before the horizon are folded together and are refused, naming what can be asked for. A
`since` of 0 stands for "from the beginning": the changes then start with the initial load, or with
the folded body, under its ts.

Arrow groups every type that a view can have, NULL with NULL; `-0.0` and NaN are canonical before
they are stored. Columns are addressed by number, because a view may call a column anything.

A view that lost a column, gained one or got a wider type keeps its files as they are; the table's
own schema says what they mean from then on. What a file has too much is left out (the same row's
counts then add up wherever rows are summed), what it lacks is NULL, and narrower values are cast.
Compaction writes them anew, in time.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from viewkeeper.errors import CorruptError, HorizonError
from viewkeeper.updates.source_protocol import COUNT, TS
from viewkeeper.warehouse.lake.data_files import stored_schema
from viewkeeper.warehouse.lake.lake_table import ActiveFile, files_of
from viewkeeper.warehouse.lake.verified_files import read_file, translate_read_errors
from viewkeeper.warehouse.metadata.head import ViewHead, read_head


def fit_columns(rows: pa.Table, stored: pa.Schema) -> pa.Table:
    """The rows with exactly the columns of `stored`.

    >>> rows = pa.table({"a": [1], "b": ["x"], "_count": [1]})
    >>> now = pa.schema([("a", pa.decimal128(20, 0)), ("c", pa.string()), ("_count", pa.int64())])
    >>> fit_columns(rows, now).to_pylist()
    [{'a': Decimal('1'), 'c': None, '_count': 1}]
    """
    if rows.schema.equals(stored):
        return rows
    there = set(rows.schema.names)
    arrays = [
        rows[field.name].cast(field.type)
        if field.name in there
        else pa.nulls(rows.num_rows, field.type)
        for field in stored
    ]
    return pa.table(arrays, schema=stored)


def sum_rows(rows: pa.Table) -> pa.Table:
    """One row per tuple, with the non-zero sum of its `_count`; a `_ts` is forgotten."""
    return _sum_counts(rows.drop_columns([TS]) if TS in rows.schema.names else rows)


def sum_per_ts(rows: pa.Table) -> pa.Table:
    """One row per tuple and ts, in ts order, with the non-zero sum of its `_count`."""
    return _sum_counts(rows).select(rows.schema.names).sort_by(TS)


def repeat_rows(rows: pa.Table) -> pa.Table:
    """The bag that counted rows stand for; rows with a count below one do not appear."""
    shown = rows.filter(pc.field(COUNT) > 0)
    bag = shown.drop_columns([COUNT])
    if shown.num_rows == 0 or pc.max(shown[COUNT]).as_py() == 1:
        return bag
    counts = shown[COUNT].to_numpy()
    return bag.take(numpy.repeat(numpy.arange(len(counts)), counts))


def _sum_counts(rows: pa.Table) -> pa.Table:
    names = [name for name in rows.schema.names if name != COUNT]
    keys = [f"k{i}" for i in range(len(names))]
    plain = rows.select([*names, COUNT]).rename_columns([*keys, "n"])
    total = plain.group_by(keys).aggregate([("n", "sum")]).select([*keys, "n_sum"])
    return total.filter(pc.field("n_sum") != 0).rename_columns([*names, COUNT])


ATTEMPTS = 20


def newest_state(root: Path, name: str, as_of: int | None = None) -> tuple[ViewHead, pa.Table]:
    """A view and its rows, from the head of the moment.

    What cannot be believed is read again from the next head: upkeep may have replaced it while it
    was read. Only what the same head, or many heads one after the other, cannot give is damaged.
    """
    view = read_head(root).require_view(name)
    for _ in range(ATTEMPTS):
        try:
            return view, read_state(root, view, as_of)
        except CorruptError:
            newer = read_head(root).require_view(name)
            if newer == view:
                break
            view = newer
    return view, read_state(root, view, as_of)


def read_state(root: Path, view: ViewHead, as_of: int | None = None) -> pa.Table:
    """The view's rows as of a ts (the newest if none is given), a row as often as it occurs."""
    if view.hidden:
        return repeat_rows(read_counted(root, view, as_of))
    until = state_ts(view, as_of)
    files = files_until(root, view, until)
    added = read_signed(root, view, [f for f in files if f.count_min > 0], until=until)
    mixed = read_signed(root, view, [f for f in files if f.count_min <= 0], until=until)
    touched = _is_touched(added, mixed)
    if touched is None:
        return repeat_rows(sum_rows(pa.concat_tables([added, mixed])))
    changed = sum_rows(pa.concat_tables([added.filter(touched), mixed]))
    kept = added.filter(pc.invert(touched)).select(changed.column_names)
    return pa.concat_tables([repeat_rows(kept), repeat_rows(changed)])


_TELLING = (
    pa.types.is_integer,
    pa.types.is_string,
    pa.types.is_date,
    pa.types.is_timestamp,
    pa.types.is_decimal,
)
"""Types whose equal values are the same bits, so that a set of them tells rows apart."""


def _is_touched(added: pa.Table, mixed: pa.Table) -> pa.BooleanArray | None:
    """Which added rows can be among the mixed ones, by the column that tells these apart best.

    Grouping all rows by all columns costs ten times as much as reading them, and most are of no
    other commit. None where no column tells, or where that would save little.
    """
    names = [
        field.name
        for field in added.schema
        if field.name not in (COUNT, TS) and any(is_type(field.type) for is_type in _TELLING)
    ]
    if not names or 4 * mixed.num_rows > added.num_rows:
        return None
    best = max(names, key=lambda name: pc.count_distinct(mixed[name], mode="all").as_py())
    return pc.is_in(added[best], value_set=pc.unique(mixed[best]))


def read_counted(root: Path, view: ViewHead, as_of: int | None = None) -> pa.Table:
    """The view's rows as of a ts, each once, with `_count`."""
    rows = read_stored(root, view, as_of).filter(pc.field(COUNT) > 0)
    return sum_rows(rows.drop_columns(list(view.hidden))) if view.hidden else rows


def read_stored(root: Path, view: ViewHead, as_of: int | None = None) -> pa.Table:
    """The rows as they are stored, hidden columns and counts below zero too, each with `_count`."""
    until = state_ts(view, as_of)
    return sum_rows(read_signed(root, view, files_until(root, view, until), until=until))


def read_view_changes(root: Path, view: ViewHead, since: int, until: int | None = None) -> pa.Table:
    """The signed rows with `since` < `_ts` <= `until`, summed per row and ts, in ts order."""
    since, until = change_span(view, since, until)
    files = [file for file in files_until(root, view, until) if file.ts_max > since]
    rows = read_signed(root, view, files, after=since, until=until)
    return sum_per_ts(rows.drop_columns(list(view.hidden)))


def state_ts(view: ViewHead, as_of: int | None) -> int:
    """The ts to read, or HorizonError."""
    if as_of is None:
        return view.reach_ts
    if not view.horizon <= as_of <= view.ts:
        raise _outside_error(view, f"no state as of {as_of}")
    return as_of


def change_span(view: ViewHead, since: int, until: int | None) -> tuple[int, int]:
    """The span of ts to read, or HorizonError; -1 stands for before the initial load."""
    end = view.ts if until is None else state_ts(view, until)
    if since == 0:
        return -1, end
    if not view.horizon <= since <= view.ts:
        raise _outside_error(view, f"no changes since {since}")
    return since, end


def files_until(root: Path, view: ViewHead, until: int) -> list[ActiveFile]:
    """The files that can hold rows up to a ts."""
    active = files_of(table_folder(root, view), view)
    return [file for file in active if file.ts_min <= until]


def table_folder(root: Path, view: ViewHead) -> Path:
    return root.absolute() / "views" / view.table


def read_signed(
    root: Path, view: ViewHead, files: Iterable[ActiveFile], *, after: int = -1, until: int
) -> pa.Table:
    """The signed rows of files with `after` < `_ts` <= `until`."""
    folder = table_folder(root, view)
    stored = stored_schema(view.schema)
    pieces = [_read_signed_file(folder, view.view, file, stored, after, until) for file in files]
    return pa.concat_tables([stored.empty_table(), *pieces])


def _read_signed_file(
    folder: Path, view: str, file: ActiveFile, stored: pa.Schema, after: int, until: int
) -> pa.Table:
    path = folder / file.path
    data = read_file(path, file.size, view)
    with translate_read_errors(path, view):
        with pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True) as parquet:
            rows = parquet.read().replace_schema_metadata(None)
        if rows.num_rows != file.rows:
            raise ValueError(f"it has {rows.num_rows} rows; {file.rows} were written")
        rows = fit_columns(rows, stored)
    if after < file.ts_min and file.ts_max <= until:
        return rows
    return rows.filter((pc.field(TS) > after) & (pc.field(TS) <= until))


def _outside_error(view: ViewHead, what: str) -> HorizonError:
    end = "the mark: above it commits are still missing" if view.ahead else "the newest"
    return HorizonError(
        f'view "{view.view}": {what}',
        detail=f"states from ts {view.horizon} (the horizon) to ts {view.ts} ({end}) are kept",
        hint=f"ask for a ts from {view.horizon} to {view.ts}; changes also from 0, the beginning",
    )
