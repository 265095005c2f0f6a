"""The shape of a table at one moment: what it is called, its columns by identity, its key.

A column has two coordinates. Its *place* is what the database tells it from others by: a number, or
a name in files. Its *identity* is one life at that place: where a database has lasting numbers, the
place and the identity are the same; where it has names only, another column may come to the same
place later, and the identity says since when (`shape_history`). A column that cannot be kept has no
type, and where lives are counted it has no identity either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

TableFate = Literal["", "dropped", "replaced"]

REFUSED_TYPE = "one that cannot be kept"
"""What a change of type says of a type that is refused."""


@dataclass(frozen=True, slots=True)
class ShapeColumn:
    """A column of a shape.

    `declared` is its type as the database spells it. `filled` says that rows from before it was
    added have a value in it that no change lists. `rewrites` counts how often its values became
    others without being listed. `digits` are those that an integer has at most, if it is known.
    """

    place: str
    identity: str
    name: str
    type: pa.DataType | None
    declared: str
    filled: bool = False
    rewrites: int = 0
    digits: int | None = None


@dataclass(frozen=True, slots=True)
class TableShape:
    """A table; `key` has the places of the columns of its key.

    One that is not there any more was dropped, or replaced by another table of its name. Places
    that are `lost` had no column for a time since the shape before, whatever is there now.
    """

    identity: str
    name: str
    columns: tuple[ShapeColumn, ...]
    key: tuple[str, ...] = ()
    fate: TableFate = ""
    lost: frozenset[str] = frozenset()

    def column_by_identity(self, identity: str) -> ShapeColumn | None:
        return next((column for column in self.columns if column.identity == identity), None)

    def column_at(self, place: str) -> ShapeColumn | None:
        return next((column for column in self.columns if column.place == place), None)

    def identities_by_name(self) -> dict[str, str]:
        """The identities of the columns that have one, by the names of this shape."""
        return {column.name: column.identity for column in self.columns if column.identity}
