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
   committed leaves no trace when it is aborted: `_undo`.
3. A unit is maintained under the definition after its own schema changes and those done before it.
   Schema changes that keep values, and dispensable drops, are done at once; its rows follow, by the
   inner algorithm. For all others the relations are read whole, and unit and rows are one commit.
4. A commit claims, per source, the longest prefix that is in the view, but for what moves nothing:
   a rename may be done before what it stands behind, or after what stands behind it.

Symbols: UMQ is the queue; steps 1 to 3 are `_correct`, step 4 `_begin`, steps 5 and 7 `_undo`, step
6 the comparison of identities in `_replied`, step 8 `_finish`. VS is `rewriting.Rewriter`, VA
`work.Rereading`, VM the inner algorithm, any of the sweep family.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, assert_never

from viewkeeper.delta.algebra import Algebra
from viewkeeper.evolution.adaptation import Adaptation, Nothing
from viewkeeper.evolution.correction import legal_order
from viewkeeper.evolution.dependencies import Update
from viewkeeper.evolution.dyno.dyno_events import (
    Action,
    Broke,
    Event,
    Question,
    Redefine,
    Replied,
    Report,
    Stamped,
    Stop,
)
from viewkeeper.evolution.dyno.foresight import Foresight, moving
from viewkeeper.evolution.dyno.rewriter import Rewriter, Wishes, rereads
from viewkeeper.evolution.dyno.table_identity import Definition, Shapes
from viewkeeper.evolution.dyno.unit_work import Outcome, Rereading, Running, Work
from viewkeeper.evolution.synchronization import Impossible
from viewkeeper.maintain.algorithm_catalogue import KINDS
from viewkeeper.maintain.algorithm_protocol import Change, Commit

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
class Setting:
    """What a Dyno is made of: the inner algorithm, and how schema changes are noticed."""

    algorithm: str = "sweep"
    detection: Detection = PESSIMISTIC
    asking: Literal["name", "handle"] = "name"
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Received:
    """A report in the queue; `settled`: its schema changes are done, its rows are not."""

    number: int
    report: Report
    settled: bool = False

    @property
    def shapes(self) -> bool:
        return bool(self.report.shapes) and not self.settled


Unit = tuple[int, ...]


class Dyno:
    """The loop of figure 11 around one view."""

    def __init__(
        self,
        algebra: Algebra[Any],
        definition: Definition,
        shapes: Shapes,
        wishes: Wishes,
        setting: Setting,
    ) -> None:
        self._algebra = algebra
        self._setting = setting
        self._rewriter = Rewriter(wishes)
        self.definition = definition
        self._shapes = shapes
        self._queue: dict[int, Received] = {}
        self._order: list[Unit] = []
        self._received = 0
        self._ts = 0
        self._positions: dict[str, int] = {source: 0 for source, _ in shapes.tables}
        self._done_positions: set[tuple[str, int]] = set()
        """What is in the view and lies beyond what is claimed."""
        self._work: Work | None = None
        self._asked: set[int] = set()
        self._numbers = 0
        self.stopped: Stop | None = None
        self.aborts = 0
        """How often something at work was undone."""
        self.merged = 0
        """How many units of several reports with schema changes among them were begun."""

    @property
    def idle(self) -> bool:
        """Whether everything reported is in the view, or nothing more will be."""
        return self.stopped is not None or not (self._queue or self._work)

    def receive(self, event: Event) -> list[Action]:
        """What follows from an event."""
        if self.stopped is not None:
            return []
        match event:
            case Report():
                self._received += 1
                self._queue[self._received] = Received(self._received, event)
                self._order.append((self._received,))
                return self._go_on()
            case Replied() | Broke():
                if event.number not in self._asked:
                    return []  # asked by something that was undone since
                return self._replied(event) if isinstance(event, Replied) else self._broke(event)
            case _:
                assert_never(event)

    # -- the loop ----------------------------------------------------------------------------------

    def _go_on(self) -> list[Action]:
        """Steps 1 to 4: take the next unit, as long as nothing is at work."""
        actions: list[Action] = []
        while self._work is None and self._order and self.stopped is None:
            if self._setting.detection.before:
                self._correct()
            actions += self._begin(self._order[0])
        return actions

    def _correct(self) -> None:
        """Steps 1 to 3: a legal order of everything that is in the queue."""
        units = legal_order(self._updates())
        self._order = [tuple(update.id for update in unit) for unit in units]

    def _updates(self) -> list[Update]:
        """The queue as dependencies see it."""
        asking = self._setting.asking
        foresight = Foresight(self.definition, self._shapes, self._rewriter, asking)
        return foresight.updates(self._waiting())

    def _waiting(self) -> list[tuple[int, Report, bool]]:
        return [(each.number, each.report, each.shapes) for each in self._queue.values()]

    def _begin(self, unit: Unit) -> list[Action]:
        """Step 4: the unit's schema changes, and then its rows."""
        reshaping = [self._queue[n] for n in unit if self._queue[n].shapes]
        if not reshaping:
            return self._run(unit)
        self.merged += len(unit) > 1
        after, shapes = self._synchronized(reshaping)
        if isinstance(after, Impossible):
            self.stopped = Stop(after.reason, after.mends)
            return [self.stopped]
        added = frozenset(
            ((each.report.source, table), column)
            for each in reshaping
            for table, column in each.report.added
        )
        needed = self._rewriter.repair(self.definition, after, added)
        if rereads(needed):
            return self._reread(unit, after, shapes, needed)
        return self._settle(reshaping, after, shapes, needed)

    def _synchronized(
        self, reshaping: Iterable[Received]
    ) -> tuple[Definition | Impossible, Shapes]:
        """VS: the definition after these schema changes, one after the other."""
        definition, shapes = self.definition, self._shapes
        for each in reshaping:
            shapes = shapes.changed(each.report.source, each.report.shapes)
            found = self._rewriter.rewritten(definition, shapes)
            if isinstance(found, Impossible):
                return found, shapes
            definition = found
        return definition, shapes

    def _settle(
        self, reshaping: list[Received], after: Definition, shapes: Shapes, needed: Adaptation
    ) -> list[Action]:
        """Schema changes that need no reading: done now, the rows of the unit follow."""
        plain = isinstance(needed, Nothing) and after.parsed.text == self.definition.parsed.text
        self.definition, self._shapes = after, shapes
        through = []
        for each in reshaping:
            each.settled = True
            if not each.report.rows:
                through.append(each.number)
        stamp, commit = self._finish(through, [])
        return [stamp, commit if plain else Redefine(after, needed, commit)]

    def _reread(
        self, unit: Unit, after: Definition, shapes: Shapes, needed: Adaptation
    ) -> list[Action]:
        """Schema changes that need reading: VA, and everything of the unit is one commit."""
        work = Rereading(self._algebra, unit, after, shapes, needed)
        self._work = work
        return self._ask(work.begin())

    def _run(self, unit: Unit) -> list[Action]:
        """Rows alone: this unit, and those after it that the algorithm may have with it."""
        kind = KINDS[self._setting.algorithm]
        width = WIDTHS[self._setting.algorithm]
        run = list(unit)
        for taken, other in enumerate(self._order[1:], 1):
            full = width is not None and taken >= width
            if full or any(self._queue[n].shapes for n in other):
                break
            run += other
        work = Running(
            self._algebra, kind, self._setting.options, self.definition, self._ts, tuple(run)
        )
        self._work = work
        outcome = work.begin({n: self._queue[n].report for n in run})
        return self._done(outcome)

    # -- replies -----------------------------------------------------------------------------------

    def _replied(self, event: Replied) -> list[Action]:
        work = self._work
        assert work is not None, "somebody asked"
        if self._setting.detection.after and not work.is_meant(event):
            return self._undo()
        self._asked.remove(event.number)
        later = [e.report for n, e in self._queue.items() if n not in work.unit]
        return self._done(work.answer(event, later))

    def _broke(self, event: Broke) -> list[Action]:
        """Step 5; without that detection one could only ask again."""
        if self._setting.detection.during:
            return self._undo()
        work = self._work
        assert work is not None, "somebody asked"
        self._asked.remove(event.number)
        return self._ask([work.again(event.number)])

    def _undo(self) -> list[Action]:
        """Steps 5 and 7: forget what is at work, correct the order, and begin again."""
        self.aborts += 1
        self._work = None
        self._asked.clear()
        self._correct()
        return self._go_on()

    def _ask(self, questions: Iterable[Question]) -> list[Action]:
        """Questions get numbers that no other question of this view ever had."""
        asked: list[Action] = []
        for question in questions:
            self._numbers += 1
            self._asked.add(self._numbers)
            assert self._work is not None, "something at work asks"
            self._work.numbered(question.number, self._numbers)
            asked.append(replace(question, number=self._numbers))
        return asked

    # -- commits -----------------------------------------------------------------------------------

    def _done(self, outcome: Outcome) -> list[Action]:
        """Commit what is done, ask what is asked, and go on where nothing is left of the work."""
        actions: list[Action] = []
        work = self._work
        for committed in outcome.commits:
            actions += self._commit(committed.units, committed.changes)
        if isinstance(work, Rereading) and outcome.commits:
            self.definition, self._shapes = work.after, work.shapes
            commit = actions.pop()
            assert isinstance(commit, Commit), "it was made just now"
            actions.append(Redefine(work.after, work.needed, commit))
        actions += self._ask(outcome.questions)
        if outcome.ended:
            self._work = None
            actions += self._go_on()
        return actions

    def _commit(self, units: Iterable[Unit], changes: Iterable[Change]) -> list[Action]:
        """One commit of several units, each with a ts of its own."""
        stamps: list[Stamped] = []
        commit: Commit | None = None
        for unit in units:
            stamp, commit = self._finish(unit, changes)
            stamps.append(stamp)
        assert commit is not None, "a commit is of something"
        return [*stamps, commit]

    def _finish(self, numbers: Iterable[int], changes: Iterable[Change]) -> tuple[Stamped, Commit]:
        """Step 8: reports are in the view, and leave the queue."""
        gone = set(numbers)
        named = [(self._queue[n].report.source, self._queue[n].report.position) for n in gone]
        for n in gone:
            del self._queue[n]
        left = (tuple(n for n in unit if n not in gone) for unit in self._order)
        self._order = [unit for unit in left if unit]
        self._done_positions |= set(named)
        positions = self._claim()
        self._ts += 1
        commit = Commit(self._ts, positions, tuple(changes))
        return Stamped(self._ts, tuple(sorted(named)), positions), commit

    def _claim(self) -> dict[str, int]:
        """Invariant 4: what the view stands for now."""
        waiting = self._waiting()
        passable = {
            (report.source, report.position)
            for (_, report, _), moves in zip(waiting, moving(self._shapes, waiting), strict=True)
            if not moves
        }
        for source, position in self._positions.items():
            at = position + 1
            while (source, at) in self._done_positions or (source, at) in passable:
                if (source, at) in self._done_positions:
                    self._positions[source] = at
                at += 1
        self._done_positions = {
            (source, at) for source, at in self._done_positions if at > self._positions[source]
        }
        return dict(self._positions)
