"""The clock as a source: every tick of a table that views follow is a transaction.

Nothing is stored anywhere: what the clock held at a position follows from the position
(`viewkeeper.sources.clock.ticks`), and how far we have got is in the ledger. So the clock has no
gaps, ticks that were missed while nobody ran are reported one by one, and time never runs
backwards: while the machine's clock is behind the last tick there are no ticks.

A machine whose clock is far ahead of the last tick would carry all views into a future from which
they cannot come back, so beyond `ahead_days` the clock is taken for absent, and its views wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from viewkeeper.errors import SchemaError, SourceAwayError, suggest_nearest
from viewkeeper.sources.clock.ticks import (
    FIELDS,
    MINUTES,
    changes_between,
    moment_of,
    position_at,
    row_at,
    rows_as_batch,
    ticks_between,
)
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.updates.cut import Cut
from viewkeeper.updates.source_protocol import (
    COUNT,
    LOOK_TRANSACTIONS,
    POSITION,
    Answer,
    Boundary,
    CurrentNames,
    DetachResult,
    Finding,
    Health,
    KeyRange,
    Lookup,
    Opener,
    Scan,
    TableBatches,
    TableDescription,
    Tables,
)
from viewkeeper.view.definition import Field, Relation

AHEAD_DAYS = 400
"""So many days after the last tick the machine's clock is believed."""

_DAY_MINUTES = MINUTES["day"]


def open_source(
    settings: SourceSettings, _reader: str, now: Callable[[], float] = time.time
) -> ClockSource:
    """The clock that settings describe; `now` gives the seconds since 1970."""
    ahead = settings.read_number("ahead_days", AHEAD_DAYS)
    return ClockSource(settings.name, now, ahead)


class ClockSource:
    """The machine's clock."""

    def __init__(
        self, name: str, now: Callable[[], float] = time.time, ahead_days: float = AHEAD_DAYS
    ) -> None:
        self.name = name
        self._now = now
        self._ahead_days = ahead_days
        self._followed: set[str] = set()

    def describe_source(self) -> str:
        return "the machine's clock, in UTC"

    def handle_of(self, name: str) -> str:
        return self.describe_table(name).names.table

    def describe_table(self, handle: str) -> TableDescription:
        if handle not in MINUTES:
            hint = f"its tables: {', '.join(MINUTES)}{suggest_nearest(handle, MINUTES)}"
            raise SchemaError(self.name, f'table "{handle}" does not exist', hint=hint)
        names = {field.name: field.name for field in FIELDS}
        every = frozenset(names)
        return TableDescription(
            CurrentNames(handle, names), FIELDS, key=("instant",), indexed=every, comparable=every
        )

    def follow_tables(self, tables: Tables) -> int:
        for table in tables:
            self.describe_table(table)
        # Some views may be followed one by one: what was followed stays so until the next run.
        self._followed |= set(tables)
        return self._position_now()

    def look_for_transactions(self, after: int) -> tuple[Boundary, ...]:
        now = self._position_now()
        if now - after > self._ahead_days * _DAY_MINUTES:
            days = (now - after) // _DAY_MINUTES + 1
            raise SourceAwayError(
                self.name,
                f"the machine's clock says {moment_of(now):%Y-%m-%d %H:%M}, and the last tick was "
                f"{moment_of(after):%Y-%m-%d %H:%M}",
                hint="set the machine's clock; if it is right, say so in viewkeeper.yml: sources: "
                f"{{{self.name}: {{kind: clock, ahead_days: {days}}}}}",
            )
        if not self._followed:
            return ()
        finest = min(self._followed, key=MINUTES.__getitem__)
        ticks = ticks_between(finest, after, now)[:LOOK_TRANSACTIONS]
        return tuple(Boundary(tick, moment_of(tick).timestamp(), 2) for tick in ticks)

    def has_passed(self, position: int) -> bool:
        return position <= self._position_now()

    def read_changes(self, tables: Tables, after: int, until: int) -> TableBatches:
        for table, columns in tables.items():
            for batch in changes_between(table, columns, after, until):
                yield table, batch

    @contextmanager
    def prepare_snapshots(self, after: int, tables: Tables) -> Iterator[Opener]:
        # What is behind us stays so, whatever the machine's clock says now.
        yield ClockOpener(max(after, self._position_now()))

    def acknowledge_position(self, position: int) -> None:
        """Nothing is kept that could be forgotten."""

    def begin_hold(self, name: str, seconds: float) -> None:
        """Nothing is ever forgotten."""

    def end_hold(self, name: str) -> None:
        """Nothing was held."""

    def read_health(self, positions: Iterable[int]) -> Health:
        now, last = self._position_now(), max(positions, default=0)
        return Health(True, now, warnings=self._warnings(now, last))

    def diagnose_source(self, tables: Tables) -> list[Finding]:
        now = moment_of(self._position_now())
        return [Finding("clock", "good", f"the machine's clock says {now:%Y-%m-%d %H:%M} UTC")]

    def detach_source(self, force: bool = False) -> DetachResult:
        return DetachResult(was_following=False, capture_dropped=False)

    def close(self) -> None:
        """There is nothing to close."""

    def _position_now(self) -> int:
        return position_at(self._now())

    def _warnings(self, now: int, last: int) -> tuple[str, ...]:
        """What somebody should know who relies on the clock."""
        if now >= last:
            return ()
        return (
            f"the machine's clock says {moment_of(now):%Y-%m-%d %H:%M}, before the last tick at "
            f"{moment_of(last):%Y-%m-%d %H:%M}: for the views time stands still until then",
        )


@dataclass(frozen=True, slots=True)
class ClockOpener:
    """Opens snapshots of the clock at one position."""

    position: int

    def __call__(self) -> ClockSnapshot:
        return ClockSnapshot(self.position)


class ClockSnapshot:
    """The clock at one position."""

    def __init__(self, position: int) -> None:
        self._position = position

    def answer_lookup(self, lookup: Lookup, after: int) -> Answer:
        table, columns = lookup.relation.table, lookup.columns
        changes = changes_between(table, columns, after, self._position)
        tail = pa.Table.from_batches(changes, _change_schema(columns))
        return Answer(self._rows_now(table, columns), Cut(self._position), after, tail)

    def find_key_range(self, relation: Relation, columns: Sequence[str]) -> KeyRange | None:
        """It has one row."""
        return None

    def scan_relation(
        self,
        relation: Relation,
        columns: Sequence[str],
        after: int,
        part: KeyRange | None = None,
    ) -> Scan:
        rows = self._rows_now(relation.table, columns)
        tail = changes_between(relation.table, columns, after, self._position)
        return Scan(Cut(self._position), iter(rows.to_batches()), tail)

    def close(self) -> None:
        """There is nothing to close."""

    def _rows_now(self, table: str, columns: Sequence[str]) -> pa.Table:
        return pa.Table.from_batches([rows_as_batch([row_at(table, self._position)], columns)])


def _change_schema(columns: Sequence[str]) -> pa.Schema:
    fields = {field.name: field for field in (*FIELDS, Field(COUNT, pa.int64()))}
    fields[POSITION] = Field(POSITION, pa.int64())
    return pa.schema([(name, fields[name].type) for name in (*columns, COUNT, POSITION)])
