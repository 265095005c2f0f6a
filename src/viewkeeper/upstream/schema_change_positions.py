"""Telling a child of schema changes: each gets its place among the transactions of a look.

What is noticed now is told with the first transaction that has not been reported, and that position
is remembered before it is reported: a child that dies in between asks again, and gets the same.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

from viewkeeper.sources.handles import Book
from viewkeeper.updates.schema_change import SchemaChange, name_of_handle
from viewkeeper.upstream.state import ParentMemory
from viewkeeper.warehouse.metadata.head import Head, ViewHead


def place_schema_changes(
    head: Head, book: Book, memory: ParentMemory, after: int, positions: Sequence[int]
) -> dict[int, tuple[SchemaChange, ...]]:
    """The schema changes that belong to transactions at these positions, all beyond `after`."""
    if memory.now is None or not positions:
        return {}
    _note_shapes(head, memory, positions)
    _note_ends(head, book, memory, positions)
    found: dict[int, tuple[SchemaChange, ...]] = {}
    for at, change in _all_changes(book, memory):
        place = bisect_left(positions, at)
        if after < at and place < len(positions):
            here = positions[place]
            found[here] = (*found.get(here, ()), change)
    return found


def _note_shapes(head: Head, memory: ParentMemory, positions: Sequence[int]) -> None:
    """Give a position to the shapes that were not reported yet."""
    assert memory.now is not None
    for view in head.views.values():
        known = memory.now.tables.get(view.table)
        if known is None:
            continue
        seen = known.add_seen(view)
        at = _first_position(positions, view.versions[-1].ts if view.versions else 0)
        if not seen.is_reported and at is not None:
            memory.save_shapes(view.table, seen.mark_reported(at))


def _note_ends(head: Head, book: Book, memory: ParentMemory, positions: Sequence[int]) -> None:
    """Give what became of tables that are not there any more its position."""
    assert memory.now is not None
    ended = dict(memory.now.ended)
    for handle, named in book.items():
        view = head.views.get(name_of_handle(handle))
        if handle in ended or (view is not None and view.table == named.identity):
            continue
        at = _first_position(positions, view.created_ts if view else 0)
        if at is not None:
            ended[handle] = at, _end_change(handle, view)
    memory.save_parent(replace(memory.now, ended=ended))


def _end_change(handle: str, view: ViewHead | None) -> SchemaChange:
    return SchemaChange("drop_table" if view is None else "recreate_table", handle)


def _first_position(positions: Sequence[int], since: int) -> int | None:
    """The first position that is not before a ts."""
    return next((position for position in positions if position >= since), None)


def _all_changes(book: Book, memory: ParentMemory) -> list[tuple[int, SchemaChange]]:
    """All schema changes that were ever reported, with their positions."""
    assert memory.now is not None
    found: list[tuple[int, SchemaChange]] = []
    for handle, named in book.items():
        history = memory.now.tables[named.identity]
        found += [(at, c) for at, c in history.changes_of(handle, named) if at is not None]
    found += memory.now.ended.values()
    return sorted(found, key=lambda each: each[0])
