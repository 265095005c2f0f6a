"""The shapes that followed tables had, step by step, from the last acknowledged position on.

The changes between shapes that follow each other are the schema changes that are reported, and they
decide what can still be asked (`viewkeeper.sources.tables.shape_changes`). A step is either in the
stream itself (a message has the whole shape) and comes again whenever the stream is read again, or
it was *inferred* with the help of the catalogue, which by then may say less. So the steps are
remembered with the state, and an inferred one is taken from there when its transaction comes again.

Two shapes of the catalogue do not say whether a column was rewritten, so that is decided here. A
column that was touched in a table that got another file may have been: `ALTER COLUMN ... TYPE ...
USING` leaves nothing else behind. Only the statement says more (`plain_columns`). If it is known to
be a plain cast, the types decide: some casts keep every value. Without it, a column that was not
rewritten has the values that it had, and one that may have been has not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pyarrow as pa

from viewkeeper.sources.handles import SourceHandles
from viewkeeper.sources.postgres.shape_query import (
    PostgresShape,
    PostgresShapeColumn,
    decode_shape,
    read_shapes,
)
from viewkeeper.sources.postgres.types import PgConnection, quote_name, read_row
from viewkeeper.sources.tables.column_type import ColumnRefusal
from viewkeeper.sources.tables.shape import ShapeColumn, TableShape
from viewkeeper.sources.tables.shape_changes import ShapeChange, list_shape_changes, report_changes
from viewkeeper.sources.tables.shape_history import ShapeHistory
from viewkeeper.storage.typed_json import read_typed
from viewkeeper.updates.schema_change import SchemaChange, name_of_handle

_INTEGERS = frozenset(("int2", "int4", "int8"))
# No cast makes a decimal of an oid, so it counts as longer than any.
_DIGITS = {"int2": 5, "int4": 10, "int8": 19, "oid": 39}
_WRITTEN_AS_TEXT = frozenset(("varchar", "text", "citext", "name", "uuid", "json", "jsonb"))
_END = 1 << 62


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


@dataclass(frozen=True, slots=True)
class ShapeStep:
    """A shape, from a position on, and what is known of how it came about."""

    position: int
    shape: PostgresShape
    cause: ShapeCause = field(default_factory=ShapeCause)
    inferred: bool = False


class PostgresShapeHistory:
    """The steps of every followed table, by its oid; the first is the shape to begin with."""

    def __init__(self, with_generated: bool, captures_added: bool = True) -> None:
        self._with_generated = with_generated
        self._captures_added = captures_added
        """Whether the values of a column are captured from when it was added, followed or not."""
        self._histories: dict[int, ShapeHistory[ShapeStep]] = {}
        self._inferred: dict[tuple[int, int], list[ShapeStep]] = {}

    def __contains__(self, oid: int) -> bool:
        return oid in self._histories

    def __iter__(self) -> Iterator[int]:
        return iter(self._histories)

    def begin_table(self, shape: PostgresShape) -> None:
        """Follow a table from this shape on."""
        self._histories[shape.oid] = _history_of([ShapeStep(0, shape)])

    def latest_shape(self, oid: int) -> PostgresShape:
        """The shape at the end of what is known."""
        return self._histories[oid].newest.shape

    def added_columns(self, oid: int) -> set[int]:
        """The columns that the table has by now and did not have to begin with."""
        first = self._histories[oid].steps[0][1].shape
        return self.latest_shape(oid).by_number.keys() - first.by_number.keys()

    def add_step(self, step: ShapeStep) -> bool:
        """Add what comes next; whether it is anything new."""
        oid = step.shape.oid
        if self.is_explained(step.shape):
            return False
        self._histories[oid] = self._histories[oid].add_step(step.position, step)
        return True

    def take_inferred(self, position: int, oid: int) -> ShapeStep | None:
        """The step that was inferred when the transaction at a position was read before."""
        steps = self._inferred.get((position, oid))
        return steps.pop(0) if steps else None

    def step_positions(self) -> set[int]:
        histories = self._histories.values()
        return {position for history in histories for position, _ in history.steps[1:]}

    def changes_at(self, position: int) -> list[tuple[int, ShapeChange]]:
        """What happened in the transaction at a position: table and change, in order."""
        return [
            (oid, change)
            for oid, history in self._histories.items()
            for _, before, step in history.pairs_between(position - 1, position)
            for change in self.changes_between(before.shape, step)
        ]

    def changes_between(self, before: PostgresShape, step: ShapeStep) -> Iterator[ShapeChange]:
        old = _table_shape(before, self._with_generated)
        new = _observed_shape(before, step.shape, step.cause, self._with_generated)
        for each in list_shape_changes(old, new):
            is_lost = each.kind == "add_column" and not self._captures_added
            yield replace(each, kind="add_filled_column") if is_lost else each

    def find_ending(self, oid: int, columns: Collection[str], after: int) -> ShapeChange | None:
        """A change after a position that ends what can be asked of these columns before it."""
        for _, before, step in self._histories[oid].pairs_between(after, _END):
            for change in self.changes_between(before.shape, step):
                if change.is_ending(columns):
                    return change
        return ShapeChange("drop_table") if self.latest_shape(oid).gone else None

    def is_explained(self, shape: PostgresShape) -> bool:
        """Whether a shape is the one at the end of what is known."""
        return self.latest_shape(shape.oid) == shape

    def fold_until(self, position: int) -> None:
        """Forget the steps up to a position; the last of them is what to begin with."""
        for oid, history in self._histories.items():
            self._histories[oid] = history.fold_until(position)
        for key in [key for key in self._inferred if key[0] <= position]:
            del self._inferred[key]

    def rewind_to(self, position: int) -> None:
        """Forget the steps after a position, which is read again; inferred ones are put aside."""
        self._inferred = {}
        for oid, history in self._histories.items():
            first, *later = (step for _, step in history.steps)
            for step in later:
                if step.position > position and step.inferred:
                    self._inferred.setdefault((step.position, oid), []).append(step)
            kept = [step for step in later if step.position <= position]
            self._histories[oid] = _history_of([first, *kept])

    def encode_steps(self) -> list[list[dict[str, Any]]]:
        return [[asdict(step) for _, step in history.steps] for history in self._histories.values()]

    def restore_steps(self, stored: Collection[Collection[Mapping[str, Any]]]) -> None:
        """Take over what was stored."""
        for each in stored:
            steps = [read_typed(ShapeStep, step, {PostgresShape: decode_shape}) for step in each]
            self._histories[steps[0].shape.oid] = _history_of(steps)

    def clear_steps(self) -> None:
        self._histories, self._inferred = {}, {}


def _history_of(steps: Iterable[ShapeStep]) -> ShapeHistory[ShapeStep]:
    return ShapeHistory(tuple((step.position, step) for step in steps))


def _table_shape(shape: PostgresShape, with_generated: bool) -> TableShape:
    """A shape in the terms that all kinds share; a column is its number."""
    return TableShape(
        str(shape.oid),
        f"{shape.schema}.{shape.name}",
        tuple(_shape_column(column) for column in shape.columns),
        tuple(str(number) for number in shape.usable_key(with_generated)),
        ("replaced" if shape.again else "dropped") if shape.gone else "",
    )


def _shape_column(column: PostgresShapeColumn) -> ShapeColumn:
    number, digits = str(column.number), _DIGITS.get(column.base)
    arrow = _arrow_type(column)
    return ShapeColumn(number, number, column.name, arrow, column.declared, digits=digits)


def _observed_shape(
    before: PostgresShape, after: PostgresShape, cause: ShapeCause, with_generated: bool
) -> TableShape:
    """The shape after a step, with the columns that were filled or rewritten by it."""
    has_moved = cause.moved or before.file != after.file
    known, columns = before.by_number, []
    for column in after.columns:
        filled = column.filled or column.generated or has_moved
        old = known.get(column.number)
        rewritten = old is not None and _is_rewritten(old, column, cause, has_moved)
        columns.append(replace(_shape_column(column), filled=filled, rewrites=int(rewritten)))
    return replace(_table_shape(after, with_generated), columns=tuple(columns))


def _is_rewritten(
    before: PostgresShapeColumn, after: PostgresShapeColumn, cause: ShapeCause, has_moved: bool
) -> bool:
    """Whether a column may have other values than it had, or than a cast to a wider type gives."""
    if not (before.sure and after.sure) or _has_renamed_labels(before, after):
        return True
    is_retyped = (before.type, before.modifier) != (after.type, after.modifier)
    is_touched = not before.stamp or before.stamp != after.stamp
    is_harmless = after.number in cause.plain or (cause.watched and not is_retyped)
    if is_touched and has_moved and not is_harmless:
        return True
    is_cast = is_retyped and has_moved and _arrow_type(before) == _arrow_type(after)
    return is_cast and not _is_lossless_cast(before, after)


def _has_renamed_labels(before: PostgresShapeColumn, after: PostgresShapeColumn) -> bool:
    """Whether a value of an enum is called otherwise; new values change none that are there."""
    are_known = before.type == after.type and bool(after.labels)
    return are_known and not {*before.labels} <= {*after.labels}


def _arrow_type(column: PostgresShapeColumn) -> pa.DataType | None:
    return None if isinstance(column.kind, ColumnRefusal) else column.kind.arrow


def _is_lossless_cast(before: PostgresShapeColumn, after: PostgresShapeColumn) -> bool:
    """Whether a cast to a type of the same Arrow type has every value exactly."""
    if before.base in _INTEGERS and after.base in _INTEGERS:
        return True
    longer = after.base_modifier < 0 or 0 <= before.base_modifier <= after.base_modifier
    if before.base == after.base:
        same = before.base_modifier == after.base_modifier
        return same or (longer and before.base in ("varchar", "timestamp", "timestamptz"))
    if (before.is_enum and "[]" not in before.base) or before.base in _WRITTEN_AS_TEXT:
        return after.base in ("text", "citext") or (
            after.base == "varchar" and after.base_modifier < 0
        )
    return False


def schema_changes_of(
    handles: SourceHandles, changes: Iterable[tuple[int, ShapeChange]], path: Collection[str]
) -> tuple[SchemaChange, ...]:
    """The schema changes of one transaction, once for each handle that they concern.

    `path` has the schemas whose tables are called by their name alone.
    """
    reported = [
        each
        for oid, change in changes
        for handle, named in handles.handles_of(str(oid)).items()
        for each in report_changes(handle, named, [_renamed_within(change, handle, path)])
    ]
    again = {each.table for each in reported if each.kind == "recreate_table"}
    return tuple(each for each in reported if each.kind != "drop_table" or each.table not in again)


def _renamed_within(change: ShapeChange, handle: str, path: Collection[str]) -> ShapeChange:
    """The change, with the new name of a table as those who use this handle would write it."""
    schema, _, name = change.now.partition(".")
    is_plain = schema in path and "." not in f"{name}{name_of_handle(handle)}"
    return replace(change, now=name) if change.kind == "rename_table" and is_plain else change


def unexplained_shapes(
    connection: PgConnection, history: PostgresShapeHistory
) -> dict[int, PostgresShape]:
    """The shapes that the catalogue has and the history does not, by the tables' oids.

    A table that is gone stays gone; what may still happen is that another one takes its name.
    """
    living = read_shapes(connection, tuple(history))
    shapes = {oid: shape for oid, shape in living.items() if not history.is_explained(shape)}
    for oid in set(history) - living.keys():
        shape = _dropped_shape(connection, history.latest_shape(oid))
        if not history.is_explained(shape):
            shapes[oid] = shape
    return shapes


def _dropped_shape(connection: PgConnection, last: PostgresShape) -> PostgresShape:
    """The shape of a table that is not there any more."""
    name = f"{quote_name(last.schema)}.{quote_name(last.name)}"
    (is_taken,) = read_row(connection, "SELECT to_regclass(%s) IS NOT NULL", (name,))
    return last.as_dropped(again=last.again or is_taken)
