"""Ticks: what the tables of the clock hold at a position, and how they change.

A position is a number of minutes since 1970 in UTC. The tables `day`, `hour` and `minute` have one
row each: the start of the day, hour or minute that the position lies in, as `today`, its date, and
as `instant`. A tick is the position at which a table's row becomes the next one. So everything that
the clock ever holds follows from positions, and nothing needs to be remembered:

    >>> today, instant = row_at("hour", tick_after("hour", 60 * 24 + 30))
    >>> str(today), str(instant)
    ('1970-01-02', '1970-01-02 01:00:00+00:00')
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from viewkeeper.delta.algebra import COUNT, POSITION
from viewkeeper.view.definition import Field

MINUTES: Mapping[str, int] = {"day": 24 * 60, "hour": 60, "minute": 1}
"""The tables, with the minutes from one tick to the next."""

FIELDS = (Field("today", pa.date32()), Field("instant", pa.timestamp("us", "UTC")))
"""The columns of every table."""

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_BATCH_TICKS = 50_000

Row = tuple[datetime.date, datetime.datetime]


def position_at(seconds: float) -> int:
    """The position of a moment, given in seconds since 1970."""
    return int(seconds // 60)


def moment_of(position: int) -> datetime.datetime:
    """When a position is."""
    return _EPOCH + datetime.timedelta(minutes=position)


def tick_after(table: str, position: int) -> int:
    """The first tick of a table after a position."""
    return (position // MINUTES[table] + 1) * MINUTES[table]


def row_at(table: str, position: int) -> Row:
    """The row that a table has at a position."""
    instant = moment_of(position - position % MINUTES[table])
    return instant.date(), instant


def ticks_between(table: str, after: int, until: int) -> range:
    """The ticks of a table with `after` < tick <= `until`."""
    return range(tick_after(table, after), until + 1, MINUTES[table])


def changes_between(
    table: str, columns: Sequence[str], after: int, until: int
) -> Iterator[pa.RecordBatch]:
    """How a table changes at its ticks: change batches of these columns."""
    ticks = ticks_between(table, after, until)
    for start in range(0, len(ticks), _BATCH_TICKS):
        rows, counts, positions = list[Row](), list[int](), list[int]()
        for tick in ticks[start : start + _BATCH_TICKS]:
            rows += [row_at(table, tick - 1), row_at(table, tick)]
            counts += [-1, 1]
            positions += [tick, tick]
        extra = {COUNT: counts, POSITION: positions}
        found = rows_as_batch(rows, columns)
        arrays = [*found.columns, *(pa.array(values, pa.int64()) for values in extra.values())]
        yield pa.record_batch(arrays, names=[*columns, *extra])


def rows_as_batch(rows: Sequence[Row], columns: Sequence[str]) -> pa.RecordBatch:
    """Rows of a table as Arrow has them, in these columns."""
    names = [field.name for field in FIELDS]
    arrays = [
        pa.array([row[names.index(name)] for row in rows], FIELDS[names.index(name)].type)
        for name in columns
    ]
    return pa.record_batch(arrays, names=list(columns))
