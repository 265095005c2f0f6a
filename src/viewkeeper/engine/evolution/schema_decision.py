"""What becomes of a view when its sources change their shape.

Schema changes are in the ledger, in the order of the sources. For a view that has not passed them
yet, all of them together have one net effect: what its tables and columns are called now, and which
are gone. The definition is rewritten for that (`viewkeeper.evolution.synchronization`), bound to
the tables of now, and compared with the old one (`viewkeeper.evolution.adaptation`): either the
stored rows are right as they are, under other columns, or they must be repaired by a difference, or
loaded again. The view's policy says whether that may be done at all.

Names are asked for live, one after the other, while sources go on. What was decided counts only if
they are still the same afterwards; else it is decided again, by the names of then. If a table moves
on later, the repair breaks, and the next look brings the change that explains it.

A decision holds until something new has come: it is known by the first ts that the ledger had not
given out when it was made. Then it is made again from what the sources say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from viewkeeper.engine.evolution.proposals import HELD, Proposals, Proposed
from viewkeeper.engine.views.algorithm_choice import AlgorithmChoice, AlgorithmChoices
from viewkeeper.engine.views.bound_view import (
    Binding,
    bind_now,
    bind_report_again,
    column_types,
    same_columns,
)
from viewkeeper.engine.views.workspace import Workspace
from viewkeeper.errors import DefinitionError, ProjectError, SchemaError, reload_hint
from viewkeeper.evolution.adaptation import (
    Adaptation,
    Difference,
    Nothing,
    Reload,
    Restate,
    choose_adaptation,
)
from viewkeeper.evolution.policy import Policy
from viewkeeper.evolution.synchronization.synchronize import (
    NoRewriting,
    Rewriting,
    manual_remedy,
    synchronize_view,
)
from viewkeeper.evolution.synchronization.table_now import NamesNow
from viewkeeper.updates.schema_change import SchemaChange
from viewkeeper.updates.source_protocol import CurrentNames, names_now_of
from viewkeeper.view.definition import PROJECT, Field, Relation, ViewDefinition
from viewkeeper.warehouse.metadata.definition_version import DefinitionTable, FollowedName
from viewkeeper.warehouse.metadata.head import ViewHead

FOLLOWED_BY_HANDLE = ("rename_table", "rename_column", "add_column", "add_filled_column")
"""What a report need not do anything about: its graph asks for tables by their handles."""

RENAMES = ("rename_table", "rename_column")

MOVES_MAX = 10
"""How often it is decided again because names changed meanwhile."""


@dataclass(frozen=True, slots=True)
class PendingSchemaChange:
    """A schema change at a source, with the ts of its transaction."""

    ts: int
    source: str
    change: SchemaChange

    def __str__(self) -> str:
        return f"{self.source}.{self.change}"


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a view would become: its definition, its algorithm, and what its rows need."""

    binding: Binding
    choice: AlgorithmChoice
    causes: tuple[str, ...]
    extent: str
    adaptation: Adaptation
    became: NamesNow
    """What the tables of the old definition were called when this was decided."""


@dataclass(frozen=True, slots=True)
class Halt:
    """A view cannot go on, and what would mend it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Approval:
    """A view waits until somebody approves what it would become."""

    proposal: Proposal


Decision = Proposal | Approval | Halt


class SchemaDecider:
    """Decides what becomes of the views of a project."""

    def __init__(self, workspace: Workspace, choices: AlgorithmChoices) -> None:
        self._settings = workspace.settings
        self._store = workspace.store
        self._catalogue = workspace.catalogue
        self._connections = workspace.connections
        self._choices = choices

    def pending_changes(self, name: str, until: int) -> tuple[PendingSchemaChange, ...]:
        """The schema changes up to `until` that concern a view and that it has not passed."""
        head, ledger = self._store.head.views[name], self._store.ledger
        entries = [entry for entry in ledger.entries_between(head.ts, until) if entry.reshaped]
        if not entries:
            return ()
        binding, keyed = self._catalogue.bindings[name], self._choices[name].kind.keyed
        return tuple(
            PendingSchemaChange(entry.ts, entry.source, change)
            for entry in entries
            for change in entry.reshaped
            if is_affected(change, entry.source, binding, keyed)
        )

    def follow_names(self, name: str, until: int) -> tuple[Binding, tuple[str, ...]] | None:
        """A report with the names that what it reads has got up to `until`, and why; None if none
        is new.

        Its graph asks by handles and goes on as it is. But when a table is gone its SQL is all that
        is left, and the names in it may have passed to others by then.
        """
        binding = self._catalogue.bindings[name]
        head, ledger = self._store.head.views[name], self._store.ledger
        if binding.graph is None:
            return None
        known = {(each.source, each.table, each.column): each for each in binding.followed}
        causes = []
        for entry in ledger.entries_between(head.ts, until):
            for change in entry.reshaped:
                if change.kind in RENAMES and is_read(change, entry.source, binding):
                    place = (entry.source, change.table, change.column)
                    known[place] = FollowedName(*place, change.now)
                    causes.append(f"{entry.source}.{change}")
        followed = tuple(known.values())
        if followed == binding.followed:
            return None
        return replace(binding, followed=followed), tuple(causes)

    def decide_view(self, name: str, changes: Sequence[PendingSchemaChange]) -> Decision:
        """What a view becomes by these changes; a SourceAwayError if that cannot be seen now."""
        binding = self._catalogue.bindings[name]
        for _ in range(MOVES_MAX):
            became = self._current_tables(binding)
            decision = self._decide_once(name, changes, became)
            if self._current_tables(binding) == became:
                break
        return decision

    def is_still_right(self, name: str, proposal: Proposal) -> bool:
        """Whether what is followed for a proposal, from now on whatever it is called, is what it
        was decided for: names may have passed to others in between."""
        new = self._current_tables(proposal.binding)
        return not self.has_moved(name, proposal) and all(
            found is not None and all(c.lower() == n.lower() for c, n in found.columns.items())
            for found in new.values()
        )

    def has_moved(self, name: str, proposal: Proposal) -> bool:
        """Whether the tables of a view are no longer what they were when this was decided."""
        return self._current_tables(self._catalogue.bindings[name]) != proposal.became

    def _decide_once(
        self, name: str, changes: Sequence[PendingSchemaChange], became: NamesNow
    ) -> Decision:
        policy = self._settings.evolution.evolution_of(name).policies.policy_for(
            each.change for each in changes
        )
        if policy == "exception":
            return Halt(_halt_reason(changes, "its policy is `exception`", (reload_hint([name]),)))
        try:
            if self._catalogue.bindings[name].graph is not None:
                proposal = self._propose_report(name, changes, became)
            else:
                rewriting = self._rewrite_definition(name, policy, became)
                if isinstance(rewriting, NoRewriting):
                    return Halt(_halt_reason(changes, rewriting.reason, rewriting.mends))
                proposal = self._make_proposal(name, rewriting, changes, became)
        except (DefinitionError, SchemaError, ProjectError) as error:
            return Halt(_halt_reason(changes, str(error), self._way_out(name)))
        return Approval(proposal) if policy == "approve" else proposal

    def _way_out(self, name: str) -> tuple[str, ...]:
        """What helps a view whose text cannot be bound any more: another text."""
        return (manual_remedy(self._catalogue.bindings[name].parsed),)

    def _rewrite_definition(
        self, name: str, policy: Policy, became: NamesNow
    ) -> Rewriting | NoRewriting:
        if policy == "try_evolve":
            found = self._synchronize_definition(name, became, null_for_lost=False)
            if isinstance(found, Rewriting):
                return found
            return self._synchronize_definition(name, became, null_for_lost=True)
        lenient = policy in ("lenient", "ignore")
        return self._synchronize_definition(name, became, lenient, keep_columns=policy == "ignore")

    def _synchronize_definition(
        self, name: str, became: NamesNow, null_for_lost: bool, keep_columns: bool = False
    ) -> Rewriting | NoRewriting:
        binding = self._catalogue.bindings[name]
        return synchronize_view(
            binding.parsed,
            became,
            self._fields_now,
            self._settings.evolution.evolution_of(name).preferences,
            self._settings.evolution.substitutes,
            null_for_lost=null_for_lost,
            keep_columns=keep_columns,
            lost_types=column_types(binding),
        )

    def _current_tables(self, binding: Binding) -> dict[Relation, CurrentNames | None]:
        return {Relation(b.source, b.table): self._table_now(b) for b in binding.bound}

    def _table_now(self, table: DefinitionTable) -> CurrentNames | None:
        if table.source == PROJECT:
            return CurrentNames(table.table, {name: name for name in table.fields.names})
        return names_now_of(self._connections.get_source(table.source), table.handle)

    def _fields_now(self, relation: Relation) -> tuple[Field, ...] | None:
        if relation.is_own:
            return self._catalogue.fields_of_view(relation.table)
        if relation.source not in self._connections.settings:
            return None
        source = self._connections.get_source(relation.source)
        try:
            return source.describe_table(source.handle_of(relation.table)).fields
        except SchemaError:
            return None

    def _make_proposal(
        self,
        name: str,
        rewriting: Rewriting,
        changes: Sequence[PendingSchemaChange],
        became: NamesNow,
    ) -> Proposal:
        from viewkeeper.view.sql.view_statement import parse_view

        old = self._catalogue.bindings[name]
        parsed = parse_view(rewriting.text, old.parsed.path)
        new = bind_now(parsed, self._connections, self._catalogue)
        choice = self._choices.choice_of(name, new.view)
        found = choose_adaptation(
            self._choices[name].view,
            choice.view,
            same_columns(old, new, became),
            frozenset(_rewritten_columns(changes)),
            added=frozenset(_added_columns(changes, old, new, became)),
        )
        head = self._store.head.views[name]
        if choice.hidden_columns != head.hidden or _comes_back(head, choice.view, found):
            found = Reload()
        causes = tuple(dict.fromkeys((*map(str, changes), *rewriting.steps)))
        return Proposal(new, choice, causes, rewriting.extent.value, found, became)

    def _propose_report(
        self, name: str, changes: Sequence[PendingSchemaChange], became: NamesNow
    ) -> Proposal:
        """A report is compiled again from its text: its tables have other columns or types now."""
        old = self._catalogue.bindings[name]
        new = bind_report_again(old, became, self._connections, self._catalogue)
        choice = self._choices.choice_of(name, new.view)
        return Proposal(new, choice, tuple(map(str, changes)), "equal", Reload(), became)


def is_affected(change: SchemaChange, source: str, binding: Binding, keyed: bool) -> bool:
    """Whether a view must do something about a schema change."""
    relation = Relation(source, change.table)
    if relation not in binding.view.relations:
        return False
    if binding.graph is not None and change.kind in FOLLOWED_BY_HANDLE:
        return False
    match change.kind:
        case "rename_table" | "drop_table" | "recreate_table":
            return True
        case "change_key":
            # A report may be compiled by what its keys promise.
            return keyed or binding.graph is not None
        case "add_column" | "add_filled_column":
            return _takes_in(binding, relation, change.column)
        case "rename_column" | "widen_type" | "drop_column" | "change_type" | "rewrite":
            return is_read(change, source, binding)
        case _:
            assert_never(change.kind)


def is_read(change: SchemaChange, source: str, binding: Binding) -> bool:
    """Whether a view reads the table, or the column, that a schema change is about."""
    relation = Relation(source, change.table)
    if relation not in binding.view.relations:
        return False
    used = {field.name.lower() for field in binding.view.fields_of(relation)}
    return not change.column or change.column.lower() in used


def _takes_in(binding: Binding, relation: Relation, column: str) -> bool:
    """Whether a star of the view stands for this table, and the column is not in it yet."""
    seen = next(b.fields.names for b in binding.bound if Relation(b.source, b.handle) == relation)
    if column.lower() in {name.lower() for name in seen}:
        return False
    from viewkeeper.view.sql.stars import star_aliases

    aliases = {p.alias.lower() for p in binding.view.places if p.relation == relation}
    return any(star is None or star in aliases for star in star_aliases(binding.parsed))


def _rewritten_columns(changes: Iterable[PendingSchemaChange]) -> Iterator[tuple[Relation, str]]:
    for each in changes:
        if each.change.kind in ("change_type", "rewrite"):
            yield Relation(each.source, each.change.table), each.change.column


def _added_columns(
    changes: Iterable[PendingSchemaChange], old: Binding, new: Binding, became: NamesNow
) -> Iterator[tuple[Relation, str]]:
    """The columns of the new definition that are NULL in all rows from before."""
    handles = {(b.source, b.table): Relation(b.source, b.handle) for b in new.bound}
    for each in changes:
        for b in old.bound:
            now = became[Relation(b.source, b.table)]
            mine = (b.source, b.handle) == (each.source, each.change.table)
            if each.change.kind == "add_column" and mine and now is not None:
                handle = handles.get((b.source, now.table))
                if handle is not None:
                    yield handle, each.change.column


def _comes_back(head: ViewHead, view: ViewDefinition, found: Adaptation) -> bool:
    """Whether a column gets a name that old files may still have another column under."""
    if isinstance(found, Nothing | Reload):
        return False
    before = {name.lower() for version in head.versions for name in version.columns}
    now = {name.lower() for name in head.schema.names}
    return any(o.name.lower() in before - now for o in view.outputs)


def _halt_reason(changes: Iterable[PendingSchemaChange], reason: str, mends: Iterable[str]) -> str:
    lines = [*dict.fromkeys(map(str, changes)), reason]
    return "\n".join([*lines, *(f"  hint: {mend}" for mend in mends)])


def needs_rows(found: Adaptation) -> bool:
    """Whether rows must be read from the sources."""
    match found:
        case Nothing() | Restate():
            return False
        case Difference() | Reload():
            return True
        case _:
            assert_never(found)


class PendingDecisions:
    """The views of a project of which something is decided."""

    def __init__(self, workspace: Workspace, choices: AlgorithmChoices) -> None:
        self._store = workspace.store
        self._catalogue = workspace.catalogue
        self._connections = workspace.connections
        self._tell = workspace.observer.on_schema_change
        self._say_state = workspace.observer.on_state_change
        self._choices = choices
        self._proposals = Proposals(workspace.store.root)
        self.waits: dict[str, Proposal] = {}
        """Views that are to be loaded under another definition."""
        self._held: dict[str, Proposed] = {}
        """Views that wait for the user's decision."""
        self._decided: dict[str, int] = {}
        self._asks: dict[str, str] = {}
        """Sources that must answer before it can be decided what becomes of a view."""

    @property
    def has_any(self) -> bool:
        """Whether something is decided and not done, or waits for somebody."""
        return bool(self.waits or self._held or self._asks)

    def note_decided(self, name: str) -> None:
        """What becomes of a view is decided, until something new comes."""
        self._decided[name] = self._store.ledger.next_ts

    def decide_again(self, name: str) -> None:
        """Decide about a view again the next time, whether or not something new has come."""
        self._decided.pop(name, None)

    def await_source(self, name: str, source: str) -> None:
        """A source must answer before it can be decided what becomes of a view."""
        self._asks[name] = source

    def await_load(self, name: str, proposal: Proposal) -> None:
        """A view is to be loaded as it is proposed."""
        self.waits[name] = proposal

    def forget_load(self, name: str) -> None:
        """A view is not loaded as it was proposed."""
        self.waits.pop(name, None)
        self._decided.pop(name, None)
        self._catalogue.coming.pop(name, None)

    def clear_proposal(self, name: str) -> None:
        """What was proposed for a view is done, or not wanted any more."""
        self._proposals.clear_proposals([name])

    def is_settled(self, name: str) -> bool:
        """Whether nothing has come since it was decided that a view waits."""
        if name in self._asks and not self._connections.can_ask([self._asks[name]]):
            return True
        if self._decided.get(name) != self._store.ledger.next_ts:
            return False
        if name in self._choices.provisional:
            return True
        held = self._held.get(name)
        return name in self.waits or (
            held is not None and self._proposals.decision_of(held) is None
        )

    def is_blocked(self, name: str, loading: bool) -> bool:
        """Whether a view can do nothing now but wait."""
        return self.is_settled(name) and (name not in self.waits or loading)

    def forget_view(self, name: str) -> None:
        """Nothing is decided of a view."""
        self._held.pop(name, None)
        self._asks.pop(name, None)
        self.forget_load(name)

    def check_approval(self, name: str, proposal: Proposal) -> Proposal | Halt | None:
        """What the user has decided about a proposal; None until then."""
        head = self._store.head.views[name]
        version = proposal.binding.make_version(head.ts, 0.0, proposal.causes, proposal.extent)
        before = self._catalogue.bindings[name].parsed.text
        kind = type(proposal.adaptation).__name__.lower()
        proposed = Proposed(name, version, before, kind, self._store.now())
        word = self._proposals.decision_of(proposed)
        if word is None:
            self._proposals.put_proposal(proposed)
            if name not in self._held:
                self._say_state(proposed.state_change)
            self._held[name] = proposed
            return None
        # What was said stays until it is done: a run that dies before need not ask again.
        self._held.pop(name, None)
        if word == "approve":
            return proposal
        causes = "\n".join(proposal.causes)
        again = f"`viewkeeper run` proposes it again, {reload_hint([name])} as written"
        return Halt(f"{causes}\nrejected\n  hint: {again}")

    def adaptation_reasons(self) -> dict[str, str]:
        """Why views wait."""
        waits = {
            name: "being brought over a schema change" if proposal.became else "being re-anchored"
            for name, proposal in self.waits.items()
        }
        return {**waits, **{name: HELD.format(name) for name in self._held}}
