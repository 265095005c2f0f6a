"""Recompute: read every relation and replace the view. The specification, and the simplest way.

Citation: none needed; the Strobe paper names it as the alternative that moves all base data (Zhuge,
Garcia-Molina, Wiener 1996, section 1).

Assumes: every answer knows its cut, and all relations of one source are read under one cut.

Guarantees: strong consistency for single updates and transactions of one source, since a state is
the view at one cut of every source and cuts only move on; weak consistency for global transactions,
which cuts of different sources may have in part.

Invariants:
1. One recomputation at a time; what arrives meanwhile only makes another one follow.
2. A cut with holes stands for no prefix of its source's transactions: that source is asked again.
3. A commit waits until everything that its cuts include was delivered, and gives it its ts.

Symbols: none.
"""

from __future__ import annotations

from itertools import count
from typing import Generic

import pyarrow as pa

from viewkeeper.delta.algebra import TS, Algebra, D
from viewkeeper.maintain.algorithm_protocol import (
    Action,
    Answered,
    AskAction,
    Delivered,
    Event,
    ResumePoint,
)
from viewkeeper.maintain.query_terms import join_given_rows
from viewkeeper.maintain.unit_intake import UnitIntake
from viewkeeper.updates.source_protocol import Answer, Lookup
from viewkeeper.updates.view_actions import ReplaceRows
from viewkeeper.view.definition import ViewDefinition
from viewkeeper.view.sweep_plan import SweepPlan


def whole_lookups(view: ViewDefinition, source: str) -> tuple[Lookup, ...]:
    """The questions for all rows of every relation of a source."""
    found = []
    for relation in (each for each in view.relations if each.source == source):
        place = next(p.index for p in view.places if p.relation == relation)
        columns = tuple(field.name for field in view.fields_of(relation))
        found.append(Lookup(place, relation, columns, on=(), null_safe=(), keys=None))
    return tuple(found)


class Recompute(Generic[D]):
    """Recomputation whenever something has changed."""

    def __init__(self, algebra: Algebra[D], plan: SweepPlan, resume: ResumePoint) -> None:
        self._algebra = algebra
        self._plan = plan
        self._intake = UnitIntake(plan.view, resume, apart=True)
        self._numbers = count(1)
        self._asked: dict[int, str] = {}
        self._answers: dict[str, tuple[Answer, ...]] = {}
        """Per source the answers of the recomputation at work, one for each relation."""

    def receive_event(self, event: Event) -> list[Action]:
        actions: list[Action] = []
        if isinstance(event, Delivered):
            self._intake.take_delivery(event)
        else:
            actions += self._take_answer(event)
        return actions + self._commit_answers() + self._ask_all()

    def _ask_all(self) -> list[Action]:
        """Ask every source, if there is something new and nothing at work."""
        if self._asked or self._answers or not self._intake.can_take:
            return []
        return self._ask_sources(self._plan.view.sources)

    def _ask_sources(self, sources: tuple[str, ...]) -> list[Action]:
        asks = []
        for source in sources:
            number = next(self._numbers)
            self._asked[number] = source
            known = self._intake.backlog.known_position(source)
            lookups = whole_lookups(self._plan.view, source)
            asks.append(AskAction(number, source, known, lookups))
        return self._intake.note_asks(asks)

    def _take_answer(self, event: Answered) -> list[Action]:
        self._intake.note_answer(event)
        source = self._asked.pop(event.number)
        if event.answers[0].cut.missing:
            return self._ask_sources((source,))
        self._answers[source] = event.answers
        return []

    def _commit_answers(self) -> list[Action]:
        """The commit, once all sources have answered and all that they saw was delivered."""
        if len(self._answers) < len(self._plan.view.sources) or not self._intake.can_take:
            return []
        cuts = {source: answers[0].cut.position for source, answers in self._answers.items()}
        if any(self._intake.backlog.known_position(source) < cut for source, cut in cuts.items()):
            return []
        actions: list[Action] = []
        stamps = []
        taken = [self._intake.take_unit() for _ in range(self._intake.resumed_count)]
        inside = [u for u in self._intake.waiting if all(t.position <= cuts[t.source] for t in u)]
        for each in taken + [self._intake.take_unit(unit) for unit in inside]:
            actions += each.stamp_actions
            stamps.append(each.ts)
        rows = self._view_rows()
        self._answers = {}
        return actions + self._intake.commit_units(stamps, [ReplaceRows(rows)])

    def _view_rows(self) -> pa.Table:
        """The view over what the sources have answered."""
        found = {
            lookup.relation: answer.rows
            for source, answers in self._answers.items()
            for lookup, answer in zip(whole_lookups(self._plan.view, source), answers, strict=True)
        }
        bound = {p.index: found[p.relation].select(p.columns) for p in self._plan.view.places}
        rows = join_given_rows(self._algebra, self._plan, bound)
        return self._algebra.lower_delta(rows).drop_columns([TS])

    @property
    def is_idle(self) -> bool:
        return self._intake.is_idle
