"""A table of a query that is compiled: what the compiler must know of it.

Whether a column can be NULL is taken from the field of the schema. A set of columns is unique only
if the source enforces it: changes of such a table are maintained without asking for the row before.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from viewkeeper.view.definition import Relation


@dataclass(frozen=True, slots=True)
class QueryTable:
    """A relation, its columns, and sets of them that are unique."""

    relation: Relation
    schema: pa.Schema
    unique: frozenset[tuple[str, ...]] = frozenset()
