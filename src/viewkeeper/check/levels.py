"""Consistency levels as data: four predicates on a history, and what each paper calls their sums.

The same word means different things in different papers: *weak* includes convergence in the Strobe
paper and not in the PVM paper, which also has a level, *consistency*, that the other does not name.
So a checker decides predicates, and a level is a name for some of them, with its citation.

Convergence at the end of a run is both papers'. A quiet moment in the middle is the end of a run
that happened to go on, so what is shown then must be legal at least (PVM says exactly that).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from viewkeeper.maintain.algorithm_protocol import Level


class Predicate(Enum):
    """What can be decided about a history."""

    CONVERGENT = "convergent"
    LEGAL = "legal"
    ORDERED = "ordered"
    COMPLETE = "complete"

    @property
    def meaning(self) -> str:
        return _MEANINGS[self]


_MEANINGS = {
    Predicate.CONVERGENT: "the last state is the view over the sources' final states, and every "
    "quiet state is legal",
    Predicate.LEGAL: "every state is the view over some number of transactions of each source",
    Predicate.ORDERED: "the states follow one serial order of all transactions, each of them "
    "whole, and never go back",
    Predicate.COMPLETE: "the states show that order transaction by transaction, none skipped",
}


LIMIT = 100_000
"""How many vectors a search may visit by default; beyond it the answer is unknown."""


class CheckAnswer(Enum):
    """Yes, no, or beyond the limit of the search."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


def all_of(answers: Iterable[CheckAnswer]) -> CheckAnswer:
    """Whether all hold: one no decides, and so does yes throughout.

    >>> all_of([CheckAnswer.YES, CheckAnswer.UNKNOWN])
    <CheckAnswer.UNKNOWN: 'unknown'>
    >>> all_of([CheckAnswer.UNKNOWN, CheckAnswer.NO])
    <CheckAnswer.NO: 'no'>
    """
    found = set(answers)
    if CheckAnswer.NO in found:
        return CheckAnswer.NO
    return CheckAnswer.UNKNOWN if CheckAnswer.UNKNOWN in found else CheckAnswer.YES


@dataclass(frozen=True, slots=True)
class NamedLevel:
    """A level as a paper names it, and the predicates that it is the sum of."""

    name: str
    needs: frozenset[Predicate]


@dataclass(frozen=True, slots=True)
class Ladder:
    """The levels of one paper, in its own order."""

    paper: str
    citation: str
    levels: tuple[NamedLevel, ...]

    def answers_by_level(self, found: Mapping[Predicate, CheckAnswer]) -> dict[str, CheckAnswer]:
        """For every level, whether the history has it."""
        return {level.name: all_of(found[need] for need in level.needs) for level in self.levels}

    def highest_levels(self, found: Mapping[Predicate, CheckAnswer]) -> list[str]:
        """The levels that a history has, without those that another of them subsumes."""
        answers = self.answers_by_level(found)
        held = [level for level in self.levels if answers[level.name] is CheckAnswer.YES]
        return [one.name for one in held if not any(one.needs < other.needs for other in held)]


_CONVERGENT = frozenset({Predicate.CONVERGENT})
_LEGAL = frozenset({Predicate.LEGAL})
_ORDERED = _LEGAL | {Predicate.ORDERED}
_COMPLETE = _ORDERED | {Predicate.COMPLETE}

STROBE = Ladder(
    "Strobe",
    "Zhuge, Garcia-Molina, Wiener: The Strobe Algorithms for Multi-Source Warehouse Consistency "
    "(1996), section 4.2",
    (
        NamedLevel(Level.CONVERGENCE.lower_name, _CONVERGENT),
        NamedLevel(Level.WEAK.lower_name, _CONVERGENT | _LEGAL),
        NamedLevel(Level.STRONG.lower_name, _CONVERGENT | _ORDERED),
        NamedLevel(Level.COMPLETE.lower_name, _CONVERGENT | _COMPLETE),
    ),
)
"""Each level subsumes those before it."""

PVM = Ladder(
    "PVM",
    "Zhang, Ding, Rundensteiner: Parallel multisource view maintenance (2003), section 4.1, "
    "definition 3",
    (
        NamedLevel("convergence", _CONVERGENT),
        NamedLevel("weak", _LEGAL),
        NamedLevel("consistency", _ORDERED),
        NamedLevel("strong", _CONVERGENT | _ORDERED),
        NamedLevel("complete", _CONVERGENT | _COMPLETE),
    ),
)
"""Convergence and weak are independent of each other; strong subsumes all before it."""

LADDERS = (STROBE, PVM)


def predicates_of(level: Level) -> frozenset[Predicate]:
    """The predicates that a level of the Strobe paper is the sum of."""
    return next((n.needs for n in STROBE.levels if n.name == level.lower_name), frozenset())
