"""What Dyno has at work: a run of rows under an inner algorithm, or a reading of whole relations.

Both ask questions under the definition that they were begun with, take replies, and end in commits.
Neither is told what else is in the queue until a reply comes: what the reply saw of it is removed
(*compensation*), so that a run needs to know only its own rows, and is forgotten without a trace
when it is aborted.

`RowMaintenance` puts the rows of reports under the names of the definition, whatever the columns
were called when the report was made: identity decides, and a column that a report does not have is
NULL. Commits that the inner algorithm makes out of order (PVM) are held until everything before
them is there, so that what is shown is always a prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from viewkeeper.delta.algebra import COUNT, POSITION, TS, Algebra
from viewkeeper.evolution.adaptation import Adaptation
from viewkeeper.evolution.dyno.dyno_events import DynoQuestion, DynoReply, DynoReport
from viewkeeper.evolution.dyno.table_identity import BoundDefinition, DynoShapes
from viewkeeper.maintain import algorithm_protocol
from viewkeeper.maintain.algorithm_protocol import (
    Algorithm,
    Answered,
    AskAction,
    Delivered,
    ResumePoint,
)
from viewkeeper.maintain.query_terms import join_given_rows
from viewkeeper.maintain.recompute import whole_lookups
from viewkeeper.updates.source_protocol import Answer, Lookup
from viewkeeper.updates.transaction import Transaction
from viewkeeper.updates.view_actions import ReplaceRows, ViewAction
from viewkeeper.view.definition import Relation
from viewkeeper.view.sweep_plan import SweepPlan, sweep_plan_of

Unit = tuple[int, ...]
MakeInner = Callable[[SweepPlan, ResumePoint], Algorithm]
"""Makes the inner algorithm of a run."""


@dataclass(frozen=True, slots=True, eq=False)
class CommittedUnits:
    """Changes of the view, and the units that they bring into it, each with a ts of its own."""

    units: tuple[Unit, ...]
    changes: tuple[ViewAction, ...]


@dataclass(frozen=True, slots=True, eq=False)
class WorkOutcome:
    """What came of an answer."""

    questions: tuple[DynoQuestion, ...] = ()
    commits: tuple[CommittedUnits, ...] = ()
    ended: bool = False


class WorkQuestions:
    """The questions of something at work: what each meant, and under which number it is known."""

    def __init__(self, definition: BoundDefinition) -> None:
        self.definition = definition
        self._questions: dict[int, DynoQuestion] = {}
        self._inner: dict[int, int] = {}

    def note_question(self, number: int, source: str, lookups: tuple[Lookup, ...]) -> DynoQuestion:
        meant = tuple(self.definition.meant[lookup.relation] for lookup in lookups)
        question = DynoQuestion(number, source, lookups, meant)
        self._questions[number] = question
        return question

    def number_question(self, inner: int, number: int) -> None:
        """A question of this work is known by this number outside."""
        self._inner[number] = inner

    def question_of(self, number: int) -> DynoQuestion:
        """The question that has this number outside."""
        return self._questions[self._inner[number]]

    def is_meant(self, event: DynoReply) -> bool:
        """Post-exec detection: whether every answer was read from what was meant."""
        question = self.question_of(event.number)
        for lookup, meant, read in zip(question.lookups, question.meant, event.read, strict=True):
            if meant.id != read.id:
                return False
            for name in lookup.columns:
                ours, theirs = meant.column_by_name(name), read.column_by_name(name)
                if ours is None or theirs is None or ours.id != theirs.id:
                    return False
        return True

    def changes_of(
        self, relation: Relation, names: Sequence[str], reports: Iterable[DynoReport], sign: int = 1
    ) -> pa.Table:
        """Row changes of a relation under the names of the definition, with their positions."""
        shape = self.definition.meant[relation]
        wanted = self.definition.columns_named(relation, names)
        rows: list[tuple[Any, ...]] = []
        for report in reports:
            changed = report.rows.get(shape.id)
            if report.source != relation.source or changed is None:
                continue
            at = {column: i for i, column in enumerate(changed.columns)}
            for row, count in changed.rows:
                values = (row[at[c.id]] if c.id in at else None for c in wanted)
                rows.append((*values, sign * count, report.position))
        columns = list(zip(*rows, strict=True)) or [()] * (len(wanted) + 2)
        types = [*(c.type for c in wanted), pa.int64(), pa.int64()]
        arrays = [pa.array(list(c), kind) for c, kind in zip(columns, types, strict=True)]
        return pa.table(arrays, names=[*names, COUNT, POSITION])


class RowMaintenance:
    """Rows of units, maintained by an inner algorithm that knows of nothing else."""

    def __init__(self, make: MakeInner, definition: BoundDefinition, ts: int, unit: Unit) -> None:
        self.unit = unit
        self.questions = WorkQuestions(definition)
        resume = ResumePoint(ts, dict.fromkeys(definition.view.sources, 0))
        self._inner_machine = make(sweep_plan_of(definition.view), resume)
        self._ts = ts
        self._stamped: dict[int, Unit] = {}
        self._numbers: dict[tuple[str, int], int] = {}
        self._held: list[ViewAction] = []
        """Changes of commits that wait for what is before them."""

    def begin_run(self, reports: Mapping[int, DynoReport]) -> WorkOutcome:
        """Give the rows to the algorithm, all at once."""
        self._numbers = {(r.source, r.position): n for n, r in reports.items()}
        given = tuple(self._transaction_of(report) for report in reports.values())
        return self._outcome_of(self._inner_machine.receive_event(Delivered(given)))

    def _transaction_of(self, report: DynoReport) -> Transaction:
        """The report's rows as the algorithm wants them; what is before it is none of its
        business, so nothing holds it up."""
        view = self.questions.definition.view
        tables = {
            relation: self.questions.changes_of(
                relation, [f.name for f in view.fields_of(relation)], [report]
            )
            for relation in view.relations
            if relation.source == report.source
        }
        changes = {relation: table for relation, table in tables.items() if table.num_rows}
        return Transaction(report.source, 0, report.position, changes)

    def take_reply(self, event: DynoReply, later: Iterable[DynoReport]) -> WorkOutcome:
        """Hand over the answers, with what they saw of reports that are not in the run."""
        known = list(later)
        question = self.questions.question_of(event.number)
        answers = tuple(
            self._with_tail(lookup, answer, known)
            for lookup, answer in zip(question.lookups, event.answers, strict=True)
        )
        return self._outcome_of(
            self._inner_machine.receive_event(Answered(question.number, answers))
        )

    def _with_tail(self, lookup: Lookup, answer: Answer, later: Iterable[DynoReport]) -> Answer:
        seen = [report for report in later if answer.cut.includes(report.position)]
        tail = self.questions.changes_of(lookup.relation, lookup.columns, seen)
        return replace(answer, after=answer.cut.position, tail=tail)

    def _outcome_of(self, actions: Iterable[algorithm_protocol.Action]) -> WorkOutcome:
        questions: list[DynoQuestion] = []
        commits: list[CommittedUnits] = []
        for action in actions:
            match action:
                case AskAction():
                    questions.append(
                        self.questions.note_question(action.number, action.source, action.lookups)
                    )
                case algorithm_protocol.StampAction():
                    unit = tuple(self._numbers[named] for named in action.transactions)
                    self._stamped[action.ts] = unit
                case algorithm_protocol.CommitAction():
                    self._held += action.changes
                    if not action.ahead:
                        commits.append(self._commit_prefix(action.ts))
        return WorkOutcome(tuple(questions), tuple(commits), self._inner_machine.is_idle)

    def _commit_prefix(self, ts: int) -> CommittedUnits:
        """Everything up to a ts, with what was held."""
        units = tuple(self._stamped[each] for each in range(self._ts + 1, ts + 1))
        changes, self._held, self._ts = tuple(self._held), [], ts
        return CommittedUnits(units, changes)


class Rereading:
    """View adaptation by reading: every relation whole, brought to one state, joined."""

    def __init__(
        self,
        algebra: Algebra[Any],
        unit: Unit,
        after: BoundDefinition,
        shapes: DynoShapes,
        needed: Adaptation,
    ) -> None:
        self.unit = unit
        self.questions = WorkQuestions(after)
        self.after = after
        self.shapes = shapes
        self.needed = needed
        self._algebra = algebra
        self._plan = sweep_plan_of(after.view)
        self._found: dict[Relation, pa.Table] = {}

    def begin_reading(self) -> list[DynoQuestion]:
        """All relations of a source are asked for under one cut."""
        view = self.after.view
        return [
            self.questions.note_question(number, source, whole_lookups(view, source))
            for number, source in enumerate(view.sources)
        ]

    def take_reply(self, event: DynoReply, later: Iterable[DynoReport]) -> WorkOutcome:
        """Take back what the answers saw of reports outside the unit; join when all are there."""
        known = list(later)
        question = self.questions.question_of(event.number)
        for lookup, answer in zip(question.lookups, event.answers, strict=True):
            seen = [report for report in known if answer.cut.includes(report.position)]
            taken = self.questions.changes_of(lookup.relation, lookup.columns, seen, sign=-1)
            ones = pa.array([1] * answer.rows.num_rows, pa.int64())
            rows = answer.rows.append_column(COUNT, ones)
            self._found[lookup.relation] = pa.concat_tables(
                [rows.cast(taken.drop_columns([POSITION]).schema), taken.drop_columns([POSITION])]
            )
        if len(self._found) < len(self.after.view.relations):
            return WorkOutcome()
        commit = CommittedUnits((self.unit,), (ReplaceRows(self._view_rows()),))
        return WorkOutcome((), (commit,), ended=True)

    def _view_rows(self) -> pa.Table:
        """The view over what was read."""
        places = self.after.view.places
        bound = {p.index: self._found[p.relation].select([*p.columns, COUNT]) for p in places}
        rows = join_given_rows(self._algebra, self._plan, bound)
        return self._algebra.lower_delta(rows).drop_columns([TS])


Work = RowMaintenance | Rereading
