"""A history: what the sources committed, in order, and the states that the warehouse showed.

That is all that consistency is about; how the states came to be does not matter. Positions are
counted per source from 1, so that a *vector* (how many transactions of each source) names a source
state; 0 is the initial one. A global transaction has a part at several sources. A state may claim
the vector that it stands for; a claim makes checking quick, it is never believed.

The parts of a global transaction need not be committed at one moment: those that were committed
apart are listed apart, under the same name. So two sources can have two global transactions in
opposite orders.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from viewkeeper.view.definition import Field, Relation, ViewDefinition

Row = tuple[Any, ...]
Bag = Mapping[Row, int]
"""Rows with positive counts."""

Vector = Mapping[str, int]
"""Per source, how many of its transactions."""


@dataclass(frozen=True, slots=True)
class CommittedTransaction:
    """A source transaction: per source (several if it is global), signed rows per relation.

    Its name is its own; what has the same name is another part of the same global transaction.
    """

    name: str
    parts: Mapping[str, Mapping[Relation, tuple[tuple[Row, int], ...]]]


@dataclass(frozen=True, slots=True)
class ShownState:
    """What a reader saw of the view from some moment on.

    `quiet`: nothing was under way then, everything committed had been delivered and maintained.
    """

    rows: Bag
    claim: Vector | None = None
    quiet: bool = False
    label: str = ""


@dataclass(frozen=True, slots=True)
class RecordedHistory:
    """A run as a checker sees it; `states` begins with the initial one.

    `tables` has every column of every relation, `initial` its rows before the first transaction;
    `transactions` are in the order in which they were committed, over all sources.
    """

    view: ViewDefinition
    tables: Mapping[Relation, tuple[Field, ...]]
    initial: Mapping[Relation, Bag]
    transactions: tuple[CommittedTransaction, ...]
    states: tuple[ShownState, ...]

    @property
    def sources(self) -> tuple[str, ...]:
        """The view's sources, then all others that have transactions."""
        others = (source for transaction in self.transactions for source in transaction.parts)
        return tuple(dict.fromkeys((*self.view.sources, *others)))
