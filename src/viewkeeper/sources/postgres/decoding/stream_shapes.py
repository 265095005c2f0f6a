"""The shapes of followed tables at the place of the stream that is being read.

They come from messages in the stream (`ddl_watch`), or are inferred from its Relation messages.
Either way they become steps of the history, which is written down before anything is reported of
it. Where event triggers watch, the messages say everything. Where they do not, a Relation message
is checked against the catalogue, once: when the stream is read again, the steps are believed.

A Relation message comes before the first row of a table and again after its shape has changed. It
names the columns in the order of their numbers, without the numbers. Which columns they are follows
from the shape that was known before and the one that the catalogue has by now:

- a column whose entry was not touched between the two has been called the same all the time;
- one that is in both has been there all the time, so it is among those named;
- of those that came and stayed, the message has the first so many.

A message that names the known columns is no proof that nothing happened: a column may have been
dropped and another one have got its name.

Where that leaves two ways to read a message, columns are not *sure*: their values in the rows that
follow are not used, and for views that read them they count as rewritten.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from viewkeeper.sources.postgres.answers.snapshot import read_visible, wait_for_visibility
from viewkeeper.sources.postgres.decoding.ddl_watch import plain_columns
from viewkeeper.sources.postgres.decoding.pgoutput import RelationColumn
from viewkeeper.sources.postgres.decoding.slot import read_steps, write_steps
from viewkeeper.sources.postgres.postgres_server import PostgresServer
from viewkeeper.sources.postgres.shape_query import (
    PostgresShape,
    PostgresShapeColumn,
    decode_shape,
    is_sound,
    read_shapes,
    shape_of,
)
from viewkeeper.sources.postgres.shape_steps import PostgresShapeHistory, ShapeCause, ShapeStep
from viewkeeper.sources.postgres.types import PgConnection
from viewkeeper.sources.state_files import StateFiles

_MALFORMED = (ValueError, TypeError, ArithmeticError, LookupError, AttributeError, RecursionError)


class StreamShapes:
    """The history of one stream; used under its source's lock."""

    def __init__(self, server: PostgresServer, files: StateFiles) -> None:
        self._server = server
        self._files = files
        self._control: PgConnection | None = None
        self._is_saved = True
        self._believed = 0
        self.is_watched: bool | None = None
        """Whether event triggers report every schema change; None if that was not asked yet."""
        self.history = PostgresShapeHistory(with_generated=False)

    def reopen_history(
        self, control: PgConnection, start: int, believed: int, is_resumed: bool
    ) -> None:
        """Read the stream again from behind a position on; up to `believed` it was read before, and
        its steps were written down."""
        self._control, self._believed = control, believed
        if not is_resumed:
            self.history.restore_steps(read_steps(self._files))
            self.history.fold_until(start)
        self.history.rewind_to(start)

    def set_watched(self, is_watched: bool | None) -> None:
        """Say whether event triggers report every schema change."""
        self.is_watched = is_watched

    def begin_tables(self, shapes: Iterable[PostgresShape]) -> None:
        """Follow tables that are new from these shapes on."""
        for shape in shapes:
            if shape.oid not in self.history:
                self.history.begin_table(shape)
                self._is_saved = False

    def save_steps(self) -> None:
        if not self._is_saved:
            write_steps(self._files, self.history.encode_steps())
            self._is_saved = True

    def clear_steps(self) -> None:
        self.history.clear_steps()

    def added_columns(self, oid: int) -> Collection[int]:
        return self.history.added_columns(oid)

    def take_shape_message(self, position: int, message: bytes) -> Collection[int]:
        """Add the steps of a message in the stream; the tables that have another shape.

        Every role may write messages. One that is not of our making adds nothing; if a schema
        change was behind it, a look finds that.
        """
        try:
            steps = list(steps_of_message(self.history, position, json.loads(message)))
        except _MALFORMED:
            return ()
        return {step.shape.oid for step in steps if is_sound(step.shape) and self._add_step(step)}

    def take_relation(
        self, position: int, xid: int, oid: int, columns: Sequence[RelationColumn], is_root: bool
    ) -> tuple[PostgresShape, bool]:
        """Compare what the stream says of a relation with what is known of its table.

        Whatever that does not explain is inferred, with the help of the catalogue.
        """
        known = self.history.latest_shape(oid)
        step = self.history.take_inferred(position, oid)
        if step is None:
            is_same = is_described_by(known, columns, is_root)
            if is_same and (self.is_watched or position <= self._believed):
                return known, False
            now = self._shape_in_catalogue(xid, oid)
            if is_same and (now is None or is_untouched(known, now)):
                return known, False
            shape = shape_of_message(known, now, columns, is_root)
            moved = now is None or now.file != known.file
            step = ShapeStep(position, shape, ShapeCause(moved=moved), inferred=True)
        is_new = self._add_step(step)
        return self.history.latest_shape(oid), is_new

    def _shape_in_catalogue(self, xid: int, oid: int) -> PostgresShape | None:
        assert self._control is not None, "rows come after the opening"
        with self._server.translate_errors():
            seconds = self._server.statement_seconds
            return shape_after(self._control, self._server.source, xid, oid, seconds)

    def _add_step(self, step: ShapeStep) -> bool:
        is_new = self.history.add_step(step)
        self._is_saved = self._is_saved and not is_new
        return is_new


def steps_of_message(
    history: PostgresShapeHistory, position: int, message: Mapping[str, Any]
) -> Iterator[ShapeStep]:
    """The steps of a message: for its own table, and for those whose name it took."""
    if "gone" in message:
        oid = int(message["gone"])
        if oid in history and not history.latest_shape(oid).gone:
            yield ShapeStep(position, history.latest_shape(oid).as_dropped(again=False))
        return
    if "found" in message:
        shape, cause = decode_shape(message["found"]), ShapeCause(watched=bool(message["watched"]))
    else:
        shape = shape_of(message["shape"])
        cause = _cause_of(history, shape, str(message["query"]))
    if shape.oid in history:
        yield ShapeStep(position, shape, cause)
    for oid in history:
        other = history.latest_shape(oid)
        if (
            other.gone
            and not other.again
            and _qualified_name(other) == _qualified_name(shape)
            and not shape.gone
        ):
            yield ShapeStep(position, other.as_dropped(again=True))


def _cause_of(history: PostgresShapeHistory, shape: PostgresShape, query: str) -> ShapeCause:
    """The cause of a shape, as far as the statement says it."""
    if shape.oid not in history or history.latest_shape(shape.oid).file == shape.file:
        return ShapeCause()
    before = history.latest_shape(shape.oid).by_number
    names = {
        column.number: frozenset((column.name, before.get(column.number, column).name))
        for column in shape.columns
    }
    return ShapeCause(plain_columns(query, names))


def _qualified_name(shape: PostgresShape) -> tuple[str, str]:
    return shape.schema, shape.name


def shape_after(
    connection: PgConnection, source: str, xid: int, oid: int, seconds: float
) -> PostgresShape | None:
    """The shape of a table as the catalogue has it once a transaction is visible."""
    end = time.monotonic() + seconds
    while True:
        if read_visible(connection, source).has_transaction(xid):
            return read_shapes(connection, (oid,)).get(oid)
        wait_for_visibility(source, end)


def is_described_by(shape: PostgresShape, listed: Sequence[RelationColumn], is_root: bool) -> bool:
    """Whether a message describes this shape; a partition may have another order."""
    known = [(c.name, c.type, c.modifier) for c in shape.columns if not c.generated]
    named = [(c.name, c.type, c.modifier) for c in listed]
    if not is_root:
        known, named = sorted(known), sorted(named)
    return known == named and all(column.sure for column in shape.columns)


def is_untouched(known: PostgresShape, now: PostgresShape) -> bool:
    """Whether every column of a shape is still there as it was: then it was so all the time."""
    after = now.by_number
    return all(
        _is_same_entry(column, after.get(number)) for number, column in known.by_number.items()
    )


def shape_of_message(
    known: PostgresShape, now: PostgresShape | None, listed: Sequence[RelationColumn], is_root: bool
) -> PostgresShape:
    """The shape that a message describes: between the one known before and the catalogue's."""
    if now is None:
        columns = tuple(replace(column, sure=False, stamp="") for column in known.columns)
        return replace(known, columns=columns)
    numbers = _numbers_of(known, now, listed, is_root)
    before, after = known.by_number, now.by_number
    found = {
        number: _column_of_message(column, before.get(number), after.get(number))
        for column, number in zip(listed, numbers, strict=True)
        if number
    }
    for number, column in after.items():
        if number in found or (number not in before and column.number > known.width):
            continue
        # It is there, but which of the listed columns it is cannot be known.
        found[number] = column if column.generated else replace(column, sure=False, stamp="")
    is_whole = all(numbers) and all(column.sure for column in found.values())
    width = max(known.width, *found) if is_whole and found else known.width
    columns = tuple(found[number] for number in sorted(found))
    return replace(
        known, schema=now.schema, name=now.name, columns=columns, width=width, keys=now.keys
    )


def _column_of_message(
    named: RelationColumn, before: PostgresShapeColumn | None, after: PostgresShapeColumn | None
) -> PostgresShapeColumn:
    facts = (named.name, named.type, named.modifier)
    for column in (before, after):
        if column is not None and (column.name, column.type, column.modifier) == facts:
            return (
                column
                if column is before and _is_same_entry(before, after)
                else _without_stamp(column)
            )
    column = after or before
    assert column is not None, "a number is that of a column"
    if (column.type, column.modifier) == facts[1:]:
        return _without_stamp(replace(column, name=named.name))
    if before is not None and (before.type, before.modifier) == facts[1:]:
        return _without_stamp(replace(before, name=named.name))
    # A type that it had in between; nobody will ask for values of it.
    lost = replace(column, name=named.name, type=named.type, modifier=named.modifier, base="")
    return _without_stamp(lost)


def _without_stamp(column: PostgresShapeColumn) -> PostgresShapeColumn:
    return replace(column, stamp="", sure=True)


def _is_same_entry(before: PostgresShapeColumn | None, after: PostgresShapeColumn | None) -> bool:
    return bool(before and after and before.stamp and before.stamp == after.stamp and before.sure)


def _numbers_of(
    known: PostgresShape, now: PostgresShape, listed: Sequence[RelationColumn], is_root: bool
) -> list[int | None]:
    """The number of each named column; None where it is not certain."""
    before = {n: c for n, c in known.by_number.items() if not c.generated}
    after = {n: c for n, c in now.by_number.items() if not c.generated}
    same = {c.name: n for n, c in before.items() if _is_same_entry(c, after.get(n))}
    numbers = [same.get(column.name) for column in listed]
    open_places = [place for place, number in enumerate(numbers) if number is None]
    settled = set(same.values())
    left = _remaining_numbers(
        known, now, before.keys() - settled, after.keys() - settled, len(open_places)
    )
    if not is_root:
        _by_name(numbers, listed, open_places, before, after, settled)
    elif left is not None:
        for place, number in zip(open_places, left, strict=True):
            numbers[place] = number
    return numbers


def _remaining_numbers(
    known: PostgresShape, now: PostgresShape, before: set[int], after: set[int], count: int
) -> list[int] | None:
    """The numbers of so many columns in order, if there is only one way to choose them."""
    both, dropped, added = before & after, before - after, after - before
    vanished = now.width - known.width - sum(number > known.width for number in added)
    if count == len(both):
        return sorted(both)
    if not vanished and count == len(both | dropped | added):
        return sorted(both | dropped | added)
    if not vanished and not dropped and len(both) < count < len(both | added):
        return sorted(both | set(sorted(added)[: count - len(both)]))
    return None


def _by_name(
    numbers: list[int | None],
    listed: Sequence[RelationColumn],
    places: Sequence[int],
    before: dict[int, PostgresShapeColumn],
    after: dict[int, PostgresShapeColumn],
    settled: set[int],
) -> None:
    """The columns of a partition, which may be in another order than those of its root."""
    named: dict[str, set[int]] = {}
    for columns in (before, after):
        for number, column in columns.items():
            if number not in settled:
                named.setdefault(column.name, set()).add(number)
    choices = [named.get(listed[place].name, set()) for place in places]
    if all(len(each) == 1 for each in choices):
        for place, each in zip(places, choices, strict=True):
            (numbers[place],) = each
