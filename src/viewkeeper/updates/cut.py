"""Cuts: which transactions of a source a snapshot or an answer contains.

For most databases a cut is one position. For PostgreSQL a commit can be decoded before it is
visible, so the visible set is a prefix *with holes*. Both are this one value: everything up to
`position`, except `missing`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True, slots=True)
class Cut:
    """Says of every transaction of one source whether it is contained.

    >>> [Cut(7, missing=frozenset({5})).includes(position) for position in (4, 5, 7, 8)]
    [True, False, True, False]
    """

    position: int
    missing: frozenset[int] = frozenset()

    def includes(self, position: int) -> bool:
        return position <= self.position and position not in self.missing

    def inclusion_mask(self, positions: Any) -> Any:
        """`includes`, for an Arrow array of positions."""
        inside = pc.less_equal(positions, pa.scalar(self.position, pa.int64()))
        if not self.missing:
            return inside
        holes = pa.array(sorted(self.missing), pa.int64())
        return pc.and_(inside, pc.invert(pc.is_in(positions, value_set=holes)))
