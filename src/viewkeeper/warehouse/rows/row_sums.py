"""Sums of signed rows in Arrow: the same row's counts added up, zeros gone.

Arrow groups every type that a view can have, NULL with NULL; `-0.0` and NaN are canonical before
they are stored. Columns are addressed by number, because a view may call a column anything.
"""

from __future__ import annotations

import numpy
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.updates.source_protocol import COUNT, TS


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
