"""What the parts say to each other about sources: positions, lookups, answers, and the protocols.

A *position* is an integer that orders the transactions of one source. A *change batch* is an Arrow
record batch of signed rows of one relation: the asked columns, then `_count` (+1 or -1, int64) and
`_position` (int64, the position of the transaction that made the change).

An *answer knows what it contains*: it carries the cut under which its rows were read, and the tail,
every change of the relation after the batch that the cut includes. With that, compensation is a
formula (`viewkeeper.maintain.compensation`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from viewkeeper.delta.algebra import COUNT, POSITION, TS
from viewkeeper.updates.cut import Cut
from viewkeeper.view.definition import Field, Relation

__all__ = [
    "COUNT",
    "POSITION",
    "TS",
    "Answer",
    "Boundary",
    "Health",
    "Lookup",
    "Scan",
    "Snapshot",
    "Source",
]


@dataclass(frozen=True, slots=True)
class Boundary:
    """Where a reported transaction ends: its position, when it was committed, its number of
    changes.

    `committed_at` is in seconds since the epoch. A source without transaction ids reports what it
    committed between two looks as one transaction.
    """

    position: int
    committed_at: float
    changes: int


@dataclass(frozen=True, slots=True)
class Lookup:
    """Rows of a relation whose `on` columns are among `keys`; all rows where `on` is empty.

    `keys` is a table with the columns of `on`, distinct; a column that is null-safe may hold NULL,
    which then asks for rows whose column is NULL. The answer may hold more rows than asked for (the
    asker joins and filters again), never fewer.
    """

    place: int
    relation: Relation
    columns: tuple[str, ...]
    on: tuple[str, ...]
    null_safe: tuple[bool, ...]
    keys: pa.Table | None


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows that a lookup found, what they contain, and every change after `after` in them.

    `rows` has the lookup's columns and no `_count`: a row that occurs twice is there twice. `tail`
    is a change table: the lookup's columns, `_count`, `_position`. It holds what the cut includes
    after the position `after`; up to there, the asker knows the changes itself.
    """

    rows: pa.Table
    cut: Cut
    after: int
    tail: pa.Table


@dataclass(frozen=True, slots=True)
class Scan:
    """All rows of a relation, in pieces, and the changes after a position that are in them.

    Rows minus tail is the relation as of that position. The tail is read when the rows are through,
    under the same cut.
    """

    cut: Cut
    batches: Iterator[pa.RecordBatch]
    tail: Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class Health:
    """What `status` says of a source: whether it answers, and how much it keeps for us."""

    reachable: bool
    position: int | None
    retained_changes: int | None
    message: str | None = None


class Snapshot(Protocol):
    """A reader of one source, used by one task; cheap to open, closed when the part is done."""

    def ask(self, lookup: Lookup, after: int) -> Answer:
        """Answer a lookup; the tail holds the relation's changes after position `after`."""
        ...

    def scan(self, relation: Relation, columns: Sequence[str], after: int) -> Scan:
        """Every row; the tail holds the relation's changes after position `after`."""
        ...

    def close(self) -> None: ...


class Source(Protocol):
    """One autonomous database."""

    name: str

    def schema(self, table: str) -> tuple[Field, ...]:
        """The columns of a table; a SchemaError with the nearest names if there is none."""
        ...

    def key(self, table: str) -> tuple[str, ...]:
        """The columns of a key that the database enforces and that cannot be NULL; () if none."""
        ...

    def follow(self, tables: Mapping[str, Sequence[str]]) -> int:
        """Capture these columns of these tables from now on; a position before which nothing
        that happens from now on can lie."""
        ...

    def look(self, after: int) -> tuple[Boundary, ...]:
        """The transactions committed after a position, in commit order; usually none or one."""
        ...

    def changes(
        self, tables: Mapping[str, Sequence[str]], after: int, until: int
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The changes of these columns of these tables with `after` < position <= `until`."""
        ...

    def snapshot(self) -> Snapshot: ...

    def acknowledge(self, position: int) -> None:
        """Nothing at or before this position will be asked for again."""
        ...

    def health(self) -> Health: ...

    def close(self) -> None: ...
