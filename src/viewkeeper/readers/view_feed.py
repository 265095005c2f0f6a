"""The changes of a view as a feed: events in ts order, from any kept place on, and then the news.

A feed is at a *place*: the ts up to which its consumer has everything, and the *origin*, which says
of what: the table that the view had then, in the warehouse that it was in. A ts alone does not tell
that. A view that is loaded again begins another table, whose rows at the same ts may be others, and
a warehouse that is made again counts its ts from the beginning.

1. The changes of a ts come together, and an end follows them. What has ended is whole.
2. Whoever sums the counts of all rows since the last reset has the view as of the last end.
3. A feed never goes on from another origin: it resets, and begins with the rows that there are.
4. What was folded into the body is not told apart any more: a place before it is a HorizonError.

Columns may change while the table stays: a column goes, a new one is NULL in older rows, a type
gets wider. The feed says what the columns are, first and after each such change; the rows before
are to be understood so from then on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from viewkeeper.errors import CorruptError, DefinitionError, HorizonError
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.storage.stored_files import storage_of
from viewkeeper.updates.source_protocol import TS
from viewkeeper.upstream.parent_project import RestingLooks
from viewkeeper.warehouse.metadata.head import Head, ViewHead, read_commit_mark, read_head
from viewkeeper.warehouse.metadata.warehouse_identity import read_identity
from viewkeeper.warehouse.rows.view_state import ATTEMPTS, read_view_changes

_PLACE = re.compile(r"(\d{1,18})(?:@([A-Za-z0-9.-]{1,200}))?")


@dataclass(frozen=True, slots=True)
class FeedPlace:
    """The ts up to which somebody has the changes of an origin; an empty one is not known."""

    ts: int
    origin: str = ""

    def __str__(self) -> str:
        """
        >>> str(FeedPlace(12, "order-lines-1.3f2a")), str(FeedPlace(12))
        ('12@order-lines-1.3f2a', '12')
        """
        return f"{self.ts}@{self.origin}" if self.origin else str(self.ts)


def parse_place(text: str) -> FeedPlace:
    """A place as people and programs write it; a DefinitionError if it is none.

    >>> parse_place("12@order-lines-1.3f2a")
    FeedPlace(ts=12, origin='order-lines-1.3f2a')
    """
    found = _PLACE.fullmatch(text.strip())
    if found is None:
        raise DefinitionError(
            f'"{text}" is no place in a feed',
            hint='give a ts, such as 12, or the "since" of the last end, such as 12@order-lines-1',
        )
    return FeedPlace(int(found[1]), found[2] or "")


@dataclass(frozen=True, slots=True)
class FeedReset:
    """Nothing that was said before holds; what follows is all that there is, of this origin."""

    origin: str


@dataclass(frozen=True, slots=True)
class FeedColumns:
    """The columns of the rows, from here on and as far as they are known from before."""

    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class FeedChanges:
    """Signed rows of one ts, all of them; `is_body`: they are the state in which the feed begins.

    `committed_at` is when the newest state was committed that was there to be read, in seconds.
    """

    ts: int
    rows: pa.Table
    is_body: bool
    committed_at: float


@dataclass(frozen=True, slots=True)
class FeedEnd:
    """Everything up to this place has been said."""

    place: FeedPlace


FeedEvent = FeedReset | FeedColumns | FeedChanges | FeedEnd


def origin_of(root: StoragePath, view: ViewHead) -> str:
    """What tells the rows of a view from those that it had before it was loaded again."""
    try:
        identity = read_identity(root)
    except FileNotFoundError:
        return view.table
    return f"{view.table}.{re.sub('[^A-Za-z0-9]', '', identity)[:12]}"


class ViewFeed:
    """The feed of one view, at a place that moves on as events are read."""

    def __init__(
        self, root: StoragePath, view: str, place: FeedPlace, steady: Callable[[], float]
    ) -> None:
        """`steady` gives seconds that never decrease, by which looks in object storage rest."""
        self.place = place
        self._root = root
        self._view = view
        self._head = Head()
        self._mark: object = None
        self._schema: pa.Schema | None = None
        self._looks = RestingLooks(steady)

    def has_news(self) -> bool:
        """Whether something may have been committed since events were last read; cheap."""
        is_remote = storage_of(self._root).has_lasting_journal
        if is_remote and not self._looks.is_due():
            return False
        is_news = self._mark is None or read_commit_mark(self._root, self._head) != self._mark
        self._looks.note_look(is_news=is_news)
        return is_news

    def read_events(self) -> Iterator[FeedEvent]:
        """What there is beyond the place now; the place moves with each end that is taken."""
        # What is committed after this is seen by the next look.
        mark = read_commit_mark(self._root, self._head)
        found = self._read_rows()
        self._mark = mark
        if found is None:
            return
        view, origin, is_reset, rows = found
        if is_reset:
            self._schema = None
            yield FeedReset(origin)
        if self._schema is None or not self._schema.equals(view.shown_schema):
            self._schema = view.shown_schema
            yield FeedColumns(self._schema)
        reached = -1 if is_reset else self.place.ts
        for ts, changes in _split_by_ts(rows):
            is_body = is_reset and ts <= view.horizon
            yield FeedChanges(ts, changes, is_body, view.committed_at)
            reached = ts
            yield self._end_at(reached, origin)
        if view.ts > reached:
            yield self._end_at(view.ts, origin)

    def _end_at(self, ts: int, origin: str) -> FeedEnd:
        self.place = FeedPlace(ts, origin)
        return FeedEnd(self.place)

    def _read_rows(self) -> tuple[ViewHead, str, bool, pa.Table] | None:
        """The view, its origin, whether the feed begins with it, and the rows beyond the place.

        None while a view is away that was there: it may be dropped and made again.

        What cannot be believed is read again from the next head: upkeep may have replaced it.
        """
        failed: Head | None = None
        for _ in range(ATTEMPTS):
            self._head = read_head(self._root)
            if self._schema is not None and self._view not in self._head.views:
                return None
            try:
                return self._read_from(self._head)
            except CorruptError:
                if self._head == failed:
                    raise
                failed = self._head
        return self._read_from(self._head)

    def _read_from(self, head: Head) -> tuple[ViewHead, str, bool, pa.Table]:
        view = require_loaded(head, self._view)
        origin = origin_of(self._root, view)
        is_other = self.place.origin not in ("", origin)
        is_reset = self.place.ts == 0 or is_other
        since = 0 if is_reset else self.place.ts
        if not is_reset and not view.horizon <= since <= view.ts:
            raise lost_place_error(view, since)
        return view, origin, is_reset, read_view_changes(self._root, view, since)


def require_loaded(head: Head, name: str) -> ViewHead:
    """A view of a head; HorizonError if it is not loaded yet, or not there any more."""
    if name not in head.views or head.views[name].is_inner:
        known = ", ".join(sorted(head.shown_views)) or "none"
        raise HorizonError(
            f'view "{name}": not loaded',
            detail=f"views in the warehouse: {known}",
            hint="`viewkeeper run --once` loads the views of the project",
        )
    return head.views[name]


def lost_place_error(view: ViewHead, since: int) -> HorizonError:
    """A place is outside what is kept: folded, or of a warehouse that is another one."""
    why = (
        "earlier changes were folded together: they are older than `retention`"
        if since < view.horizon
        else "the warehouse does not have this ts: it is younger, or was restored"
    )
    return HorizonError(
        f'view "{view.view}": no changes since {since}',
        detail=f"changes are kept since ts {view.horizon}, up to ts {view.ts}; {why}",
        hint="begin again from 0: that gives the rows that there are, and then every change; "
        "what the consumer has of before must go first",
    )


def _split_by_ts(rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """The rows of every ts, in order; they are sorted by it."""
    stamps = rows[TS].to_numpy()
    start = 0
    for end in range(1, len(stamps) + 1):
        if end == len(stamps) or stamps[end] != stamps[start]:
            yield int(stamps[start]), rows.slice(start, end - start).drop_columns([TS])
            start = end
