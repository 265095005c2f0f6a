"""A source of a simulated world: a memory source, what of it is visible, and what it keeps.

It commits transactions, reports them, and evaluates questions in one state of its own. A late
transaction is in its log, and so in its reports, before questions can see it; until then cuts have
a hole. Two transactions that touch the same row are never both open: the first becomes visible
before the second commits, as row locks would have it.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from viewkeeper.check.history.recorded_history import CommittedTransaction, Row
from viewkeeper.delta.reference_carrier import Reference
from viewkeeper.maintain.algorithm_protocol import AskAction
from viewkeeper.maintain.query_terms import answer_question
from viewkeeper.simulate.scenario import Scenario
from viewkeeper.sources.memory import MemorySource
from viewkeeper.updates.cut import Cut
from viewkeeper.updates.source_protocol import Answer
from viewkeeper.updates.transaction import GlobalTransaction, Transaction
from viewkeeper.view.definition import Relation
from viewkeeper.view.sweep_plan import SweepPlan


class SimulatedSource:
    """One source; positions count its transactions from 1."""

    def __init__(self, name: str, scenario: Scenario, plan: SweepPlan) -> None:
        mine = [table for table in scenario.tables if table.relation.source == name]
        self.name = name
        self._memory = MemorySource(
            name,
            {table.relation.table: table.fields for table in mine},
            {table.relation.table: table.rows for table in mine},
        )
        self._plan = plan
        self._scenario = scenario
        self._log: list[CommittedTransaction] = []
        self.hidden: dict[int, str] = {}
        """Late transactions by position that questions do not see yet."""
        self.acknowledged = 0

    def acknowledge_position(self, position: int) -> None:
        """The warehouse does not need what lies up to a position any more."""
        self.acknowledged = max(self.acknowledged, position)

    @property
    def position(self) -> int:
        return len(self._log)

    def commit_transaction(self, transaction: CommittedTransaction) -> int:
        """Append a transaction; its position."""
        part = transaction.parts[self.name]
        for position in [p for p, _ in self.hidden.items() if self._touches_part(p, part)]:
            del self.hidden[position]
        position = self._memory.commit({r.table: rows for r, rows in part.items()})
        self._log.append(transaction)
        if (self.name, transaction.name) in self._scenario.late:
            self.hidden[position] = transaction.name
        return position

    def _touches_part(
        self, position: int, part: Mapping[Relation, tuple[tuple[Row, int], ...]]
    ) -> bool:
        earlier = self._log[position - 1].parts[self.name]
        return any(
            row == other
            for relation, rows in part.items()
            for row, _ in rows
            for other, _ in earlier.get(relation, ())
        )

    def reveal_transaction(self, transaction: str) -> None:
        self.hidden = {p: name for p, name in self.hidden.items() if name != transaction}

    def report_at(self, position: int) -> Transaction:
        """The transaction at a position, as the warehouse gets it."""
        committed = self._log[position - 1]
        view = self._plan.view
        wanted = {
            relation.table: [field.name for field in view.fields_of(relation)]
            for relation in view.relations
            if relation.source == self.name
        }
        changes: dict[Relation, list[pa.RecordBatch]] = {}
        for table, batch in self._memory.read_changes(wanted, position - 1, position):
            changes.setdefault(Relation(self.name, table), []).append(batch)
        parts = len(committed.parts)
        return Transaction(
            self.name,
            position - 1,
            position,
            {r: pa.Table.from_batches(batches) for r, batches in changes.items()},
            GlobalTransaction(committed.name, parts) if parts > 1 else None,
            settled=not self._scenario.late,
        )

    def name_of(self, position: int) -> str:
        return self._log[position - 1].name

    @property
    def cut(self) -> Cut:
        return Cut(self.position, frozenset(self.hidden))

    def evaluate_ask(self, ask: AskAction) -> tuple[Answer, ...]:
        """The answers to a question, in the state that is visible now."""
        snapshot = self._memory.open_snapshot(self.cut)
        return answer_question(
            Reference(),
            self._plan,
            ask,
            lambda lookup: snapshot.answer_lookup(lookup, ask.after),
            self.cut,
        )
