"""Mistakes that a fleet can be run with, to show that they would be found.

Each breaks one rule that consistency rests on; `docs/fleet-simulation.md` says what the checker
finds then. The production code is changed by subclasses, never by a switch of its own.
"""

from __future__ import annotations

from enum import Enum

from viewkeeper.order.mediator import Mediator, RegisteredBase
from viewkeeper.order.registry_protocol import OrderedId


class Mistake(Enum):
    """One rule that is broken."""

    NO_PARENT_WAIT = "an id is taken though a parent has not committed it"
    NO_LOG_WAIT = "an id is taken though the log has not been read up to it"
    TAKES_HIDDEN = "a state is taken that the parent does not show"
    READS_NEWEST = "a parent is asked for its newest rows, whatever they contain"
    REGISTERS_EARLY = "an id of a view is registered before the view has committed it"
    NO_FIRST_REPORT = "a reporter does not register where its log stands when a group begins"
    LOADS_ANYWHERE = "a new member loads though its parents stand apart"


class _NoParentWait(Mediator):
    def _missing_source(self, each: OrderedId) -> str | None:
        source = super()._missing_source(each)
        return source if source and isinstance(self._upstream[source], RegisteredBase) else None


class _NoLogWait(Mediator):
    def _missing_source(self, each: OrderedId) -> str | None:
        source = super()._missing_source(each)
        return None if source and isinstance(self._upstream[source], RegisteredBase) else source


class _TakesHidden(Mediator):
    def _is_shown(self, n: int) -> bool:
        return True


_MADE: dict[Mistake, type[Mediator]] = {
    Mistake.NO_PARENT_WAIT: _NoParentWait,
    Mistake.NO_LOG_WAIT: _NoLogWait,
    Mistake.TAKES_HIDDEN: _TakesHidden,
}


def make_mediator(mistake: Mistake | None, n: int) -> Mediator:
    """A mediator, as it should be or with a mistake."""
    return (_MADE.get(mistake, Mediator) if mistake else Mediator)(n)
