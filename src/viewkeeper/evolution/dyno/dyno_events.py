"""What Dyno sees and does beyond the protocol of algorithms: schema changes, questions that break.

The words are those of `viewkeeper.maintain.algorithm_protocol`, with what a schema change adds to
them. A report carries the shapes that tables have after it; a question says which table each of its
lookups means, by identity; a reply says which table each answer was read from; a redefinition is
one atomic step with the commit that belongs to it.

What the interpreter promises: reports of a source come in its order, and a reply, broken or not, is
handed over only when everything that its cut includes has been reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from viewkeeper.evolution.adaptation import Adaptation
from viewkeeper.evolution.dyno.table_identity import BoundDefinition, DynoShape
from viewkeeper.maintain.algorithm_protocol import CommitAction
from viewkeeper.updates.source_protocol import Answer, Lookup


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """Signed rows of a table: its columns by identity, then rows with counts."""

    columns: tuple[int, ...]
    rows: tuple[tuple[tuple[Any, ...], int], ...]


@dataclass(frozen=True, slots=True)
class DynoReport:
    """A transaction of a source: schema changes, and row changes in the shapes after them.

    `shapes` are the tables that it reshaped as they are after it, by identity; None: dropped. What
    it created is among them, with rows that it does not list. `added` are columns that it added,
    NULL in all rows; all other new columns may have any values.
    """

    source: str
    position: int
    rows: Mapping[int, ChangedRows] = field(default_factory=dict)
    shapes: Mapping[int, DynoShape | None] = field(default_factory=dict)
    added: frozenset[tuple[int, int]] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class DynoReply:
    """The answers to a question, under one cut, and the table that each of them was read from."""

    number: int
    answers: tuple[Answer, ...]
    read: tuple[DynoShape, ...]


@dataclass(frozen=True, slots=True)
class BrokenQuestion:
    """A question that the source could not answer: a table or a column was not there."""

    number: int
    what: str


Event = DynoReport | DynoReply | BrokenQuestion


@dataclass(frozen=True, slots=True, eq=False)
class DynoQuestion:
    """Lookups to one source, answered in one state of it; `meant` has the table of each, by
    identity, for sources that can be asked by it."""

    number: int
    source: str
    lookups: tuple[Lookup, ...]
    meant: tuple[DynoShape, ...]


@dataclass(frozen=True, slots=True)
class DynoStamp:
    """Transactions, by source and position, get a ts; the state as of it stands for `positions`."""

    ts: int
    transactions: tuple[tuple[str, int], ...]
    positions: Mapping[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class DynoRedefinition:
    """One atomic step: the view is defined so from now on, its stored rows repaired as `adaptation`
    says, and then the commit's changes are made."""

    definition: BoundDefinition
    adaptation: Adaptation
    commit: CommitAction


@dataclass(frozen=True, slots=True)
class DynoStop:
    """The view cannot be maintained any further; it keeps its last state."""

    reason: str
    mends: tuple[str, ...]


Action = DynoQuestion | DynoStamp | CommitAction | DynoRedefinition | DynoStop
