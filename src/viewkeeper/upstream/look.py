"""Looking at a parent: which of its transactions a child has not taken yet.

A ts of the parent is a transaction. Ts that one of the followed views shows as one state are one
transaction, and nothing is reported beyond what all of these views have committed.
"""

from __future__ import annotations

from viewkeeper.updates.source_protocol import LOOK_TRANSACTIONS, Boundary
from viewkeeper.upstream.followed_views import FollowedViews
from viewkeeper.upstream.parent_files import group_by_state
from viewkeeper.upstream.schema_change_positions import place_schema_changes
from viewkeeper.warehouse.metadata.head import Head


def look_for_transactions(views: FollowedViews, after: int) -> tuple[Boundary, ...]:
    """The transactions of a parent beyond a position."""
    head = views.check_position(after)
    progress = views.common_progress()
    if after >= progress.reach or not progress.is_shown:
        views.note_reported(after)
        return ()
    entries = views.files.entries_between(after, progress.reach)
    merged = group_by_state(entries, progress, LOOK_TRANSACTIONS)
    last = max(merged, default=after)
    reshaped = place_schema_changes(
        head, views.names.copy_book(), views.memory, after, sorted(merged)
    )
    counts = _count_rows(views, head, after, last)
    found = tuple(
        Boundary(
            at,
            min(entry.committed_at for entry in together),
            sum(counts.get(ts, 0) for ts in {entry.ts for entry in together}),
            reshaped=reshaped.get(at, ()),
        )
        for at, together in merged.items()
    )
    views.note_reported(last)
    return found


def _count_rows(views: FollowedViews, head: Head, after: int, until: int) -> dict[int, int]:
    """How many rows changed per ts in the views that are followed."""
    reader, counts = views.make_reader(), dict[int, int]()
    for handle, view in views.views_followed_at(head, after):
        if view.horizon > after:
            raise reader.gap_error(view, after)
        for ts, rows in reader.count_changes(handle, after, until).items():
            counts[ts] = counts.get(ts, 0) + rows
    return counts
