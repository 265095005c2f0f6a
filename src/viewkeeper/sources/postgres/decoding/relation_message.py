"""Relation messages of pgoutput, and which columns of a table they mean.

Such a message comes before the first row of a table and again after its shape has changed. It names
the columns in the order of their numbers, without the numbers. What they are follows from the shape
that was known before and the one that the catalogue has by now:

- a column whose entry was not touched between the two has been called the same all the time;
- one that is in both has been there all the time, so it is among those named;
- of those that came and stayed, the message has the first so many.

A message that names what was known already is no proof that nothing happened: a column may have
been dropped and another one have got its name.

Where that leaves two ways to read a message, columns are not *sure*: their values in the rows that
follow are not used, and whoever follows them is told that they were rewritten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from struct import Struct

from viewkeeper.sources.postgres.decoding.pgoutput_frame import MalformedFrameError
from viewkeeper.sources.postgres.shape_query import PostgresShape, PostgresShapeColumn

_long, _short, _signed = (Struct(f"!{kind}").unpack_from for kind in "IHi")
_NAMES = 30


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column as a message has it; `told` says that old rows have it."""

    name: str
    type: int
    modifier: int
    told: bool


def relation_columns(frame: bytes) -> tuple[RelationColumn, ...]:
    """The columns of a Relation message."""
    at = _name_end(frame, _name_end(frame, _NAMES) + 1) + 1
    (count,) = _short(frame, at + 1)
    at += 3
    found = []
    for _ in range(count):
        end = _name_end(frame, at + 1)
        (kind,), (modifier,) = _long(frame, end + 1), _signed(frame, end + 5)
        name = frame[at + 1 : end].decode()
        found.append(RelationColumn(name, kind, modifier, bool(frame[at] & 1)))
        at = end + 9
    if at != len(frame) or len({column.name for column in found}) != count:
        raise MalformedFrameError("a relation is not described as it says")
    return tuple(found)


def _name_end(frame: bytes, start: int) -> int:
    """Where a name ends."""
    end = frame.find(b"\0", start)
    if end < 0:
        raise MalformedFrameError("a name does not end")
    return end


def is_described_by(shape: PostgresShape, told: Sequence[RelationColumn], is_root: bool) -> bool:
    """Whether a message describes this shape; a partition may have another order."""
    known = [(c.name, c.type, c.modifier) for c in shape.columns if not c.generated]
    named = [(c.name, c.type, c.modifier) for c in told]
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
    known: PostgresShape, now: PostgresShape | None, told: Sequence[RelationColumn], is_root: bool
) -> PostgresShape:
    """The shape that a message describes, between the one known before and that of now."""
    if now is None:
        columns = tuple(replace(column, sure=False, stamp="") for column in known.columns)
        return replace(known, columns=columns)
    numbers = _numbers_of(known, now, told, is_root)
    before, after = known.by_number, now.by_number
    found = {
        number: _column_of_message(column, before.get(number), after.get(number))
        for column, number in zip(told, numbers, strict=True)
        if number
    }
    for number, column in after.items():
        if number in found or (number not in before and column.number > known.width):
            continue
        # It is there, but not where it can be told.
        found[number] = column if column.generated else replace(column, sure=False, stamp="")
    is_whole = all(numbers) and all(column.sure for column in found.values())
    width = max(known.width, *found) if is_whole and found else known.width
    columns = tuple(found[number] for number in sorted(found))
    return replace(
        known, schema=now.schema, name=now.name, columns=columns, width=width, keys=now.keys
    )


def _column_of_message(
    told: RelationColumn, before: PostgresShapeColumn | None, after: PostgresShapeColumn | None
) -> PostgresShapeColumn:
    facts = (told.name, told.type, told.modifier)
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
        return _without_stamp(replace(column, name=told.name))
    if before is not None and (before.type, before.modifier) == facts[1:]:
        return _without_stamp(replace(before, name=told.name))
    # A type that it had in between; nobody will ask for values of it.
    lost = replace(column, name=told.name, type=told.type, modifier=told.modifier, base="")
    return _without_stamp(lost)


def _without_stamp(column: PostgresShapeColumn) -> PostgresShapeColumn:
    return replace(column, stamp="", sure=True)


def _is_same_entry(before: PostgresShapeColumn | None, after: PostgresShapeColumn | None) -> bool:
    return bool(before and after and before.stamp and before.stamp == after.stamp and before.sure)


def _numbers_of(
    known: PostgresShape, now: PostgresShape, told: Sequence[RelationColumn], is_root: bool
) -> list[int | None]:
    """The number of each named column; None where it cannot be told."""
    before = {n: c for n, c in known.by_number.items() if not c.generated}
    after = {n: c for n, c in now.by_number.items() if not c.generated}
    same = {c.name: n for n, c in before.items() if _is_same_entry(c, after.get(n))}
    numbers = [same.get(column.name) for column in told]
    open_places = [place for place, number in enumerate(numbers) if number is None]
    settled = set(same.values())
    left = _remaining_numbers(
        known, now, before.keys() - settled, after.keys() - settled, len(open_places)
    )
    if not is_root:
        _by_name(numbers, told, open_places, before, after, settled)
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
    told: Sequence[RelationColumn],
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
    choices = [named.get(told[place].name, set()) for place in places]
    if all(len(each) == 1 for each in choices):
        for place, each in zip(places, choices, strict=True):
            (numbers[place],) = each
