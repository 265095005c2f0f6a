"""About how large a table is, by a few of its rows, which are found at once.

SQLite keeps no statistics unless somebody asks for them, and its own measure, the virtual table
dbstat, reads every page. But the largest number of a row is at the end of the tree, and rows at
numbers that are spread evenly are a sample: so many rows of that width, and never more than the
file has. Rows that were deleted count, as their numbers do. Rows without numbers (WITHOUT ROWID)
could only be counted.
"""

from __future__ import annotations

import sqlite3

from viewkeeper.sources.sqlite.schema import SqliteTable, quote_name
from viewkeeper.updates.source_protocol import TableSize

SAMPLED_ROWS = 64
_ROW_BYTES = 4
"""What a row has besides its values: its number, its length, the place in its page."""


def estimate_table(connection: sqlite3.Connection, table: SqliteTable) -> TableSize:
    """The size of a table; nothing is known of one whose rows have no numbers."""
    if table.rowid is None:
        return TableSize()
    name, rowid = quote_name(table.name), quote_name(table.rowid)
    # Each of them is at an end of the tree; asked for in one SELECT, all rows are read.
    ends = f"SELECT (SELECT min({rowid}) FROM {name}), (SELECT max({rowid}) FROM {name})"
    low, high = connection.execute(ends).fetchone()
    if high is None or high <= 0:
        return TableSize(0, 0) if high is None else TableSize(0)
    widths = _sample_widths(connection, table, max(0, low), high)
    bytes_per_row = _ROW_BYTES + sum(widths) / len(widths)
    return TableSize(high, min(int(high * bytes_per_row), _used_bytes(connection)))


def _sample_widths(
    connection: sqlite3.Connection, table: SqliteTable, low: int, high: int
) -> list[int]:
    """How many bytes the values of some rows have; a blob is not read for its length."""
    rows = connection.execute("SELECT name FROM pragma_table_info(?)", (table.name,))
    width = " + ".join(f"1 + {_width_of(quote_name(name))}" for (name,) in rows)
    assert table.rowid is not None, "rows without numbers are not sampled"
    name, rowid = quote_name(table.name), quote_name(table.rowid)
    query = f"SELECT {width} FROM {name} WHERE {rowid} >= ? ORDER BY {rowid} LIMIT 1"
    steps = min(SAMPLED_ROWS, high - low + 1)
    wanted = [low + (high - low) * step // max(1, steps - 1) for step in range(steps)]
    return [int(connection.execute(query, (number,)).fetchone()[0]) for number in wanted]


def _width_of(column: str) -> str:
    return (
        f"CASE typeof({column}) WHEN 'null' THEN 0 WHEN 'integer' THEN 4 WHEN 'real' THEN 8 "
        f"ELSE length({column}) END"
    )


def _used_bytes(connection: sqlite3.Connection) -> int:
    """The bytes of all pages of the file that something is in."""
    facts = [
        int(connection.execute(f"PRAGMA {fact}").fetchone()[0])
        for fact in ("page_count", "freelist_count", "page_size")
    ]
    return (facts[0] - facts[1]) * facts[2]
