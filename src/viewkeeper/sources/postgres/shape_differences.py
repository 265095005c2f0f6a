"""What happened between two shapes of a table, and whether values were kept.

A column that was touched in a table that got another file may have been rewritten: `ALTER COLUMN
... TYPE ... USING` leaves nothing else behind. Only the statement says more (`plain_columns`). If
it is known to be a plain cast, the types decide: some casts keep every value. Without it, a column
that was not rewritten has the values that it had, and one that may have been has not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import pyarrow as pa

from viewkeeper.sources.postgres.shape_query import PostgresShape, PostgresShapeColumn
from viewkeeper.sources.postgres.types import PostgresRefusal
from viewkeeper.updates.schema_change import ChangeKind

_DIGITS = {"int2": 5, "int4": 10, "int8": 19}
_WRITTEN_AS_TEXT = frozenset(("varchar", "text", "citext", "name", "uuid", "json", "jsonb"))
_ENDING: frozenset[ChangeKind] = frozenset(
    ("add_filled_column", "drop_column", "change_type", "rewrite", "drop_table", "recreate_table")
)


@dataclass(frozen=True, slots=True)
class ShapeDifference:
    """One change of a table, or of the column with a number."""

    kind: ChangeKind
    number: int = 0
    now: str = ""

    def is_ending(self, numbers: Collection[int]) -> bool:
        """Whether nothing from before it can be asked for, given the columns that are asked for."""
        return self.kind in _ENDING and (not self.number or self.number in numbers)


@dataclass(frozen=True, slots=True)
class ShapeCause:
    """What is known of how a shape came about.

    `plain` are the columns that the statement gave no new values, at most a cast. `watched` says
    that any statement would have been reported. `moved` says that the file may have changed,
    although the shape still has the old one.
    """

    plain: tuple[int, ...] = ()
    watched: bool = False
    moved: bool = False


def list_differences(
    before: PostgresShape, after: PostgresShape, cause: ShapeCause, with_generated: bool
) -> Iterator[ShapeDifference]:
    """Everything that somebody who follows the table may have to know, in a fixed order."""
    if after.gone:
        if (before.gone, before.again) != (after.gone, after.again):
            yield ShapeDifference("recreate_table" if after.again else "drop_table")
        return
    moved = cause.moved or before.file != after.file
    if (before.schema, before.name) != (after.schema, after.name):
        yield ShapeDifference("rename_table", 0, f"{after.schema}.{after.name}")
    now = after.by_number
    for column in before.columns:
        if column.number not in now:
            yield ShapeDifference("drop_column", column.number)
        else:
            yield from _column_differences(column, now[column.number], cause, moved)
    for column in after.columns:
        if column.number not in before.by_number:
            filled = column.filled or column.generated or moved
            yield ShapeDifference(
                "add_filled_column" if filled else "add_column", column.number, column.name
            )
    if before.usable_key(with_generated) != after.usable_key(with_generated):
        names = (now[number].name for number in after.usable_key(with_generated))
        yield ShapeDifference("change_key", 0, ", ".join(names))


def _column_differences(
    before: PostgresShapeColumn, after: PostgresShapeColumn, cause: ShapeCause, moved: bool
) -> Iterator[ShapeDifference]:
    if before.name != after.name:
        yield ShapeDifference("rename_column", after.number, after.name)
    is_plain = after.number in cause.plain
    retyped = (before.type, before.modifier) != (after.type, after.modifier)
    touched = not before.stamp or before.stamp != after.stamp
    rewritten = touched and moved and not (is_plain or (cause.watched and not retyped))
    if not (before.sure and after.sure):
        rewritten = True
    if _arrow_type(before) != _arrow_type(after):
        widened = not rewritten and is_widening_cast(before, after)
        yield ShapeDifference(
            "widen_type" if widened else "change_type", after.number, after.declared
        )
    elif rewritten or (retyped and moved and not is_lossless_cast(before, after)):
        yield ShapeDifference("rewrite", after.number)


def _arrow_type(column: PostgresShapeColumn) -> pa.DataType | None:
    return None if isinstance(column.kind, PostgresRefusal) else column.kind.arrow


def is_widening_cast(before: PostgresShapeColumn, after: PostgresShapeColumn) -> bool:
    """Whether a cast to a type that is kept otherwise has every value exactly."""
    old, new = _arrow_type(before), _arrow_type(after)
    if before.base == "float4":
        return after.base == "float8"
    if new is None or not pa.types.is_decimal(new):
        return False
    if before.base in _DIGITS:
        return bool(new.precision - new.scale >= _DIGITS[before.base])
    if old is None or not pa.types.is_decimal(old):
        return False
    room = new.precision - new.scale >= old.precision - old.scale
    return bool(room and new.scale >= old.scale)


def is_lossless_cast(before: PostgresShapeColumn, after: PostgresShapeColumn) -> bool:
    """Whether a cast to a type that is kept likewise has every value exactly."""
    if before.base in _DIGITS and after.base in _DIGITS:
        return True
    longer = after.base_modifier < 0 or 0 <= before.base_modifier <= after.base_modifier
    if before.base == after.base:
        same = before.base_modifier == after.base_modifier
        return same or (longer and before.base in ("varchar", "timestamp", "timestamptz"))
    if before.is_enum or before.base in _WRITTEN_AS_TEXT:
        return after.base in ("text", "citext") or (
            after.base == "varchar" and after.base_modifier < 0
        )
    return False
