"""One view, maintained by a state machine: the interpreter of actions against real databases.

The ledger has given every transaction its ts, durably, before the machine sees it. The machine
numbers what it takes by itself; `_Numbers` translates. Lookups are asked at the same time, as many
as the machine wants; commits become records.

The warehouse counts a view's progress in ts, so a commit is written as soon as what is committed is
a prefix of the ledger; one that is not (Nested SWEEP takes updates of one source before earlier
ones of another) is written together with what completes it. Only PVM commits ahead of the mark.
A record is written beside the machine's work: commits that become ready meanwhile share the next
one, and new questions are under way.

An algorithm that reads arrival order gets FIFO emulated: before an answer is handed over, all that
its cut includes gets its ts and is delivered; an answer that is behind is asked for again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import assert_never

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
    ResumePoint,
    StampAction,
)
from viewkeeper.maintain.promises import Level
from viewkeeper.updates.queue import BatchChanges
from viewkeeper.updates.source_protocol import COUNT, POSITION, TS, Answer
from viewkeeper.updates.transaction import Transaction
from viewkeeper.updates.view_actions import AddRows, ViewAction
from viewkeeper.view.definition import ViewDefinition
from viewkeeper.view.sweep_plan import SweepPlan
from viewkeeper.warehouse.metadata.batch_plan import LedgerEntry

Read = Callable[[Sequence[LedgerEntry]], BatchChanges]
"""Reads the changes of some entries."""

More = Callable[[str, int], tuple[LedgerEntry, ...]]
"""What a source committed up to a position and no entry names yet; it has its ts, durably."""


@dataclass(frozen=True, slots=True, eq=False)
class LedgerCommit:
    """A commit in the ledger's terms: what is to become a record."""

    ts: int
    ahead: tuple[int, ...]
    changes: tuple[ViewAction, ...]
    exact: bool
    """Every ts up to `ts` has its own state; otherwise those since the last commit share one."""


class ActionInterpreter:
    """A run of one view's machine over some entries of the ledger."""

    def __init__(
        self,
        choice: AlgorithmChoice,
        plan: SweepPlan,
        asker: Asker,
        read: Read,
        more: More,
        write: Callable[[LedgerCommit], None],
        stopping: Callable[[], bool],
    ) -> None:
        self._choice = choice
        self._plan = plan
        self._asker = asker
        self._read = read
        self._more = more
        self._write = write
        self._stopping = stopping
        self._entries: list[LedgerEntry] = []
        self._numbers: dict[int, int] = {}
        """From the machine's ts to the ledger's."""
        self._done: set[int] = set()
        """What is committed, by the machine's ts."""
        self._committed: set[int] = set()
        """What is committed, by the ledger's ts."""
        self._held: list[ViewAction] = []
        self._delivered: dict[str, int] = {}
        self._written: tuple[int, tuple[int, ...]] = (0, ())
        """The mark, and what is ahead of it, as they are on disk."""
        self._out_of_order = False
        self._writing: Future[None] | None = None
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
        resume = self._make_resume(entries, positions, ahead)
        options = {**keys, **self._choice.options}
        self._machine = self._choice.kind.make(Kernel(), self._plan, resume, **options)
        self._delivered = dict(positions)
        with ThreadPoolExecutor(1, thread_name_prefix="write") as self._writer:
            self._deliver_entries(entries)
            self._flush_commits()
            while not self._machine.is_idle and not self._stopping():
                for ask, answers in self._asker.wait_for_answers():
                    self._deliver_answer(ask, answers)
                self._flush_commits()
            self._wait_written()
            self._flush_commits()
            self._wait_written()
        assert not (self._machine.is_idle and self._held), (
            "an idle machine has committed everything"
        )
        return self._machine.is_idle

    def _make_resume(
        self, entries: Sequence[LedgerEntry], positions: Mapping[str, int], ahead: Sequence[int]
    ) -> ResumePoint:
        """What was committed ahead before a crash is in the view; what lies before it is not."""
        begun = [entry for entry in entries if ahead and entry.ts <= max(ahead)]
        stamps = tuple(
            StampAction(number, ((entry.source, entry.until),))
            for number, entry in enumerate(begun, 1)
        )
        self._numbers = {number: entry.ts for number, entry in enumerate(begun, 1)}
        self._committed = set(ahead)
        self._written = (0, tuple(ahead))
        done = frozenset(number for number, ts in self._numbers.items() if ts in self._committed)
        self._done = set(done)
        return ResumePoint(0, dict(positions), stamps, done)

    # -- in ----------------------------------------------------------------------------------------

    def _deliver_entries(self, entries: Sequence[LedgerEntry]) -> None:
        if not entries:
            return
        self._entries += entries
        changes = self._read(entries)
        self.changes += sum(rows.rows for rows in changes.relations.values())
        for entry in entries:
            self._delivered[entry.source] = entry.until
            self._receive_event(Delivered((transaction_of(entry, changes, self._plan.view),)))

    def _deliver_answer(self, ask: AskAction, answers: tuple[Answer, ...]) -> None:
        kind, cut = self._choice.kind, answers[0].cut
        if (kind.arrival or kind.caught_up) and cut.position > self._delivered[ask.source]:
            self._wait_written()
            self._deliver_entries(self._more(ask.source, cut.position))
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
                    ((source, until),) = action.transactions
                    self._numbers[action.ts] = next(
                        e.ts for e in self._entries if (e.source, e.until) == (source, until)
                    )
                case CommitAction():
                    self._hold_commit(action)
                case AcknowledgeAction():
                    # Sources are told once a second for all views (Maintainer.acknowledge).
                    pass
                case _:
                    assert_never(action)

    # -- out ---------------------------------------------------------------------------------------

    def _hold_commit(self, commit: CommitAction) -> None:
        self._held += commit.changes
        self._done |= {number for number in self._numbers if number <= commit.ts}
        self._done |= {*commit.ahead}
        # A ts may have an entry for each of several sources: it is there when all of them are.
        done = Counter(self._numbers[number] for number in self._done)
        parts = Counter(entry.ts for entry in self._entries)
        self._committed |= {ts for ts in done if done[ts] == parts[ts]}
        self._out_of_order = bool(commit.ahead)
        if self._choice.kind.arrival:
            # Each is evaluated against what is stored, so each must be stored before the next.
            self._flush_commits()
            self._wait_written()

    def _flush_commits(self) -> None:
        """Write what was committed, as soon as the ledger can name it and nothing is written."""
        if self._writing is not None and not self._writing.done():
            return
        self._wait_written()
        prefix = [e.ts for e in takewhile(lambda e: e.ts in self._committed, self._entries)]
        mark = prefix[-1] if prefix else 0
        beyond = tuple(sorted(self._committed - set(prefix)))
        in_order = sorted(self._numbers.values()) == [ts for _, ts in sorted(self._numbers.items())]
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
        self._writing = self._writer.submit(self._write, LedgerCommit(mark, beyond, changes, exact))

    def _split_whole(self) -> tuple[list[ViewAction], list[ViewAction]]:
        """What is held of ts that are there with all their parts, and the rest."""
        if {self._numbers[number] for number in self._done} <= self._committed:
            return self._held, []
        whole: list[ViewAction] = []
        rest: list[ViewAction] = []
        for change in self._held:
            assert isinstance(change, AddRows), "a ts with several parts is for signed rows only"
            stamps = [self._numbers[int(number)] for number in change.rows[TS].to_numpy()]
            there = pa.array([ts in self._committed for ts in stamps], pa.bool_())
            whole.append(AddRows(change.rows.filter(there)))
            rest.append(AddRows(change.rows.filter(pc.invert(there))))
        return whole, rest

    def _wait_written(self) -> None:
        """Wait for the record that is being written; its error is raised here."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()

    def _stamp_change(self, change: ViewAction, ts: int | None) -> ViewAction:
        """Signed rows with the ledger's ts instead of the machine's, or all with one ts."""
        if not isinstance(change, AddRows):
            return change
        numbers = change.rows[TS].to_numpy()
        stamps = [self._numbers[int(number)] if ts is None else ts for number in numbers]
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
