"""What Dyno has at work: a run of rows under an inner algorithm, or a reading of whole relations.

Both ask questions under the definition that they were begun with, take replies, and end in commits.
Neither is told what else is in the queue until a reply comes: what the reply saw of it is removed
(*compensation*), so that a run needs to know only its own rows, and is forgotten without a trace
when it is aborted.

`Running` puts the rows of reports under the names of the definition, whatever the columns were
called when the report was made: identity decides, and a column that a report does not have is NULL.
Commits that the inner algorithm makes out of order (PVM) are held until everything before them is
there, so that what is shown is always a prefix.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from viewkeeper.delta.algebra import COUNT, POSITION, TS, Algebra
from viewkeeper.evolution.adaptation import Adaptation
from viewkeeper.evolution.dyno.dyno_events import Question, Replied, Report
from viewkeeper.evolution.dyno.table_identity import Definition, Shapes
from viewkeeper.maintain import algorithm_protocol
from viewkeeper.maintain.algorithm_catalogue import Kind
from viewkeeper.maintain.algorithm_protocol import (
    Answered,
    Ask,
    Change,
    Delivered,
    Replace,
    Resume,
    Term,
)
from viewkeeper.maintain.query_terms import sum_of_terms
from viewkeeper.maintain.sweep_family.batch_sweep import drive
from viewkeeper.maintain.view_change import shown
from viewkeeper.updates.source_protocol import Answer, Lookup
from viewkeeper.updates.transaction import Transaction
from viewkeeper.view.definition import Relation
from viewkeeper.view.sweep_plan import sweep_plan

Unit = tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Committed:
    """Changes of the view, and the units that they bring into it, each with a ts of its own."""

    units: tuple[Unit, ...]
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What came of an answer."""

    questions: tuple[Question, ...] = ()
    commits: tuple[Committed, ...] = ()
    ended: bool = False


class _Asking:
    """The questions of something at work: what each meant, and who asked it."""

    def __init__(self, definition: Definition, unit: Unit) -> None:
        self.definition = definition
        self.unit = unit
        self._questions: dict[int, Question] = {}
        self._inner: dict[int, int] = {}

    def question(self, number: int, source: str, lookups: tuple[Lookup, ...]) -> Question:
        meant = tuple(self.definition.meant[lookup.relation] for lookup in lookups)
        question = Question(number, source, lookups, meant)
        self._questions[number] = question
        return question

    def numbered(self, inner: int, number: int) -> None:
        """A question of this work is known by this number outside."""
        self._inner[number] = inner

    def again(self, number: int) -> Question:
        return self._questions[self._inner[number]]

    def is_meant(self, event: Replied) -> bool:
        """Post-exec detection: whether every answer was read from what was meant."""
        question = self._questions[self._inner[event.number]]
        for lookup, meant, read in zip(question.lookups, question.meant, event.read, strict=True):
            if meant.id != read.id:
                return False
            for name in lookup.columns:
                ours, theirs = meant.named(name), read.named(name)
                if ours is None or theirs is None or ours.id != theirs.id:
                    return False
        return True

    def _changes(
        self, relation: Relation, names: Sequence[str], reports: Iterable[Report], sign: int = 1
    ) -> pa.Table:
        """Row changes of a relation under the names of the definition, with their positions."""
        shape = self.definition.meant[relation]
        wanted = self.definition.of(relation, names)
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


class Running(_Asking):
    """Rows of units, maintained by an inner algorithm that knows of nothing else."""

    def __init__(
        self,
        algebra: Algebra[Any],
        kind: Kind,
        options: Mapping[str, Any],
        definition: Definition,
        ts: int,
        unit: Unit,
    ) -> None:
        super().__init__(definition, unit)
        resume = Resume(ts, dict.fromkeys(definition.view.sources, 0))
        self._inner_machine = kind.make(algebra, sweep_plan(definition.view), resume, **options)
        self._ts = ts
        self._stamped: dict[int, Unit] = {}
        self._numbers: dict[tuple[str, int], int] = {}
        self._held: list[Change] = []
        """Changes of commits that wait for what is before them."""

    def begin(self, reports: Mapping[int, Report]) -> Outcome:
        """Give the rows to the algorithm, all at once."""
        self._numbers = {(r.source, r.position): n for n, r in reports.items()}
        given = tuple(self._transaction(report) for report in reports.values())
        return self._outcome(self._inner_machine.receive(Delivered(given)))

    def _transaction(self, report: Report) -> Transaction:
        """The report's rows as the algorithm wants them; what is before it is none of its
        business, so nothing holds it up."""
        view = self.definition.view
        tables = {
            relation: self._changes(relation, [f.name for f in view.columns(relation)], [report])
            for relation in view.relations
            if relation.source == report.source
        }
        changes = {relation: table for relation, table in tables.items() if table.num_rows}
        return Transaction(report.source, 0, report.position, changes)

    def answer(self, event: Replied, later: Iterable[Report]) -> Outcome:
        """Hand over the answers, with what they saw of reports that are not in the run."""
        known = list(later)
        question = self._questions[self._inner[event.number]]
        answers = tuple(
            self._with_tail(lookup, answer, known)
            for lookup, answer in zip(question.lookups, event.answers, strict=True)
        )
        return self._outcome(self._inner_machine.receive(Answered(question.number, answers)))

    def _with_tail(self, lookup: Lookup, answer: Answer, later: Iterable[Report]) -> Answer:
        seen = [report for report in later if answer.cut.includes(report.position)]
        tail = self._changes(lookup.relation, lookup.columns, seen)
        return replace(answer, after=answer.cut.position, tail=tail)

    def _outcome(self, actions: Iterable[algorithm_protocol.Action]) -> Outcome:
        questions: list[Question] = []
        commits: list[Committed] = []
        for action in actions:
            match action:
                case Ask():
                    questions.append(self.question(action.number, action.source, action.lookups))
                case algorithm_protocol.Stamp():
                    unit = tuple(self._numbers[named] for named in action.transactions)
                    self._stamped[action.ts] = unit
                case algorithm_protocol.Commit():
                    self._held += action.changes
                    if not action.ahead:
                        commits.append(self._prefix(action.ts))
        return Outcome(tuple(questions), tuple(commits), self._inner_machine.idle)

    def _prefix(self, ts: int) -> Committed:
        """Everything up to a ts, with what was held."""
        units = tuple(self._stamped[each] for each in range(self._ts + 1, ts + 1))
        changes, self._held, self._ts = tuple(self._held), [], ts
        return Committed(units, changes)


class Rereading(_Asking):
    """View adaptation by reading: every relation whole, brought to one state, joined."""

    def __init__(
        self,
        algebra: Algebra[Any],
        unit: Unit,
        after: Definition,
        shapes: Shapes,
        needed: Adaptation,
    ) -> None:
        super().__init__(after, unit)
        self.after = after
        self.shapes = shapes
        self.needed = needed
        self._algebra = algebra
        self._plan = sweep_plan(after.view)
        self._found: dict[Relation, pa.Table] = {}

    def begin(self) -> list[Question]:
        """All relations of a source are asked for under one cut."""
        view = self.after.view
        return [
            self.question(number, source, tuple(self._whole(r) for r in self._relations(source)))
            for number, source in enumerate(view.sources)
        ]

    def _relations(self, source: str) -> list[Relation]:
        return [relation for relation in self.after.view.relations if relation.source == source]

    def _whole(self, relation: Relation) -> Lookup:
        view = self.after.view
        place = next(p.index for p in view.places if p.relation == relation)
        names = tuple(field.name for field in view.columns(relation))
        return Lookup(place, relation, names, on=(), null_safe=(), keys=None)

    def answer(self, event: Replied, later: Iterable[Report]) -> Outcome:
        """Take back what the answers saw of reports outside the unit; join when all are there."""
        known = list(later)
        question = self._questions[self._inner[event.number]]
        for lookup, answer in zip(question.lookups, event.answers, strict=True):
            seen = [report for report in known if answer.cut.includes(report.position)]
            taken = self._changes(lookup.relation, lookup.columns, seen, sign=-1)
            ones = pa.array([1] * answer.rows.num_rows, pa.int64())
            rows = answer.rows.append_column(COUNT, ones)
            self._found[lookup.relation] = pa.concat_tables(
                [rows.cast(taken.drop_columns([POSITION]).schema), taken.drop_columns([POSITION])]
            )
        if len(self._found) < len(self.after.view.relations):
            return Outcome()
        commit = Committed((self.unit,), (Replace(self._rows()),))
        return Outcome((), (commit,), ended=True)

    def _rows(self) -> pa.Table:
        """The view over what was read."""
        places = self.after.view.places
        bound = {p.index: self._found[p.relation].select([*p.columns, COUNT]) for p in places}
        joined, _ = drive(sum_of_terms(self._algebra, self._plan, [Term(1, bound)]), _nobody)
        return self._algebra.lower(shown(self._algebra, self._plan, joined)).drop_columns([TS])


def _nobody(lookup: Lookup) -> Answer:
    raise AssertionError(f"{lookup.relation} was read already")


Work = Running | Rereading
