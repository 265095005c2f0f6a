"""Opening a source of any kind: a database, a folder of files, or the views of another project.

Whoever uses sources opens them here and need not know their kinds. Only what a group asks its
parents, and what Spark reads of a parent's files by itself, is beyond what every source answers:
`parent_source_of` and `view_opener_of` give that where it is there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from viewkeeper.sources.kinds import WAREHOUSE, Differ
from viewkeeper.sources.kinds import open_source as open_database
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.updates.source_protocol import Opener, Source

if TYPE_CHECKING:
    from viewkeeper.order.mediator import OrderMark
    from viewkeeper.upstream.parent_project import ParentProject
    from viewkeeper.upstream.snapshot import ViewOpener


class ParentSource(Protocol):
    """Another project as a source, as a member of its group sees it."""

    @property
    def parent(self) -> ParentProject: ...

    def group_marks(
        self, identity: str, beyond: OrderMark | None = None, needed: int = 0
    ) -> tuple[list[OrderMark], int] | None:
        """Which ts of the parent stand for which numbers of a group."""
        ...


def open_source(
    settings: SourceSettings,
    reader: str,
    differ: Differ | None = None,
    now: Callable[[], float] | None = None,
) -> Source:
    """The source that the settings describe; nothing is connected yet.

    `reader` is how our warehouse is called there; `differ` takes large differences between states
    of folders; `now` is what the clock shows.
    """
    if settings.kind != WAREHOUSE:
        return open_database(settings, reader, differ, now)
    # Imported here, because reading warehouses needs more than most projects do.
    from viewkeeper.upstream import source as view_source

    return view_source.open_source(settings, reader)


def is_parent(settings: SourceSettings) -> bool:
    """Whether a source is another project."""
    return settings.kind == WAREHOUSE


def parent_source_of(source: Source) -> ParentSource | None:
    """The source as a parent; None if it is not another project."""
    from viewkeeper.upstream.source import WarehouseSource

    return source if isinstance(source, WarehouseSource) else None


def view_opener_of(opener: Opener) -> ViewOpener | None:
    """The opener of a parent's views; None if it opens something else."""
    from viewkeeper.upstream.snapshot import ViewOpener

    return opener if isinstance(opener, ViewOpener) else None
