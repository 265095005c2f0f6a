"""The seeded world of schema changes: sources, channels and Dyno, one step at a time.

As in `viewkeeper.simulate.simulated_world` nothing happens by itself: a transaction commits, a
source evaluates a question, a message arrives. So a schema change can come at any moment, also
between a question and its evaluation. A reply is handed over when everything that it saw has been
delivered: with one FIFO channel per source that is at once, otherwise it waits.

The stored view does by definition what the warehouse does on disk. Counts add up; a redefinition
keeps the columns that stay, folds the rows over those that go and puts NULL into those that come; a
replacement says what the rows are.

A source is asked in one of two ways. *By name*, as the papers do: the question breaks if no table
or no column is called so at that moment, and is answered from whatever is called so otherwise. *By
handle*, as Viewkeeper's sources do: the question breaks if the very table, or one of the very
columns, is gone.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from viewkeeper.delta.algebra import COUNT, POSITION, TS
from viewkeeper.delta.reference_carrier import Reference
from viewkeeper.errors import SimulationError
from viewkeeper.evolution.dyno.dyno_events import (
    Action,
    BrokenQuestion,
    ChangedRows,
    DynoQuestion,
    DynoRedefinition,
    DynoReply,
    DynoReport,
    DynoStamp,
    DynoStop,
    Event,
)
from viewkeeper.evolution.dyno.dyno_loop import Dyno, DynoSetting
from viewkeeper.evolution.dyno.table_identity import DynoShape, define_view
from viewkeeper.maintain.algorithm_protocol import CommitAction
from viewkeeper.maintain.algorithm_protocol import CommitAction as Committed
from viewkeeper.simulate.message_channels import MessageChannels
from viewkeeper.simulate.scenario import CommitStep, DeliverStep, EvaluateStep
from viewkeeper.simulate.schema_changes.reshaped_judge import ReshapedJudge, ReshapedState
from viewkeeper.simulate.schema_changes.reshaped_scenario import (
    ReshapedScenario,
    ReshapedTransaction,
)
from viewkeeper.simulate.schema_changes.reshaped_tables import (
    AddColumn,
    ReshapedTable,
    Row,
    Tables,
    WriteOperation,
    apply_operation,
)
from viewkeeper.updates.cut import Cut
from viewkeeper.updates.source_protocol import Answer, Lookup
from viewkeeper.updates.view_actions import AddRows, ReplaceRows

Asking = Literal["name", "handle"]


class ReshapedSource:
    """One source; positions count its transactions from 1."""

    def __init__(self, name: str, tables: Tables, log: Sequence[ReshapedTransaction]) -> None:
        self.name = name
        self._log = log
        self._states = [tables]

    @property
    def position(self) -> int:
        return len(self._states) - 1

    @property
    def remaining_count(self) -> int:
        """How many transactions are still to be committed."""
        return len(self._log) - self.position

    def commit_next(self) -> DynoReport:
        """Commit the next transaction; its report."""
        transaction = self._log[self.position]
        before = after = self._states[-1]
        for operation in transaction.operations:
            after = apply_operation(after, operation)
        self._states.append(after)
        return DynoReport(
            self.name,
            self.position,
            _changed_rows(transaction, after),
            _changed_shapes(before, after),
            frozenset(
                (o.table, o.column.id)
                for o in transaction.operations
                if isinstance(o, AddColumn) and o.value is None
            ),
        )

    def evaluate_question(
        self, question: DynoQuestion, asking: Asking
    ) -> tuple[DynoReply | BrokenQuestion, int]:
        """The reply to a question in the state of this moment, and the position of that state."""
        answers, read = [], []
        for lookup, meant in zip(question.lookups, question.meant, strict=True):
            found = self._resolve_lookup(lookup, meant, asking)
            if isinstance(found, str):
                return BrokenQuestion(question.number, found), self.position
            table, columns = found
            answers.append(self._answer_lookup(lookup, table, columns))
            read.append(table.shape if asking == "name" else meant)
        return DynoReply(question.number, tuple(answers), tuple(read)), self.position

    def _resolve_lookup(
        self, lookup: Lookup, meant: DynoShape, asking: Asking
    ) -> tuple[ReshapedTable, list[int]] | str:
        """The table that is asked, and where its columns are; or what is not there."""
        now, by_name = self._states[-1], asking == "name"
        called = (t for t in now.values() if t.shape.name == lookup.relation.table)
        table = next(called, None) if by_name else now.get(meant.id)
        if table is None:
            return f"no table {lookup.relation}"
        shape = table.shape if by_name else meant
        named = (shape.column_by_name(name) for name in lookup.columns)
        ids = [column.id for column in named if column is not None]
        at = {column.id: i for i, column in enumerate(table.shape.columns)}
        if len(ids) < len(lookup.columns) or not all(id in at for id in ids):
            return f"a column of {lookup.relation} is not there"
        return table, [at[id] for id in ids]

    def _answer_lookup(self, lookup: Lookup, table: ReshapedTable, columns: list[int]) -> Answer:
        place = dict(zip(lookup.columns, columns, strict=True))
        rows = [
            tuple(row[at] for at in columns)
            for row, count in table.rows.items()
            for _ in range(count)
            if _is_asked(lookup, row, place)
        ]
        values: list[Sequence[Any]] = [*zip(*rows, strict=True)] or [()] * len(columns)
        types = [table.shape.columns[at].type for at in columns]
        arrays = [pa.array(list(v), kind) for v, kind in zip(values, types, strict=True)]
        found = pa.table(arrays, names=list(lookup.columns))
        extra = [pa.field(name, pa.int64()) for name in (COUNT, POSITION)]
        tail = pa.schema([*found.schema, *extra]).empty_table()
        return Answer(found, Cut(self.position), self.position, tail)


def _is_asked(lookup: Lookup, row: Row, place: dict[str, int]) -> bool:
    if lookup.keys is None:
        return True
    keys = {tuple(key[name] for name in lookup.on) for key in lookup.keys.to_pylist()}
    return tuple(row[place[name]] for name in lookup.on) in keys


def _changed_rows(transaction: ReshapedTransaction, after: Tables) -> dict[int, ChangedRows]:
    found: dict[int, list[tuple[Row, int]]] = {}
    for operation in transaction.operations:
        if isinstance(operation, WriteOperation):
            found.setdefault(operation.table, []).extend(operation.rows)
    return {
        id: ChangedRows(tuple(column.id for column in after[id].shape.columns), tuple(rows))
        for id, rows in found.items()
    }


def _changed_shapes(before: Tables, after: Tables) -> dict[int, DynoShape | None]:
    """The tables whose shape is another one, as they are now."""
    changed: dict[int, DynoShape | None] = {id: None for id in before if id not in after}
    for id, table in after.items():
        if id not in before or before[id].shape != table.shape:
            changed[id] = table.shape
    return changed


class ReshapedStore:
    """The stored view."""

    def __init__(
        self, columns: Sequence[str], rows: Mapping[Row, int], sources: Sequence[str]
    ) -> None:
        self._columns = tuple(columns)
        self._counts = Counter(dict(rows))
        self._positions = dict.fromkeys(sources, 0)
        self._stamps: dict[int, DynoStamp] = {}
        self._ts = 0
        self.states = [self._state_now("initial")]
        """What a reader of the newest state saw."""
        self.as_of = list(self.states)
        """The state as of every ts."""

    def note_stamp(self, stamp: DynoStamp) -> None:
        self._stamps[stamp.ts] = stamp

    def redefine_view(self, step: DynoRedefinition) -> None:
        """A new definition and its commit, in one step."""
        names = [output.name for output in step.definition.view.outputs]
        at = [self._columns.index(n) if n in self._columns else None for n in names]
        rows: Counter[Row] = Counter()
        for row, count in self._counts.items():
            rows[tuple(None if i is None else row[i] for i in at)] += count
        self._columns, self._counts = tuple(names), rows
        self.apply_commit(step.commit)

    def apply_commit(self, commit: CommitAction) -> None:
        """One atomic step."""
        for change in commit.changes:
            if isinstance(change, ReplaceRows):
                self._counts = Counter()
                for row, count, _ in self._signed_rows(change.rows):
                    self._counts[row] += count
        added = [
            row
            for c in commit.changes
            if isinstance(c, AddRows)
            for row in self._signed_rows(c.rows)
        ]
        for ts in range(self._ts + 1, commit.ts + 1):
            for row, count, when in added:
                # What has the ts of another commit is appended all the same.
                late = ts == commit.ts and not self._ts < when <= commit.ts
                self._counts[row] += count if when == ts or late else 0
            self._positions = dict(self._stamps[ts].positions)
            self.as_of.append(self._state_now(f"as of ts {ts}"))
        self._ts = commit.ts
        assert self._positions == commit.positions, "a commit is the state as of its ts"
        self.states.append(self._state_now(f"ts {commit.ts}"))

    def _state_now(self, label: str) -> ReshapedState:
        rows = frozenset((row, count) for row, count in self._counts.items() if count)
        return ReshapedState(self._columns, rows, dict(self._positions), label)

    def _signed_rows(self, table: pa.Table) -> list[tuple[Row, int, int]]:
        """Signed rows, each with its ts; those of a replacement have none."""
        return [
            (tuple(values[name] for name in self._columns), values[COUNT], values.get(TS, 0))
            for values in table.to_pylist()
        ]


Step = CommitStep | EvaluateStep | DeliverStep

BUDGET = 1_000
"""Steps after which a run that does not end is called stuck."""


@dataclass(frozen=True, slots=True)
class _Reply:
    """A reply on its way, and the position of the state that it saw."""

    reply: DynoReply | BrokenQuestion
    position: int


class ReshapedWorld:
    """A scenario at work under one setting of Dyno."""

    def __init__(self, scenario: ReshapedScenario, setting: DynoSetting) -> None:
        self.scenario = scenario
        self.setting = setting
        logs = scenario.logs_by_source()
        self._sources = {
            name: ReshapedSource(name, tables, logs[name])
            for name, tables in scenario.tables.items()
        }
        definition = define_view(scenario.text, scenario.initial_shapes)
        self.judge = ReshapedJudge(scenario)
        columns = tuple(output.name for output in definition.view.outputs)
        start = self.judge.at((0,) * len(self.judge.sources), columns)
        self.store = ReshapedStore(columns, dict(start), self.judge.sources)
        self.dyno = Dyno(Reference(), definition, scenario.initial_shapes, scenario.wishes, setting)
        self._channels = MessageChannels[DynoQuestion, DynoReport | _Reply](
            self._sources, scenario.fifo
        )
        self._delivered = dict.fromkeys(self._sources, 0)
        self._held: list[tuple[str, _Reply]] = []
        self.steps: list[Step] = []
        self.broken = 0
        self.asked = 0

    def enabled_steps(self) -> list[Step]:
        """The steps that can be made now."""
        steps: list[Step] = [
            CommitStep(name) for name, s in self._sources.items() if s.remaining_count
        ]
        return [*steps, *self._channels.enabled_steps()]

    def make_step(self, step: Step) -> None:
        """Make a step; it must be enabled. A commit is named by its source."""
        self.steps.append(step)
        match step:
            case CommitStep(source):
                report = self._sources[source].commit_next()
                self._channels.send_message(source, "reports", report)
            case EvaluateStep(source):
                question = self._channels.questions[source].popleft()
                reply = _Reply(
                    *self._sources[source].evaluate_question(question, self.setting.asking)
                )
                self.broken += isinstance(reply.reply, BrokenQuestion)
                self._channels.send_message(source, "answers", reply)
            case DeliverStep(source, channel):
                self._deliver_message(source, self._channels.messages[source, channel].popleft())

    def _deliver_message(self, source: str, message: DynoReport | _Reply) -> None:
        if isinstance(message, DynoReport):
            self._delivered[source] = message.position
            self._receive_event(message)
        else:
            self._held.append((source, message))
        for waiting in list(self._held):
            if waiting[1].position <= self._delivered[waiting[0]]:
                self._held.remove(waiting)
                self._receive_event(waiting[1].reply)

    def _receive_event(self, event: Event) -> None:
        for action in self.dyno.receive_event(event):
            self._carry_out(action)

    def _carry_out(self, action: Action) -> None:
        match action:
            case DynoQuestion():
                self.asked += 1
                self._channels.questions[action.source].append(action)
            case DynoStamp():
                self.store.note_stamp(action)
            case Committed():
                self.store.apply_commit(action)
            case DynoRedefinition():
                self.store.redefine_view(action)
            case DynoStop():
                raise SimulationError(f"the view stopped: {action.reason}")

    @property
    def is_done(self) -> bool:
        return not self.enabled_steps() and not self._held and self.dyno.is_idle


def play_reshaped(world: ReshapedWorld, rng: random.Random) -> None:
    """Run a world to its end by chance, at a pace that is drawn first."""
    weights: dict[type[Any], float] = {
        CommitStep: rng.choice([0.3, 1.0, 4.0]),
        EvaluateStep: rng.choice([0.1, 0.5, 2.0]),
        DeliverStep: rng.choice([0.3, 1.0, 3.0]),
    }
    for _ in range(BUDGET):
        steps = world.enabled_steps()
        if not steps:
            break
        world.make_step(rng.choices(steps, [weights[type(step)] for step in steps])[0])
    if not world.is_done:
        raise SimulationError("the run did not end")
