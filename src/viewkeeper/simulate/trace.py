"""What happened in a run, in order: the raw material of the sequence diagram and of spec tests.

A trace belongs to one run. Each entry says under which step it happened, who took part, and what
was said, in the words of the papers: transactions by name, questions by number, rows as tuples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
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


class Trace:
    """Entries as they happen; `places` are those of the view, for names of what is asked."""

    def __init__(self, places: Sequence[Place] = ()) -> None:
        self.entries: list[TraceEntry] = []
        self.steps: list[str] = []
        self._places = places

    def begin_step(self, step: str) -> None:
        self.steps.append(step)

    def _add_entry(
        self,
        what: What,
        text: str,
        sources: tuple[str, ...] = (),
        names: tuple[str, ...] = (),
        number: int | None = None,
        rows: tuple[str, ...] = (),
    ) -> None:
        self.entries.append(TraceEntry(len(self.steps), text, what, sources, names, number, rows))

    def note_commit(self, name: str, parts: Mapping[str, int], changes: Sequence[str]) -> None:
        self._add_entry("commit", name, sources=tuple(parts), names=(name,), rows=tuple(changes))

    def note_delivery(self, names: Iterable[str], sources: Sequence[str]) -> None:
        told = tuple(names)
        self._add_entry("deliver", ", ".join(told), sources=tuple(sources), names=told)

    def note_ask(self, ask: AskAction, again: bool = False) -> None:
        what: What = "ask again" if again else "ask"
        self._add_entry(what, self.question_text(ask), sources=(ask.source,), number=ask.number)

    def note_evaluation(self, ask: AskAction, answers: Sequence[Answer]) -> None:
        rows = tuple(rows_text(answer.rows) for answer in answers)
        self._add_entry(
            "evaluate", "; ".join(rows), sources=(ask.source,), number=ask.number, rows=rows
        )

    def note_answer(self, ask: AskAction) -> None:
        """An answer is used; `names` are the transactions that arrived since it was asked for."""
        names = self._delivered_since(ask.number)
        text = f"A{ask.number}"
        self._add_entry("answer", text, sources=(ask.source,), number=ask.number, names=names)

    def _delivered_since(self, number: int) -> tuple[str, ...]:
        names: list[str] = []
        for entry in reversed(self.entries):
            if entry.what == "deliver":
                names += reversed(entry.names)
            elif entry.what == "ask" and entry.number == number:
                break
        return tuple(reversed(names))

    def note_compensation(self, place: int, rows: Mapping[Row, int]) -> None:
        relation = self._places[place].relation
        told = f"{relation.table} {signed_text(rows)}"
        self._add_entry("compensate", told, sources=(relation.source,))

    def note_store(self, commit: CommitAction, rows: Mapping[Row, int]) -> None:
        told = tuple(text for change in commit.changes if (text := _change_text(change)))
        self._add_entry("store", f"ts {commit.ts}", names=told, rows=(write_bag(rows),))

    def note_crash(self) -> None:
        self._add_entry("crash", "crash")

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
