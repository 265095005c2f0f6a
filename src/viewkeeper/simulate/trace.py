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
from viewkeeper.maintain.algorithm_protocol import (
    Add,
    Ask,
    Change,
    Commit,
    Insert,
    KeyDelete,
    Replace,
    Term,
)
from viewkeeper.simulate.row_text import write_bag
from viewkeeper.updates.source_protocol import Answer
from viewkeeper.view.definition import Place

What = Literal[
    "commit",
    "deliver",
    "ask",
    "ask again",
    "evaluate",
    "answer",
    "compensate",
    "store",
    "crash",
]


@dataclass(frozen=True, slots=True)
class Entry:
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
        self.entries: list[Entry] = []
        self.steps: list[str] = []
        self._places = places

    def begin(self, step: str) -> None:
        self.steps.append(step)

    def _add(
        self,
        what: What,
        text: str,
        sources: tuple[str, ...] = (),
        names: tuple[str, ...] = (),
        number: int | None = None,
        rows: tuple[str, ...] = (),
    ) -> None:
        self.entries.append(Entry(len(self.steps), text, what, sources, names, number, rows))

    def committed(self, name: str, parts: Mapping[str, int], changes: Sequence[str]) -> None:
        self._add("commit", name, sources=tuple(parts), names=(name,), rows=tuple(changes))

    def delivered(self, names: Iterable[str], sources: Sequence[str]) -> None:
        told = tuple(names)
        self._add("deliver", ", ".join(told), sources=tuple(sources), names=told)

    def asked(self, ask: Ask) -> None:
        self._add("ask", self.question(ask), sources=(ask.source,), number=ask.number)

    def asked_again(self, ask: Ask) -> None:
        self._add("ask again", self.question(ask), sources=(ask.source,), number=ask.number)

    def evaluated(self, ask: Ask, answers: Sequence[Answer]) -> None:
        rows = tuple(shown(answer.rows) for answer in answers)
        self._add("evaluate", "; ".join(rows), sources=(ask.source,), number=ask.number, rows=rows)

    def answered(self, ask: Ask) -> None:
        """An answer is used; `names` are the transactions that arrived since it was asked for."""
        names = self._delivered_since(ask.number)
        text = f"A{ask.number}"
        self._add("answer", text, sources=(ask.source,), number=ask.number, names=names)

    def _delivered_since(self, number: int) -> tuple[str, ...]:
        names: list[str] = []
        for entry in reversed(self.entries):
            if entry.what == "deliver":
                names += reversed(entry.names)
            elif entry.what == "ask" and entry.number == number:
                break
        return tuple(reversed(names))

    def compensated(self, place: int, rows: Mapping[Row, int]) -> None:
        relation = self._places[place].relation
        told = f"{relation.table} {signed(rows)}"
        self._add("compensate", told, sources=(relation.source,))

    def stored(self, commit: Commit, rows: Mapping[Row, int]) -> None:
        told = tuple(text for change in commit.changes if (text := _change(change)))
        self._add("store", f"ts {commit.ts}", names=told, rows=(write_bag(rows),))

    def crashed(self) -> None:
        self._add("crash", "crash")

    def question(self, ask: Ask) -> str:
        """A question in a few words: of which relation, for which keys."""
        told = [
            f"{lookup.relation.table} {'all' if lookup.keys is None else shown(lookup.keys)}"
            for lookup in ask.lookups
        ]
        return "; ".join([*told, *map(self._term, ask.terms)])

    def _term(self, term: Term) -> str:
        """A product: the given rows in place of their relations, the others by name."""
        factors = [
            f"{place.relation.table}{signed(_signed_rows(term.bound[place.index], place))}"
            if place.index in term.bound
            else place.relation.table
            for place in self._places
        ]
        return f"{'+' if term.sign > 0 else '-'} " + " x ".join(factors)


def _change(change: Change) -> str:
    """What a commit does to the view; nothing if it has no rows."""
    match change:
        case Add():
            return signed(_counted(change.rows))
        case KeyDelete():
            return f"key delete {'.'.join(change.columns)} {shown(change.keys)}"
        case Insert():
            return f"insert {shown(change.rows)}"
        case Replace():
            return "replace all"
        case _:
            assert_never(change)


def _counted(table: pa.Table) -> Counter[Row]:
    rows: Counter[Row] = Counter()
    for values in table.to_pylist():
        count = values.pop(COUNT, 1)
        rows[tuple(value for name, value in values.items() if name != TS)] += count
    return rows


def shown(table: pa.Table) -> str:
    """Rows as the papers write them; signed ones with their counts."""
    return write_bag(_counted(table))


def signed(rows: Mapping[Row, int]) -> str:
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
