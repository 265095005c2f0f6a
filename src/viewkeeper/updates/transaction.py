"""A transaction as a source reports it: its place in the source's order, and its signed rows.

`after` is the position of the transaction before it at the same source, so that a gap shows: a
report that overtook another is noticed, whatever way the two came. A *global* transaction committed
at several sources; each of them reports its own part, and every part names the whole and the number
of parts, which is all that a warehouse needs to put them together (Strobe, section 5.4).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from viewkeeper.view.definition import Relation


@dataclass(frozen=True, slots=True)
class GlobalTransaction:
    """The global transaction that a part belongs to, and of how many parts it consists."""

    name: str
    parts: int


@dataclass(frozen=True, slots=True, eq=False)
class Transaction:
    """What one source committed as a unit, or its part of a global transaction.

    `changes` has a table per relation in commit order: the columns that the view reads, `_count`
    (+1 or -1) and `_position`. `settled` says that every cut opened from now on includes it; where
    a commit can be reported before it is visible (PostgreSQL), it is not.
    """

    source: str
    after: int
    position: int
    changes: Mapping[Relation, pa.Table]
    whole: GlobalTransaction | None = None
    settled: bool = True
