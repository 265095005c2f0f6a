"""Mistakes that a fleet can be run with, to show that they would be found.

Each breaks one rule that consistency rests on; `docs/fleet-simulation.md` says what the checker
finds then. A mediator takes its rules as a value, and a mistake gives it another one; the other
mistakes are made by the simulated member itself.
"""

from __future__ import annotations

from enum import Enum

from viewkeeper.order.mediator import ALL_RULES, Mediator, WaitRules


class Mistake(Enum):
    """One rule that is broken."""

    NO_PARENT_WAIT = "an id is taken though a parent has not committed it"
    NO_LOG_WAIT = "an id is taken though the log has not been read up to it"
    TAKES_HIDDEN = "a state is taken that the parent does not show"
    READS_NEWEST = "a parent is asked for its newest rows, whatever they contain"
    REGISTERS_EARLY = "an id of a view is registered before the view has committed it"
    NO_FIRST_REPORT = "a reporter does not register where its log stands when a group begins"
    LOADS_ANYWHERE = "a new member loads though its parents stand apart"


_RULES = {
    Mistake.NO_PARENT_WAIT: WaitRules(parents=False),
    Mistake.NO_LOG_WAIT: WaitRules(bases=False),
    Mistake.TAKES_HIDDEN: WaitRules(shown_states=False),
}


def make_mediator(mistake: Mistake | None, n: int) -> Mediator:
    """A mediator, as it should be or with a mistake."""
    return Mediator(n, rules=_RULES.get(mistake, ALL_RULES) if mistake else ALL_RULES)
