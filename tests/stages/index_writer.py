"""A process that applies known changes to an index, one ts after the other, until it is killed.

`python -m tests.stages.index_writer FOLDER` begins where the index in the folder ends, or makes a
new one. The rows at a ts are known to everybody, so that whoever finds an index can judge it.
"""

from __future__ import annotations

import sys
from collections import Counter
from itertools import count
from pathlib import Path
from unittest import mock

import pyarrow as pa

from viewkeeper.delta.algebra import COUNT
from viewkeeper.stages import key_index
from viewkeeper.stages.key_index import IndexOwner, KeyIndex, open_index, rebuild_index

COLUMNS: dict[str, pa.DataType] = {"k": pa.int64(), "v": pa.string()}
SCHEMA = pa.schema(COLUMNS)
OWNER = IndexOwner("counts", 3, SCHEMA, ("k",))
KEYS = 50


def change_at(ts: int) -> list[tuple[int, str, int]]:
    """The signed rows of a ts: the row of one key is replaced."""
    key, old = ts % KEYS, ts - KEYS
    taken = [(key, f"of {old}", -1)] if old > 0 else []
    return [*taken, (key, f"of {ts}", 1)]


def rows_at(ts: int) -> Counter[tuple[int, str]]:
    """All rows as of a ts."""
    return Counter({(at % KEYS, f"of {at}"): 1 for at in range(max(1, ts - KEYS + 1), ts + 1)})


def table_of_change(rows: list[tuple[int, str, int]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    kinds = (pa.int64(), pa.string(), pa.int64())
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    return pa.table(dict(zip(("k", "v", COUNT), arrays, strict=True)))


def open_or_rebuild(folder: Path) -> KeyIndex:
    found = open_index(folder, OWNER, 0, 1 << 40)
    return found or rebuild_index(folder, OWNER, [], 0)


def main() -> None:
    with mock.patch.object(key_index, "OVERLAY_MIN", 3):
        index = open_or_rebuild(Path(sys.argv[1]))
        for ts in count(index.ts + 1):
            index.apply_rows(table_of_change(change_at(ts)), ts)


if __name__ == "__main__":
    main()
