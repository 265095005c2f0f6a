"""What views of the project changed that others read, and that are no part of the same batch.

A view that lags behind its parents catches up from what they have stored: their signed rows between
the ts from which it goes and the ts to which it goes. Where a parent has no state of its own for
every ts in between, all of that becomes one state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from viewkeeper.delta.algebra import TS
from viewkeeper.delta.arrow_compute import pc
from viewkeeper.engine.batch.own_relations import changes_of_rows, merge_stamps
from viewkeeper.engine.batch.staged_run import BatchView
from viewkeeper.errors import CorruptError, ViewkeeperError
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.updates.queue import RelationChanges
from viewkeeper.view.definition import PROJECT, Relation
from viewkeeper.warehouse.metadata.head import ViewHead
from viewkeeper.warehouse.rows.view_state import read_view_changes


@dataclass(frozen=True, slots=True)
class BatchSpan:
    """The ts from which, and to which, a batch takes its views; `merged` if all that happens in
    between becomes one state."""

    since: int
    until: int
    merged: bool = False

    @property
    def merged_ts(self) -> int | None:
        return self.until if self.merged else None


@dataclass(slots=True)
class ParentChanges:
    """The changes of parents, and the members that cannot have them because files are damaged."""

    changes: dict[Relation, RelationChanges] = field(default_factory=dict)
    errors: dict[str, ViewkeeperError] = field(default_factory=dict)


def read_parents(
    root: StoragePath,
    views: Mapping[str, ViewHead],
    members: Sequence[BatchView],
    span: BatchSpan,
) -> ParentChanges:
    """The changes in the span of all views that members read and that are no members."""
    here = {member.name for member in members}
    found = ParentChanges()
    for member in members:
        for parent in {*member.view.parents} - here:
            relation = Relation(PROJECT, parent)
            try:
                if relation not in found.changes:
                    found.changes[relation] = _stored_changes(root, views[parent], span)
            except CorruptError as error:
                found.errors[member.name] = error
    return found


def _stored_changes(root: StoragePath, head: ViewHead, span: BatchSpan) -> RelationChanges:
    rows = read_view_changes(root, head, span.since, span.until)
    # From ts 0 on it would begin with the load.
    rows = rows.filter(pc.field(TS) > span.since)
    return changes_of_rows(merge_stamps(rows, span.until) if span.merged else rows)
