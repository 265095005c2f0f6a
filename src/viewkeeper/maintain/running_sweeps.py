"""Sweeps at work: which question belongs to which of them.

A sweep is a generator that yields lookups and is sent answers. An algorithm may have one at work
(SWEEP) or many (Strobe, PVM); here each has a key, its questions get numbers, and a sweep goes on
when all answers of its stage are there. Nothing else is decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from itertools import count
from typing import Generic, TypeVar

from viewkeeper.delta.algebra import D
from viewkeeper.maintain.algorithm_protocol import Answered, AskAction
from viewkeeper.maintain.view_change import SweepGenerator
from viewkeeper.updates.source_protocol import Answer, Lookup

K = TypeVar("K", bound=Hashable)


@dataclass(slots=True)
class _Stage(Generic[K, D]):
    key: K
    sweep: SweepGenerator[D]
    answers: list[Answer | None]


class RunningSweeps(Generic[K, D]):
    """Sweeps by key; `known` says up to which position a source's changes are known."""

    def __init__(self, known: Callable[[str], int]) -> None:
        self._known = known
        self._numbers = count(1)
        self._waiting: dict[int, tuple[_Stage[K, D], int]] = {}
        self.finished: list[tuple[K, D]] = []
        """Results of sweeps that ended; whoever uses them takes them out."""

    def __len__(self) -> int:
        """How many sweeps are at work."""
        return len({id(stage) for stage, _ in self._waiting.values()})

    def start_sweep(self, key: K, sweep: SweepGenerator[D]) -> list[AskAction]:
        """Begin a sweep: its first questions, or none if it ended at once."""
        return self._go_on(key, sweep, None)

    def take_answer(self, event: Answered) -> list[AskAction]:
        """Hand over an answer: the questions that follow from it."""
        stage, at = self._waiting.pop(event.number)
        stage.answers[at] = event.answers[0]
        answers = [answer for answer in stage.answers if answer is not None]
        if len(answers) < len(stage.answers):
            return []
        return self._go_on(stage.key, stage.sweep, tuple(answers))

    def take_results(self) -> list[tuple[K, D]]:
        """The results of sweeps that ended since the last call."""
        ended, self.finished = self.finished, []
        return ended

    def _go_on(
        self, key: K, sweep: SweepGenerator[D], answers: tuple[Answer, ...] | None
    ) -> list[AskAction]:
        try:
            lookups = next(sweep) if answers is None else sweep.send(answers)
        except StopIteration as ended:
            self.finished.append((key, ended.value))
            return []
        stage = _Stage(key, sweep, [None] * len(lookups))
        return [self._ask_lookup(stage, at, lookup) for at, lookup in enumerate(lookups)]

    def _ask_lookup(self, stage: _Stage[K, D], at: int, lookup: Lookup) -> AskAction:
        number = next(self._numbers)
        self._waiting[number] = (stage, at)
        source = lookup.relation.source
        return AskAction(number, source, self._known(source), (lookup,))
