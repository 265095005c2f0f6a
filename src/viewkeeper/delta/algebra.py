"""Signed rows and what can be done with them.

A *delta* is a bag of rows in which a row may occur a positive or a negative number of times: the
columns, plus a non-zero integer count. Deltas with addition are a commutative group, and the join
is bilinear; incremental maintenance is nothing but these laws:

    (a + b) join c  =  a join c  +  b join c          -(a join c)  =  (-a) join c
    where(a + b)    =  where(a) + where(b)            project(a + b)  =  project(a) + project(b)

A row that meets a keyed place is extended by F, a function of the rows that match it: for a left
place these rows, or one of NULLs. That is linear in the rows that meet, though not in those met.

`Algebra` is the list of operations that a view change needs, and no more. There are two carriers:
`viewkeeper.delta.reference_carrier`, Python dictionaries, short enough to be believed at sight, and
`viewkeeper.delta.kernel`, Arrow tables. Everything above is written once over this protocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeVar

import pyarrow as pa

from viewkeeper.view.definition import Output
from viewkeeper.view.expression import Expression
from viewkeeper.view.join_tree import JoinKey, KeyedMatch

COUNT = "_count"
TS = "_ts"
POSITION = "_position"

LAST_TS = 2**63 - 1
"""The ts of everything after the batch: later than everything in it."""

D = TypeVar("D")


class Side(Enum):
    """Which changes of the looked-up relation meet a partial row, by their ts."""

    LATER = "later"
    EARLIER = "earlier"
    SAME = "same"


@dataclass(frozen=True, slots=True)
class TsCondition:
    """A condition on the ts of both sides of a join; `tie` says whether an equal ts counts, which
    on the side `SAME` alone does."""

    side: Side
    tie: bool

    def is_met(self, ours: int, theirs: int) -> bool:
        """Whether a change with ts `theirs` meets a partial row with ts `ours`."""
        if ours == theirs or self.side is Side.SAME:
            return self.tie and ours == theirs
        return theirs > ours if self.side is Side.LATER else theirs < ours


Term = tuple[D, TsCondition | None]
"""Labelled rows of a relation, and which of them by their ts meet a partial row."""


class Algebra(Protocol[D]):
    """The operations on deltas that a view change needs."""

    def lift_table(self, table: pa.Table) -> D:
        """Rows of an Arrow table as a delta; without a `_count` column each counts 1."""
        ...

    def lower_delta(self, delta: D) -> pa.Table:
        """The delta as an Arrow table; the opposite of lift."""
        ...

    def is_empty(self, delta: D) -> bool: ...

    def row_count(self, delta: D) -> int:
        """How many rows the delta takes, consolidated or not."""
        ...

    def add(self, deltas: Sequence[D]) -> D:
        """The sum; all have the same columns, and there is at least one."""
        ...

    def negate(self, delta: D) -> D: ...

    def label_columns(self, delta: D, place: int, columns: Sequence[str]) -> D:
        """Keep `columns`, renamed `place.column`, and the ts where there is one."""
        ...

    def select_columns(self, delta: D, columns: Sequence[str]) -> D:
        """The same rows with these columns, in this order; counts are not summed."""
        ...

    def distinct_keys(self, partials: Sequence[D], on: Sequence[JoinKey]) -> pa.Table:
        """The distinct keys of partial rows, named as the looked-up relation names them.

        A key with a NULL in a column that is not null-safe can match nothing and is left out.
        """
        ...

    def join(self, partial: D, rows: D, on: Sequence[JoinKey], when: TsCondition | None) -> D:
        """Partial rows extended by labelled rows of one more relation; counts multiply.

        With `when`, both sides carry a ts and only pairs for which it holds are kept. The ts of the
        result is the partial row's.
        """
        ...

    def join_keyed(self, partial: D, terms: Iterable[Term[D]], keyed: KeyedMatch) -> D:
        """Partial rows extended by what a keyed place shows for them.

        The sum of the terms that meet a partial row is the place's bag of rows for its key; they
        are taken one by one, and held only where the place shows its rows. Of them
        those match for which all conditions of ON are true. A partial row with a NULL in a key
        column that is not null-safe matches nothing.
        """
        ...

    def take_distinct(self, delta: D, columns: Sequence[str]) -> D:
        """Every combination of values of these columns that occurs, counted once."""
        ...

    def where(self, delta: D, conditions: Sequence[Expression]) -> D:
        """The rows for which every condition is true (not NULL)."""
        ...

    def project(self, delta: D, outputs: Sequence[Output]) -> D:
        """The outputs and the ts, not yet consolidated."""
        ...

    def consolidate(self, delta: D) -> D:
        """Counts summed per row (and ts), zeros dropped."""
        ...
