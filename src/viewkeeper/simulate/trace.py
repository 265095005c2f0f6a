"""What happened in a run, in order: the raw material of the sequence diagram and of spec tests.

A trace belongs to one run. Each entry says under which step it happened, who took part, and what
was said, in the words of the papers: transactions by name, questions by number, rows as tuples.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, assert_never

import pyarrow as pa

from viewkeeper.check.history.recorded_history import Row
from viewkeeper.delta.algebra import COUNT, TS
from viewkeeper.maintain.algorithm_protocol import AskAction, CommitAction, Term
from viewkeeper.simulate.row_text import write_bag
from viewkeeper.updates.source_protocol import Answer
from viewkeeper.updates.view_actions import (
    AddRows,
    DeleteKeys,
    InsertMissing,
    ReplaceRows,
    ViewAction,
)
from viewkeeper.view.definition import Place

What = Literal[
    "commit", "deliver", "ask", "ask again", "evaluate", "answer", "compensate", "store", "crash"
]


@dataclass(frozen=True, slots=True)
class TraceEntry:
    """One thing that happened; `number` is the question's, `sources` those concerned."""

    step: int
    text: str
    what: What
    sources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    number: int | None = None
    rows: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EntryText:
    """What an entry says; of what was handed over with it, nothing changes any more."""

    text: str
    names: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()


class Trace:
    """Entries as they happen; `places` are those of the view, for names of what is asked."""

    def __init__(self, places: Sequence[Place] = ()) -> None:
        self.steps: list[str] = []
        self._places = places
        self._entries: list[TraceEntry] = []
        self._waiting: deque[Callable[[], TraceEntry]] = deque()

    @property
    def entries(self) -> list[TraceEntry]:
        """All that has happened so far; put into words only now, since most runs are never read."""
        while self._waiting:
            self._entries.append(self._waiting.popleft()())
        return self._entries

    def begin_step(self, step: str) -> None:
        self.steps.append(step)

    def _add_entry(
        self,
        what: What,
        write: Callable[[], EntryText],
        sources: tuple[str, ...] = (),
        number: int | None = None,
    ) -> None:
        step = len(self.steps)

        def write_entry() -> TraceEntry:
            said = write()
            return TraceEntry(step, said.text, what, sources, said.names, number, said.rows)

        self._waiting.append(write_entry)

    def note_commit(
        self, name: str, parts: Mapping[str, int], changes: Callable[[], Iterable[str]]
    ) -> None:
        self._add_entry(
            "commit", lambda: EntryText(name, (name,), tuple(changes())), sources=tuple(parts)
        )

    def note_delivery(self, names: Iterable[str], sources: Sequence[str]) -> None:
        told = tuple(names)
        self._add_entry("deliver", lambda: EntryText(", ".join(told), told), sources=tuple(sources))

    def note_ask(self, ask: AskAction, again: bool = False) -> None:
        what: What = "ask again" if again else "ask"
        self._add_entry(
            what,
            lambda: EntryText(self.question_text(ask)),
            sources=(ask.source,),
            number=ask.number,
        )

    def note_evaluation(self, ask: AskAction, answers: Sequence[Answer]) -> None:
        def write_rows() -> EntryText:
            rows = tuple(rows_text(answer.rows) for answer in answers)
            return EntryText("; ".join(rows), rows=rows)

        self._add_entry("evaluate", write_rows, sources=(ask.source,), number=ask.number)

    def note_answer(self, ask: AskAction) -> None:
        """An answer is used; `names` are the transactions that arrived since it was asked for."""
        self._add_entry(
            "answer",
            lambda: EntryText(f"A{ask.number}", self._delivered_since(ask.number)),
            sources=(ask.source,),
            number=ask.number,
        )

    def _delivered_since(self, number: int) -> tuple[str, ...]:
        names: list[str] = []
        for entry in reversed(self._entries):
            if entry.what == "deliver":
                names += reversed(entry.names)
            elif entry.what == "ask" and entry.number == number:
                break
        return tuple(reversed(names))

    def note_compensation(self, place: int, rows: Mapping[Row, int]) -> None:
        relation = self._places[place].relation
        self._add_entry(
            "compensate",
            lambda: EntryText(f"{relation.table} {signed_text(rows)}"),
            sources=(relation.source,),
        )

    def note_store(self, commit: CommitAction, rows: Mapping[Row, int]) -> None:
        def write_changes() -> EntryText:
            told = tuple(text for change in commit.changes if (text := _change_text(change)))
            return EntryText(f"ts {commit.ts}", told, (write_bag(rows),))

        self._add_entry("store", write_changes)

    def note_crash(self) -> None:
        self._add_entry("crash", lambda: EntryText("crash"))

    def question_text(self, ask: AskAction) -> str:
        """A question in a few words: of which relation, for which keys."""
        told = [
            f"{lookup.relation.table} {'all' if lookup.keys is None else rows_text(lookup.keys)}"
            for lookup in ask.lookups
        ]
        return "; ".join([*told, *map(self._term_text, ask.terms)])

    def _term_text(self, term: Term) -> str:
        """A product: the given rows in place of their relations, the others by name."""
        factors = [
            f"{place.relation.table}{signed_text(_signed_rows(term.bound[place.index], place))}"
            if place.index in term.bound
            else place.relation.table
            for place in self._places
        ]
        return f"{'+' if term.sign > 0 else '-'} " + " x ".join(factors)


def _change_text(change: ViewAction) -> str:
    """What a commit does to the view; nothing if it has no rows."""
    match change:
        case AddRows():
            return signed_text(_count_rows(change.rows))
        case DeleteKeys():
            return f"key delete {'.'.join(change.columns)} {rows_text(change.keys)}"
        case InsertMissing():
            return f"insert {rows_text(change.rows)}"
        case ReplaceRows():
            return "replace all"
        case _:
            assert_never(change)


def _count_rows(table: pa.Table) -> Counter[Row]:
    rows: Counter[Row] = Counter()
    for values in table.to_pylist():
        count = values.pop(COUNT, 1)
        rows[tuple(value for name, value in values.items() if name != TS)] += count
    return rows


def rows_text(table: pa.Table) -> str:
    """Rows as the papers write them; signed ones with their counts."""
    return write_bag(_count_rows(table))


def signed_text(rows: Mapping[Row, int]) -> str:
    """Signed rows: `+(1,2)` and `-(1,2)`, several times with a number before."""
    told = [
        f"{'+' if count > 0 else '-'}{abs(count) if abs(count) > 1 else ''}{write_bag({row: 1})}"
        for row, count in rows.items()
    ]
    return " ".join(sorted(told))


def _signed_rows(table: pa.Table, place: Place) -> dict[Row, int]:
    rows: Counter[Row] = Counter()
    for values in table.to_pylist():
        rows[tuple(values[name] for name in place.columns)] += values[COUNT]
    return rows
