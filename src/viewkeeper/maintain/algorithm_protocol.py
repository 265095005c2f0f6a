"""What an algorithm sees and what it does: events in, actions out.

An algorithm is a state machine. `receive_event` takes one event and returns the actions that follow
from it, in order. It does no I/O, reads no clock and starts no thread: `viewkeeper.engine`
interprets the actions against real databases, `viewkeeper.simulate` against a seeded world in which
every delivery order can be tried. The same code runs in both.

What the interpreter promises:
1. Every transaction of a source is delivered once and in the source's order, unless a global
   transaction is reported by one of its sources for all of them (then `after` shows the gap).
2. Every ask is answered once. An algorithm that reads arrival order (`AlgorithmKind.arrival`) gets
   an answer only when its cut is exactly what was delivered; the others get it at once with its
   tail, or without one when its source's stream has passed its cut.
3. Actions are carried out in order; a `StampAction` and a `CommitAction` are durable before the
   next action.
4. After a crash a new machine begins from a `ResumePoint`; everything not acknowledged comes again.

What an algorithm promises: a consistency level for each way in which sources make transactions.

The scenarios are those of the Strobe paper (Zhuge, Garcia-Molina, Wiener 1996, section 3.1); the
levels its section 4.2. What the levels mean, as predicates that can be decided on a run, is in
`viewkeeper.check.levels`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Protocol

import pyarrow as pa

from viewkeeper.updates.source_protocol import Answer, Lookup
from viewkeeper.updates.transaction import Transaction
from viewkeeper.updates.view_actions import ViewAction


@dataclass(frozen=True, slots=True)
class Delivered:
    """A report: one transaction, or all parts of a global one that one source reports for all."""

    transactions: tuple[Transaction, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Answered:
    """The answers to an ask, one for each of its lookups, all under one cut."""

    number: int
    answers: tuple[Answer, ...]


Event = Delivered | Answered


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """A product in which some places are given rows instead of their relations; `sign` is +-1.

    `bound` maps a place to signed rows: the place's columns and `_count`.
    """

    sign: int
    bound: Mapping[int, pa.Table]


@dataclass(frozen=True, slots=True, eq=False)
class AskAction:
    """A question to one source, answered in one state of it.

    Either lookups, which do not depend on each other, or the sum of `terms`, which a source that
    has all relations evaluates by itself (ECA): its one answer has the joined columns `place.name`
    and `_count`. `after` is the position up to which the asker knows the source's changes.
    """

    number: int
    source: str
    after: int
    lookups: tuple[Lookup, ...] = ()
    terms: tuple[Term, ...] = ()


@dataclass(frozen=True, slots=True)
class StampAction:
    """Transactions get a ts, for good: named by source and position."""

    ts: int
    transactions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class CommitAction:
    """One atomic step of the view: changes in order, and what the new state stands for.

    Everything up to `ts` is in the state, and with it all transactions of every source up to
    `positions`. `ahead` are ts above it that are in the state too: commits out of order (PVM).
    """

    ts: int
    positions: Mapping[str, int]
    changes: tuple[ViewAction, ...]
    ahead: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class AcknowledgeAction:
    """Nothing of a source at or before this position need be delivered again."""

    source: str
    position: int


Action = AskAction | StampAction | CommitAction | AcknowledgeAction


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """Where a machine begins: what is durable of the view and of its ts.

    `stamps` are those above `ts`; of them `ahead` are in the view already. `again` are transactions
    at or before `positions` that were not acknowledged: they serve for compensation only. What
    comes after `positions` is delivered like anything else.
    """

    ts: int
    positions: Mapping[str, int]
    stamps: tuple[StampAction, ...] = ()
    ahead: frozenset[int] = field(default_factory=frozenset)
    again: tuple[Transaction, ...] = ()


class Algorithm(Protocol):
    """A maintenance algorithm at work on one view."""

    def receive_event(self, event: Event) -> list[Action]:
        """What follows from an event."""
        ...

    @property
    def is_idle(self) -> bool:
        """Whether everything delivered is committed and nothing is asked."""
        ...


class TransactionKind(Enum):
    """How many updates a transaction has, and at how many sources."""

    SINGLE = "single"
    LOCAL = "local"
    GLOBAL = "global"


class Level(IntEnum):
    """Each level subsumes those below it."""

    NONE = 0
    CONVERGENCE = 1
    WEAK = 2
    STRONG = 3
    COMPLETE = 4

    @property
    def lower_name(self) -> str:
        return self.name.lower()
