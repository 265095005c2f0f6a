"""The seeded world: sources, channels and a warehouse, one step at a time.

Nothing happens by itself. A transaction commits, a source evaluates a question, a message arrives,
the warehouse crashes: each is a step, and `enabled_steps` lists those that are possible now. Who
chooses among them (a seeded generator, a text, a search) decides the interleaving; the algorithm
under test is the production code and cannot tell.

Answers are handed over as the engine hands them over. An algorithm that reads arrival order gets an
answer only when its cut is exactly what was delivered: it waits while the answer is ahead and the
question is asked again when the answer is behind. The others get it at once with its tail, or when
their source's stream has passed its cut.

The initial load is the same view change as everywhere, with every place bound to its rows, so that
nobody is asked. The checker does not rely on it: it recomputes the first state like all others.

Compensation is a join with a condition on ts (`viewkeeper.maintain.compensation`), and no other
join has one. So the carrier shows every compensation, and the algorithm under test needs no hook
for it.

A crash ends a life of the warehouse, its machine and all messages; what is stored stays, and the
next life begins with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, assert_never

import pyarrow as pa

from viewkeeper.check.history.recorded_history import RecordedHistory, Row
from viewkeeper.delta.algebra import COUNT, TS, Algebra, TsCondition
from viewkeeper.delta.reference_carrier import Reference, ReferenceDelta
from viewkeeper.maintain import algorithm_protocol
from viewkeeper.maintain.algorithm_catalogue import KINDS, AlgorithmKind
from viewkeeper.maintain.algorithm_protocol import (
    AcknowledgeAction,
    Algorithm,
    Answered,
    AskAction,
    Delivered,
    Event,
    StampAction,
)
from viewkeeper.maintain.query_terms import join_given_rows
from viewkeeper.simulate.message_channels import MessageChannels
from viewkeeper.simulate.scenario import (
    AlgorithmSubject,
    CommitStep,
    CrashStep,
    DeliverStep,
    EvaluateStep,
    RepeatStep,
    RevealStep,
    Scenario,
    ScenarioTable,
    Step,
)
from viewkeeper.simulate.simulated_source import SimulatedSource
from viewkeeper.simulate.simulated_store import SimulatedStore
from viewkeeper.simulate.trace import Trace, signed_text
from viewkeeper.updates.source_protocol import Answer
from viewkeeper.updates.transaction import Transaction
from viewkeeper.view.definition import Relation
from viewkeeper.view.join_tree import JoinKey
from viewkeeper.view.keyed_view import keyed_view_of
from viewkeeper.view.sweep_plan import SweepPlan, sweep_plan_of


@dataclass(frozen=True, slots=True, eq=False)
class ReportMessage:
    """A message: a transaction, or all parts of a global one."""

    transactions: tuple[Transaction, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ReplyMessage:
    """A message: the answers to a question."""

    ask: AskAction
    answers: tuple[Answer, ...]


class WarehouseLife:
    """One life of a warehouse; a crash ends it, and loses all of this."""

    def __init__(self, algorithm: Algorithm, positions: Mapping[str, int], fifo: bool) -> None:
        """`positions` are where the sources are for the stored view."""
        self.algorithm = algorithm
        self.channels = MessageChannels[AskAction, ReportMessage | ReplyMessage](positions, fifo)
        self.received = {name: set[int]() for name in positions}
        self.contiguous = dict(positions)
        """The positions up to which everything of a source was received."""
        self.held: list[ReplyMessage] = []
        """Answers that the machine may not have yet."""
        self.last: dict[str, ReportMessage] = {}
        """The last report of each source, which may be delivered again."""

    def receive_report(
        self, report: ReportMessage, stored: Mapping[str, int]
    ) -> tuple[Transaction, ...]:
        """Take in a report; what of it was not received before, and is not in the stored view."""
        new = tuple(
            t
            for t in report.transactions
            if t.position not in self.received[t.source] and t.position > stored[t.source]
        )
        for transaction in new:
            self.received[transaction.source].add(transaction.position)
            self.last[transaction.source] = report
        for source, received in self.received.items():
            while self.contiguous[source] + 1 in received:
                self.contiguous[source] += 1
        return new

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is under way and the machine has nothing to do."""
        return self.channels.is_empty and not self.held and self.algorithm.is_idle


def plain_algebra() -> Algebra[Any]:
    """The carrier of a world that nobody observes."""
    return Reference()


def observed_algebra(trace: Trace) -> Reference:
    """The reference carrier, with a trace that notes what was compensated."""

    def note_compensation(
        partial: ReferenceDelta, rows: ReferenceDelta, on: Sequence[JoinKey], when: TsCondition
    ) -> None:
        """Note those of the corrections that met a partial row."""
        kept = [i for i, name in enumerate(rows.columns) if name != TS]
        met: Counter[Row] = Counter()
        for row, count in rows.counts.items():
            if (
                Reference()
                .join(partial, ReferenceDelta(rows.columns, {row: count}), on, when)
                .counts
            ):
                met[tuple(row[i] for i in kept)] += count
        place, _, _ = rows.columns[kept[0]].partition(".")
        trace.note_compensation(int(place), {row: count for row, count in met.items() if count})

    return Reference(note_compensation)


def load_initial_rows(scenario: Scenario, plan: SweepPlan) -> dict[Row, int]:
    """The rows of the view before the first transaction, as they are stored."""
    tables = {table.relation: table for table in scenario.tables}
    bound = {p.index: _arrow_table(tables[p.relation], p.columns) for p in plan.view.places}
    rows = join_given_rows(Reference(), plan, bound)
    return {row[:-1]: count for row, count in rows.counts.items()}


def _arrow_table(table: ScenarioTable, columns: tuple[str, ...]) -> pa.Table:
    types = {field.name: field.type for field in table.fields}
    at = {field.name: i for i, field in enumerate(table.fields)}
    arrays = [pa.array([row[at[name]] for row in table.rows], types[name]) for name in columns]
    counts = pa.array(list(table.rows.values()), pa.int64())
    return pa.table([*arrays, counts], names=[*columns, COUNT])


class SimulatedWorld:
    """A scenario at work under one algorithm."""

    def __init__(
        self, scenario: Scenario, subject: AlgorithmSubject, observed: bool = False
    ) -> None:
        """`observed`: compensations are put into the trace too."""
        self.scenario = scenario
        self.kind: AlgorithmKind = KINDS[subject.name]
        self.subject = subject
        stored, hidden = scenario.view, tuple[str, ...]()
        options: dict[str, Any] = dict(subject.options)
        if self.kind.keyed:
            with_keys = keyed_view_of(scenario.view, scenario.key_fields)
            stored, hidden = with_keys.view, with_keys.hidden
            options["keys"] = with_keys.keys
        self.plan = sweep_plan_of(stored)
        self.sources = {n: SimulatedSource(n, scenario, self.plan) for n in scenario.source_names}
        positions = dict.fromkeys(scenario.source_names, 0)
        columns = [output.name for output in stored.outputs]
        self.store = SimulatedStore(
            columns, hidden, load_initial_rows(scenario, self.plan), positions
        )
        self.trace = Trace(self.plan.view.places)
        algebra: Algebra[Any] = observed_algebra(self.trace) if observed else plain_algebra()
        self._make = partial(self.kind.make, algebra, self.plan, **options)
        self.asks: Counter[str] = Counter()
        self.asked_rows = 0
        self.committed: list[str] = []
        self._begin_life(())

    def _begin_life(self, again: tuple[Transaction, ...]) -> None:
        resume = self.store.resume_point(again)
        positions = {name: resume.positions[name] for name in self.sources}
        self.life = WarehouseLife(self._make(resume), positions, self.scenario.fifo)

    def enabled_steps(self) -> list[Step]:
        """The steps that can be made now, but for crashes and repetitions."""
        steps: list[Step] = []
        for transaction in self.scenario.transactions:
            if transaction.name not in self.committed and self._is_next(transaction.name):
                steps.append(CommitStep(transaction.name))
        steps += self.life.channels.enabled_steps()
        for name, source in self.sources.items():
            steps += [RevealStep(name, hidden) for hidden in source.hidden.values()]
        return steps

    def _is_next(self, name: str) -> bool:
        """Whether all earlier transactions of the same sources are committed."""
        for transaction in self.scenario.transactions:
            if transaction.name == name:
                return True
            mine = self._transaction_named(name).parts.keys()
            if transaction.name not in self.committed and transaction.parts.keys() & mine:
                return False
        return False

    def repeatable_steps(self) -> list[Step]:
        """Reports that can be delivered a second time."""
        return [RepeatStep(name) for name in self.life.last]

    def make_step(self, step: Step) -> None:
        """Make a step; it must be enabled."""
        self.trace.begin_step(str(step))
        match step:
            case CommitStep():
                self._commit_transaction(step.transaction)
            case EvaluateStep():
                self._evaluate_ask(step.source)
            case DeliverStep():
                messages = self.life.channels.messages[step.source, step.channel]
                self._deliver_message(messages.popleft())
            case RepeatStep():
                self._deliver_message(self.life.last[step.source])
            case RevealStep():
                self.sources[step.source].reveal_transaction(step.transaction)
            case CrashStep():
                self._crash_warehouse()
            case _:
                assert_never(step)

    @property
    def outstanding_asks(self) -> dict[str, int]:
        """How many questions wait at each source to be evaluated."""
        return {name: len(asks) for name, asks in self.life.channels.questions.items()}

    @property
    def is_quiet(self) -> bool:
        """Whether everything committed is delivered and maintained, and nothing is under way."""
        return self.life.is_quiet

    @property
    def is_done(self) -> bool:
        return self.is_quiet and len(self.committed) == len(self.scenario.transactions)

    def run_history(self, as_of: bool = False) -> RecordedHistory:
        """The run as the checker sees it; `as_of`: the states as of every ts."""
        states = list(self.store.as_of if as_of else self.store.states)
        # A reader does not see counts below zero; at the end there must be none all the same.
        last = states[-1].rows if as_of else self.store.summed_rows
        states[-1] = replace(states[-1], rows=last, quiet=True)
        return RecordedHistory(
            self.scenario.view,
            {table.relation: table.fields for table in self.scenario.tables},
            {table.relation: table.rows for table in self.scenario.tables},
            tuple(self._transaction_named(name) for name in self.committed),
            tuple(states),
        )

    def _transaction_named(self, name: str) -> Any:
        return next(t for t in self.scenario.transactions if t.name == name)

    def _commit_transaction(self, name: str) -> None:
        transaction = self._transaction_named(name)
        self.committed.append(name)
        parts = {s: self.sources[s].commit_transaction(transaction) for s in transaction.parts}
        changed = transaction.parts.values()
        self.trace.note_commit(name, parts, lambda: [_part_text(part) for part in changed])
        self._send_reports(name, parts)

    def _send_reports(self, name: str, parts: Mapping[str, int]) -> None:
        reports = {source: self.sources[source].report_at(at) for source, at in parts.items()}
        reporter = self.scenario.reporter.get(name)
        if reporter is not None and len(parts) > 1:
            whole = ReportMessage(tuple(reports.values()))
            self.life.channels.send_message(reporter, "reports", whole)
        else:
            for source, report in reports.items():
                self.life.channels.send_message(source, "reports", ReportMessage((report,)))

    def _evaluate_ask(self, source: str) -> None:
        ask = self.life.channels.questions[source].popleft()
        answers = self.sources[source].evaluate_ask(ask)
        self.trace.note_evaluation(ask, answers)
        self.life.channels.send_message(source, "answers", ReplyMessage(ask, answers))

    def _deliver_message(self, message: ReportMessage | ReplyMessage) -> None:
        if isinstance(message, ReportMessage):
            self._receive_report(message)
        else:
            self.life.held.append(message)
        self._hand_over()

    def _receive_report(self, report: ReportMessage) -> None:
        new = self.life.receive_report(report, self.store.positions)
        if not new:
            return
        names = [self.sources[t.source].name_of(t.position) for t in new]
        self.trace.note_delivery(dict.fromkeys(names), [t.source for t in new])
        self._receive_event(Delivered(new))

    def _hand_over(self) -> None:
        """Give the algorithm every answer that it may have now."""
        for reply in list(self.life.held):
            verdict = self._answer_verdict(reply)
            if verdict == "wait":
                continue
            self.life.held.remove(reply)
            if verdict == "again":
                self.trace.note_ask(reply.ask, again=True)
                self.life.channels.questions[reply.ask.source].append(reply.ask)
            else:
                answers = tuple(self._strip_tail(reply, answer) for answer in reply.answers)
                self.trace.note_answer(reply.ask)
                self._receive_event(Answered(reply.ask.number, answers))

    def _answer_verdict(self, reply: ReplyMessage) -> str:
        source, cut = reply.ask.source, reply.answers[0].cut
        passed = self.life.contiguous[source] >= cut.position
        if self.kind.arrival:
            lacking = self.life.received[source] - set(range(cut.position + 1)) or cut.missing
            return "again" if lacking else "now" if passed else "wait"
        if self.scenario.tails and not self.scenario.fifo:
            return "now"
        return "now" if passed else "wait"

    def _strip_tail(self, reply: ReplyMessage, answer: Answer) -> Answer:
        if self.scenario.tails and not self.scenario.fifo and not self.kind.arrival:
            return answer
        return replace(
            answer, after=self.life.contiguous[reply.ask.source], tail=answer.tail.slice(0, 0)
        )

    def _receive_event(self, event: Event) -> None:
        for action in self.life.algorithm.receive_event(event):
            match action:
                case AskAction():
                    self.asks[action.source] += 1
                    self.asked_rows += _row_count(action)
                    self.trace.note_ask(action)
                    self.life.channels.questions[action.source].append(action)
                case StampAction():
                    self.store.note_stamp(action)
                case algorithm_protocol.CommitAction():
                    self.store.apply_commit(action)
                    self.trace.note_store(action, self.store.states[-1].rows)
                case AcknowledgeAction():
                    self.sources[action.source].acknowledge_position(action.position)
                case _:
                    assert_never(action)

    def _crash_warehouse(self) -> None:
        """Begin again; the sources send what was not acknowledged once more."""
        self.trace.note_crash()
        kept = {n: range(s.acknowledged + 1, s.position + 1) for n, s in self.sources.items()}
        old = [
            self.sources[n].report_at(p)
            for n, positions in kept.items()
            for p in positions
            if p <= self.store.positions[n]
        ]
        self._begin_life(tuple(old))
        sent = set[str]()
        for name in self.committed:
            parts = self._parts_of(name)
            lost = [s for s, p in parts.items() if p > self.store.positions[s] and p in kept[s]]
            if lost and name not in sent:
                sent.add(name)
                self._send_reports(name, {s: parts[s] for s in lost})

    def _parts_of(self, name: str) -> dict[str, int]:
        """The positions of a committed transaction at its sources."""
        return {
            source: at
            for source, simulated in self.sources.items()
            for at in range(1, simulated.position + 1)
            if simulated.name_of(at) == name
        }


def _part_text(part: Mapping[Relation, tuple[tuple[Row, int], ...]]) -> str:
    return " ".join(
        f"{relation.table} {signed_text(dict(rows))}" for relation, rows in part.items()
    )


def _row_count(ask: AskAction) -> int:
    """How many rows a question carries."""
    keys = sum(lookup.keys.num_rows for lookup in ask.lookups if lookup.keys is not None)
    return keys + sum(table.num_rows for term in ask.terms for table in term.bound.values())
