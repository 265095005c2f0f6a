"""What the parts say to each other about sources: positions, lookups, answers, and the protocols.

A *position* is an integer that orders the transactions of one source. A *change batch* is an Arrow
record batch of signed rows of one relation: the asked columns, then `_count` (+1 or -1, int64) and
`_position` (int64, the position of the transaction that made the change). A row with `_count` 0 has
only its key columns: the row with that key went, and its other values are not known.

An *answer knows what it contains*: it carries the cut under which its rows were read, and the tail:
every change after a position that the asker names which the cut includes. Up to that position the
asker knows the changes itself and corrects for those that the cut lacks; a source that finds such
holes puts them into the tail too, with counts reversed, and then the cut does not name them. With
that, compensation is a formula (`viewkeeper.maintain.compensation`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.delta.algebra import COUNT as COUNT
from viewkeeper.delta.algebra import POSITION as POSITION
from viewkeeper.delta.algebra import TS as TS
from viewkeeper.errors import DOCTOR_HINT, SchemaError, SourceError, ViewkeeperError
from viewkeeper.updates.answer_pages import AnswerPages, Paging
from viewkeeper.updates.cut import Cut
from viewkeeper.updates.schema_change import SchemaChange
from viewkeeper.view.definition import Field, Relation
from viewkeeper.view.local_condition import LocalCondition

Tables: TypeAlias = Mapping[str, Sequence[str]]
"""Columns, per table of one source."""

TableBatches: TypeAlias = Iterator[tuple[str, pa.RecordBatch]]
"""Changes, each batch with the table that it belongs to."""

LOOK_TRANSACTIONS = 20_000
"""As many transactions a look reports at most; whoever wants to see all of them looks again."""

LOOK_SECONDS = 5.0
"""As long a look reads a stream at most; one that took so long may have left something."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """Where a reported transaction ends: its position, when it was committed, its number of
    changes.

    `committed_at` is in seconds since the epoch. A source without transaction ids reports what it
    committed between two looks as one transaction.

    `emptied` are tables whose rows all went in it without being listed (TRUNCATE); what its changes
    list of them is what came after that. `keyed` are tables of which rows went, or got other
    values, that only their key is known of. A transaction with either is a *barrier*: what must
    still ask such a table about the time before becomes visible together with it.

    `reshaped` are the schema changes in it that concern what is followed, in their order.
    """

    position: int
    committed_at: float
    changes: int
    emptied: tuple[str, ...] = ()
    keyed: tuple[str, ...] = ()
    reshaped: tuple[SchemaChange, ...] = ()


@dataclass(frozen=True, slots=True)
class CurrentNames:
    """What the table behind a handle is now: its name, and those of the handle's columns that are
    still there, each with the name that it has now."""

    table: str
    columns: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TableDescription:
    """The table behind a handle as it is now, by the handle's names for columns.

    `fields` are the columns that can be kept exactly, in the types of now; `refused` are those that
    no view can use, each with the reason and a hint. `key` is a key that the database enforces and
    that cannot be NULL, () if there is none. A lookup by a column that is `indexed` searches an
    index; one by none that is `comparable` returns the whole table.
    """

    names: CurrentNames
    fields: tuple[Field, ...]
    refused: Mapping[str, str] = field(default_factory=dict)
    key: tuple[str, ...] = ()
    indexed: frozenset[str] = frozenset()
    comparable: frozenset[str] = frozenset()

    def is_indexed(self, columns: Iterable[str]) -> bool:
        """Whether a lookup by these columns searches an index instead of reading the table."""
        return not self.indexed.isdisjoint(columns)

    def can_find_by_key(self, columns: Iterable[str]) -> bool:
        """Whether some of these columns can be compared by key; else lookups return the table."""
        return not self.comparable.isdisjoint(columns)


@dataclass(frozen=True, slots=True)
class Lookup:
    """Rows of a relation whose `on` columns are among `keys`; all rows where `on` is empty.

    `keys` is a table with the columns of `on`, distinct; a column that is null-safe may hold NULL,
    which then asks for rows whose column is NULL. The answer may hold more rows than asked for (the
    asker joins and filters again), never fewer, but for rows that do not meet its `conditions`: a
    source leaves them out where it can. Who can work on pages of an answer gives a `paging`; a
    source that holds all rows anyway need not heed it.
    """

    place: int
    relation: Relation
    columns: tuple[str, ...]
    on: tuple[str, ...]
    null_safe: tuple[bool, ...]
    keys: pa.Table | None
    conditions: tuple[LocalCondition, ...] = ()
    paging: Paging | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows that a lookup found, what they contain, and how they differ from a known state.

    `rows` has the lookup's columns and no `_count`: a row that occurs twice is there twice. `tail`
    is a change table: the lookup's columns, `_count`, `_position`. Rows minus tail is what the
    lookup finds in the relation as of the position `after`, without what the cut lacks up to there.
    Where the lookup has a paging, all rows may lie in `pages` instead, and `rows` is empty; pages
    may have a `_count`, and then their rows are signed.
    """

    rows: pa.Table
    cut: Cut
    after: int
    tail: pa.Table
    pages: AnswerPages | None = None

    @property
    def row_count(self) -> int:
        """How many rows it has, wherever they are."""
        return self.rows.num_rows if self.pages is None else self.pages.rows

    @property
    def whole_cut(self) -> Cut:
        """What the rows alone contain: the cut, without what the tail brings back."""
        if not self.tail.num_rows:
            return self.cut
        positions = self.tail[POSITION]
        known = pc.less_equal(positions, pa.scalar(self.after, pa.int64()))
        holes = frozenset(int(p) for p in positions.filter(known).unique().to_numpy())
        return Cut(self.cut.position, self.cut.missing | holes)


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The rows of a relation whose `column`, a whole number, is at least `low` and below `high`.

    Without `low` nothing is too small, and rows without a value belong to it too; without `high`
    nothing is too large.
    """

    column: str
    low: int | None = None
    high: int | None = None

    def split_range(self, count: int) -> tuple[KeyRange, ...]:
        """So many ranges of one length, which are together all rows of the relation.

        The outer ones have no bounds: what the bounds were read from may have more rows by now.

        >>> [(part.low, part.high) for part in KeyRange("id", 0, 9).split_range(3)]
        [(None, 3), (3, 6), (6, None)]
        """
        if self.low is None or self.high is None or count < 2:
            return (KeyRange(self.column),)
        width = self.high - self.low
        inner = sorted({self.low + width * number // count for number in range(1, count)})
        ends = [None, *inner, None]
        return tuple(KeyRange(self.column, *pair) for pair in pairwise(ends))


@dataclass(frozen=True, slots=True)
class Scan:
    """All rows of a relation, or of a range of it, in pieces, and the changes after a position that
    are in them.

    Rows minus tail is the relation as of that position. The tail is read when the rows are through,
    under the same cut. That of a range may have rows of other ranges, which whoever asked leaves
    out: since that is a condition on the row alone, ranges may be read under different cuts.
    """

    cut: Cut
    batches: Iterator[pa.RecordBatch]
    tail: Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class ChangesBehind:
    """What a source has committed beyond a position: how many changes, the time of the oldest."""

    changes: int
    oldest_at: float


@dataclass(frozen=True, slots=True)
class RetainedLog:
    """Who keeps a part of a source's log: a project or a lease, and from which position on."""

    reader: str
    ours: bool
    position: int
    amount: int
    lease_until: float | None = None


@dataclass(frozen=True, slots=True)
class Health:
    """A source at this moment, as `status` shows it.

    `position` is how far it has committed, `retained` how much it keeps for its readers, in `unit`.
    `behind` has what lies beyond the positions asked for, as far as the source can count it without
    disturbing whoever maintains. `warnings` are sentences that somebody should read; `advice` is
    one on what would make maintenance cheaper.
    """

    followed: bool
    position: int | None
    retained: int = 0
    unit: Literal["changes", "bytes", "versions"] = "changes"
    readers: tuple[RetainedLog, ...] = ()
    behind: Mapping[int, ChangesBehind] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    advice: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One check of `doctor`: what was looked at, how it is, and the statements that mend it.

    What is `unchecked` is neither right nor wrong for sure; the text says who can tell.
    """

    check: str
    state: Literal["good", "warning", "bad", "unchecked"]
    text: str
    mend: str | None = None


def finding_of_error(check: str, error: ViewkeeperError) -> Finding:
    """What is bad by an error, without the name of the source, which is above all its findings."""
    source = error.source if isinstance(error, SourceError) else ""
    text = error.message.removeprefix(f'source "{source}": ')
    text = f"{text} ({error.detail})" if error.detail else text
    return Finding(check, "bad", text, None if error.hint == DOCTOR_HINT else error.hint)


@dataclass(frozen=True, slots=True)
class DetachResult:
    """What detaching did: whether we followed at all, whether the capture itself is gone, which
    other readers it stays for, and what was left because it is not, or not only, ours."""

    was_following: bool
    capture_dropped: bool
    other_readers: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


class Snapshot(Protocol):
    """A reader of one source, used by one task; cheap to open, closed when the part is done."""

    def answer_lookup(self, lookup: Lookup, after: int) -> Answer:
        """Answer a lookup; rows minus tail are as of position `after`.

        A BarrierError if the rows cannot be brought back to it, a BrokenQueryError if the table is
        not what the handle means any more.
        """
        ...

    def scan_relation(
        self,
        relation: Relation,
        columns: Sequence[str],
        after: int,
        part: KeyRange | None = None,
    ) -> Scan:
        """Every row, or every one of a range; rows minus tail are as of position `after`."""
        ...

    def find_key_range(self, relation: Relation, columns: Sequence[str]) -> KeyRange | None:
        """The values of a key among these columns by which a scan can be divided.

        None if there is none, if there are no rows, or if dividing a scan saves nothing.
        """
        ...

    def close(self) -> None: ...


Opener: TypeAlias = Callable[[], Snapshot]
"""Opens a snapshot, here or in a task; can be pickled, and holds no secret."""


@dataclass(frozen=True, slots=True)
class TableSize:
    """About how much a table has, as far as its source can say at once; None where it cannot."""

    rows: int | None = None
    bytes: int | None = None


@runtime_checkable
class SizedSource(Protocol):
    """A source that can say about how large a table is without reading it."""

    def estimate_size(self, table: str) -> TableSize:
        """The size of the table that has this name now, by statistics, a catalogue or a log."""
        ...


@runtime_checkable
class HintedSource(Protocol):
    """A source that knows without asking whether a look may be worthwhile."""

    def has_news(self) -> bool | None:
        """Whether something may have been committed since the last look began; costs microseconds.
        None if that is not known, because of how this source is captured.

        Both answers may be wrong: whoever is told that there is nothing looks all the same, later.
        """
        ...


@runtime_checkable
class InheritedSource(Protocol):
    """A source whose server keeps something for one process, as long as that is connected."""

    def inherit_from(self, connection_name: str) -> None:
        """Connections of this name are those of a process that has lost the warehouse to us, and
        need not know: what they keep from us may be taken from them."""
        ...


class Source(Protocol):
    """One autonomous database. Methods may be called from several threads.

    A table is named by its *handle*, and columns by the names that the handle has for them. A
    handle is the name that the table has when it is bound, and a name that nothing is followed
    under is such a handle too. What is followed stays what it is, whatever it is called later:
    `read_changes` and answers give values under the handle's names, those from before a rename as
    well as those from after it, and NULL for what a column had before it was added. They come in
    the type that the column has now; whoever asked casts.

    A schema change that does not keep values ends what can be asked: a question about the time
    before it is a BrokenQueryError, and so is every question to what is gone or is another table
    now, decided inside the snapshot that would answer. The next looks report that change.
    """

    name: str

    def describe_source(self) -> str:
        """Where and what it is, for people; no secret in it."""
        ...

    def handle_of(self, name: str) -> str:
        """The handle of the table that is called `name` now; a SchemaError if there is none."""
        ...

    def describe_table(self, handle: str) -> TableDescription:
        """The table behind a handle; a SchemaError if it is gone, with the nearest names if there
        never was one."""
        ...

    def follow_tables(self, tables: Tables) -> int:
        """Capture these columns of these tables from now on; a position before which nothing
        that happens from now on can lie. What is gone is passed over."""
        ...

    def look_for_transactions(self, after: int) -> tuple[Boundary, ...]:
        """The transactions committed after a position, in commit order, LOOK_TRANSACTIONS at most,
        as far as a stream could be read in LOOK_SECONDS.

        A GapError if what was committed after it cannot be known any more.
        """
        ...

    def has_passed(self, position: int) -> bool:
        """Whether looks have reported everything up to a position that existed before the last."""
        ...

    def read_changes(self, tables: Tables, after: int, until: int) -> TableBatches:
        """The changes of these columns of these tables with `after` < position <= `until`."""
        ...

    def prepare_snapshots(self, after: int, tables: Tables) -> AbstractContextManager[Opener]:
        """A way to open snapshots in which these tables can be brought back to position `after`.

        It may be used until the context ends, by several tasks at once. Where connections can share
        a snapshot, all of them have one cut.
        """
        ...

    def acknowledge_position(self, position: int) -> None:
        """Nothing at or before this position will be asked for again."""
        ...

    def begin_hold(self, name: str, seconds: float) -> None:
        """Keep for some time what is kept now, for a reader beside the maintainer."""
        ...

    def end_hold(self, name: str) -> None:
        """End a hold; nothing happens if it has ended."""
        ...

    def read_health(self, positions: Iterable[int]) -> Health:
        """How it is now; SourceAwayError if it does not answer. Never waits long."""
        ...

    def diagnose_source(self, tables: Tables) -> list[Finding]:
        """Everything that `doctor` can find out, given what the views read."""
        ...

    def detach_source(self, force: bool = False) -> DetachResult:
        """Remove what we put into the database; what others use only by `force`."""
        ...

    def close(self) -> None: ...


def names_now_of(source: Source, handle: str) -> CurrentNames | None:
    """What the table behind a handle and its columns are called now; None if it is gone."""
    try:
        return source.describe_table(handle).names
    except SchemaError as error:
        if error.is_unreadable:
            raise
        return None
