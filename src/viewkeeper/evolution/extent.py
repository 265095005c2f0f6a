"""How the rows of a rewritten view relate to those of the view before: the extent.

A rewriting shows some of the columns that the view showed before. On those columns it has the same
rows (equal), rows that the view had (subset), all rows that it had (superset), or neither is known
(any); this is the view extent parameter of EVE's E-SQL. Equal is with counts; subset and superset
speak of which rows there are, not of how often: a relation that is left out of a join restricts
no more, and repeats no more either.

A substitute has an extent too: how it relates to what it stands in for. Views are built of select,
project and join, which are monotone, so what holds of a part holds of the view.
"""

from __future__ import annotations

from enum import Enum


class Extent(Enum):
    """What is known of the rows after, beside those before."""

    EQUAL = "equal"
    SUBSET = "subset"
    SUPERSET = "superset"
    ANY = "any"

    def followed_by(self, other: Extent) -> Extent:
        """One step after the other.

        >>> Extent.SUBSET.followed_by(Extent.EQUAL), Extent.SUBSET.followed_by(Extent.SUPERSET)
        (<Extent.SUBSET: 'subset'>, <Extent.ANY: 'any'>)
        """
        if self is Extent.EQUAL or self is other:
            return other
        return self if other is Extent.EQUAL else Extent.ANY

    def can_accept(self, other: Extent) -> bool:
        """Whether a view that wants this extent may get the other.

        Steps that are allowed one by one are allowed together, because nothing that is allowed
        leads out of it:

        >>> kinds = list(Extent)
        >>> all(
        ...     (wanted.can_accept(one) and wanted.can_accept(other))
        ...     == wanted.can_accept(one.followed_by(other))
        ...     for wanted in kinds for one in kinds for other in kinds
        ... )
        True
        """
        return self is Extent.ANY or other in (self, Extent.EQUAL)
