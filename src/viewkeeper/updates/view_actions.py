"""What algorithms do to a view: the four actions, for machines and warehouses alike.

Signed rows are added as they are. The other three depend on what is stored when they are carried
out, in order: they delete by key, insert what is not there yet, or replace everything.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True, eq=False)
class AddRows:
    """Signed rows: the view's columns, `_ts` and `_count`; counts add up and may be negative."""

    rows: pa.Table


@dataclass(frozen=True, slots=True, eq=False)
class DeleteKeys:
    """Delete the stored rows whose `columns` have values among `keys`, a table of these columns."""

    columns: tuple[str, ...]
    keys: pa.Table


@dataclass(frozen=True, slots=True, eq=False)
class InsertMissing:
    """Insert, once each, those of these rows (the view's columns) that are not stored yet."""

    rows: pa.Table


@dataclass(frozen=True, slots=True, eq=False)
class ReplaceRows:
    """The view becomes exactly these rows (the view's columns and `_count`)."""

    rows: pa.Table


StoredAction = DeleteKeys | InsertMissing | ReplaceRows
"""Actions that must be evaluated against what is stored."""
ViewAction = AddRows | StoredAction
