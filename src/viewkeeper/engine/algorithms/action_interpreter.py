"""One view, maintained by a state machine: the interpreter of actions against real databases.

The ledger has given every transaction its ts, durably, before the machine sees it. The machine
numbers what it takes by itself; `LedgerNumbers` translates. Lookups are asked at the same time, as
many as the machine wants; commits become records.

The warehouse counts a view's progress in ts, so a commit is written as soon as what is committed is
a prefix of the ledger; one that is not (Nested SWEEP takes updates of one source before earlier
ones of another) is written together with what completes it. Only PVM commits ahead of the mark.
A record is written beside the machine's work: commits that become ready meanwhile share the next
one, and new questions are under way.

An algorithm that reads arrival order gets FIFO emulated: before an answer is handed over, all that
its cut includes gets its ts and is delivered; an answer that is behind is asked for again.

A machine numbers the transactions that it takes by itself, in the order in which it takes them. The
ledger gave them their ts before; one ts may have an entry for each of several sources, and is
committed when all of them are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Protocol, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.delta.kernel import Kernel
from viewkeeper.engine.algorithms.asker import Asker
from viewkeeper.engine.views.algorithm_choice import AlgorithmChoice
from viewkeeper.maintain.algorithm_protocol import (
    AcknowledgeAction,
    Answered,
    AskAction,
    CommitAction,
    Delivered,
    Event,
    Level,
    ResumePoint,
    StampAction,
)
from viewkeeper.updates.queue import BatchChanges
from viewkeeper.updates.source_protocol import COUNT, POSITION, TS, Answer
from viewkeeper.updates.transaction import Transaction
from viewkeeper.updates.view_actions import AddRows, ViewAction
from viewkeeper.view.definition import ViewDefinition
from viewkeeper.view.sweep_plan import SweepPlan
from viewkeeper.warehouse.metadata.plan_files import LedgerEntry


class LedgerNumbers:
    """The numbers of one run of a machine."""

    def __init__(self, entries: Sequence[LedgerEntry], ahead: Sequence[int]) -> None:
        """`ahead` was committed before a crash; it lies among these entries."""
        self._begun = [entry for entry in entries if ahead and entry.ts <= max(ahead)]
        self._entries: list[LedgerEntry] = []
        self._numbers = {number: entry.ts for number, entry in enumerate(self._begun, 1)}
        """From the machine's ts to the ledger's."""
        self._committed = set(ahead)
        """What is committed, by the ledger's ts."""
        self._done = {number for number, ts in self._numbers.items() if ts in self._committed}
        """What is committed, by the machine's ts."""

    def make_resume(self, positions: Mapping[str, int]) -> ResumePoint:
        """What was committed ahead before a crash is in the view; what lies before it is not."""
        stamps = tuple(
            StampAction(number, ((entry.source, entry.until),))
            for number, entry in enumerate(self._begun, 1)
        )
        return ResumePoint(0, dict(positions), stamps, frozenset(self._done))

    def add_entries(self, entries: Sequence[LedgerEntry]) -> None:
        """These are delivered to the machine."""
        self._entries += entries

    def note_stamp(self, stamp: StampAction) -> None:
        """The machine has numbered a transaction."""
        (named,) = stamp.transactions
        self._numbers[stamp.ts] = next(e.ts for e in self._entries if (e.source, e.until) == named)

    def note_commit(self, commit: CommitAction) -> None:
        """The machine has committed everything up to a number, and some beyond."""
        self._done |= {number for number in self._numbers if number <= commit.ts}
        self._done |= {*commit.ahead}
        # A ts may have an entry for each of several sources: it is there when all of them are.
        done = Counter(self._numbers[number] for number in self._done)
        parts = Counter(entry.ts for entry in self._entries)
        self._committed |= {ts for ts in done if done[ts] == parts[ts]}

    def split_committed(self) -> tuple[list[int], tuple[int, ...]]:
        """The ts of all entries before the first that is not committed, and those ahead of it."""
        prefix = [e.ts for e in takewhile(lambda e: e.ts in self._committed, self._entries)]
        return prefix, tuple(sorted(self._committed - set(prefix)))

    @property
    def is_in_order(self) -> bool:
        """Whether the machine took everything in the order of the ledger."""
        return sorted(self._numbers.values()) == [ts for _, ts in sorted(self._numbers.items())]

    @property
    def is_whole(self) -> bool:
        """Whether every ts of which the machine has committed a part is committed."""
        return {self._numbers[number] for number in self._done} <= self._committed

    def is_committed(self, ts: int) -> bool:
        """Whether a ts of the ledger is committed."""
        return ts in self._committed

    def stamps_of(self, rows: pa.Table) -> list[int]:
        """The ledger's ts of rows that have the machine's."""
        return [self._numbers[int(number)] for number in rows[TS].to_numpy()]


@dataclass(frozen=True, slots=True, eq=False)
class LedgerCommit:
    """A commit in the ledger's terms: what is to become a record."""

    ts: int
    ahead: tuple[int, ...]
    changes: tuple[ViewAction, ...]
    exact: bool
    """Every ts up to `ts` has its own state; otherwise those since the last commit share one."""


class MachineRun(Protocol):
    """The ledger and the warehouse, as one run of a view's machine uses them."""

    def read_entries(self, entries: Sequence[LedgerEntry]) -> BatchChanges:
        """The changes of some entries."""
        ...

    def look_further(self, source: str, position: int) -> tuple[LedgerEntry, ...]:
        """What a source committed up to a position and no entry names yet, with its ts, durably."""
        ...

    def write_commit(self, written: LedgerCommit) -> None:
        """Make a commit a record; called in a thread of its own."""
        ...

    def is_stopping(self) -> bool:
        """Whether the run is to end before its machine has."""
        ...


class RecordWriter:
    """Writes one record after the other, in a thread of its own; use as a context manager."""

    def __init__(self, write: Callable[[LedgerCommit], None]) -> None:
        self._write = write
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="write")
        self._writing: Future[None] | None = None

    @property
    def is_busy(self) -> bool:
        return self._writing is not None and not self._writing.done()

    def begin_record(self, commit: LedgerCommit) -> None:
        self._writing = self._pool.submit(self._write, commit)

    def wait_written(self) -> None:
        """Wait for the record that is being written; its error is raised here."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True)


class ActionInterpreter:
    """A run of one view's machine over some entries of the ledger."""

    def __init__(
        self, choice: AlgorithmChoice, plan: SweepPlan, asker: Asker, run: MachineRun
    ) -> None:
        self._choice = choice
        self._plan = plan
        self._asker = asker
        self._run = run
        self._held: list[ViewAction] = []
        self._delivered: dict[str, int] = {}
        self._written: tuple[int, tuple[int, ...]] = (0, ())
        """The mark, and what is ahead of it, as they are on disk."""
        self._out_of_order = False
        self.changes = 0

    def run_entries(
        self,
        entries: Sequence[LedgerEntry],
        positions: Mapping[str, int],
        ahead: Sequence[int] = (),
    ) -> bool:
        """Maintain the view for these entries; `ahead` are in it already.

        Whether it came to an end: told to stop, it leaves what is not committed for the next run.
        """
        keys = {} if self._choice.keyed is None else {"keys": self._choice.keyed.keys}
        self._numbers = LedgerNumbers(entries, ahead)
        self._written = (0, tuple(ahead))
        resume, options = self._numbers.make_resume(positions), {**keys, **self._choice.options}
        self._machine = self._choice.kind.make(Kernel(), self._plan, resume, **options)
        self._delivered = dict(positions)
        with RecordWriter(self._run.write_commit) as self._writer:
            self._deliver_entries(entries)
            self._flush_commits()
            while not self._machine.is_idle and not self._run.is_stopping():
                for ask, answers in self._asker.wait_for_answers():
                    self._deliver_answer(ask, answers)
                self._flush_commits()
            self._writer.wait_written()
            self._flush_commits()
            self._writer.wait_written()
        assert not (self._machine.is_idle and self._held), (
            "an idle machine has committed everything"
        )
        return self._machine.is_idle

    def _deliver_entries(self, entries: Sequence[LedgerEntry]) -> None:
        if not entries:
            return
        self._numbers.add_entries(entries)
        changes = self._run.read_entries(entries)
        self.changes += sum(rows.rows for rows in changes.relations.values())
        for entry in entries:
            self._delivered[entry.source] = entry.until
            self._receive_event(Delivered((transaction_of(entry, changes, self._plan.view),)))

    def _deliver_answer(self, ask: AskAction, answers: tuple[Answer, ...]) -> None:
        kind, cut = self._choice.kind, answers[0].cut
        if (kind.arrival or kind.caught_up) and cut.position > self._delivered[ask.source]:
            self._writer.wait_written()
            self._deliver_entries(self._run.look_further(ask.source, cut.position))
        if kind.arrival:
            behind = cut.position < self._delivered[ask.source]
            if behind or any(answer.whole_cut.missing for answer in answers):
                self._asker.submit_question(replace(ask, after=self._delivered[ask.source]))
                return
            answers = tuple(
                replace(a, after=cut.position, tail=a.tail.slice(0, 0)) for a in answers
            )
        self._receive_event(Answered(ask.number, answers))

    def _receive_event(self, event: Event) -> None:
        for action in self._machine.receive_event(event):
            match action:
                case AskAction():
                    self._asker.submit_question(action)
                case StampAction():
                    self._numbers.note_stamp(action)
                case CommitAction():
                    self._hold_commit(action)
                case AcknowledgeAction():
                    # Sources hear of it once a second for all views (`Acknowledger`).
                    pass
                case _:
                    assert_never(action)

    def _hold_commit(self, commit: CommitAction) -> None:
        self._held += commit.changes
        self._numbers.note_commit(commit)
        self._out_of_order = bool(commit.ahead)
        if self._choice.kind.arrival:
            # Each is evaluated against what is stored, so each must be stored before the next.
            self._flush_commits()
            self._writer.wait_written()

    def _flush_commits(self) -> None:
        """Write what was committed, as soon as the ledger can name it and nothing is written."""
        if self._writer.is_busy:
            return
        self._writer.wait_written()
        prefix, beyond = self._numbers.split_committed()
        mark, in_order = prefix[-1] if prefix else 0, self._numbers.is_in_order
        signed = all(isinstance(change, AddRows) for change in self._held)
        if beyond and not (self._out_of_order and in_order and signed):
            return
        if (mark, beyond) == self._written:
            # Nothing new, or part of a transaction (Strobe): no state that the ledger can name.
            return
        covered = sum(self._written[0] < ts for ts in prefix)
        # Below strong, a commit may hold part of a transaction that is not covered yet.
        alone = covered == 1 and self._choice.level >= Level.STRONG
        exact = alone or (in_order and signed and not self._choice.kind.arrival)
        ready, self._held = self._split_whole()
        changes = tuple(self._stamp_change(change, None if exact else mark) for change in ready)
        self._written = (mark, beyond)
        self._writer.begin_record(LedgerCommit(mark, beyond, changes, exact))

    def _split_whole(self) -> tuple[list[ViewAction], list[ViewAction]]:
        """What is held of ts that are there with all their parts, and the rest."""
        if self._numbers.is_whole:
            return self._held, []
        whole: list[ViewAction] = []
        rest: list[ViewAction] = []
        for change in self._held:
            assert isinstance(change, AddRows), "a ts with several parts is for signed rows only"
            stamps = self._numbers.stamps_of(change.rows)
            there = pa.array(list(map(self._numbers.is_committed, stamps)), pa.bool_())
            whole.append(AddRows(change.rows.filter(there)))
            rest.append(AddRows(change.rows.filter(pc.invert(there))))
        return whole, rest

    def _stamp_change(self, change: ViewAction, ts: int | None) -> ViewAction:
        """Signed rows with the ledger's ts instead of the machine's, or all with one ts."""
        if not isinstance(change, AddRows):
            return change
        stamps = self._numbers.stamps_of(change.rows) if ts is None else [ts] * len(change.rows)
        at = change.rows.schema.get_field_index(TS)
        return AddRows(change.rows.set_column(at, TS, pa.array(stamps, pa.int64())))


def transaction_of(entry: LedgerEntry, changes: BatchChanges, view: ViewDefinition) -> Transaction:
    """The changes of one entry in the columns that the view reads, as an algorithm gets them."""
    found = {}
    for relation, rows in changes.relations.items():
        if relation.source != entry.source:
            continue
        table = rows.rows_between(0, rows.rows)
        stamps = table[TS].to_numpy()
        start, stop = np.searchsorted(stamps, [entry.ts, entry.ts + 1])
        if stop > start:
            columns = [field.name for field in view.fields_of(relation)]
            found[relation] = table.slice(start, stop - start).select([*columns, COUNT, POSITION])
    return Transaction(entry.source, entry.after, entry.until, found)
