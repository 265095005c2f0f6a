"""How a parent is, for `status` and `doctor` of its children.

A child depends on two things: that the views it reads go on, and that the parent keeps their past
for it. Both are seen in the parent's files, also while nobody maintains it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from viewkeeper.errors import SourceError
from viewkeeper.sources.handles import Book
from viewkeeper.updates.schema_change import name_of_handle
from viewkeeper.updates.source_protocol import ChangesBehind, Finding, Health, RetainedLog, Tables
from viewkeeper.upstream import leases
from viewkeeper.upstream.parent_project import ParentFiles, ParentProject, progress_of
from viewkeeper.upstream.snapshot import ViewReader
from viewkeeper.warehouse.metadata.head import Head


def health_of(
    reader: ViewReader,
    files: ParentFiles,
    book: Book,
    child: str,
    positions: Sequence[int],
    now: float,
) -> Health:
    """Who keeps what at the parent, and how far the views that are read have come."""
    head, root = files.current_head(), reader.parent.root
    names = {name_of_handle(handle) for handle in book}
    views = [view for name, view in head.shown_views.items() if not names or name in names]
    reach = progress_of(views, files.last_ts).reach
    readers = tuple(
        RetainedLog(
            str(lease),
            bool(child) and lease.child.startswith(child),
            lease.ts,
            max(reach - lease.ts, 0),
            lease.until,
        )
        for lease in leases.active_leases(root, now)
    )
    kept = max((each.amount for each in readers if each.ours), default=0)
    followed = leases.lease_of(root, child) is not None
    behind = _count_behind(reader, files, head, book, positions, reach) if followed else {}
    warnings = tuple(_view_warnings(head, book))
    return Health(followed, reach, kept, "versions", readers, behind, warnings)


def _count_behind(
    reader: ViewReader,
    files: ParentFiles,
    head: Head,
    book: Book,
    positions: Sequence[int],
    reach: int,
) -> dict[int, ChangesBehind]:
    """What lies beyond positions, as far as it can be counted."""
    there = [h for h, n in book.items() if h and _table_of(head, h) == n.identity]
    found = {}
    for position in positions:
        entries = files.entries_between(position, reach)
        if not entries:
            found[position] = ChangesBehind(0, 0.0)
            continue
        try:
            counts = [reader.count_changes(handle, position, reach) for handle in there]
        except SourceError:
            # It cannot be counted from there; what the ledger knows is shown instead.
            continue
        changes = sum(rows for count in counts for rows in count.values())
        found[position] = ChangesBehind(changes, min(entry.committed_at for entry in entries))
    return found


def _table_of(head: Head, handle: str) -> str | None:
    view = head.views.get(name_of_handle(handle))
    return view.table if view else None


def _view_warnings(head: Head, book: Book) -> Iterator[str]:
    newest = max((view.ts for view in head.views.values()), default=0)
    for name in dict.fromkeys(name_of_handle(handle) for handle in book):
        view = head.views.get(name)
        if view is None:
            yield f'its view "{name}" is not there any more'
        elif view.stopped is not None:
            yield f'its view "{name}" has stopped: {view.stopped.splitlines()[0]}'
        elif view.ts < newest:
            yield f'its view "{name}" stands at ts {view.ts}, others at {newest}'


def diagnose_parent(parent: ParentProject, child: str, tables: Tables) -> list[Finding]:
    """Everything that can be found out about a parent, given what is read of it."""
    try:
        head = parent.load_head()
    except SourceError as error:
        return [Finding("warehouse", "bad", error.message, error.hint)]
    count = len(head.shown_views)
    return [
        Finding("warehouse", "good", f"{parent.root} has {count} views"),
        *(finding for table in tables for finding in _view_findings(head, name_of_handle(table))),
        _lease_finding(parent, head, child),
    ]


def _view_findings(head: Head, name: str) -> Iterator[Finding]:
    view = head.views.get(name)
    if view is None:
        mend = "`viewkeeper run` there loads it"
        yield Finding(f"view {name}", "bad", "it is not loaded there", mend)
    elif view.stopped is not None:
        mend = "mend that in the other project, as `viewkeeper status` there says"
        yield Finding(f"view {name}", "bad", view.stopped.splitlines()[0], mend)
    else:
        yield Finding(f"view {name}", "good", f"committed up to ts {view.ts}")


def _lease_finding(parent: ParentProject, head: Head, child: str) -> Finding:
    lease = leases.lease_of(parent.root, child) if child else None
    if lease is None:
        return Finding("lease", "good", "nothing is kept for this project yet")
    newest = max((view.ts for view in head.views.values()), default=lease.ts)
    text = f"states from ts {lease.ts} on are kept for this project, {newest - lease.ts} behind"
    return Finding("lease", "good", text)
