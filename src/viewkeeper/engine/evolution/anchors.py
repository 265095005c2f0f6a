"""Gaps, and the views that are anchored again behind them.

A source can lose what views still need: its log was trimmed, a slot was dropped, a backup was
restored. Nobody can say then what happened in between, but what is there now can be read. So a view
is *re-anchored*: it is loaded as of new positions, compared with what is stored, and the difference
is committed as one state. Readers never see an empty view, and whoever follows the view gets the
difference as an ordinary transaction: strong there, complete elsewhere.

1. The gap is in the ledger, durably, before the source is followed anew. A view before it can get
   over it by a difference only, whatever happens to this process.
2. What was lost at one source is lost for all views that read it: each of them gets over the gap on
   its own, or stops before it and says so.
3. A source that loses everything again before any view got over its gap is not followed anew.
"""

from __future__ import annotations

from collections.abc import Iterable

from viewkeeper.engine.capture.lookout import Lookout
from viewkeeper.engine.evolution.view_adapter import ANCHORED, ViewAdapter
from viewkeeper.engine.views.view_troubles import Troubles
from viewkeeper.engine.views.workspace import Workspace
from viewkeeper.errors import GapError, ProjectError, SourceError, reload_hint
from viewkeeper.view.definition import PROJECT, Relation
from viewkeeper.warehouse.metadata.head import ViewHead
from viewkeeper.warehouse.metadata.plan_files import BatchPlan
from viewkeeper.warehouse.metadata.record import Resume


def anchored_lines(head: ViewHead) -> list[str]:
    """What is to be said of the states of a view that was re-anchored."""
    causes = [(v.ts, cause) for v in head.versions for cause in v.causes]
    return [
        f"at ts {ts} it was {cause}; what lies between the state before and that one is not known, "
        f"and `verify --every-state` begins there"
        for ts, cause in causes
        if cause.startswith(ANCHORED)
    ]


class Anchors:
    """The views of one warehouse that have gaps before them."""

    def __init__(
        self, workspace: Workspace, lookout: Lookout, adapting: ViewAdapter, troubles: Troubles
    ) -> None:
        self._settings = workspace.settings
        self._store = workspace.store
        self._catalogue = workspace.catalogue
        self._lookout = lookout
        self._adapting = adapting
        self._troubles = troubles
        self._asked: set[str] = set()
        self._lost: set[str] = set()

    def request_anchors(self, views: Iterable[str]) -> None:
        """The user wants these views to be re-anchored in this run."""
        self._asked = {*views}
        if self._asked and self._settings.registry is not None:
            raise ProjectError(
                "a project of a group cannot re-anchor its views",
                detail="a gap has no number in the order of the group, so others cannot take it",
                hint=reload_hint(sorted(self._asked)),
            )

    def can_reanchor(self, name: str) -> bool:
        """Whether a view is to be re-anchored at a gap."""
        return name in self._asked or self._settings.on_gap.word_of(name) == "reanchor"

    def anchor_if_needed(self, name: str) -> bool:
        """Whether a view has to be re-anchored; then it waits for that, or stops."""
        if (lost := self._parent_cause(name)) is not None:
            self._adapting.anchor_again(name, lost)
            return True
        cause = self._anchor_cause(name)
        if cause is not None and not self.can_reanchor(name):
            self._troubles.fail_view(name, self._gap_refusal(name))
        elif cause is not None:
            self._adapting.anchor_view(name, cause)
        return cause is not None

    def is_lost(self, name: str) -> bool:
        """Whether a view has to be computed again, because one that it reads was."""
        return name in self._store.head.maintained_views and self._parent_cause(name) is not None

    def _parent_cause(self, name: str) -> str | None:
        """Why a view cannot go on from where the views that it reads are; None if it can."""
        head, view = self._store.head.views[name], self._catalogue.stored[name]
        for parent in view.parents:
            stored = self._store.head.views[parent]
            replaced = head.parent_tables.get(parent, stored.table) != stored.table
            if replaced or stored.horizon > head.ts:
                return f'view "{parent}" was loaded again'
            kinds = {field.name: field.type for field in stored.shown_schema}
            used = view.fields_of(Relation(PROJECT, parent))
            if any(kinds.get(field.name) != field.type for field in used):
                return f'view "{parent}" has other columns now'
        return None

    def _anchor_cause(self, name: str) -> str | None:
        """Why a view has to be re-anchored before it can advance; None if it has not."""
        head, ledger = self._store.head.views[name], self._store.ledger
        lost = ledger.gap_after(head.ts, head.positions)
        if lost is not None:
            return f'{ANCHORED} source "{lost}" had lost changes'
        if name in self._asked and head.ts < ledger.next_ts - 1:
            return f"{ANCHORED} it was asked for"
        if self._lookout.can_load(head.positions):
            self._asked.discard(name)
        return None

    def _gap_refusal(self, name: str) -> GapError:
        """What is said of a view that stops before a gap."""
        head = self._store.head.views[name]
        source = self._store.ledger.gap_after(head.ts, head.positions) or ""
        return GapError(
            source,
            f'it has lost changes that view "{name}" still needs',
            hint=f"`viewkeeper run --reanchor {name}` commits the difference as one state, "
            + reload_hint([name]),
        )

    def record_gap(self, source: str, error: SourceError) -> bool:
        """Write down that a source has lost changes, and follow it again; False if that is not what
        its error says, if none of its views may be re-anchored, or if it helps nothing."""
        views = self._store.head.maintained_views
        mine = [
            n for n in self._catalogue if n in views and source in self._catalogue.sources_of(n)
        ]
        wanted = [name for name in mine if self.can_reanchor(name)]
        if not isinstance(error, GapError) or not wanted or source in self._lost:
            return False
        self._lost.add(source)
        plan = BatchPlan(self._store.next_plan, self._lookout.take_with_gap(source))
        self._store.write_plan(plan)
        resumed = [Resume(name) for name in wanted if views[name].stopped]
        self._store.commit(resumed, plan.n)
        self._lookout.begin_again(source)
        return True

    def clear_gaps(self, name: str) -> None:
        """A view was loaded: it is past all gaps."""
        self._asked.discard(name)
        self._lost -= {*self._store.head.views[name].positions}
