"""What was decided of views and is not done yet: loads, approvals, sources that must answer first.

A decision holds until something new has come: it is known by the first ts that the ledger had not
given out when it was made. Then it is made again from what the sources say.
"""

from __future__ import annotations

from viewkeeper.engine.evolution.proposals import HELD, Proposals, Proposed
from viewkeeper.engine.evolution.schema_decision import Halt, Proposal
from viewkeeper.engine.views.algorithm_choice import AlgorithmChoices
from viewkeeper.engine.views.workspace import Workspace
from viewkeeper.errors import reload_hint


class PendingDecisions:
    """The views of a project of which something is decided."""

    def __init__(self, workspace: Workspace, choices: AlgorithmChoices) -> None:
        self._store = workspace.store
        self._catalogue = workspace.catalogue
        self._connections = workspace.connections
        self._tell = workspace.observer.on_schema_change
        self._choices = choices
        self._proposals = Proposals(workspace.store.root)
        self.waits: dict[str, Proposal] = {}
        """Views that are to be loaded under another definition."""
        self._held: dict[str, Proposed] = {}
        """Views that wait for the user's decision."""
        self._decided: dict[str, int] = {}
        self._asks: dict[str, str] = {}
        """Sources that must answer before it can be decided what becomes of a view."""

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
                self._tell(name, f"held, see `viewkeeper changes {name}`")
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
