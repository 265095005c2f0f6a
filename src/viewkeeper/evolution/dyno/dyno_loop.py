"""Dyno: data updates and schema changes of autonomous sources, in an order that can be maintained.

Citation: Chen, Chen, Zhang, Rundensteiner: Detection and Correction of Conflicting Concurrent Data
Warehouse Updates (2001), section 6.3, figure 11.

Assumes: every source reports its transactions in order; a reply is handed over when everything that
it saw was reported (the paper's FIFO channels, or cuts); tables have identities.

Guarantees: strong consistency; complete where all schema changes keep values and the inner
algorithm is complete.

Invariants:
1. The queue has every report that is not in the view, in the order of arrival; the order of units
   has exactly the same reports.
2. One unit (or a run of units of rows alone) is at work at a time. What is at work and not
   committed leaves no trace when it is aborted: `_undo_work`.
3. A unit is maintained under the definition after its own schema changes and those done before it.
   Schema changes that keep values, and dispensable drops, are done at once; its rows follow, by the
   inner algorithm. For all others the relations are read whole, and unit and rows are one commit.
4. A commit claims, per source, the longest prefix that is in the view, but for what moves nothing:
   a rename may be done before what it stands behind, or after what stands behind it.

Symbols: UMQ is the queue; steps 1 to 3 are `_correct_order`, step 4 `_begin_unit`, steps 5 and 7
`_undo_work`, step 6 the comparison of identities in `_handle_reply`, step 8 `_finish_reports`. VS
is `rewriting.Rewriter`, VA `work.Rereading`, VM the inner algorithm, any of the sweep family.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, assert_never

from viewkeeper.delta.algebra import Algebra
from viewkeeper.evolution.adaptation import Adaptation, Nothing
from viewkeeper.evolution.correction import legal_order_of
from viewkeeper.evolution.dependencies import ReceivedUpdate
from viewkeeper.evolution.dyno.dyno_events import (
    Action,
    BrokenQuestion,
    DynoQuestion,
    DynoRedefinition,
    DynoReply,
    DynoReport,
    DynoStamp,
    DynoStop,
    Event,
)
from viewkeeper.evolution.dyno.foresight import Foresight, QueuedReport, ReportQueue, Unit
from viewkeeper.evolution.dyno.rewriter import Rewriter, Wishes, is_reading_needed
from viewkeeper.evolution.dyno.table_identity import BoundDefinition, DynoShapes
from viewkeeper.evolution.dyno.unit_work import Rereading, RowMaintenance, Work, WorkOutcome
from viewkeeper.evolution.synchronization.synchronize import NoRewriting
from viewkeeper.maintain.algorithm_catalogue import KINDS
from viewkeeper.maintain.algorithm_protocol import CommitAction
from viewkeeper.updates.view_actions import ViewAction

WIDTHS: Mapping[str, int | None] = {"sweep": 1, "pvm": 4, "pvm_cc": 4, "batch_sweep": None}
"""How many units of rows an algorithm is given at a time; None: all that there are."""


@dataclass(frozen=True, slots=True)
class Detection:
    """When dependencies on schema changes are looked for (section 6.1.2).

    `before` a unit is taken; `during` its queries, when one breaks; `after` each of them, by the
    identity of what it was answered from.
    """

    before: bool = True
    during: bool = True
    after: bool = True


PESSIMISTIC = Detection()
OPTIMISTIC = Detection(before=False)


@dataclass(frozen=True, slots=True)
class DynoSetting:
    """What a Dyno is made of: the inner algorithm, and how schema changes are noticed."""

    algorithm: str = "sweep"
    detection: Detection = PESSIMISTIC
    asking: Literal["name", "handle"] = "name"
    options: Mapping[str, Any] = field(default_factory=dict)


class Dyno:
    """The loop of figure 11 around one view."""

    def __init__(
        self,
        algebra: Algebra[Any],
        definition: BoundDefinition,
        shapes: DynoShapes,
        wishes: Wishes,
        setting: DynoSetting,
    ) -> None:
        self._algebra = algebra
        self._setting = setting
        self._rewriter = Rewriter(wishes)
        self.definition = definition
        self._shapes = shapes
        self._queue = ReportQueue(source for source, _ in shapes.tables)
        self._work: Work | None = None
        self._asked: set[int] = set()
        self._numbers = 0
        self.stopped: DynoStop | None = None
        self.aborts = 0
        """How often something at work was undone."""
        self.merged = 0
        """How many units of several reports with schema changes among them were begun."""

    @property
    def is_idle(self) -> bool:
        """Whether everything reported is in the view, or nothing more will be."""
        return self.stopped is not None or not (self._queue.reports or self._work)

    def receive_event(self, event: Event) -> list[Action]:
        """What follows from an event."""
        if self.stopped is not None:
            return []
        match event:
            case DynoReport():
                self._queue.add_report(event)
                return self._go_on()
            case DynoReply() | BrokenQuestion():
                if event.number not in self._asked:
                    return []  # asked by something that was undone since
                return (
                    self._handle_reply(event)
                    if isinstance(event, DynoReply)
                    else self._handle_broken(event)
                )
            case _:
                assert_never(event)

    def _go_on(self) -> list[Action]:
        """Steps 1 to 4: take the next unit, as long as nothing is at work."""
        actions: list[Action] = []
        while self._work is None and self._queue.order and self.stopped is None:
            if self._setting.detection.before:
                self._correct_order()
            actions += self._begin_unit(self._queue.order[0])
        return actions

    def _correct_order(self) -> None:
        """Steps 1 to 3: a legal order of everything that is in the queue."""
        units = legal_order_of(self._queued_updates())
        self._queue.put_order(tuple(update.id for update in unit) for unit in units)

    def _queued_updates(self) -> list[ReceivedUpdate]:
        """The queue as dependencies see it."""
        asking = self._setting.asking
        foresight = Foresight(self.definition, self._shapes, self._rewriter, asking)
        return foresight.updates_of(self._queue.waiting_reports())

    def _begin_unit(self, unit: Unit) -> list[Action]:
        """Step 4: the unit's schema changes, and then its rows."""
        reshaping = [each for n in unit if (each := self._queue.reports[n]).has_open_shapes]
        if not reshaping:
            return self._run_rows(unit)
        self.merged += len(unit) > 1
        after, shapes = self._synchronize_definition(reshaping)
        if isinstance(after, NoRewriting):
            self.stopped = DynoStop(after.reason, after.mends)
            return [self.stopped]
        added = frozenset(
            ((each.report.source, table), column)
            for each in reshaping
            for table, column in each.report.added
        )
        needed = self._rewriter.repair(self.definition, after, added)
        if is_reading_needed(needed):
            return self._begin_rereading(unit, after, shapes, needed)
        return self._settle_schema(reshaping, after, shapes, needed)

    def _synchronize_definition(
        self, reshaping: Iterable[QueuedReport]
    ) -> tuple[BoundDefinition | NoRewriting, DynoShapes]:
        """VS: the definition after these schema changes, one after the other."""
        definition, shapes = self.definition, self._shapes
        for each in reshaping:
            shapes = shapes.apply_change(each.report.source, each.report.shapes)
            found = self._rewriter.rewritten(definition, shapes)
            if isinstance(found, NoRewriting):
                return found, shapes
            definition = found
        return definition, shapes

    def _settle_schema(
        self,
        reshaping: list[QueuedReport],
        after: BoundDefinition,
        shapes: DynoShapes,
        needed: Adaptation,
    ) -> list[Action]:
        """Schema changes that need no reading: done now, the rows of the unit follow."""
        plain = isinstance(needed, Nothing) and after.parsed.text == self.definition.parsed.text
        self.definition, self._shapes = after, shapes
        through = []
        for each in reshaping:
            each.settle_schema()
            if not each.report.rows:
                through.append(each.number)
        stamp, commit = self._finish_reports(through, [])
        return [stamp, commit if plain else DynoRedefinition(after, needed, commit)]

    def _begin_rereading(
        self, unit: Unit, after: BoundDefinition, shapes: DynoShapes, needed: Adaptation
    ) -> list[Action]:
        """Schema changes that need reading: VA, and everything of the unit is one commit."""
        work = Rereading(self._algebra, unit, after, shapes, needed)
        self._work = work
        return self._number_questions(work.begin_reading())

    def _run_rows(self, unit: Unit) -> list[Action]:
        """Rows alone: this unit, and those after it that the algorithm may have with it."""
        kind = KINDS[self._setting.algorithm]
        width = WIDTHS[self._setting.algorithm]
        run = list(unit)
        for taken, other in enumerate(self._queue.order[1:], 1):
            full = width is not None and taken >= width
            if full or any(self._queue.reports[n].has_open_shapes for n in other):
                break
            run += other
        make = partial(kind.make, self._algebra, **self._setting.options)
        work = RowMaintenance(make, self.definition, self._queue.ts, tuple(run))
        self._work = work
        outcome = work.begin_run({n: self._queue.reports[n].report for n in run})
        return self._apply_outcome(outcome)

    def _handle_reply(self, event: DynoReply) -> list[Action]:
        work = self._work
        assert work is not None, "somebody asked"
        if self._setting.detection.after and not work.questions.is_meant(event):
            return self._undo_work()
        self._asked.remove(event.number)
        later = [e.report for n, e in self._queue.reports.items() if n not in work.unit]
        return self._apply_outcome(work.take_reply(event, later))

    def _handle_broken(self, event: BrokenQuestion) -> list[Action]:
        """Step 5; without that detection one could only ask again."""
        if self._setting.detection.during:
            return self._undo_work()
        work = self._work
        assert work is not None, "somebody asked"
        self._asked.remove(event.number)
        return self._number_questions([work.questions.question_of(event.number)])

    def _undo_work(self) -> list[Action]:
        """Steps 5 and 7: forget what is at work, correct the order, and begin again."""
        self.aborts += 1
        self._work = None
        self._asked.clear()
        self._correct_order()
        return self._go_on()

    def _number_questions(self, questions: Iterable[DynoQuestion]) -> list[Action]:
        """Questions get numbers that no other question of this view ever had."""
        asked: list[Action] = []
        for question in questions:
            self._numbers += 1
            self._asked.add(self._numbers)
            assert self._work is not None, "something at work asks"
            self._work.questions.number_question(question.number, self._numbers)
            asked.append(replace(question, number=self._numbers))
        return asked

    def _apply_outcome(self, outcome: WorkOutcome) -> list[Action]:
        """Commit what is done, ask what is asked, and go on where nothing is left of the work."""
        actions: list[Action] = []
        work = self._work
        for committed in outcome.commits:
            actions += self._commit_units(committed.units, committed.changes)
        if isinstance(work, Rereading) and outcome.commits:
            self.definition, self._shapes = work.after, work.shapes
            commit = actions.pop()
            assert isinstance(commit, CommitAction), "it was made just now"
            actions.append(DynoRedefinition(work.after, work.needed, commit))
        actions += self._number_questions(outcome.questions)
        if outcome.ended:
            self._work = None
            actions += self._go_on()
        return actions

    def _commit_units(self, units: Iterable[Unit], changes: Iterable[ViewAction]) -> list[Action]:
        """One commit of several units, each with a ts of its own."""
        stamps: list[DynoStamp] = []
        commit: CommitAction | None = None
        for unit in units:
            stamp, commit = self._finish_reports(unit, changes)
            stamps.append(stamp)
        assert commit is not None, "a commit is of something"
        return [*stamps, commit]

    def _finish_reports(
        self, numbers: Iterable[int], changes: Iterable[ViewAction]
    ) -> tuple[DynoStamp, CommitAction]:
        """Step 8: reports are in the view, and leave the queue."""
        return self._queue.finish_reports(numbers, self._shapes, changes)
