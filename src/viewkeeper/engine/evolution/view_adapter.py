"""Bringing views over schema changes: Dyno's loop, as the maintainer walks it.

Before a view is maintained, everything that waits for it is scanned for schema changes (pre-exec
detection). None is the rule, and costs one look at every transaction. Otherwise, unless the user
chose to be optimistic and everything before the change is tried first, the net effect of all of
them decides (`viewkeeper.engine.evolution.schema_decision`):

- Values are kept, or what is lost can be done without: the definition is switched at once, at the
  positions that the view stands at, and the batch goes on under the new one. Still complete.
- Rows must be read: what can be maintained before the change on its own, by the legal order of the
  dependency graph, is; the rest merges with the change into one state, loaded as of the newest ts
  while the other views go on.

A question that meets a table of another shape breaks (in-exec and post-exec detection are the
source's, inside the snapshot): nothing of the batch is committed for that view, the next look
brings the change, and the view is never tried again on its near side.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from viewkeeper.engine.batch.barrier import barrier_of
from viewkeeper.engine.capture.lookout import Lookout
from viewkeeper.engine.evolution.schema_decision import (
    MOVES_MAX,
    Approval,
    Halt,
    PendingDecisions,
    PendingSchemaChange,
    Proposal,
    SchemaDecider,
    needs_rows,
)
from viewkeeper.engine.load.loader import LoadDefinition, Loader
from viewkeeper.engine.views.algorithm_choice import AlgorithmChoices
from viewkeeper.engine.views.bound_view import bind_parents_again
from viewkeeper.engine.views.edited_sql import redefine_same_rows
from viewkeeper.engine.views.workspace import Workspace
from viewkeeper.errors import DefinitionError, SchemaError, SourceAwayError
from viewkeeper.evolution.adaptation import Adaptation, Difference, Reload, Restate
from viewkeeper.evolution.correction import legal_order_of
from viewkeeper.evolution.dependencies import ReceivedUpdate, reads_of
from viewkeeper.evolution.synchronization.synchronize import manual_remedy
from viewkeeper.view.definition import Relation, ViewDefinition
from viewkeeper.warehouse.metadata.head import ViewHead
from viewkeeper.warehouse.metadata.record import Redefine, Stop

ANCHORED = "re-anchored:"
"""How the cause of a version begins that is there for its rows alone."""

BROKEN_SECONDS = 30.0
"""So long a view may meet a table of another shape without any look that explains it."""


class ViewAdapter:
    """The views of a project on their way over schema changes; used by one thread."""

    def __init__(self, workspace: Workspace, choices: AlgorithmChoices, lookout: Lookout) -> None:
        self._settings = workspace.settings
        self._store = workspace.store
        self._catalogue = workspace.catalogue
        self._connections = workspace.connections
        self._choices = choices
        self._lookout = lookout
        self._tell = workspace.observer.on_schema_change
        self._evolving = SchemaDecider(workspace, choices)
        self.pending = PendingDecisions(workspace, choices)
        self._halfway = False
        self._broken: dict[str, tuple[float, int]] = {}
        """Since when questions of a view break, and its ts at that time."""

    def meet_schema_changes(self, name: str, until: int, attempts: int = MOVES_MAX) -> int | None:
        """The ts to which a view may be maintained as it is now defined; None: it waits."""
        if self.pending.is_settled(name):
            return None
        self._follow_names(name, until)
        changes = self._evolving.pending_changes(name, until)
        if not changes:
            self.pending.forget_view(name)
            if name in self._choices.provisional:
                self.pending.note_decided(name)
                return None
            return until
        if self._settings.evolution.detection == "optimistic":
            before = changes[0].ts - 1
            if before > self._view_ts(name) and not self._is_broken(name):
                self._halfway = True
                return before
        self.pending.note_decided(name)
        try:
            decision = self._evolving.decide_view(name, changes)
        except SourceAwayError as error:
            self._connections.note_error(error)
            self.pending.await_source(name, error.source)
            return None
        allowed: Proposal | Halt | None
        if isinstance(decision, Approval):
            allowed = self.pending.check_approval(name, decision.proposal)
        else:
            allowed = decision
        if isinstance(allowed, Proposal):
            return self._follow_proposal(name, changes, allowed, until, attempts)
        if allowed is not None:
            self._stop_view(name, allowed.reason)
        return None

    def take_halfway(self) -> bool:
        """Whether a view was let go on to a schema change, which it has yet to meet, since this was
        last asked."""
        halfway, self._halfway = self._halfway, False
        return halfway

    def anchor_view(self, name: str, cause: str) -> None:
        """Have a view repaired by its difference from what its sources show, as it is defined."""
        head = self._store.head.views[name]
        extent = head.versions[-1].extent if head.versions else "equal"
        binding, choice = self._catalogue.bindings[name], self._choices[name]
        self.pending.forget_view(name)
        self.pending.await_load(name, Proposal(binding, choice, (cause,), extent, Difference(), {}))
        self.pending.note_decided(name)

    def anchor_again(self, name: str, cause: str) -> None:
        """Have a view computed again, by its text, from what the views that it reads are now."""
        if name in self.pending.waits:
            return
        old = self._catalogue.bindings[name]
        try:
            new = bind_parents_again(old, self._catalogue)
        except DefinitionError as error:
            raise DefinitionError(
                f"{cause}\n{error.message}", detail=error.detail, hint=manual_remedy(old.parsed)
            ) from error
        choice = self._choices.choice_of(name, new.view)
        same = new.view.schema is not None and new.view.schema == old.view.schema
        how: Adaptation = Difference() if same else Reload()
        causes = (f"{ANCHORED} {cause}",)
        self.pending.forget_view(name)
        self.pending.await_load(name, Proposal(new, choice, causes, "equal", how, {}))
        self.pending.note_decided(name)

    def note_broken_query(self, name: str) -> bool:
        """Remember that a question of a view was broken; False if it was for too long by now."""
        now = time.monotonic()
        since = self._broken[name][0] if self._is_broken(name) else now
        self._broken[name] = (since, self._view_ts(name))
        return now - since < BROKEN_SECONDS

    def has_moved(self, name: str) -> bool:
        """Whether what a view waits to become has been overtaken by another schema change."""
        proposal = self.pending.waits.get(name)
        # One that is only anchored again goes on as it is, whatever its tables have become.
        is_changed = proposal is not None and bool(proposal.became)
        return is_changed and self._evolving.has_moved(name, self.pending.waits[name])

    def _is_broken(self, name: str) -> bool:
        """Whether a question broke since the view last advanced."""
        return name in self._broken and self._broken[name][1] == self._view_ts(name)

    def _view_ts(self, name: str) -> int:
        head = self._store.head.views.get(name)
        return head.ts if head else -1

    def definition_of(self, name: str) -> LoadDefinition:
        """What a view is to be loaded as: one that waits, or a new one."""
        proposal = self.pending.waits.get(name)
        if proposal is None:
            binding = self._catalogue.bindings[name]
            causes = ("loaded again",) if name in self._store.head.refreshes else ()
            return LoadDefinition(
                self._catalogue.text_of(name), binding, self._choices[name], causes
            )
        return LoadDefinition(
            self._catalogue.text_of(name),
            proposal.binding,
            proposal.choice,
            proposal.causes,
            proposal.extent,
        )

    def start_load(self, loader: Loader, name: str, ts: int, positions: Mapping[str, int]) -> None:
        """Begin to load a view as of a ts: a new one, or one that waits."""
        proposal, definition = self.pending.waits.get(name), self.definition_of(name)
        # The state of a ts that it has already shown cannot become another one.
        moves = ts > self._view_ts(name)
        if proposal is not None and isinstance(proposal.adaptation, Difference) and moves:
            loader.begin_difference(definition, ts, positions)
        else:
            loader.begin_load(definition, ts, positions)
        if proposal is not None:
            self._tell(name, "recomputed: " + "; ".join(definition.causes))

    def note_load_success(self, name: str) -> None:
        """A view was loaded as it was to be."""
        proposal = self.pending.waits.get(name)
        if proposal is not None:
            self._adopt_proposal(name, proposal)
        else:
            self.pending.forget_view(name)

    def note_load_failure(self, name: str) -> None:
        """A load did not succeed: what becomes of the view is decided again."""
        self.pending.forget_load(name)

    def _stop_view(self, name: str, reason: str) -> None:
        self.pending.forget_view(name)
        self._store.commit([Stop(name, reason)])
        self.pending.clear_proposal(name)
        self._tell(name, f"stopped: {reason}")

    def _follow_proposal(
        self,
        name: str,
        changes: Sequence[PendingSchemaChange],
        proposal: Proposal,
        until: int,
        attempts: int,
    ) -> int | None:
        self._catalogue.coming[name] = proposal.choice.view
        if self._meets_barrier(name, until) and not needs_rows(proposal.adaptation):
            # The ledger names what was emptied as the present definition does.
            if all(each.change.keeps_values for each in changes) and not self._is_broken(name):
                self.pending.decide_again(name)
                self._halfway = True
                return until
            proposal = replace(proposal, adaptation=Difference())
        if needs_rows(proposal.adaptation):
            prefix = self._maintainable_prefix(name, changes)
            if prefix > self._store.head.views[name].ts:
                self.pending.decide_again(name)
                self._halfway = True
                return prefix
            self.pending.await_load(name, proposal)
            return None
        try:
            for source in proposal.choice.view.sources:
                if self._connections.try_action(source, self._lookout.tables.follow_source) is None:
                    return None
            moved = not self._evolving.is_still_right(name, proposal)
        except SchemaError:
            moved = True
        if moved:
            # It is decided again, by the names of now; too often, and others have their turn.
            self.pending.forget_view(name)
            return self.meet_schema_changes(name, until, attempts - 1) if attempts else None
        self._redefine_view(name, proposal)
        return until

    def _follow_names(self, name: str, until: int) -> None:
        """Write down what the names in the SQL of a report have become."""
        found = self._evolving.follow_names(name, until)
        if found is None:
            return
        binding, causes = found
        head, text = self._store.head.views[name], self._catalogue.text_of(name)
        self._store.commit([redefine_same_rows(head, text, binding, self._store.now(), causes)])
        self._choices.replace_choice(name, binding, self._choices[name])
        self._tell(name, "follows: " + "; ".join(causes))

    def _redefine_view(self, name: str, proposal: Proposal) -> None:
        head = self._store.head.views[name]
        version = proposal.binding.make_version(
            head.ts, self._store.now(), proposal.causes, proposal.extent, head.parent_tables
        )
        change = Redefine(
            name,
            self._catalogue.text_of(name),
            version,
            restated_schema(head, proposal.choice.view, proposal.adaptation),
            head.ts,
            head.positions,
            hidden=proposal.choice.hidden_columns,
            distinct=not (isinstance(proposal.adaptation, Restate) and proposal.adaptation.drop),
        )
        self._store.commit([change])
        self._adopt_proposal(name, proposal)
        self._tell(name, "follows: " + "; ".join(proposal.causes))

    def _adopt_proposal(self, name: str, proposal: Proposal) -> None:
        """What a view was to become is committed; a source that nobody reads any more is left."""
        before = self._catalogue.sources_of(name)
        self._catalogue.note_loaded(name, self._store.head.views[name].shown_schema)
        self._choices.replace_choice(name, proposal.binding, proposal.choice)
        self.pending.forget_view(name)
        self.pending.clear_proposal(name)
        read = {source for view in self._catalogue for source in self._catalogue.sources_of(view)}
        for source in before:
            if source not in read:
                self._connections.try_action(source, lambda each: each.detach_source())
                self._tell(name, f'source "{source}" is not read any more, and was detached')

    def _meets_barrier(self, name: str, until: int) -> bool:
        return barrier_of(self._store, self._choices[name].view, until) is not None

    def _maintainable_prefix(self, name: str, changes: Sequence[PendingSchemaChange]) -> int:
        """How far a view can be maintained before the first change that takes values away."""
        head, view = self._store.head.views[name], self._choices[name].view
        first = next((each for each in changes if not each.change.keeps_values), changes[0]).ts
        if self._is_broken(name):
            return head.ts
        updates = self._pending_updates(view, head, changes)
        in_order = zip(updates, legal_order_of(updates), strict=False)
        reached = head.ts
        for update, unit in in_order:
            if unit != (update,) or update.breaks or update.id >= first:
                break
            reached = update.id
        return min(reached, first - 1)

    def _pending_updates(
        self, view: ViewDefinition, head: ViewHead, changes: Sequence[PendingSchemaChange]
    ) -> list[ReceivedUpdate]:
        """What waits for a view, as the dependency graph sees it."""
        reshaped: dict[int, set[Relation]] = {}
        for each in changes:
            if not each.change.keeps_values:
                found = reshaped.setdefault(each.ts, set())
                found.add(Relation(each.source, each.change.table))
        updates = []
        for entry in self._store.ledger.entries_between(head.ts, changes[-1].ts):
            mine = [r for r in view.relations if r.source == entry.source]
            broken = frozenset(reshaped.get(entry.ts, ()))
            # To repair a view, all its relations are read.
            reads = frozenset(view.relations) if broken else reads_of(view, mine)
            if mine:
                updates.append(
                    ReceivedUpdate(entry.ts, entry.source, frozenset(mine), reads, broken)
                )
        return updates


def restated_schema(head: ViewHead, view: ViewDefinition, found: Adaptation) -> pa.Schema:
    """The schema of a view's stored rows under another definition that needs no other rows."""
    known = {field.name: field for field in head.schema}
    if isinstance(found, Restate):
        known |= {f.name: pa.field(f.name, f.type) for f in (*found.widen, *found.add)}
    return pa.schema([known[output.name] for output in view.outputs])
